//! Shards: ranges of keys, each a Raft group of its own, and the state machine their entries drive.
//!
//! Promises: entries of one shard are applied in log order, each exactly once, and with the rows they make the shard's applied
//! index becomes durable. Refuses to know: what the rows mean (that is the state machine's).

pub(crate) mod applier;
pub(crate) mod driver;
pub(crate) mod envelope;
pub(crate) mod flusher;
pub(crate) mod group;
pub(crate) mod install;
mod kept;
pub(crate) mod members;
mod reads;
pub(crate) mod rows;
pub(crate) mod shared;
pub(crate) mod snapshot;
mod storage;
mod wire;

pub use driver::{AppendObserver, GroupReport};
pub use members::{MemberChange, Members};
pub use snapshot::Spans;

use crate::command::{Entry, Outcome};
use crate::rows::Home;
use crate::tree::{Read, TreeError, WriteBatch};
use serde::{Deserialize, Serialize};
use types::{BucketId, ObjectKey};

/// A shard and its Raft group. 0 is root: buckets, users, group records, sessions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardId(pub u32);

/// The root shard. It holds no keys of buckets.
pub const ROOT: ShardId = ShardId(0);

/// The keys of one shard: `from <= (bucket, key) < to`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyRange {
    /// First; `None`: from the very first.
    pub from: Option<Home>,
    /// First not included; `None`: to the very last.
    pub to: Option<Home>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: KeyRange = KeyRange { from: None, to: None };

    /// Whether it holds this key.
    pub fn contains(&self, bucket: BucketId, key: &ObjectKey) -> bool {
        let at = (&bucket, key);
        self.from.as_ref().is_none_or(|f| (&f.bucket, &f.key) <= at)
            && self.to.as_ref().is_none_or(|t| at < (&t.bucket, &t.key))
    }
}

/// A shard as it is when an entry is applied to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shard {
    /// Which.
    pub id: ShardId,
    /// Its keys; of no meaning in root.
    pub range: KeyRange,
    /// Raised by every split.
    pub version: u64,
}

/// What the entries of all shards drive. Deterministic: nothing but its arguments and its rows decide (rule R17).
pub trait StateMachine: Send {
    /// Applies one entry. `read` sees the rows of every entry applied before (of all shards); what `batch` gets becomes visible
    /// together. `Err` only if the tree could not be read: then the node stops, as it cannot decide.
    fn apply(
        &mut self,
        shard: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError>;
    /// Tells the keys of few rows that nearly every entry reads: they are kept in memory. Not of rows that are read as ranges.
    fn keeps(&self) -> fn(&[u8]) -> bool {
        |_| false
    }
    /// Tells the key ranges of all rows that entries of a shard write: what a snapshot of it holds. Those of different shards do
    /// not overlap.
    fn spans(&self) -> Spans {
        |_| Vec::new()
    }
    /// The effective time of the last entry applied to this shard: none later is judged by an earlier time. 0 if there is none.
    fn last_stamp_ms(&self, _shard: ShardId, _read: &dyn Read) -> Result<u64, TreeError> {
        Ok(0)
    }
    /// Called once, when everything that the log holds is applied: the place to load what is kept in memory from the rows.
    /// Entries applied before were not told of by [`StateMachine::applied`].
    fn started(&mut self, _read: &dyn Read) {}
    /// Called when the rows of a shard were exchanged by a snapshot's: the place to load anew what is kept in memory from them.
    fn installed(&mut self, _shard: &Shard, _read: &dyn Read) {}
    /// Called after the rows of the entry are readable and before its proposer is answered: the place to refresh what is kept
    /// in memory from the rows.
    fn applied(&mut self, _shard: &Shard, _entry: &Entry, _outcome: &Outcome, _read: &dyn Read) {}
}

/// First byte of the keys of the rows that the driver keeps for itself (applied indices); the schema never uses it.
pub const DRIVER_FAMILY: u8 = 0;
