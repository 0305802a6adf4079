//! What raft-rs reads of one group: the end of its log in memory, and where the rest is.
//!
//! Promises: every entry that was not handed to apply is in memory, and of those before it a bounded window, for followers that are
//! a moment behind; what is older is asked of the log, away from raft-rs's call, and given to it when it asks again.
//! The terms of all entries in the log are known. Refuses to know: disks.

use super::members::Members;
use crate::limits::TAIL_BYTES;
use parking_lot::Mutex;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;

/// Entries that raft-rs wants for a follower and that are not in memory.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) max_bytes: u64,
    /// To be given back with the answer.
    pub(super) context: GetEntriesContext,
}

/// What raft-rs asked for and did not get at once.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) entries: Vec<Wanted>,
    /// Members that need a snapshot.
    pub(super) snapshots: Vec<u64>,
}

/// The log of one group as raft-rs sees it.
#[derive(Debug)]
pub(super) struct Tail {
    /// Index and term of the entry before the first one in the log.
    before: (u64, u64),
    /// Index of the last entry in the log.
    last: u64,
    /// First index of each term, for the entries in the log.
    terms: VecDeque<(u64, u64)>,
    /// The last entries.
    entries: VecDeque<Entry>,
    /// Bytes of their data.
    bytes: usize,
    /// Bytes of entries kept that were handed over already.
    window: usize,
    hard_state: HardState,
    members: ConfState,
    asked: Mutex<Asked>,
    /// From the log: the first index, and the entries there or `None` if they are gone.
    fetched: Option<(u64, Option<Vec<Entry>>)>,
    /// A snapshot for this member.
    offer: Option<(u64, Snapshot)>,
}

impl Tail {
    /// A group whose log begins after `before` (index, term).
    pub(super) fn new(members: &Members, hard_state: HardState, before: (u64, u64), window: bool) -> Tail {
        Tail {
            before,
            last: before.0,
            terms: VecDeque::new(),
            entries: VecDeque::new(),
            bytes: 0,
            window: if window { TAIL_BYTES } else { 0 },
            hard_state,
            members: members.to_raft(),
            asked: Mutex::default(),
            fetched: None,
            offer: None,
        }
    }

    /// Of no group: only the members matter.
    pub(super) fn scratch(members: &Members) -> Tail {
        Tail::new(members, HardState::default(), (0, 0), false)
    }

    /// Takes in entries that are durable, replacing those of their indices and above.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            if entry.index <= self.last {
                self.cut(entry.index);
            }
            if self.terms.back().is_none_or(|(_, term)| *term != entry.term) {
                self.terms.push_back((entry.index, entry.term));
            }
            self.last = entry.index;
            self.bytes += entry.data.len();
            self.entries.push_back(entry.clone());
        }
    }

    /// Removes the entries from `index` on.
    fn cut(&mut self, index: u64) {
        while self.entries.back().is_some_and(|last| last.index >= index) {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| entry.data.len());
        }
        while self.terms.back().is_some_and(|(first, _)| *first >= index) {
            self.terms.pop_back();
        }
        self.last = index - 1;
    }

    /// Entries up to `index` were handed over: only the newest of them are kept in memory.
    pub(super) fn forget(&mut self, index: u64) {
        while self.bytes > self.window || self.window == 0 {
            if self.entries.front().is_none_or(|first| first.index > index) {
                return;
            }
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.data.len());
        }
    }

    /// The log begins after `index` now.
    pub(super) fn compact(&mut self, index: u64) {
        let Some(term) = self.term_at(index).filter(|_| index > self.before.0) else { return };
        self.before = (index, term);
        while self.terms.get(1).is_some_and(|(first, _)| *first <= index) {
            self.terms.pop_front();
        }
    }

    /// The log is what a snapshot says: nothing, after this entry.
    pub(super) fn restore(&mut self, at: (u64, u64), members: ConfState) {
        (self.before, self.last, self.members) = (at, at.0, members);
        self.terms.clear();
        self.entries.clear();
        self.bytes = 0;
    }

    /// What was asked for since the last call.
    pub(super) fn take_asked(&mut self) -> Asked {
        std::mem::take(self.asked.get_mut())
    }

    /// What the log has at `low`; held until the next call.
    pub(super) fn set_fetched(&mut self, fetched: Option<(u64, Option<Vec<Entry>>)>) {
        self.fetched = fetched;
    }

    /// A snapshot to be sent to this member when raft-rs asks for it again.
    pub(super) fn set_offer(&mut self, offer: Option<(u64, Snapshot)>) {
        self.offer = offer;
    }

    /// Term of an entry in the log or the one before it.
    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.before.0 {
            return Some(self.before.1);
        }
        if index < self.before.0 || index > self.last {
            return None;
        }
        let after = self.terms.partition_point(|(first, _)| *first <= index);
        self.terms.get(after.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Index of the last entry in the log.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Index of the entry before the first in the log.
    pub(super) fn before(&self) -> u64 {
        self.before.0
    }

    /// Index of the first entry in memory, if there is one.
    fn first_kept(&self) -> u64 {
        self.last + 1 - self.entries.len() as u64
    }
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let max_size = max_size.into();
        // Whoever has nothing lacks the shard's row as well, which no entry makes: the first entry is never sent, so that
        // such a member gets a snapshot.
        let first_sent = if context.can_async() { 2 } else { 1 };
        if low <= self.before.0 || low < first_sent {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let mut entries = match low.checked_sub(self.first_kept()) {
            Some(from) => {
                let to = (high - self.first_kept()) as usize;
                self.entries.range(from as usize..to.min(self.entries.len())).cloned().collect()
            }
            None => match &self.fetched {
                Some((at, found)) if *at == low => {
                    let mut found = found.clone().ok_or(raft::Error::Store(StorageError::Compacted))?;
                    found.truncate((high - low) as usize);
                    found
                }
                // Only followers are sent what is not in memory.
                _ if !context.can_async() => return Err(raft::Error::Store(StorageError::Unavailable)),
                _ => {
                    let wanted = Wanted { low, high, max_bytes: max_size.unwrap_or(u64::MAX), context };
                    self.asked.lock().entries.push(wanted);
                    return Err(raft::Error::Store(StorageError::LogTemporarilyUnavailable));
                }
            },
        };
        raft::util::limit_size(&mut entries, max_size);
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let error = if index < self.before.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(raft::Error::Store(error))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        match &self.offer {
            Some((member, snapshot)) if *member == to && snapshot.get_metadata().index >= request_index => {
                Ok(snapshot.clone())
            }
            _ => {
                self.asked.lock().snapshots.push(to);
                Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;
    use crate::shard::members::Members;
    use raft::eraftpb::{Entry, HardState};
    use raft::{GetEntriesContext, Storage};

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: vec![0; 10].into(), ..Entry::default() }
    }

    #[test]
    fn terms_outlive_the_entries_and_follow_what_replaces_them() {
        let mut tail = Tail::new(&Members::single(1), HardState::default(), (0, 0), false);
        let entries: Vec<Entry> = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)].map(|(i, t)| entry(i, t)).into();
        tail.append(&entries);
        tail.forget(3);
        assert_eq!(
            (1..=6).map(|i| tail.term_at(i)).collect::<Vec<_>>(),
            [1, 1, 2, 2, 2, 0].map(|t| (t > 0).then_some(t))
        );
        assert!(tail.entries(2, 4, None, GetEntriesContext::empty(true)).is_err(), "not in memory");
        assert_eq!(tail.take_asked().entries.len(), 1);
        tail.append(&[entry(4, 3)]);
        assert_eq!((tail.last_index(), tail.term_at(4), tail.term_at(5)), (Ok(4), Some(3), None));
        tail.compact(3);
        assert_eq!((tail.first_index(), tail.term_at(3), tail.term_at(2)), (Ok(4), Some(2), None));
        assert_eq!(tail.term_at(4), Some(3));
        let found = tail.entries(4, 5, None, GetEntriesContext::empty(true)).expect("in memory");
        assert_eq!(found, vec![entry(4, 3)]);
    }
}
