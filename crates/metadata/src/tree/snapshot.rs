//! A reader at one position of a tree, counting what it costs.
//!
//! Promises: what it reads does not change while it lives. Refuses to know: what the rows mean.

use super::{Direction, Pin, Read, Row, Rows, Sequence, Tree, TreeError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What reads cost: point reads, range seeks, rows that ranges gave.
#[derive(Default, Debug)]
pub struct ReadCounts {
    gets: AtomicU64,
    seeks: AtomicU64,
    rows: AtomicU64,
}

impl ReadCounts {
    /// Point reads.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// Range calls.
    pub fn seeks(&self) -> u64 {
        self.seeks.load(Ordering::Relaxed)
    }

    /// Rows that range calls gave.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

/// Reads at one position.
pub struct Snapshot {
    tree: Arc<dyn Tree>,
    at: Sequence,
    counts: Arc<ReadCounts>,
    /// `None`: the writer's own look at what it has not published; nothing above the published position is ever dropped.
    _pin: Option<Pin>,
}

impl Snapshot {
    /// At the newest published position.
    pub fn published(tree: &Arc<dyn Tree>) -> Snapshot {
        let pin = tree.pins().pin();
        Snapshot { tree: tree.clone(), at: pin.at(), counts: Arc::default(), _pin: Some(pin) }
    }

    /// Another reader at the same position.
    pub(crate) fn again(&self) -> Snapshot {
        let pin = self._pin.as_ref().map(|pin| self.tree.pins().pin_again(pin));
        Snapshot { tree: self.tree.clone(), at: self.at, counts: Arc::default(), _pin: pin }
    }

    /// At a position that the caller, the tree's one writer, has written but not published.
    pub(crate) fn unpublished(tree: &Arc<dyn Tree>, at: Sequence) -> Snapshot {
        Snapshot { tree: tree.clone(), at, counts: Arc::default(), _pin: None }
    }

    /// Its position.
    pub fn at(&self) -> Sequence {
        self.at
    }

    /// What was read through it so far.
    pub fn counts(&self) -> &ReadCounts {
        &self.counts
    }

    fn walk(&self, from: &[u8], to: &[u8], direction: Direction) -> Rows<'_> {
        self.counts.seeks.fetch_add(1, Ordering::Relaxed);
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let counts = self.counts.clone();
        let count = move |row: &Result<Row, TreeError>| {
            counts.rows.fetch_add(u64::from(row.is_ok()), Ordering::Relaxed);
        };
        Box::new(self.tree.range_at(from, to, self.at, direction).inspect(count))
    }
}

impl Read for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        self.counts.gets.fetch_add(1, Ordering::Relaxed);
        self.tree.get_at(key, self.at)
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        self.walk(from, to, Direction::Up)
    }

    fn range_back(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        self.walk(from, to, Direction::Down)
    }
}
