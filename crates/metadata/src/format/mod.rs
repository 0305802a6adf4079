//! The keys and bytes of all rows: a contract with the disk (docs/on-disk-format.md).
//!
//! Promises: the byte order of rows is the byte order of keys; every value begins with its version; golden tests hold both.
//! Bytes that are not a row of ours are an error, never a panic. Refuses to know: the tree, what the rows mean to each other.
//!
//! ```text
//! key    family (1) | bucket (8, BE) | escaped key | 00 01 | suffix        rows of one key
//!        family (1) | bucket (8, BE) | key as it is                        `current` alone
//!        family (1) | shard (4, BE)  | suffix                              rows of one shard
//!        family (1) | id                                                   rows of root
//! value  version (1) | fields
//! ```

pub mod body;
mod bucket;
pub(crate) mod group;
mod head;
pub mod key;
pub mod value;
pub mod version;

use crate::tree::TreeError;

/// Bytes in the tree that are not a row of ours.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("row of family {family:#04x}: {what}")]
pub struct FormatError {
    /// First byte of the row's key.
    pub family: u8,
    /// What is wrong.
    pub what: String,
}

impl FormatError {
    /// Of that family.
    pub fn new(family: u8, what: impl ToString) -> Self {
        FormatError { family, what: what.to_string() }
    }
}

impl From<FormatError> for TreeError {
    fn from(error: FormatError) -> Self {
        TreeError(error.to_string())
    }
}

/// Families: the first byte of a row's key. 0 belongs to the shard driver.
pub mod family {
    /// Last stamp and counters of a shard.
    pub const SHARD: u8 = 0x01;
    /// Lowest session of each node that a shard still admits.
    pub const FENCES: u8 = 0x02;
    /// Work owed to another shard.
    pub const OUTBOX: u8 = 0x03;
    /// Buckets as apply must know them, in every shard.
    pub const BUCKET_ROWS: u8 = 0x04;
    /// Live newest version of a key.
    pub const CURRENT: u8 = 0x10;
    /// Contents and references.
    pub const BODY: u8 = 0x11;
    /// Older versions and delete markers.
    pub const VERSIONS: u8 = 0x12;
    /// Sequence of a key's null version, if that is in `versions`.
    pub const NULLS: u8 = 0x13;
    /// Parts of multipart objects.
    pub const MANIFEST: u8 = 0x14;
    /// Uploads in progress.
    pub const UPLOADS: u8 = 0x15;
    /// Their parts.
    pub const PARTS: u8 = 0x16;
    /// Answers of completed uploads.
    pub const COMPLETED: u8 = 0x17;
    /// Owners of contents that are not the writer.
    pub const OWNERS: u8 = 0x18;
    /// Contents to reclaim, manifests to expand.
    pub const CONDEMNED: u8 = 0x19;
    /// Root's counters.
    pub const COUNTERS: u8 = 0x20;
    /// Buckets by id.
    pub const BUCKETS: u8 = 0x21;
    /// Ids of buckets by name.
    pub const BUCKET_NAMES: u8 = 0x22;
    /// Buckets whose row is not yet known to be in every shard.
    pub const RAISING: u8 = 0x23;
    /// Accounts by name.
    pub const USERS: u8 = 0x24;
    /// Names of accounts by access key.
    pub const ACCESS_KEYS: u8 = 0x25;
    /// Newest session of each node.
    pub const SESSIONS: u8 = 0x26;
    /// Records of extent groups.
    pub const GROUPS: u8 = 0x27;
    /// Head of the cluster map.
    pub const CLUSTER: u8 = 0x28;
    /// Nodes of the cluster map, by id.
    pub const NODES: u8 = 0x29;
    /// Disks of the cluster map, by id.
    pub const DISKS: u8 = 0x2A;
    /// Join tokens, by id.
    pub const TOKENS: u8 = 0x2B;
    /// Strips of erasure-coded groups, by id.
    pub const STRIPS: u8 = 0x2C;
    /// Every family from `COUNTERS` up to here, excluded, is root's.
    pub const ROOT_END: u8 = 0x80;
}
