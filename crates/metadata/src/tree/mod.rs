//! One ordered tree a node: all families of all shards, and each shard's applied index.
//!
//! Promises: a [`WriteBatch`] reaches readers and disk whole or not at all; after a crash the tree is some consistent prefix of
//! the batches, the last completed flush at the latest. There is no journal here: the Raft log is the only write-ahead log.

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
#[derive(Debug, thiserror::Error)]
#[error("metadata tree: {0}")]
pub struct TreeError(pub String);

/// A row: key and value.
pub type Row = (Bytes, Bytes);

/// Reads at one position. Every range call is one *seek*; `seeks` and `rows` are counted for the cost tests.
pub trait Read: Send + Sync {
    /// One row.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError>;
    /// Rows with `from <= key < to`, ascending.
    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + '_>;
    /// Rows with `from <= key < to`, descending.
    fn range_back(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + '_>;
}
