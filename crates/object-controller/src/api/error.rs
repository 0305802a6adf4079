//! What can go wrong, each with what the caller should do.

use super::bucket::BucketInfo;
use std::sync::Arc;
use types::VersionId;

/// The body of an upload could not be taken. Carries the S3 error code that the edge found while reading it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct BodyError {
    /// S3's code, such as `BadDigest`, `IncompleteBody`, `XAmzContentSHA256Mismatch`, `RequestTimeout`.
    pub code: &'static str,
    /// For the client.
    pub message: String,
}

/// Why a call was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    // --- refused: the client's matter ---
    /// The body failed; nothing is stored.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The bucket is gone or is another incarnation.
    #[error("no such bucket")]
    NoSuchBucket,
    /// Present already; whose it is, is for the edge to judge.
    #[error("bucket exists")]
    BucketExists(Arc<BucketInfo>),
    /// Holds versions or delete markers.
    #[error("bucket not empty")]
    BucketNotEmpty,
    /// No live current version. `delete_marker` is the marker that hides older versions.
    #[error("no such key")]
    NoSuchKey {
        /// The newest version, if it is a delete marker.
        delete_marker: Option<VersionId>,
    },
    /// No version of that id.
    #[error("no such version")]
    NoSuchVersion,
    /// The version asked for by id is a delete marker (405).
    #[error("the version is a delete marker")]
    DeleteMarker {
        /// Its id.
        version: VersionId,
        /// Milliseconds since the epoch.
        modified_ms: u64,
    },
    /// Unknown, completed or aborted.
    #[error("no such upload")]
    NoSuchUpload,
    /// A listed part is missing or has another ETag or checksum.
    #[error("invalid part {number}")]
    InvalidPart {
        /// Its number.
        number: u32,
    },
    /// A part but the last is below 5 MiB.
    #[error("part {number} is too small: {size} bytes")]
    PartTooSmall {
        /// Its number.
        number: u32,
        /// Its bytes.
        size: u64,
    },
    /// Larger than one content or copy may be.
    #[error("too large")]
    TooLarge,
    /// A checksum or size sent with Complete differs.
    #[error("bad digest")]
    BadDigest(String),
    /// A request that contradicts the state (`message` says how).
    #[error("{0}")]
    InvalidState(String),
    /// A condition did not hold. Names it.
    #[error("precondition failed: {0}")]
    PreconditionFailed(&'static str),
    /// The source of the copy is a current delete marker or has none: names which.
    #[error("user exists")]
    UserExists,
    /// No user of that name.
    #[error("no such user")]
    NoSuchUser,
    /// Delete its buckets first.
    #[error("the user still owns buckets")]
    UserHasBuckets,
    // --- retry ---
    /// Another write of the same key got in between (409 ConditionalRequestConflict).
    #[error("conflict")]
    Conflict,
    /// Overloaded: retry later (503 SlowDown).
    #[error("busy: {0}")]
    Busy(&'static str),
    /// Unknown outcome or passing trouble: retry (503 ServiceUnavailable).
    #[error("unavailable: {0}")]
    Unavailable(String),
    // --- elsewhere ---
    /// No space (507).
    #[error("no space left")]
    NoSpace,
    /// All copies of the bytes are damaged or gone; never reported as missing (500).
    #[error("data damaged: {0}")]
    Damaged(String),
    /// Our own mistake (500).
    #[error("internal: {0}")]
    Internal(String),
}
