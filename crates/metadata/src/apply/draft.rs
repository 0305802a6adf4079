//! The changes of one entry before they are a batch: what it reads it reads through its own changes.

use super::Decision;
use crate::command::{Entry, Refusal};
use crate::format::key;
use crate::format::value::{RowValue, ShardState};
use crate::read::{self, ReadError};
use crate::rows::{Home, OutboxRow};
use crate::shard::Shard;
use crate::tree::{Read, Row, TreeError, WriteBatch};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::Bound;
use types::{AttemptId, BucketId, ContentId, ObjectKey};

type Rows<'a> = Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a>;

/// Rows as they would be after the entry.
pub(super) struct Draft<'a> {
    base: &'a dyn Read,
    changes: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl Draft<'_> {
    pub(super) fn put<T: RowValue>(&mut self, key: Vec<u8>, row: &T) {
        self.changes.insert(key, Some(row.encode()));
    }

    pub(super) fn put_raw(&mut self, key: Vec<u8>, value: Bytes) {
        self.changes.insert(key, Some(value));
    }

    pub(super) fn remove(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    pub(super) fn row<T: RowValue>(&self, key: &[u8]) -> Result<Option<T>, ReadError> {
        read::get(self, key)
    }

    fn changed(&self, from: &[u8], to: &[u8]) -> std::collections::btree_map::Range<'_, Vec<u8>, Option<Bytes>> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        if from < to { self.changes.range::<[u8], _>(bounds) } else { Default::default() }
    }
}

impl Read for Draft<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(key),
        }
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        let mut changes = self.changed(from, to).peekable();
        let base = self.base.range(from, to);
        match changes.peek() {
            None => base,
            Some(_) => Box::new(Overlaid { changes, base: base.peekable() }),
        }
    }

    fn range_back(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        let all: Vec<_> = self.range(from, to).collect();
        Box::new(all.into_iter().rev())
    }
}

/// The base's rows with the changes laid over them.
struct Overlaid<'a, C: Iterator> {
    changes: Peekable<C>,
    base: Peekable<Rows<'a>>,
}

impl<'a, C> Iterator for Overlaid<'a, C>
where
    C: Iterator<Item = (&'a Vec<u8>, &'a Option<Bytes>)>,
{
    type Item = Result<Row, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((changed, _)) = self.changes.peek() else { return self.base.next() };
            match self.base.peek() {
                Some(Err(_)) => return self.base.next(),
                Some(Ok((key, _))) if key[..] < changed[..] => return self.base.next(),
                Some(Ok((key, _))) if key[..] == changed[..] => drop(self.base.next()),
                _ => {}
            }
            if let Some((key, Some(value))) = self.changes.next() {
                return Some(Ok((Bytes::copy_from_slice(key), value.clone())));
            }
        }
    }
}

/// One entry being decided.
pub(super) struct Work<'a> {
    pub(super) shard: &'a Shard,
    pub(super) attempt: AttemptId,
    /// The entry's effective time: never before that of an earlier entry.
    pub(super) now_ms: u64,
    pub(super) draft: Draft<'a>,
    /// Contents homed here whose writer lets go in this entry.
    pub(super) let_go: BTreeSet<(Home, ContentId)>,
    /// Contents homed here that lost any owner in this entry.
    pub(super) touched: BTreeSet<(Home, ContentId)>,
    /// Work for other shards.
    pub(super) owed: Vec<OutboxRow>,
    state: ShardState,
}

impl<'a> Work<'a> {
    pub(super) fn begin(shard: &'a Shard, entry: &Entry, base: &'a dyn Read) -> Result<Self, ReadError> {
        let state = read::shard::state(base, shard.id)?;
        Ok(Work {
            shard,
            attempt: entry.attempt,
            now_ms: entry.stamp_ms.max(state.last_stamp_ms),
            draft: Draft { base, changes: BTreeMap::new() },
            let_go: BTreeSet::new(),
            touched: BTreeSet::new(),
            owed: Vec::new(),
            state,
        })
    }

    /// Forgets every change.
    pub(super) fn undo(&mut self) {
        self.draft.changes.clear();
        self.let_go.clear();
        self.touched.clear();
        self.owed.clear();
    }

    /// Refuses what this shard does not hold.
    pub(super) fn require(&self, bucket: BucketId, key: &ObjectKey) -> Decision<()> {
        if self.holds(bucket, key) { Ok(()) } else { Err(Refusal::Moved.into()) }
    }

    /// Whether the key is in this shard.
    pub(super) fn holds(&self, bucket: BucketId, key: &ObjectKey) -> bool {
        self.shard.range.contains(bucket, key)
    }

    /// Judges what the entry left ownerless, numbers what it owes, and makes the batch.
    pub(super) fn finish(mut self, batch: &mut WriteBatch) -> Result<(), ReadError> {
        self.judge_ownerless()?;
        let before = self.state;
        for row in std::mem::take(&mut self.owed) {
            self.draft.put(key::outbox(self.shard.id, self.state.next_outbox), &row);
            self.state.next_outbox += 1;
        }
        self.state.last_stamp_ms = self.now_ms;
        if self.state != before {
            self.draft.put(key::shard_state(self.shard.id), &self.state);
        }
        batch.rows.extend(self.draft.changes);
        Ok(())
    }
}
