//! Objects: what is stored, what a reader gets.

use super::error::{BodyError, StoreError};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use types::{Checksum, ChecksumAlgorithm, ETag, ObjectKey, VersionId};

use super::bucket::BucketInfo;
pub use types::object::{DeleteConditions, ObjectMeta, PutConditions, Tag};

/// A new version but for its bytes.
#[derive(Clone, Debug, Default)]
pub struct NewObject {
    /// Headers and user metadata.
    pub meta: ObjectMeta,
    /// At most ten.
    pub tags: Vec<Tag>,
}

/// Conditions of a read, judged on the version that was looked up; ETags without quotes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadConditions {
    /// Any of these, or `*`.
    pub if_match: Option<Vec<String>>,
    /// None of these, or `*`.
    pub if_none_match: Option<Vec<String>>,
    /// Seconds since the epoch.
    pub if_modified_since: Option<u64>,
    /// Seconds since the epoch.
    pub if_unmodified_since: Option<u64>,
}

/// PutObject.
pub struct PutObject {
    /// Where.
    pub bucket: Arc<BucketInfo>,
    /// Under which key.
    pub key: ObjectKey,
    /// Headers, metadata, tags.
    pub object: NewObject,
    /// Conditions.
    pub conditions: PutConditions,
    /// Bytes to come, if the client said so; decides between inline and extents before the first byte.
    pub size_hint: Option<u64>,
}

/// The body of an upload, already authenticated and unframed. Pulled once, to its end.
pub trait BodySource: Send {
    /// The next bytes; `None` at the end. Chunks are at most a few hundred KiB.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + '_>>;
    /// Called once after `next` answered `None`: verifies every digest the client sent and says what was received.
    fn finish(&mut self) -> Result<BodySummary, BodyError>;
}

/// What a whole body was.
#[derive(Clone, Debug)]
pub struct BodySummary {
    /// Bytes.
    pub size: u64,
    /// MD5 of the bytes.
    pub md5: [u8; 16],
    /// The additional checksum to store with the object, if any.
    pub checksum: Option<Checksum>,
}

/// What a write made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutOutcome {
    /// `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// The stored checksum.
    pub checksum: Option<Checksum>,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
}

/// One version, without its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    /// `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// Headers and user metadata.
    pub meta: ObjectMeta,
    /// Tags.
    pub tags: Vec<Tag>,
    /// The stored checksum.
    pub checksum: Option<Checksum>,
    /// Number of parts of a multipart object.
    pub parts: Option<u32>,
}

/// One part of a complete multipart object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartInfo {
    /// Its number as uploaded (1 to 10,000; gaps are allowed).
    pub number: u32,
    /// Where it begins in the object.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its checksum, if the upload had an algorithm.
    pub checksum: Option<Checksum>,
}

/// A version that was looked up.
pub trait ReadHandle: Send + Sync {
    /// What it is.
    fn info(&self) -> &ObjectInfo;
    /// The `index`-th part in order (0-based) and the ones after it, at most `max`; empty for an object that is not multipart.
    fn parts(
        &self,
        index: u32,
        max: u32,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<PartInfo>, StoreError>> + Send + '_>>;
    /// Bytes `[offset, offset + len)`, which the caller has checked against the size.
    fn read(self: Box<Self>, offset: u64, len: u64) -> Box<dyn ReadBody>;
}

/// Verified bytes of one version. Every byte was checked against its checksum; an error is final.
pub trait ReadBody: Send {
    /// The next bytes; `None` after the last.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, StoreError>> + Send + '_>>;
    /// All the bytes, if they are in memory already: then the answer can leave in one piece.
    fn take_ready(&mut self) -> Option<Bytes> {
        None
    }
}

/// Where a copy reads.
#[derive(Clone)]
pub struct CopySource {
    /// Bucket.
    pub bucket: Arc<BucketInfo>,
    /// Key.
    pub key: ObjectKey,
    /// `None`: the current version.
    pub version: Option<VersionId>,
    /// Judged on the version that is copied; a failure is `PreconditionFailed`, also where GET would say 304.
    pub conditions: ReadConditions,
}

/// Where and how a copy writes.
pub struct CopyObject {
    /// Bucket.
    pub bucket: Arc<BucketInfo>,
    /// Key.
    pub key: ObjectKey,
    /// `None`: the source's (directive COPY).
    pub meta: Option<ObjectMeta>,
    /// `None`: the source's (directive COPY).
    pub tags: Option<Vec<Tag>>,
    /// With `meta: None`, replaces the source's storage class and redirect, which are never copied by AWS.
    pub always: Vec<(String, String)>,
    /// A checksum algorithm asked for; computed by reading if the source does not have it.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Conditions on the destination's current version.
    pub conditions: PutConditions,
}

/// What a copy made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOutcome {
    /// The new version.
    pub put: PutOutcome,
    /// The version that was copied, `None` if its bucket never had versioning.
    pub source_version: Option<VersionId>,
}

/// DeleteObject.
pub struct DeleteObject {
    /// Bucket.
    pub bucket: Arc<BucketInfo>,
    /// Key.
    pub key: ObjectKey,
    /// `None`: as the bucket's versioning says.
    pub version: Option<VersionId>,
    /// Conditions.
    pub conditions: DeleteConditions,
}

/// What a delete did. Deleting what is not there succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeleteOutcome {
    /// The version that was removed, or the delete marker that was made.
    pub version: Option<VersionId>,
    /// A delete marker was made, or the removed version was one.
    pub delete_marker: bool,
}
