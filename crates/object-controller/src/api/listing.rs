//! Pages of listings. Order is the byte order of keys.

use super::multipart::UploadId;
use types::{ChecksumAlgorithm, ChecksumKind, ETag, VersionId};

/// ListObjects. The page begins strictly after `after`; where `after` ends in the delimiter and is a common prefix of this
/// listing, after that whole group.
#[derive(Clone, Debug, Default)]
pub struct ListObjects {
    /// Only keys that begin so.
    pub prefix: String,
    /// Groups keys by what follows the prefix up to this text; `None` (never empty): no groups.
    pub delimiter: Option<String>,
    /// Marker, start-after or decoded token.
    pub after: Option<String>,
    /// `after` was a common prefix of the former page: skip everything that begins so.
    pub after_is_prefix: bool,
    /// Keys and common prefixes together, at most 1,000; 0 answers an empty page that is not truncated.
    pub max: u32,
}

/// A live current version in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectEntry {
    /// Key.
    pub key: String,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// Storage class, if one was given.
    pub storage_class: Option<String>,
    /// Algorithm and kind of the stored checksum.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectPage {
    /// Objects in order.
    pub objects: Vec<ObjectEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Last key or common prefix of the page: where the next begins, if truncated.
    pub next: Option<String>,
    /// `next` is a common prefix.
    pub next_is_prefix: bool,
}

/// ListObjectVersions.
#[derive(Clone, Debug, Default)]
pub struct ListVersions {
    /// Only keys that begin so.
    pub prefix: String,
    /// Groups.
    pub delimiter: Option<String>,
    /// Begins after all versions of this key, unless `version_marker` is given: then after that version of it.
    pub key_marker: Option<String>,
    /// See `key_marker`.
    pub version_marker: Option<VersionId>,
    /// At most 1,000.
    pub max: u32,
}

/// A version or delete marker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionEntry {
    /// Key.
    pub key: String,
    /// `Null` also in a bucket that never had versioning.
    pub version: VersionId,
    /// The newest of its key.
    pub is_latest: bool,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// `None` for a delete marker.
    pub object: Option<ObjectEntry>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VersionPage {
    /// Versions and markers interleaved, in order.
    pub versions: Vec<VersionEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Where the next page begins.
    pub next_key: Option<String>,
    /// Its version; `None` if the page ended with a common prefix.
    pub next_version: Option<VersionId>,
}

/// ListMultipartUploads.
#[derive(Clone, Debug, Default)]
pub struct ListUploads {
    /// Only keys that begin so.
    pub prefix: String,
    /// Groups.
    pub delimiter: Option<String>,
    /// Begins after all uploads of this key, unless `upload_marker` is given.
    pub key_marker: Option<String>,
    /// Then after that upload of it.
    pub upload_marker: Option<UploadId>,
    /// At most 1,000.
    pub max: u32,
}

/// An upload in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadEntry {
    /// Key.
    pub key: String,
    /// Its id.
    pub upload: UploadId,
    /// Milliseconds since the epoch.
    pub initiated_ms: u64,
    /// Storage class, if one was given.
    pub storage_class: Option<String>,
    /// Algorithm and kind, if one was chosen.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UploadPage {
    /// Uploads in order.
    pub uploads: Vec<UploadEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Where the next page begins.
    pub next_key: Option<String>,
    /// Its upload.
    pub next_upload: Option<UploadId>,
}
