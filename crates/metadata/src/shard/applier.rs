//! Apply: committed entries, in order, through the state machine into the tree of every folder; then the answers.
//!
//! Promises: an answered entry is readable; its rows and its shard's applied index are one batch; trees are sealed for a flush
//! only between entries. A tree that fails leaves; if it was the last one, nothing is acknowledged any more and reads go on.
//! Refuses to know: what entries mean, when they became durable.

use super::driver::ToDriver;
use super::flusher::{Asked, FlushEnd, FlushJob, Flusher};
use super::group::{Committed, Waiting, What};
use super::install::Install;
use super::kept::{Kept, View};
use super::members::put_members;
use super::rows::{Applied, put_applied};
use super::shared::Shared;
use super::snapshot::Spans;
use super::{Shard, ShardId, StateMachine, envelope};
use crate::cache::Touched;
use crate::command::{Entry, Outcome};
use crate::limits::{UNFLUSHED_MEMTABLES, YOUNG_RUNS_MAX};
use crate::node::ProposeError;
use crate::tree::{Sequence, Snapshot, Tree, TreeError, WriteBatch};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Entries between two looks at the size of the memtable during replay; 64 of the largest are 64 MiB.
const REPLAY_CHECK: usize = 64;

/// What apply is told.
pub(crate) enum ToApply {
    /// Apply these in order.
    Entries(Vec<Committed>),
    /// Flush everything applied so far in every folder, and say when it is done.
    Flush(oneshot::Sender<Result<(), String>>),
    /// Write a batch of nothing: readers that come after it look into the newest tables instead of the rows in memory that were flushed.
    Renew(oneshot::Sender<()>),
    /// The log of this folder left the log set.
    Left(usize),
    /// Look whether a flush is due.
    Look,
    /// A flush or compaction of this folder's tree ended.
    Ended(usize, FlushEnd),
    /// Keep this chunk of a snapshot.
    Stage {
        /// Of which shard.
        shard: ShardId,
        /// Of which snapshot.
        id: u64,
        /// Its place among the chunks.
        number: u32,
        /// As it came.
        chunk: Bytes,
    },
    /// All chunks are here: make them the shard's rows, and tell the driver.
    Install(Box<Install>),
}

/// One folder's tree.
pub(crate) struct Folder {
    pub(crate) folder: usize,
    pub(crate) tree: Arc<dyn Tree>,
    /// Position of the last batch written.
    at: Sequence,
    /// Where it was last sealed since the start.
    sealed_at: Option<Sequence>,
    flusher: Option<Flusher>,
    flushing: bool,
    /// The last flush found too little space: not tried again before somebody wants something.
    postponed: bool,
    /// Something is sealed and not flushed.
    owed: bool,
}

impl Folder {
    pub(crate) fn new(folder: usize, tree: Arc<dyn Tree>) -> Folder {
        let at = tree.pins().published();
        Folder { folder, tree, at, sealed_at: None, flusher: None, flushing: false, postponed: false, owed: false }
    }
}

/// Apply.
pub(crate) struct Applier {
    /// The first is read.
    folders: Vec<Folder>,
    shards: BTreeMap<ShardId, Shard>,
    applied: BTreeMap<ShardId, Applied>,
    machine: Box<dyn StateMachine>,
    /// Rows as of the last batch written.
    kept: Kept,
    shared: Arc<Shared>,
    memtable_bytes: u64,
    /// Keys of rows that are written and not published.
    touched: Touched,
    /// Asked for while flushes were running: begun when those end.
    asked: Vec<oneshot::Sender<Result<(), String>>>,
    /// Folders whose trees failed, and snapshots that were installed, for the driver.
    tell: Box<dyn FnMut(ToDriver) + Send>,
}

struct Done {
    shard: ShardId,
    entry: Option<(Box<Entry>, Outcome)>,
    waiting: Option<Waiting>,
}

impl Applier {
    pub(crate) fn new(
        folders: Vec<Folder>,
        shards: BTreeMap<ShardId, Shard>,
        applied: BTreeMap<ShardId, Applied>,
        machine: Box<dyn StateMachine>,
        shared: Arc<Shared>,
        memtable_bytes: u64,
    ) -> Applier {
        let tell = Box::new(|_| {});
        Applier {
            folders,
            shards,
            applied,
            machine,
            kept: Kept::default(),
            shared,
            memtable_bytes,
            touched: Touched::default(),
            asked: Vec::new(),
            tell,
        }
    }

    /// Gives each folder its flusher, and says how the driver is told.
    pub(crate) fn connect(
        &mut self,
        mut flusher: impl FnMut(usize, Arc<dyn Tree>) -> Flusher,
        tell: Box<dyn FnMut(ToDriver) + Send>,
    ) {
        for folder in &mut self.folders {
            folder.flusher = Some(flusher(folder.folder, folder.tree.clone()));
        }
        self.tell = tell;
    }

    /// Handles messages in order.
    pub(crate) fn handle(&mut self, messages: Vec<ToApply>) {
        for message in messages {
            match message {
                ToApply::Entries(entries) => {
                    self.retry_flushes();
                    self.apply(entries);
                }
                ToApply::Flush(done) => {
                    self.retry_flushes();
                    self.asked.push(done);
                }
                ToApply::Renew(done) => {
                    self.renew();
                    // Whoever asked may have given up.
                    let _ = done.send(());
                }
                ToApply::Left(folder) => self.lose(folder, "its log failed"),
                ToApply::Look => {
                    // Before the look: who is turned away after it must be able to ask again.
                    self.shared.look_asked.store(false, Ordering::Release);
                    self.retry_flushes();
                    self.folders.iter().filter_map(|folder| folder.flusher.as_ref()).for_each(Flusher::compact);
                }
                ToApply::Ended(folder, result) => self.ended(folder, result),
                ToApply::Stage { shard, id, number, chunk } => {
                    let done = self.stage(shard, id, number, chunk);
                    self.note(done);
                }
                ToApply::Install(install) => {
                    let done = match self.shared.failure() {
                        Some(reason) => Err(reason),
                        None => self.install(&install, false),
                    };
                    (self.tell)(ToDriver::Installed(install.shard.id, install.id, done));
                }
            }
        }
        self.seal_if_due();
        self.watch_trees();
    }

    /// Applies entries, publishes their rows, answers their proposers.
    pub(crate) fn apply(&mut self, entries: Vec<Committed>) {
        if let Some(reason) = self.shared.failure() {
            return abandon(entries.into_iter().filter_map(|entry| entry.waiting), &reason);
        }
        let (mut done, mut entries) = (Vec::new(), entries.into_iter());
        while let Some(committed) = entries.next() {
            let Committed { shard, index, term, what, waiting } = committed;
            match self.apply_one(shard, (index, term), what) {
                Ok(entry) => done.push(Done { shard, entry, waiting }),
                Err(reason) => {
                    let reason = format!("entry {index} of shard {}: {reason}", shard.0);
                    self.shared.fail(reason.clone());
                    let rest = entries.filter_map(|entry| entry.waiting);
                    return abandon(
                        done.into_iter().filter_map(|done| done.waiting).chain(waiting).chain(rest),
                        &reason,
                    );
                }
            }
        }
        self.publish();
        self.answer(done);
    }

    /// Shows readers what was written. An object that was touched is not in the cache from before anybody can see what became
    /// of it, and comes back only as it is then.
    fn publish(&mut self) {
        let closed = self.shared.objects.close(&self.touched);
        self.folders.iter().for_each(|folder| folder.tree.publish(folder.at));
        closed.open();
        self.touched.clear();
    }

    fn apply_one(&mut self, id: ShardId, at: Applied, what: What) -> Result<Option<(Box<Entry>, Outcome)>, String> {
        let before = self.applied.get(&id).map_or(0, |(index, _)| *index);
        if at.0 != before + 1 {
            return Err(format!("the one applied before it is {before}"));
        }
        let mut members = None;
        let entry = match what {
            What::Command(entry) => Some(entry),
            // A new leader's first entry.
            What::Data(data) if data.is_empty() => None,
            What::Data(data) => {
                let entry = envelope::decode(&data)?;
                // Stamped by another leader or in another run.
                self.shared.stamped(entry.stamp_ms);
                Some(Box::new(entry))
            }
            What::Members(changed) => {
                members = Some(changed);
                None
            }
        };
        let (outcome, mut batch) = match &entry {
            Some(entry) => self.decide(id, entry).map(|(outcome, batch)| (Some(outcome), batch))?,
            None => (None, WriteBatch::default()),
        };
        if let Some(members) = &members {
            put_members(&mut batch, id, members);
        }
        put_applied(&mut batch, id, at);
        let kept = Kept::changes(&batch, self.machine.keeps());
        self.write(batch).map_err(|e| e.to_string())?;
        self.kept.follow(kept);
        self.applied.insert(id, at);
        Ok(entry.zip(outcome))
    }

    /// What an entry does, as the first tree says that can be read. Nothing is written yet, so those before it just leave.
    fn decide(&mut self, id: ShardId, entry: &Entry) -> Result<(Outcome, WriteBatch), String> {
        let shard = self.shards.get(&id).ok_or("no such shard")?;
        let mut unreadable = Vec::new();
        for folder in &self.folders {
            let mut batch = WriteBatch::default();
            let tree = Snapshot::unpublished(&folder.tree, folder.at);
            // The same for all folders: they hold the same rows.
            let view = View { tree, kept: &self.kept, keeps: self.machine.keeps() };
            match self.machine.apply(shard, entry, &view, &mut batch) {
                Ok(outcome) => {
                    unreadable.into_iter().for_each(|(folder, reason): (usize, String)| self.lose(folder, &reason));
                    return Ok((outcome, batch));
                }
                Err(e) => unreadable.push((folder.folder, e.to_string())),
            }
        }
        // All fail alike if it is not the disk's fault: then none leaves.
        Err(unreadable.into_iter().next().map_or_else(|| "there is no tree".to_owned(), |(_, reason)| reason))
    }

    /// Writes the batch to all trees; one that fails leaves. An error if none is left.
    fn write(&mut self, batch: WriteBatch) -> Result<(), TreeError> {
        batch.rows.iter().for_each(|(key, _)| self.touched.note(key));
        let mut failed = Vec::new();
        let count = self.folders.len();
        let mut batch = Some(batch);
        for (index, folder) in self.folders.iter_mut().enumerate() {
            let last = index + 1 == count;
            let rows = if last { batch.take() } else { batch.as_ref().map(|b| WriteBatch { rows: b.rows.clone() }) };
            match folder.tree.write(rows.unwrap_or_default()) {
                Ok(at) => folder.at = at,
                Err(e) => failed.push((folder.folder, e)),
            }
        }
        for (folder, error) in failed {
            if self.folders.len() == 1 {
                return Err(error);
            }
            self.lose(folder, &error.to_string());
        }
        Ok(())
    }

    /// A reader's position decides which list of tables it reads, so without a later position there is no later list.
    fn renew(&mut self) {
        if self.shared.failure().is_some() {
            return;
        }
        match self.write(WriteBatch::default()) {
            Ok(()) => self.publish(),
            Err(e) => self.shared.fail(e.to_string()),
        }
    }

    /// A tree that cannot take what it is given ends everything.
    fn note(&mut self, done: Result<(), String>) {
        if let Err(reason) = done {
            self.shared.fail(reason);
        }
    }

    /// Writes a batch that no entry made, and shows it.
    pub(super) fn write_and_publish(&mut self, batch: WriteBatch) -> Result<(), String> {
        self.write(batch).map_err(|e| e.to_string())?;
        self.publish();
        Ok(())
    }

    /// The rows of a shard are those of a snapshot now. What is kept in memory of rows is made anew, before anybody sees them.
    pub(super) fn took_over(&mut self, install: &Install) {
        let shard = &install.shard;
        self.kept.clear();
        self.shards.insert(shard.id, shard.clone());
        self.applied.insert(shard.id, install.at);
        self.shared.shards.store(Arc::new(self.shards.clone()));
        let view = Snapshot::published(&self.shared.tree());
        self.machine.installed(shard, &view);
        match self.machine.last_stamp_ms(shard.id, &view) {
            Ok(stamp_ms) => self.shared.stamped(stamp_ms),
            Err(e) => self.shared.fail(e.to_string()),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn spans(&self) -> Spans {
        self.machine.spans()
    }

    pub(super) fn trees(&self) -> impl Iterator<Item = &Arc<dyn Tree>> {
        self.folders.iter().map(|folder| &folder.tree)
    }

    pub(super) fn first_tree(&self) -> Arc<dyn Tree> {
        self.folders[0].tree.clone()
    }

    pub(super) fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes
    }

    fn retry_flushes(&mut self) {
        self.folders.iter_mut().for_each(|folder| folder.postponed = false);
    }

    /// A folder leaves, and the driver is told. The last one cannot: then nothing is acknowledged any more.
    fn lose(&mut self, folder: usize, reason: &str) {
        if self.folders.iter().all(|other| other.folder != folder) {
            return;
        }
        if self.folders.len() == 1 {
            return self.shared.fail(reason.to_owned());
        }
        tracing::error!(folder, reason, "a metadata folder leaves");
        self.folders.retain(|other| other.folder != folder);
        self.shared.set_tree(self.folders[0].tree.clone());
        (self.tell)(ToDriver::Exclude(folder));
    }

    /// What is kept in memory of the rows follows first; then those who wait for an entry to be applied hear of it, and last the
    /// proposers: whoever is answered may ask another node, which must find it.
    fn answer(&mut self, done: Vec<Done>) {
        let view = Snapshot::published(&self.shared.tree());
        for Done { shard, entry, .. } in &done {
            if let (Some((entry, outcome)), Some(shard)) = (entry, self.shards.get(shard)) {
                self.machine.applied(shard, entry, outcome, &view);
            }
        }
        self.shared.reached(&self.applied);
        for Done { entry, waiting, .. } in done {
            if let (Some((_, outcome)), Some(waiting)) = (entry, waiting) {
                waiting.answer(Ok(outcome));
            }
        }
    }

    /// Brings one folder's tree up to date with its log, at a start: nobody waits, nothing is refreshed.
    /// On a full disk, `has_room` says, rows stay in memory: the node is to start, for only then can space be given back.
    pub(crate) fn replay(
        &mut self,
        entries: impl Iterator<Item = Committed>,
        has_room: impl Fn(u64) -> bool,
    ) -> Result<(), String> {
        for (count, entry) in entries.enumerate() {
            self.apply_one(entry.shard, (entry.index, entry.term), entry.what)
                .map_err(|e| format!("entry {} of shard {}: {e}", entry.index, entry.shard.0))?;
            if count % REPLAY_CHECK == 0 {
                self.flush_replayed(&has_room)?;
            }
        }
        self.publish();
        Ok(())
    }

    fn flush_replayed(&mut self, has_room: &impl Fn(u64) -> bool) -> Result<(), String> {
        self.publish();
        for folder in &self.folders {
            if folder.tree.unsealed_bytes() >= self.memtable_bytes && has_room(2 * folder.tree.flush_bytes()) {
                folder.tree.seal();
                folder.tree.flush().map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Lets what is kept in memory be made from the rows.
    pub(crate) fn started(&mut self) {
        let view = Snapshot::published(&self.shared.tree());
        self.machine.started(&view);
        self.shared.shards.store(Arc::new(self.shards.clone()));
        self.shared.reached(&self.applied);
    }

    /// Effective time of the shard's last entry.
    pub(crate) fn last_stamp_ms(&self, shard: ShardId) -> Result<u64, TreeError> {
        self.machine.last_stamp_ms(shard, &Snapshot::published(&self.shared.tree()))
    }

    /// Gives the state machine back.
    pub(crate) fn into_machine(self) -> Box<dyn StateMachine> {
        self.machine
    }

    /// How far each shard is applied.
    pub(crate) fn applied(&self) -> &BTreeMap<ShardId, Applied> {
        &self.applied
    }

    fn ended(&mut self, folder: usize, result: FlushEnd) {
        let Some(found) = self.folders.iter_mut().find(|other| other.folder == folder) else { return };
        match result {
            FlushEnd::Durable => (found.flushing, found.owed) = (false, false),
            FlushEnd::Postponed => {
                found.flushing = false;
                (found.postponed, found.owed) = (true, true);
            }
            FlushEnd::Compacted => {}
            FlushEnd::Failed(reason) => {
                found.flushing = false;
                self.lose(folder, &reason);
            }
        }
    }

    /// Begins flushes: of trees whose memtable is full, of all if the log is too long or it was asked for.
    fn seal_if_due(&mut self) {
        if self.shared.failure().is_some() {
            return self.asked.drain(..).for_each(|asked| drop(asked.send(Err("metadata failed".to_owned()))));
        }
        let idle = self.folders.iter().all(|folder| !folder.flushing);
        let asked = if idle { std::mem::take(&mut self.asked) } else { Vec::new() };
        let (wanted, asked) = (!asked.is_empty(), Asked::new(asked));
        let long = self.shared.log_long.load(Ordering::Relaxed);
        for folder in self.folders.iter_mut().filter(|folder| !folder.flushing) {
            let Some(flusher) = folder.flusher.as_ref().filter(|_| !folder.postponed) else { continue };
            let helps = long && folder.sealed_at != Some(folder.at);
            if wanted || helps || folder.owed || folder.tree.unsealed_bytes() >= self.memtable_bytes {
                folder.tree.seal();
                folder.flushing = true;
                folder.sealed_at = Some(folder.at);
                flusher.submit(FlushJob { applied: self.applied.clone(), asked: asked.clone() });
            }
        }
    }

    fn watch_trees(&self) {
        let behind = self.folders.iter().any(|folder| {
            let stats = folder.tree.stats();
            stats.unflushed_bytes > UNFLUSHED_MEMTABLES * self.memtable_bytes || stats.young_runs >= YOUNG_RUNS_MAX
        });
        self.shared.tree_behind.store(behind, Ordering::Relaxed);
    }
}

fn abandon(waiting: impl Iterator<Item = Waiting>, reason: &str) {
    waiting.for_each(|waiting| waiting.answer(Err(ProposeError::Failed(reason.to_owned()))));
}
