//! Multipart uploads.

use super::bucket::BucketInfo;
use super::object::{NewObject, PutConditions};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use types::ids::IdError;
use types::{AttemptId, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ObjectKey};

/// Names one upload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UploadId(pub AttemptId);

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for UploadId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        s.parse().map(UploadId)
    }
}

/// CreateMultipartUpload.
pub struct CreateUpload {
    /// Bucket.
    pub bucket: Arc<BucketInfo>,
    /// Key.
    pub key: ObjectKey,
    /// Headers, metadata, tags of the object to be.
    pub object: NewObject,
    /// Checksum algorithm and kind; `Composite { parts: 0 }` before completion.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// What an upload was created with.
#[derive(Clone, Debug)]
pub struct UploadInfo {
    /// Headers, metadata, tags of the object to be.
    pub object: NewObject,
    /// Checksum algorithm and kind.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Milliseconds since the epoch.
    pub initiated_ms: u64,
}

/// A stored part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartEntry {
    /// 1 to 10,000.
    pub number: u32,
    /// MD5 of the part.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// Its checksum.
    pub checksum: Option<Checksum>,
}

/// One page of parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartPage {
    /// In order of their numbers.
    pub parts: Vec<PartEntry>,
    /// More follow.
    pub truncated: bool,
}

/// A part as Complete lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompletedPart {
    /// Its number.
    pub number: u32,
    /// Its ETag as text without quotes.
    pub etag: String,
    /// The raw digest of the checksum the client repeats, if it does.
    pub checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
}

/// CompleteMultipartUpload.
pub struct CompleteUpload {
    /// Bucket.
    pub bucket: Arc<BucketInfo>,
    /// Key.
    pub key: ObjectKey,
    /// Upload.
    pub upload: UploadId,
    /// Not empty, numbers strictly ascending (the edge has checked it).
    pub parts: Vec<CompletedPart>,
    /// Conditions on the key's current version.
    pub conditions: PutConditions,
    /// The checksum of the whole object as the client knows it: compared, `BadDigest` if it differs.
    pub checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
    /// `x-amz-mp-object-size`: compared.
    pub size: Option<u64>,
}
