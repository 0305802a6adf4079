//! One ordered tree a node: all families of all shards, and each shard's applied index.
//!
//! Promises: a [`WriteBatch`] reaches readers and disk whole or not at all; after a crash the tree is some consistent prefix of
//! the batches, the last completed flush at the latest. There is no journal here: the Raft log is the only write-ahead log.
//! Refuses to know: what rows mean, logs.

mod evict;
mod lsm;
mod mem;
mod pins;
mod snapshot;

pub use lsm::{LsmConfig, LsmTree};
pub use mem::MemTree;
pub use pins::{Pin, Pins};
pub use snapshot::{ReadCounts, Snapshot};

use bytes::Bytes;

/// Position in the order of batches; a reader sees everything at or below its own.
pub type Sequence = u64;

/// Rows to set (`Some`) and remove (`None`), applied together; later entries of the same key win.
#[derive(Default, Debug)]
pub struct WriteBatch {
    /// In order.
    pub rows: Vec<(Vec<u8>, Option<Bytes>)>,
}

impl WriteBatch {
    /// Sets a row.
    pub fn put(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.rows.push((key, Some(value.into())));
    }

    /// Removes a row.
    pub fn remove(&mut self, key: Vec<u8>) {
        self.rows.push((key, None));
    }
}

/// The tree could not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("metadata tree: {0}")]
pub struct TreeError(pub String);

/// A row: key and value.
pub type Row = (Bytes, Bytes);

/// Rows in order, until an error.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a>;

/// Reads at one position. Every range call is one *seek*; `seeks` and `rows` are counted for the cost tests.
pub trait Read: Send + Sync {
    /// One row.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError>;
    /// Rows with `from <= key < to`, ascending.
    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + '_>;
    /// Rows with `from <= key < to`, descending.
    fn range_back(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + '_>;
}

/// Which way a range is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending keys.
    Up,
    /// Descending keys.
    Down,
}

/// What a tree holds, for metrics and decisions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TreeStats {
    /// Bytes of rows in memory that no flush holds yet, sealed ones included.
    pub unflushed_bytes: u64,
    /// Sorted runs that a read may have to look into before the levelled part.
    pub young_runs: usize,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of the block cache in use.
    pub cache_bytes: u64,
    /// Blocks (of rows, of indexes, of filters) that the block cache had, since the start.
    pub cache_hits: u64,
    /// Blocks that had to be read from the disk or the page cache, since the start.
    pub cache_misses: u64,
}

/// An ordered, versioned map with one writer, many readers and flushes that it is told to make.
///
/// [`Tree::write`], [`Tree::publish`] and [`Tree::seal`] are called by the one writer; the rest by anybody.
pub trait Tree: Send + Sync {
    /// One row as of `at`.
    fn get_at(&self, key: &[u8], at: Sequence) -> Result<Option<Bytes>, TreeError>;
    /// Rows with `from <= key < to` as of `at`.
    fn range_at(&self, from: &[u8], to: &[u8], at: Sequence, direction: Direction) -> Rows<'static>;
    /// Puts a batch in memory under the position returned; nobody but a reader at that position sees it before
    /// [`Tree::publish`]. `Err`: the tree has failed and takes no batch any more, readers go on.
    fn write(&self, batch: WriteBatch) -> Result<Sequence, TreeError>;
    /// Positions, and who reads at which.
    fn pins(&self) -> &Pins;
    /// Makes everything up to `at` visible to new snapshots.
    fn publish(&self, at: Sequence) {
        self.pins().publish(at);
    }
    /// Bytes in memory written since the last [`Tree::seal`].
    fn unsealed_bytes(&self) -> u64;
    /// Closes what was written so far, which must be published; the next [`Tree::flush`] makes it durable.
    fn seal(&self);
    /// Makes durable, whole or not at all, what was sealed before the call. Blocks. An error is final for the tree.
    fn flush(&self) -> Result<(), TreeError>;
    /// Bytes that a flush would write, about.
    fn flush_bytes(&self) -> u64;
    /// Does one piece of reorganisation, if there is need; answers whether it did. Blocks. An error is final for the tree.
    fn compact(&self) -> Result<bool, TreeError>;
    /// Bytes that the next [`Tree::compact`] may write, at most, about.
    fn compact_bytes(&self) -> u64 {
        self.stats().disk_bytes
    }
    /// Empties its block cache, for measurements. A tree without one has nothing to do.
    fn empty_cache(&self) {}
    /// Why it takes no batch any more.
    fn failure(&self) -> Option<TreeError>;
    /// Numbers.
    fn stats(&self) -> TreeStats;
}
