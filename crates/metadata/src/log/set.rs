//! The logs of a node's metadata folders as one (protocols.md 6).
//!
//! Promises: an append counts when the log of every folder in the log set has it. A folder that fails leaves the set by a record
//! that is durable in all others before anything more is acknowledged; two failing at once stop the log. A start believes the
//! newest record it sees and refuses unless it sees more than half of that set, all of it if it has two.
//! Refuses to know: trees; how a folder is filled anew.

use super::format::{Item, LogEntry, LogSetRecord};
use super::{Log, LogError, LogStats, OpenError, Recovered};
use crate::shard::ShardId;
use env::disk::DiskFile;
use env::tasks::{Tasks, Worker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The set cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// Too few of the folders that have to be there.
    #[error("only {seen} of the {wanted} metadata folders of the log set can be read{}", reasons(.errors))]
    TooFew {
        /// Readable members.
        seen: usize,
        /// Members.
        wanted: usize,
        /// What is wrong with the others.
        errors: Vec<OpenError>,
    },
    /// A log failed while the set was being opened.
    #[error("{0}")]
    Log(#[from] LogError),
}

fn reasons(errors: &[OpenError]) -> String {
    errors.iter().map(|e| format!("; {e}")).collect()
}

/// A folder's log in the set.
struct Member {
    /// Which of the node's folders.
    folder: usize,
    log: Log,
}

type SyncJob = (usize, Arc<dyn DiskFile>, Sender<(usize, io::Result<()>)>);

/// The logs in the set. One owner.
pub struct LogSet {
    members: Vec<Member>,
    record: LogSetRecord,
    failed: Option<LogError>,
    /// Syncs of all members but the first; `None` in a simulation, where one after the other is as good.
    syncers: Vec<Worker<SyncJob>>,
    tasks: Tasks,
}

/// What opening a set found.
pub struct OpenedSet {
    /// The set.
    pub set: LogSet,
    /// What it holds: the union, that is, the most advanced log.
    pub recovered: Recovered,
    /// Members' folders, with the index and term after which each shard's log begins there.
    pub truncated: BTreeMap<usize, BTreeMap<ShardId, (u64, u64)>>,
    /// Folders that are not in the set and have to be filled anew, with what was wrong.
    pub outside: Vec<(usize, String)>,
}

impl LogSet {
    /// A set of new logs.
    pub fn create(tasks: &Tasks, logs: Vec<Log>) -> Result<LogSet, LogError> {
        let record = LogSetRecord { version: 1, members: logs.iter().map(Log::id).collect() };
        let members = logs.into_iter().enumerate().map(|(folder, log)| Member { folder, log }).collect();
        let mut set = LogSet::new(tasks, members, record.clone());
        set.write_all(&[Item::LogSet(record)])?;
        Ok(set)
    }

    fn new(tasks: &Tasks, members: Vec<Member>, record: LogSetRecord) -> LogSet {
        LogSet { members, record, failed: None, syncers: Vec::new(), tasks: tasks.clone() }
    }

    /// Puts the logs that could be opened together. So many as `lost` need not answer: the operator says that they are gone.
    pub fn open(
        tasks: &Tasks,
        opened: Vec<Result<(Log, Recovered), OpenError>>,
        lost: usize,
    ) -> Result<OpenedSet, SetError> {
        let newest = opened.iter().flatten().map(|(_, recovered)| &recovered.state.log_set);
        let record = newest.max_by_key(|record| record.version).cloned().unwrap_or_default();
        let (mut members, mut outside, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (folder, result) in opened.into_iter().enumerate() {
            match result {
                Ok((log, recovered)) if record.members.contains(&log.id()) => {
                    members.push((Member { folder, log }, recovered));
                }
                Ok(_) => outside.push((folder, "it had left the log set".to_owned())),
                Err(e) => {
                    outside.push((folder, e.to_string()));
                    errors.push(e);
                }
            }
        }
        let (seen, wanted) = (members.len(), record.members.len());
        // A log that is there and cannot be read may be one of those asked for: it is not excused by the loss of another.
        let unreadable = errors.iter().filter(|e| !matches!(e, OpenError::Missing(_))).count();
        let answered = (seen + lost.saturating_sub(unreadable)).min(wanted);
        if seen == 0 || (answered < wanted && (wanted == 2 || answered * 2 <= wanted)) {
            return Err(SetError::TooFew { seen, wanted, errors });
        }
        let truncated = members.iter().map(|(m, recovered)| (m.folder, recovered.state.truncated.clone())).collect();
        let (members, recovered) = level(members)?;
        // Written again where it is not the newest: a crash came between two folders, and a later start that sees only those
        // would judge by an old record, or take a store for one that was never made.
        let stale = members.iter().any(|member| member.log.state().log_set != record);
        let mut set = LogSet::new(tasks, members, record);
        if seen < wanted || stale {
            set.change_members()?;
        }
        Ok(OpenedSet { set, recovered, truncated, outside })
    }

    /// Makes room in every log; fails before anything is written.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), LogError> {
        self.check()?;
        // Begun anew when one leaves: its record took room, and those behind it were not asked yet.
        while let Err(error) = self.members.iter_mut().try_for_each(|member| member.log.reserve(bytes)) {
            match error {
                LogError::Failed(_) => self.exclude_failed()?,
                LogError::NoSpace | LogError::Short | LogError::TooLarge => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends items to all logs of the set as one. `NoSpace`, `Short` and `TooLarge` leave nothing behind.
    pub fn append(&mut self, items: &[Item]) -> Result<(), LogError> {
        self.reserve(items.iter().map(Item::encoded_bytes).sum())?;
        match self.write_all(items) {
            Err(LogError::Failed(_)) => self.exclude_failed(),
            done => done,
        }
    }

    /// Truncates the log of one folder, by what a completed flush of that folder's tree holds.
    pub fn truncate(&mut self, folder: usize, marks: &[(ShardId, u64, u64)]) -> Result<(), LogError> {
        self.check()?;
        let Some(member) = self.members.iter_mut().find(|member| member.folder == folder) else { return Ok(()) };
        match member.log.truncate(marks) {
            Err(LogError::Failed(_)) => self.exclude_failed(),
            done => done,
        }
    }

    /// See [`Log::mark`].
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.append(&[])
    }

    /// A folder leaves the set although its log is sound. The last one stays.
    pub fn exclude(&mut self, folder: usize) -> Result<(), LogError> {
        self.check()?;
        if self.members.len() < 2 || self.members.iter().all(|member| member.folder != folder) {
            return Ok(());
        }
        self.members.retain(|member| member.folder != folder);
        self.change_members()
    }

    /// Takes a log into the set that holds all the others hold.
    pub fn admit(&mut self, folder: usize, log: Log) -> Result<(), LogError> {
        self.check()?;
        self.members.push(Member { folder, log });
        self.change_members()
    }

    /// Entries of a shard as [`Log::read`] gives them, from the first folder that has them.
    pub fn read(&self, shard: ShardId, low: u64, high: u64, max_bytes: u64) -> Vec<LogEntry> {
        for member in &self.members {
            match member.log.read(shard, low, high, max_bytes) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => return found,
                Err(e) => {
                    tracing::error!(folder = member.folder, error = %e, "entries of the log cannot be read again")
                }
            }
        }
        Vec::new()
    }

    /// See [`Log::first_within`], of one folder.
    pub fn first_within(&self, folder: usize, shard: ShardId, bytes: u64) -> Option<u64> {
        let member = self.members.iter().find(|member| member.folder == folder)?;
        member.log.first_within(shard, bytes)
    }

    /// Index after which the shard's log begins in the folder that goes back the furthest.
    pub fn truncated(&self, shard: ShardId) -> u64 {
        let begins = |member: &Member| member.log.state().truncated.get(&shard).map_or(0, |(index, _)| *index);
        self.members.iter().map(begins).min().unwrap_or(0)
    }

    /// Folders in the set.
    pub fn folders(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.folder).collect()
    }

    /// Most bytes of items that one append takes.
    pub fn append_max_bytes(&self) -> usize {
        self.members.iter().map(|member| member.log.append_max_bytes()).min().unwrap_or(0)
    }

    /// Counters of each folder's log.
    pub fn stats(&self) -> BTreeMap<usize, LogStats> {
        self.members.iter().map(|member| (member.folder, member.log.stats())).collect()
    }

    fn check(&self) -> Result<(), LogError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Puts items into all logs and syncs all of them, at the same time where there are threads.
    fn write_all(&mut self, items: &[Item]) -> Result<(), LogError> {
        let mut result = Ok(());
        for member in &mut self.members {
            // All are tried: which ones failed decides what happens next.
            result = result.and(member.log.put(items));
        }
        result.and(self.sync_all())
    }

    fn sync_all(&mut self) -> Result<(), LogError> {
        let others = self.start_syncs();
        let mut result = Ok(());
        for (index, member) in self.members.iter_mut().enumerate() {
            let synced_elsewhere = others.is_some() && index > 0;
            if !synced_elsewhere {
                result = result.and(member.log.sync());
            }
        }
        for (index, done) in others.into_iter().flatten() {
            result = result.and(self.members[index].log.synced(done));
        }
        result
    }

    fn start_syncs(&mut self) -> Option<Receiver<(usize, io::Result<()>)>> {
        if self.members.len() < 2 || !matches!(self.tasks, Tasks::Threads(_)) {
            return None;
        }
        while self.syncers.len() + 1 < self.members.len() {
            self.syncers.push(Worker::spawn(&self.tasks, "log-sync", 1, 1, |jobs: Vec<SyncJob>| {
                for (index, file, reply) in jobs {
                    // The receiver waits for all answers; if it is gone the process is ending.
                    let _ = reply.send((index, file.sync_data()));
                }
            }));
        }
        let (reply, results) = channel();
        for (index, member) in self.members.iter().enumerate().skip(1) {
            let Some(file) = member.log.to_sync() else { continue };
            if let Err(refused) = self.syncers[index - 1].submit((index, file, reply.clone())) {
                // Its thread died: here and now instead.
                let (index, file, reply) = refused.into_message();
                let _ = reply.send((index, file.sync_data()));
            }
        }
        Some(results)
    }

    /// After a failure: if exactly one of several logs failed it leaves the set, and what was appended counts without it.
    fn exclude_failed(&mut self) -> Result<(), LogError> {
        let failed = |member: &Member| member.log.failure().map(str::to_owned);
        let reasons: Vec<String> = self.members.iter().filter_map(failed).collect();
        if reasons.len() != 1 || self.members.len() < 2 {
            let error = LogError::Failed(reasons.join("; "));
            self.failed = Some(error.clone());
            return Err(error);
        }
        tracing::error!(reason = %reasons[0], "a metadata folder leaves the log set");
        self.members.retain(|member| member.log.failure().is_none());
        self.change_members()
    }

    /// Makes the present members the set, durably in all of them.
    fn change_members(&mut self) -> Result<(), LogError> {
        let members = self.members.iter().map(|member| member.log.id()).collect();
        self.record = LogSetRecord { version: self.record.version + 1, members };
        self.write_all(&[Item::LogSet(self.record.clone())]).map_err(|e| {
            // Final whatever it is: some may have the new record and some the old one.
            let error = LogError::Failed(format!("the log set could not be changed: {e}"));
            self.failed = Some(error.clone());
            error
        })
    }
}

/// Brings all members to what the most advanced one holds. They took the same appends in the same order, so one has them all;
/// and they differ only by what was not acknowledged, as an append counts when all have it.
fn level(members: Vec<(Member, Recovered)>) -> Result<(Vec<Member>, Recovered), LogError> {
    let (mut logs, mut found): (Vec<Member>, Vec<Recovered>) = members.into_iter().unzip();
    let chosen = (0..found.len()).max_by_key(|index| progress(&found[*index])).unwrap_or(0);
    let mut best = Recovered::default();
    std::mem::swap(&mut best, &mut found[chosen]);
    // The others may go back further: each is truncated by the flushes of its own tree.
    for recovered in &found {
        for (shard, older) in &recovered.entries {
            let entries = best.entries.entry(*shard).or_default();
            let (first, mark) = (entries.front().map(|entry| entry.index), best.state.truncated.get(shard));
            let first = first.unwrap_or_else(|| mark.map_or(0, |(index, _)| *index) + 1);
            older.iter().rev().filter(|entry| entry.index < first).for_each(|entry| entries.push_front(entry.clone()));
        }
    }
    for (index, member) in logs.iter_mut().enumerate().filter(|(index, _)| *index != chosen) {
        let items = lacking(&found[index], &best);
        let states = best.state.hard_states.iter().map(|(shard, state)| Item::HardState(*shard, *state));
        if items.is_empty() && member.log.state().hard_states == best.state.hard_states {
            continue;
        }
        append_in_parts(&mut member.log, items.into_iter().chain(states))?;
    }
    Ok((logs, best))
}

/// What makes the entries of `own` those of `best`, above its own marks.
fn lacking(own: &Recovered, best: &Recovered) -> Vec<Item> {
    let (nothing, mut marks, mut items) = (VecDeque::new(), Vec::new(), Vec::new());
    let shards: BTreeSet<&ShardId> = own.entries.keys().chain(best.entries.keys()).collect();
    for shard in shards {
        let mark = own.state.truncated.get(shard).copied().unwrap_or_default();
        let has = own.entries.get(shard).unwrap_or(&nothing);
        let wanted = best.entries.get(shard).unwrap_or(&nothing).iter().filter(|entry| entry.index > mark.0);
        let same = has.iter().zip(wanted.clone()).take_while(|(a, b)| (a.index, a.term) == (b.index, b.term)).count();
        let rest = wanted.clone().skip(same).cloned();
        if has.len() > same && wanted.clone().count() == same {
            // It has more: the first of these marks removes all, the second lets the log begin again where it did.
            let last = has.back().map_or(mark, |entry| (entry.index, entry.term));
            marks.extend([last, mark].map(|(index, term)| Item::Truncated(*shard, index, term)));
            items.extend(wanted.cloned().map(Item::Entry));
        } else {
            items.extend(rest.map(Item::Entry));
        }
    }
    // In front, so that no append separates the two.
    marks.extend(items);
    marks
}

/// How far a log has come: terms and commits never go back, and while they stay entries are added.
fn progress(recovered: &Recovered) -> (u64, u64) {
    let truncated = &recovered.state.truncated;
    let last = |shard: &ShardId| {
        let entry = recovered.entries.get(shard).and_then(|entries| entries.back());
        entry.map_or_else(|| truncated.get(shard).map_or(0, |(index, _)| *index), |entry| entry.index)
    };
    let shards: BTreeSet<&ShardId> = truncated.keys().chain(recovered.entries.keys()).collect();
    let states = recovered.state.hard_states.values().map(|state| state.term + state.commit);
    (states.sum(), shards.into_iter().map(last).sum())
}

/// Appends more than one append may hold.
pub(crate) fn append_in_parts(log: &mut Log, items: impl Iterator<Item = Item>) -> Result<(), LogError> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for item in items {
        if bytes + item.encoded_bytes() > log.append_max_bytes() / 2 && !part.is_empty() {
            log.append(&part)?;
            part.clear();
            bytes = 0;
        }
        bytes += item.encoded_bytes();
        part.push(item);
    }
    log.append(&part)
}
