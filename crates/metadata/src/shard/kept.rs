//! Rows that nearly every entry reads, kept beside the trees: the state machine says which.
//!
//! Promises: what is answered is what the tree would answer, for they are taken from it once and follow every batch that is
//! written after; a test build compares each answer. An applier begins with none, so that a start, a replay of another folder
//! and a folder filled anew read their rows from their trees. Refuses to know: what the rows mean.

use crate::limits::KEPT_ROWS;
use crate::tree::{Read, Rows, Snapshot, TreeError, WriteBatch};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Whether the row of this key is kept.
pub(super) type Keeps = fn(&[u8]) -> bool;

/// The rows, those among them that are not there, too.
#[derive(Default)]
pub(super) struct Kept {
    rows: Mutex<BTreeMap<Vec<u8>, Option<Bytes>>>,
}

impl Kept {
    /// What is to become of the kept rows once this batch is written.
    pub(super) fn changes(batch: &WriteBatch, keeps: Keeps) -> Vec<(Vec<u8>, Option<Bytes>)> {
        batch.rows.iter().filter(|(key, _)| keeps(key)).cloned().collect()
    }

    /// The rows of the trees were exchanged.
    pub(super) fn clear(&mut self) {
        self.rows.get_mut().clear();
    }

    /// The batch of these changes was written.
    pub(super) fn follow(&mut self, changes: Vec<(Vec<u8>, Option<Bytes>)>) {
        let rows = self.rows.get_mut();
        changes.into_iter().for_each(|(key, value)| put(rows, key, value));
    }
}

fn put(rows: &mut BTreeMap<Vec<u8>, Option<Bytes>>, key: Vec<u8>, value: Option<Bytes>) {
    if rows.len() >= KEPT_ROWS && !rows.contains_key(&key) {
        rows.clear();
    }
    rows.insert(key, value);
}

/// A tree with the kept rows laid over it.
pub(super) struct View<'a> {
    pub(super) tree: Snapshot,
    pub(super) kept: &'a Kept,
    pub(super) keeps: Keeps,
}

impl Read for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        if !(self.keeps)(key) {
            return self.tree.get(key);
        }
        let known = self.kept.rows.lock().get(key).cloned();
        if let Some(value) = known {
            debug_assert!(self.tree.get(key).map_or(true, |row| row == value), "the kept row {key:x?} is another");
            return Ok(value);
        }
        let value = self.tree.get(key)?;
        put(&mut self.kept.rows.lock(), key.to_vec(), value.clone());
        Ok(value)
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        self.tree.range(from, to)
    }

    fn range_back(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        self.tree.range_back(from, to)
    }
}
