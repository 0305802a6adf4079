//! What raft-rs reads: the entries of one group that are not handed to apply yet, and what precedes them.
//!
//! Promises: answers for the tail in memory; an entry leaves it once it was handed over. On disk the entries are in the log.
//! Refuses to know: disks.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;

/// The tail of one group's log in memory.
#[derive(Debug)]
pub(super) struct Tail {
    /// Index and term of the entry before the first one kept.
    before: (u64, u64),
    entries: VecDeque<Entry>,
    hard_state: HardState,
    voters: ConfState,
}

impl Tail {
    /// A group with this one voter whose entries up to `applied` (index, term) are applied.
    pub(super) fn new(voter: u64, hard_state: HardState, applied: (u64, u64)) -> Tail {
        let mut voters = ConfState::default();
        voters.voters.push(voter);
        Tail { before: applied, entries: VecDeque::new(), hard_state, voters }
    }

    /// Takes in entries that are durable, replacing those of their indices and above.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            while self.entries.back().is_some_and(|last| last.index >= entry.index) {
                self.entries.pop_back();
            }
            self.entries.push_back(entry.clone());
        }
    }

    /// Lets go of entries up to `index`.
    pub(super) fn forget(&mut self, index: u64) {
        while self.entries.front().is_some_and(|first| first.index <= index) {
            if let Some(entry) = self.entries.pop_front() {
                self.before = (entry.index, entry.term);
            }
        }
    }

    fn position(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.before.0 + 1)?).ok()
    }
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.voters.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let compacted = raft::Error::Store(StorageError::Compacted);
        let (Some(from), Some(to)) = (self.position(low), self.position(high)) else { return Err(compacted) };
        let mut entries: Vec<Entry> = self.entries.range(from..to.min(self.entries.len())).cloned().collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        let Some(position) = self.position(index) else { return Err(raft::Error::Store(StorageError::Compacted)) };
        let entry = self.entries.get(position);
        entry.map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // There is no other voter or learner yet, so nobody asks.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
