//! The driver of all Raft groups: gathers proposals, appends them to the log in one write, hands what is committed to apply.
//!
//! Promises: nothing is handed to apply that is not durable in every log of the set; one append and one flush for all groups
//! and proposals of a batch; while a batch is being synced the next one gathers in the queue, and apply runs beside both.
//! A proposal turned away as busy, too late, too large or for lack of space never happens. A failed log answers everything
//! from then on with "failed", whose outcome is not known. Refuses to know: commands, trees.

use super::applier::ToApply;
use super::group::{Group, Waiting};
use super::rows::Applied;
use super::shared::Shared;
use super::{ShardId, envelope};
use crate::command::Entry;
use crate::limits::{BATCH_BYTES, CLOCK_BEHIND_MS, ENTRY_ENVELOPE_BYTES, LOG_OVERRUN};
use crate::log::format::{ENTRY_OVERHEAD_BYTES, HardState};
use crate::log::{LogError, LogSet};
use crate::node::ProposeError;
use env::clock::Clock;
use env::tasks::Worker;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// Told how long each append took; for a histogram.
pub type AppendObserver = Arc<dyn Fn(Duration) + Send + Sync>;

/// A command on its way into the log.
pub(crate) struct Proposal {
    pub(crate) shard: ShardId,
    pub(crate) entry: Box<Entry>,
    /// The entry encoded, to be stamped.
    pub(crate) data: Vec<u8>,
    pub(crate) waiting: Waiting,
}

/// What the driver is told.
pub(crate) enum ToDriver {
    /// Append and apply this.
    Propose(Proposal),
    /// A flush of this folder's tree is complete and holds these.
    Flushed(usize, BTreeMap<ShardId, Applied>),
    /// The tree of this folder failed: the folder leaves.
    Exclude(usize),
    /// At rest: write down how far the log is durable.
    Mark(oneshot::Sender<()>),
}

/// The driver.
pub(crate) struct Driver {
    groups: BTreeMap<ShardId, Group>,
    log: LogSet,
    /// Folders in the set after the last batch.
    folders: Vec<usize>,
    clock: Arc<dyn Clock>,
    /// Whether it was said that the wall clock is behind.
    clock_behind: bool,
    /// `None` while starting: what is committed is gathered instead.
    apply: Option<Worker<ToApply>>,
    shared: Arc<Shared>,
    observer: Option<AppendObserver>,
    /// Log length at which a flush is forced.
    log_bytes: u64,
}

/// A group as it is found at a start: everything in its log is applied.
pub(crate) struct FoundGroup {
    pub(crate) shard: ShardId,
    pub(crate) state: HardState,
    pub(crate) applied: Applied,
}

impl Driver {
    /// Leads every group. Answers what became committed by that, to be applied before anything else.
    pub(crate) fn start(
        node: u64,
        found: Vec<FoundGroup>,
        log: LogSet,
        clock: Arc<dyn Clock>,
        shared: Arc<Shared>,
        observer: Option<AppendObserver>,
        log_bytes: u64,
    ) -> Result<(Driver, Vec<super::group::Committed>), String> {
        let mut groups = BTreeMap::new();
        for FoundGroup { shard, state, applied } in found {
            let mut group = Group::new(shard, node, state, applied).map_err(|e| e.to_string())?;
            group.campaign().map_err(|e| e.to_string())?;
            groups.insert(shard, group);
        }
        let mut driver = Driver {
            groups,
            folders: log.folders(),
            log,
            clock,
            clock_behind: false,
            apply: None,
            shared,
            observer,
            log_bytes,
        };
        let mut committed = Vec::new();
        while driver.groups.values().any(|group| !group.leads()) || committed.len() < driver.groups.len() {
            let before = committed.len();
            if !driver.advance(&mut committed).map_err(|e| e.to_string())? && committed.len() == before {
                return Err("a shard found no leader".to_owned());
            }
        }
        driver.watch_log();
        Ok((driver, committed))
    }

    /// From now on what is committed goes here.
    pub(crate) fn connect(&mut self, apply: Worker<ToApply>) {
        self.apply = Some(apply);
    }

    /// Handles messages in order.
    pub(crate) fn handle(&mut self, messages: Vec<ToDriver>) {
        let mut round = Round::default();
        let most_bytes = self.batch_bytes();
        for message in messages {
            match message {
                ToDriver::Propose(proposal) => {
                    if round.bytes + proposal.data.len() > most_bytes {
                        self.run(std::mem::take(&mut round));
                    }
                    round.add(proposal);
                }
                ToDriver::Flushed(folder, applied) => {
                    let marks: Vec<_> =
                        applied.into_iter().map(|(shard, (index, term))| (shard, index, term)).collect();
                    let done = self.log.truncate(folder, &marks);
                    self.note(done);
                }
                ToDriver::Exclude(folder) => {
                    let done = self.log.exclude(folder);
                    self.note(done);
                }
                ToDriver::Mark(done) => {
                    let result = self.log.mark();
                    self.note(result);
                    // Whoever closes may have stopped waiting.
                    let _ = done.send(());
                }
            }
        }
        self.run(round);
        self.watch_log();
        self.watch_folders();
    }

    /// A folder whose log left the set takes its tree with it: reads go to another disk.
    fn watch_folders(&mut self) {
        let now = self.log.folders();
        for folder in std::mem::replace(&mut self.folders, now.clone()) {
            if let (false, Some(apply)) = (now.contains(&folder), &self.apply) {
                // Refused only if it ended, and then nothing is read or written any more.
                let _ = apply.submit(ToApply::Left(folder));
            }
        }
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES.min(self.log.append_max_bytes() / 2)
    }

    /// A failed log ends everything; want of space does not.
    fn note(&mut self, result: Result<(), LogError>) {
        if let Err(e @ LogError::Failed(_)) = result {
            self.fail(e.to_string());
        }
    }

    fn fail(&mut self, reason: String) {
        self.groups.values_mut().for_each(|group| group.abandon(&reason));
        self.shared.fail(reason);
    }

    /// One append for these proposals.
    fn run(&mut self, round: Round) {
        if round.proposals.is_empty() {
            return;
        }
        if let Some(reason) = self.shared.failure() {
            return round.answer(|| ProposeError::ReadOnly(reason.clone()));
        }
        // Before Raft knows of them, so that a full disk leaves no entry half there.
        match self.log.reserve(round.bytes + self.groups.len() * ENTRY_ENVELOPE_BYTES) {
            Ok(()) => {}
            Err(LogError::NoSpace) => return round.answer(|| ProposeError::NoSpace),
            Err(LogError::Short) => return round.answer(|| ProposeError::Busy),
            Err(LogError::TooLarge) => return round.answer(|| ProposeError::TooLarge),
            Err(e) => {
                self.fail(e.to_string());
                return round.answer(|| ProposeError::Failed(e.to_string()));
            }
        }
        let now = self.time_ms();
        self.shared.stamped(now);
        for proposal in round.proposals {
            self.propose(proposal, now);
        }
        let mut committed = Vec::new();
        loop {
            match self.advance(&mut committed) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return self.fail(e.to_string()),
            }
        }
        let Some(apply) = &self.apply else { return };
        if apply.submit(ToApply::Entries(committed)).is_err() {
            self.fail("apply has ended".to_owned());
        }
    }

    /// Cluster time; says so once if the wall clock is far behind it.
    fn time_ms(&mut self) -> u64 {
        let wall_ms = self.clock.wall_ms();
        let now = self.shared.time_ms(wall_ms);
        let behind_ms = now - wall_ms;
        if behind_ms > CLOCK_BEHIND_MS && !self.clock_behind {
            tracing::warn!(
                behind_seconds = behind_ms / 1000,
                "the wall clock is behind the newest stamp in the metadata: stamps stand still until it has caught up"
            );
        }
        self.clock_behind = behind_ms > CLOCK_BEHIND_MS;
        now
    }

    fn propose(&mut self, mut proposal: Proposal, now: u64) {
        if proposal.entry.deadline_ms < now {
            return proposal.waiting.answer(Err(ProposeError::TooLate));
        }
        let Some(group) = self.groups.get_mut(&proposal.shard) else {
            return proposal.waiting.answer(Err(ProposeError::NoSuchShard));
        };
        proposal.entry.stamp_ms = now;
        envelope::stamp(&mut proposal.data, now);
        if let Err(waiting) = group.propose(proposal.entry, proposal.data, proposal.waiting) {
            waiting.answer(Err(ProposeError::Busy));
        }
    }

    /// Makes durable what the groups want durable; `false` if they want nothing.
    fn advance(&mut self, committed: &mut Vec<super::group::Committed>) -> Result<bool, LogError> {
        let (mut items, mut readies) = (Vec::new(), Vec::new());
        for group in self.groups.values_mut() {
            readies.extend(group.ready(&mut items).map(|ready| (group.shard, ready)));
        }
        if readies.is_empty() {
            return Ok(false);
        }
        if !items.is_empty() {
            let begun = self.clock.monotonic();
            self.log.append(&items)?;
            if let Some(observer) = &self.observer {
                observer(self.clock.monotonic().saturating_sub(begun));
            }
            self.shared.counters.appends.fetch_add(1, Ordering::Relaxed);
            self.shared.counters.entries.fetch_add(items.len() as u64, Ordering::Relaxed);
        }
        for (shard, ready) in readies {
            if let Some(group) = self.groups.get_mut(&shard) {
                group.advance(ready, committed);
            }
        }
        Ok(true)
    }

    /// Tells the others how long the log is.
    fn watch_log(&self) {
        let live = self.log.stats().values().map(|stats| stats.live_bytes).max().unwrap_or(0);
        let long = live >= self.log_bytes;
        let became_long = long && !self.shared.log_long.swap(long, Ordering::Relaxed);
        self.shared.log_long.store(long, Ordering::Relaxed);
        if let (true, Some(apply)) = (became_long, &self.apply) {
            // It may have nothing else to do, and then it would never begin the flush that makes the log shorter.
            // Refused only if it ended, and then nothing helps.
            let _ = apply.submit(ToApply::Look);
        }
        self.shared.log_behind.store(live >= LOG_OVERRUN * self.log_bytes, Ordering::Relaxed);
        *self.shared.log_stats.lock() = self.log.stats();
    }
}

/// Proposals that go into one append.
#[derive(Default)]
struct Round {
    proposals: Vec<Proposal>,
    bytes: usize,
}

impl Round {
    fn add(&mut self, proposal: Proposal) {
        self.bytes += proposal.data.len() + ENTRY_OVERHEAD_BYTES;
        self.proposals.push(proposal);
    }

    fn answer(self, error: impl Fn() -> ProposeError) {
        for proposal in self.proposals {
            proposal.waiting.answer(Err(error()));
        }
    }
}
