//! Ids, names, sizes, digests: the values every other crate speaks in.
//!
//! Promises: every type is checked when it is made, so a value that exists is valid.
//! Refuses to know: I/O, async, the clock, how anything is stored.

pub mod account;
pub mod bucket;
pub mod cluster;
pub mod digest;
pub mod ids;
pub mod limits;
pub mod names;
pub mod object;

pub use digest::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag};
pub use ids::{
    AttemptId, BucketId, ClusterId, ContentId, DiskId, GroupId, NodeId, OwnerId, StripId, TokenId, VersionId,
};
pub use names::{BucketName, NameError, ObjectKey};
