//! A snapshot becomes a shard's rows.
//!
//! The chunks are staged in the tree first, in rows of the driver's family that nobody reads. Then, with nothing else applied
//! meanwhile: a mark that it began; the shard's old rows removed; the new ones written, from the staged chunks read back and proved
//! again; and in one batch the shard, its members, the applied row, a mark that this entry came by a snapshot, and the begun mark
//! away. Then everything is flushed, and only then the driver, Raft and the log hear of it.
//!
//! ```text
//! 00 'i' shard id number   a staged chunk         00 'b' shard   begun: format u8, postcard of what is being installed
//! 00 'f' shard             finished: index u64, term u64 of the last snapshot installed
//! ```
//!
//! Promises: readers see the shard as it was until all of it is there; a crash leaves a prefix of these batches, so a begun mark
//! in a tree says that its chunks are all there and the installation is to be done again, and an applied row beyond the log's end is
//! believed only beside a finished mark of the same entry. Refuses to know: Raft, the log, who sent the rows.

use super::applier::{Applier, Folder};
use super::members::{Members, put_members};
use super::rows::{Applied, put_applied, put_shard};
use super::shared::Shared;
use super::snapshot::{self, Spans};
use super::{DRIVER_FAMILY, Shard, ShardId, StateMachine};
use crate::cache::ObjectCache;
use crate::command::{Entry, Outcome};
use crate::tree::{Read, Row, Snapshot, Tree, TreeError, WriteBatch};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

const STAGED: u8 = b'i';
const BEGUN: u8 = b'b';
const FINISHED: u8 = b'f';
/// Version of the bytes of a begun mark, their first byte.
const FORMAT: u8 = 1;
/// Bytes of rows in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// What is to be installed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Install {
    pub(crate) id: u64,
    pub(crate) shard: Shard,
    pub(crate) at: Applied,
    pub(crate) members: Members,
    pub(crate) chunks: u32,
}

fn key(kind: u8, shard: ShardId) -> Vec<u8> {
    let mut key = vec![DRIVER_FAMILY, kind];
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

fn staged(shard: ShardId, id: u64, number: u32) -> Vec<u8> {
    let mut key = key(STAGED, shard);
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The installations that a crash interrupted.
fn interrupted(read: &dyn Read) -> Result<Vec<Install>, TreeError> {
    let rows = read.range(&[DRIVER_FAMILY, BEGUN], &[DRIVER_FAMILY, BEGUN + 1]);
    let decode = |row: Result<Row, TreeError>| {
        let (_, value) = row?;
        let bytes = value.strip_prefix(&[FORMAT]).ok_or_else(|| TreeError("a mark of another format".to_owned()))?;
        postcard::from_bytes(bytes).map_err(|e| TreeError(format!("the mark of a snapshot: {e}")))
    };
    rows.map(decode).collect()
}

/// Ends what a crash interrupted in one tree, and removes what was staged for nothing.
pub(crate) fn recover(folder: usize, tree: &Arc<dyn Tree>, spans: Spans, memtable_bytes: u64) -> Result<(), String> {
    let interrupted = interrupted(&Snapshot::published(tree)).map_err(|e| e.to_string())?;
    let shared = Arc::new(Shared::new(tree.clone(), ObjectCache::new(0, 0), false));
    let folders = vec![Folder::new(folder, tree.clone())];
    let machine = Box::new(Spanned(spans));
    let mut applier = Applier::new(folders, BTreeMap::new(), BTreeMap::new(), machine, shared, memtable_bytes);
    for install in interrupted {
        tracing::warn!(folder, shard = install.shard.id.0, index = install.at.0, "installing a snapshot again");
        applier.install(&install, true)?;
    }
    applier.clear_staged(None)
}

/// Only where rows are.
struct Spanned(Spans);

impl StateMachine for Spanned {
    fn apply(&mut self, _: &Shard, _: &Entry, _: &dyn Read, _: &mut WriteBatch) -> Result<Outcome, TreeError> {
        Err(TreeError("entries are not applied while snapshots are".to_owned()))
    }

    fn spans(&self) -> Spans {
        self.0
    }
}

/// The entry of the last snapshot that was installed.
pub(crate) fn finished(read: &dyn Read, shard: ShardId) -> Result<Option<Applied>, TreeError> {
    let Some(value) = read.get(&key(FINISHED, shard))? else { return Ok(None) };
    let number = |at: usize| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let at = number(0).zip(number(8)).ok_or_else(|| TreeError("the mark of an installed snapshot".to_owned()))?;
    Ok(Some(at))
}

impl Applier {
    /// Keeps a chunk where it is found again; the others of older snapshots go when the first of a new one comes.
    pub(super) fn stage(&mut self, shard: ShardId, id: u64, number: u32, chunk: Bytes) -> Result<(), String> {
        if number == 0 {
            self.clear_staged(Some(shard))?;
        }
        let mut batch = WriteBatch::default();
        batch.put(staged(shard, id, number), chunk);
        self.put(batch)
    }

    /// Removes staged chunks, of one shard or of all.
    pub(crate) fn clear_staged(&mut self, shard: Option<ShardId>) -> Result<(), String> {
        let from = shard.map_or(vec![DRIVER_FAMILY, STAGED], |shard| key(STAGED, shard));
        let to = crate::format::key::successor(from.clone());
        self.remove_range(&from, &to)
    }

    /// Makes the staged rows those of the shard. Nothing if the shard is as far already.
    pub(crate) fn install(&mut self, install: &Install, again: bool) -> Result<(), String> {
        let Install { shard, at, .. } = install;
        if !again && self.applied().get(&shard.id).is_some_and(|(index, _)| *index >= at.0) {
            return Err("this node is as far already".to_owned());
        }
        // Read back before anything is touched: a damaged one is only fetched again.
        (0..install.chunks).try_for_each(|number| self.read_staged(install, number).map(drop))?;
        let shared = self.shared().clone();
        // From here on a reader gets what was published before.
        let hold = shared.hold();
        // If this fails half-way the readers keep that for good: what is published is neither the old nor the new.
        if let Err(reason) = self.replace(install) {
            std::mem::forget(hold);
            shared.fail(reason.clone());
            return Err(reason);
        }
        self.took_over(install);
        // What was read until now is not kept beyond the exchange.
        let closed = shared.objects.close_all();
        drop(hold);
        closed.open();
        // Only now: who waited for this entry takes a snapshot next.
        shared.reached(self.applied());
        self.clear_staged(Some(shard.id))
    }

    fn replace(&mut self, install: &Install) -> Result<(), String> {
        let Install { shard, at, members, chunks, .. } = install;
        let mut batch = WriteBatch::default();
        let mark = postcard::to_extend(install, vec![FORMAT]).map_err(|e| e.to_string())?;
        batch.put(key(BEGUN, shard.id), mark);
        self.put(batch)?;
        let spans = self.spans()(shard);
        for (from, to) in &spans {
            self.remove_range(from, to)?;
        }
        for number in 0..*chunks {
            let mut batch = WriteBatch::default();
            self.read_staged(install, number)?.into_iter().for_each(|(row, value)| batch.put(row.to_vec(), value));
            self.put(batch)?;
        }
        let mut batch = WriteBatch::default();
        put_shard(&mut batch, shard);
        put_members(&mut batch, shard.id, members);
        put_applied(&mut batch, shard.id, *at);
        let mark = [at.0.to_le_bytes(), at.1.to_le_bytes()].concat();
        batch.put(key(FINISHED, shard.id), mark);
        batch.remove(key(BEGUN, shard.id));
        self.put(batch)?;
        self.flush_all()
    }

    /// The rows of a staged chunk. One of another shard would destroy what is there.
    fn read_staged(&self, install: &Install, number: u32) -> Result<Vec<Row>, String> {
        let key = staged(install.shard.id, install.id, number);
        let chunk = self.newest().get(&key).map_err(|e| e.to_string())?;
        let chunk = chunk.as_ref().and_then(snapshot::decode);
        let (rows, _) = chunk.ok_or_else(|| format!("chunk {number} of the snapshot is not what was staged"))?;
        let spans = self.spans()(&install.shard);
        let own = |row: &Bytes| spans.iter().any(|(from, to)| from[..] <= row[..] && row[..] < to[..]);
        if rows.iter().all(|(row, _)| own(row)) { Ok(rows) } else { Err("a row of another shard".to_owned()) }
    }

    fn remove_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let old = self.newest();
        let (mut batch, mut bytes) = (WriteBatch::default(), 0);
        for row in old.range(from, to) {
            let (key, _) = row.map_err(|e| e.to_string())?;
            bytes += key.len();
            batch.remove(key.to_vec());
            if bytes >= BATCH_BYTES {
                bytes = 0;
                self.put(std::mem::take(&mut batch))?;
            }
        }
        self.put(batch)
    }

    /// Writes a batch and publishes it; a memtable that is full is flushed.
    fn put(&mut self, batch: WriteBatch) -> Result<(), String> {
        if batch.rows.is_empty() {
            return Ok(());
        }
        self.write_and_publish(batch)?;
        if self.trees().any(|tree| tree.unsealed_bytes() >= self.memtable_bytes()) {
            self.flush_all()?;
        }
        Ok(())
    }

    fn flush_all(&mut self) -> Result<(), String> {
        let trees: Vec<Arc<dyn Tree>> = self.trees().cloned().collect();
        for tree in trees {
            tree.seal();
            tree.flush().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn newest(&self) -> Snapshot {
        Snapshot::published(&self.first_tree())
    }
}
