//! Values of the rows that are plain postcard after their version byte.

use super::{FormatError, family};
use crate::rows::{
    BucketRow, ClusterRow, CompletedUpload, CondemnedRow, ManifestRow, OutboxRow, OwnerRow, PartRow, TokenRow,
    UploadRow,
};
use crate::strip::StripRecord;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::BucketId;
use types::account::Credential;
use types::cluster::{Disk, Node};

/// A row's value as bytes.
pub trait RowValue: Sized {
    /// To bytes, version first.
    fn encode(&self) -> Bytes;
    /// From bytes; takes slices of them where it can.
    fn decode(bytes: &Bytes) -> Result<Self, FormatError>;
}

/// Version byte, then postcard.
pub(super) fn encode_postcard<T: Serialize>(version: u8, value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![version]).expect("rows are plain values and a vector takes all bytes")
}

/// Checks the version byte; what follows it.
pub(super) fn after_version(family: u8, version: u8, bytes: &[u8]) -> Result<&[u8], FormatError> {
    match bytes.split_first() {
        Some((v, rest)) if *v == version => Ok(rest),
        Some((v, _)) => Err(FormatError::new(family, format!("unknown version {v}"))),
        None => Err(FormatError::new(family, "empty")),
    }
}

/// A postcard value that fills `bytes`.
pub(super) fn whole<T: DeserializeOwned>(family: u8, bytes: &[u8]) -> Result<T, FormatError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(FormatError::new(family, "bytes after the value")),
        Err(e) => Err(FormatError::new(family, e)),
    }
}

macro_rules! postcard_rows {
    ($($row:ty: $family:ident, $version:literal;)*) => {$(
        impl RowValue for $row {
            fn encode(&self) -> Bytes {
                encode_postcard($version, self).into()
            }
            fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
                whole(family::$family, after_version(family::$family, $version, bytes)?)
            }
        }
    )*};
}

postcard_rows! {
    ShardState: SHARD, 1;
    OutboxRow: OUTBOX, 1;
    BucketRow: BUCKET_ROWS, 1;
    ManifestRow: MANIFEST, 1;
    UploadRow: UPLOADS, 1;
    PartRow: PARTS, 1;
    CompletedUpload: COMPLETED, 1;
    OwnerRow: OWNERS, 1;
    CondemnedRow: CONDEMNED, 1;
    Credential: USERS, 1;
    StripRecord: STRIPS, 1;
    ClusterRow: CLUSTER, 1;
    Node: NODES, 1;
    Disk: DISKS, 1;
    TokenRow: TOKENS, 1;
    Counter: COUNTERS, 1;
    Name: ACCESS_KEYS, 1;
}

/// Counters of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ShardState {
    /// Latest effective time of an entry.
    pub last_stamp_ms: u64,
    /// Sequence of the next outbox row; never used twice.
    pub next_outbox: u64,
}

/// A number: a fence, a session, the sequence of a null version, the id of a bucket, the next id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counter(pub u64);

impl From<BucketId> for Counter {
    fn from(id: BucketId) -> Self {
        Counter(id.0)
    }
}

/// A text: the account of an access key.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Name(pub String);
