//! The driver of all Raft groups: gathers proposals and messages, appends what comes of them to the log in one write, hands what is
//! committed to apply and what is to be said to the network.
//!
//! Promises: nothing is handed to apply that is not durable in every log of the set; one append and one flush for all groups
//! and proposals of a batch; while a batch is being synced the next one gathers in the queue, and apply runs beside both.
//! A proposal turned away as busy, too late, too large or for lack of space never happens. A failed log answers everything
//! from then on with "failed", whose outcome is not known. Refuses to know: commands, trees.

mod peers;
mod snapshots;

use super::applier::ToApply;
use super::flusher::Slot;
use super::group::{Committed, FoundGroup, Group, GroupConfig, Waiting};
use super::members::MemberChange;
use super::reads::ReadReply;
use super::rows::Applied;
use super::shared::Shared;
use super::wire::Outbox;
use super::{ShardId, envelope};
use crate::command::Entry;
use crate::limits::{BATCH_BYTES, CLOCK_BEHIND_MS, ENTRY_ENVELOPE_BYTES, LOG_OVERRUN};
use crate::log::format::ENTRY_OVERHEAD_BYTES;
use crate::log::{LogError, LogSet};
use crate::node::{Peers, ProposeError};
use bytes::Bytes;
use env::clock::Clock;
use env::tasks::Worker;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use types::NodeId;

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
    /// What another node's driver has to say.
    Receive(NodeId, Bytes),
    /// Time passes.
    Tick,
    /// A read asks up to where it has to see.
    Read(ShardId, ReadReply),
    /// The members shall change.
    Change(ShardId, MemberChange, oneshot::Sender<Result<(), ProposeError>>),
    /// Another node shall lead.
    Transfer(ShardId, NodeId, oneshot::Sender<Result<(), ProposeError>>),
    /// Numbers of one group.
    Report(ShardId, oneshot::Sender<Option<GroupReport>>),
    /// The next chunk of the shard's snapshot may be there.
    Poll(ShardId),
    /// Apply put this snapshot of the shard into the tree, or why not.
    Installed(ShardId, u64, Result<(), String>),
}

/// One group as its node sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupReport {
    /// Term.
    pub term: u64,
    /// Leader, as this node believes.
    pub leader: Option<NodeId>,
    /// Last entry in the log.
    pub last: u64,
    /// Last entry known committed.
    pub committed: u64,
    /// Last entry of each member that the leader knows; empty at the others.
    pub matched: BTreeMap<NodeId, u64>,
}

/// The driver.
pub(crate) struct Driver {
    config: GroupConfig,
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
    peers: Option<Arc<dyn Peers>>,
    out: Outbox,
    /// Something but a proposal happened to a group since the last round.
    stirred: bool,
    /// Bytes of entries of other nodes since the last round.
    received_bytes: usize,
    snapshots: snapshots::Snapshots,
}

impl Driver {
    /// Leads every group that this node decides alone. Answers what became committed by that or was before, to be applied before
    /// anything else.
    pub(crate) fn start(
        config: GroupConfig,
        found: Vec<FoundGroup>,
        log: LogSet,
        clock: Arc<dyn Clock>,
        shared: Arc<Shared>,
        observer: Option<AppendObserver>,
        log_bytes: u64,
        peers: Option<Arc<dyn Peers>>,
    ) -> Result<(Driver, Vec<Committed>), String> {
        let mut groups = BTreeMap::new();
        for found in found {
            let mut group = Group::new(found, config)?;
            if group.decides() {
                group.campaign()?;
            }
            groups.insert(group.shard, group);
        }
        let mut driver = Driver {
            config,
            groups,
            folders: log.folders(),
            log,
            clock,
            clock_behind: false,
            apply: None,
            snapshots: snapshots::Snapshots::new(config.seed),
            shared,
            observer,
            log_bytes,
            peers,
            out: Outbox::default(),
            stirred: false,
            received_bytes: 0,
        };
        let mut committed = Vec::new();
        while driver.advance(&mut committed).map_err(|e| e.to_string())? {}
        // A change of members in the log may have ended that; then others have their say first.
        if driver.groups.values().any(|group| group.decides() && !(group.leads() && group.has_committed())) {
            return Err("a shard found no leader".to_owned());
        }
        driver.publish();
        driver.watch_log();
        Ok((driver, committed))
    }

    /// From now on what is committed goes here.
    pub(crate) fn connect(&mut self, apply: Worker<ToApply>, itself: Arc<Slot<ToDriver>>) {
        self.apply = Some(apply);
        self.snapshots.connect(itself);
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
                ToDriver::Flushed(folder, applied) => self.truncate(folder, applied),
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
                ToDriver::Receive(from, batch) => self.receive(from, batch, &mut round),
                other => self.other(other),
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

    /// This node says nothing any more: where it led, others will, once they miss its heartbeats.
    fn fail(&mut self, reason: String) {
        self.groups.values_mut().for_each(|group| group.abandon(&reason));
        self.shared.fail(reason);
        self.shared.forget_leaders();
    }

    /// One append for these proposals and whatever else happened.
    fn run(&mut self, round: Round) {
        let stirred = std::mem::take(&mut self.stirred);
        if round.proposals.is_empty() && !stirred {
            return;
        }
        if let Some(reason) = self.shared.failure() {
            return round.answer(|| ProposeError::ReadOnly(reason.clone()));
        }
        if !round.proposals.is_empty() {
            self.propose_all(round);
        }
        self.received_bytes = 0;
        let mut committed = Vec::new();
        loop {
            if self.config.clustered {
                self.settle();
            }
            match self.advance(&mut committed) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return self.fail(e.to_string()),
            }
        }
        if self.config.clustered {
            self.publish();
        }
        let Some(apply) = self.apply.as_ref().filter(|_| !committed.is_empty()) else { return };
        if apply.submit(ToApply::Entries(committed)).is_err() {
            self.fail("apply has ended".to_owned());
        }
    }

    fn propose_all(&mut self, round: Round) {
        // Before Raft knows of them, so that a full disk leaves no entry half there.
        match self.reserve(round.bytes) {
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
    }

    /// Room for so many bytes of entries and what has come from others.
    fn reserve(&mut self, bytes: usize) -> Result<(), LogError> {
        self.log.reserve(bytes + self.received_bytes + self.groups.len() * ENTRY_ENVELOPE_BYTES)
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
        if let Err((waiting, error)) = group.propose(proposal.entry, proposal.data, proposal.waiting) {
            waiting.answer(Err(error));
        }
    }

    /// Makes durable what the groups want durable, and sends what they have to say, before or after as Raft allows; `false` if they
    /// want nothing.
    fn advance(&mut self, committed: &mut Vec<Committed>) -> Result<bool, LogError> {
        let (mut items, mut readies) = (Vec::new(), Vec::new());
        for group in self.groups.values_mut() {
            readies.extend(group.ready(&mut items, &mut self.out).map(|ready| (group.shard, ready)));
        }
        if readies.is_empty() {
            return Ok(false);
        }
        self.send();
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
                group.advance(ready, committed, &mut self.out);
            }
        }
        self.send();
        Ok(true)
    }

    fn send(&mut self) {
        let Some(peers) = &self.peers else { return };
        self.out.take().for_each(|(to, batch)| peers.send(to, batch));
    }

    /// A flush of this folder's tree holds these: older entries may go, but for what members that are not far behind may ask for,
    /// the newest half of the log. So a node that was away for a moment needs no snapshot, whoever leads by then.
    fn truncate(&mut self, folder: usize, applied: BTreeMap<ShardId, Applied>) {
        // An open snapshot wants the entries behind it, but not so much that nothing can be proposed any more.
        let short = self.log_live_bytes() < self.log_bytes * 3 / 2;
        let mut marks = Vec::new();
        for (shard, (index, term)) in applied {
            let Some(group) = self.groups.get(&shard).filter(|group| !group.is_alone()) else {
                marks.push((shard, index, term));
                continue;
            };
            let kept = self.log.first_within(folder, shard, self.log_bytes / 2).map_or(index, |first| first - 1);
            let needed = if short { self.snapshots.needed(shard) } else { u64::MAX };
            let through = index.min(kept).min(needed);
            marks.extend(group.raw.store().term_at(through).map(|term| (shard, through, term)));
        }
        let done = self.log.truncate(folder, &marks);
        self.note(done);
        for (shard, group) in &mut self.groups {
            group.raw.mut_store().compact(self.log.truncated(*shard));
        }
    }

    fn log_live_bytes(&self) -> u64 {
        self.log.stats().values().map(|stats| stats.live_bytes).max().unwrap_or(0)
    }

    /// Tells the others how long the log is.
    fn watch_log(&self) {
        let live = self.log_live_bytes();
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
