//! What the curator does, one round at a time.
//!
//! Promises: a round is a function of the node and the clock, drives nothing by timers, and may be dropped at any await; one
//! round, scrub step or audit at a time has the turn. What a round cannot do it leaves to the next. Refuses to know: when the next
//! one comes.

use crate::access::Access;
use crate::audit::{self, report::AuditReport};
use crate::config::Config;
use crate::contents::reclaim::Reclaimer;
use crate::contents::{outbox, owners};
use crate::error::CuratorError;
use crate::groups::repair::{self, Repaired, Repairs};
use crate::groups::settle::Breaker;
use crate::groups::space::{self, Punched};
use crate::groups::{Patience, files, seal, settle};
use crate::limits;
use crate::scrub::{self, Pass, ScrubReport};
use crate::strips::{self, Strips};
use metadata::command::{Outcome, RootCommand, ShardCommand};
use object_controller::Controller;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::GroupId;

/// What one round did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoundReport {
    /// Groups sealed.
    pub sealed: u64,
    /// Groups settled.
    pub settled: u64,
    /// Bytes that settling called dead.
    pub found_dead_bytes: u64,
    /// Entries that expanded manifests.
    pub expanded: u64,
    /// Contents reclaimed.
    pub reclaimed: u64,
    /// Outbox rows delivered.
    pub delivered: u64,
    /// Owner rows of dead copies taken back.
    pub owners_released: u64,
    /// Bytes given back inside files, all replicas together.
    pub punched_bytes: u64,
    /// Groups dropped.
    pub dropped: u64,
    /// Files set aside.
    pub quarantined: u64,
    /// Replicas replaced.
    pub repaired: u64,
    /// Strips made of groups.
    pub encoded: u64,
    /// Attempts at that taken back.
    pub strips_given_up: u64,
    /// Strips turned back into replicas.
    pub strips_dissolved: u64,
    /// Frames verified by the background scrub.
    pub scrubbed: u64,
    /// Groups left alone for a while because something failed.
    pub postponed: u64,
    /// Groups that the next round goes on with.
    pub again: u64,
    /// What an operator must know.
    pub alarms: Vec<String>,
}

impl RoundReport {
    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        let RoundReport { sealed, settled, expanded, reclaimed, delivered, owners_released, dropped, .. } = self;
        let RoundReport { punched_bytes, quarantined, repaired, again, scrubbed, .. } = self;
        let RoundReport { encoded, strips_given_up, strips_dissolved, .. } = self;
        [sealed, settled, expanded, reclaimed, delivered, owners_released, dropped, punched_bytes, quarantined]
            .into_iter()
            .chain([repaired, again, scrubbed, encoded, strips_given_up, strips_dissolved])
            .all(|count| *count == 0)
    }

    fn add(&mut self, round: &RoundReport) {
        self.sealed += round.sealed;
        self.settled += round.settled;
        self.found_dead_bytes += round.found_dead_bytes;
        self.expanded += round.expanded;
        self.reclaimed += round.reclaimed;
        self.delivered += round.delivered;
        self.owners_released += round.owners_released;
        self.punched_bytes += round.punched_bytes;
        self.dropped += round.dropped;
        self.quarantined += round.quarantined;
        self.repaired += round.repaired;
        self.encoded += round.encoded;
        self.strips_given_up += round.strips_given_up;
        self.strips_dissolved += round.strips_dissolved;
        self.scrubbed += round.scrubbed;
        self.postponed += round.postponed;
        for alarm in &round.alarms {
            if self.alarms.len() < limits::NAMED && !self.alarms.contains(alarm) {
                self.alarms.push(alarm.clone());
            }
        }
    }
}

/// The curator since its start, for people.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Rounds since the start.
    pub rounds: u64,
    /// All of them together.
    pub done: RoundReport,
    /// Groups that wait for repair.
    pub repairs_waiting: u64,
    /// Groups with extents that are bad on every replica.
    pub hurt_groups: u64,
    /// Some of these extents.
    pub hurt: Vec<String>,
    /// Passes of the background scrub that came to their end.
    pub scrub_passes: u64,
    /// Why the last round ended early.
    pub last_error: Option<String>,
}

/// The work of the curator. Shared by its background task and those who ask for an audit or a scrub.
pub struct Rounds {
    access: Access,
    config: Config,
    /// Who holds it may change things. Held across awaits on purpose: it *is* the one owner of this state.
    turn: tokio::sync::Mutex<State>,
    status: Mutex<Status>,
    stopping: AtomicBool,
    /// Files are compared with the records although that is not due.
    compare_again: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Who had the turn did not come to an end: an entry of theirs may still be on its way.
    interrupted: bool,
    /// When the files of this node were last compared with the records.
    compared: Option<Duration>,
    owners_settled: bool,
    reclaimer: Reclaimer,
    breaker: Breaker,
    sealing: Patience,
    settling: Patience,
    punching: Patience,
    repairing: Patience,
    punched: Punched,
    repairs: Repairs,
    strips: Strips,
    hurt: BTreeMap<GroupId, Vec<String>>,
    pass: Option<Pass>,
    pass_began: Option<Duration>,
    forgot: Option<Duration>,
    watched: files::Watched,
    to_come: files::ToCome,
    /// What there was when a round last found nothing to do.
    quiet_at: Option<Seen>,
}

/// Entries of the metadata, changes of the disks' map, and whether this node leads: without a change of these there is nothing new
/// to do.
type Seen = (u64, u64, bool);

/// The first error of the steps of a round.
#[derive(Default)]
struct FirstError(Option<CuratorError>);

impl FirstError {
    /// Keeps an error for the end of the round; only one that ends everything is given back.
    fn note(&mut self, result: Result<(), CuratorError>) -> Result<(), CuratorError> {
        match result {
            Err(CuratorError::Stopping) => Err(CuratorError::Stopping),
            Err(error) => {
                tracing::debug!(%error, "a step of a round ended early");
                self.0.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn into_result(self) -> Result<(), CuratorError> {
        self.0.map_or(Ok(()), Err)
    }
}

impl Rounds {
    /// Nothing is done before the first round.
    pub fn new(controller: Controller, config: Config) -> Rounds {
        Rounds {
            access: Access::new(controller, &config),
            config,
            turn: tokio::sync::Mutex::new(State::default()),
            status: Mutex::default(),
            stopping: AtomicBool::new(false),
            compare_again: AtomicBool::new(false),
        }
    }

    /// One round. What it did is *committed* where it is an entry, *durable* where it is a punch or a file.
    pub async fn round(&self) -> Result<RoundReport, CuratorError> {
        let mut report = RoundReport::default();
        let mut state = self.take_turn().await?;
        let result = self.work(&mut state, &mut report).await;
        state.interrupted = result.is_err();
        self.show(&state);
        let mut status = self.status.lock();
        status.rounds += 1;
        status.done.add(&report);
        status.last_error = result.as_ref().err().map(ToString::to_string);
        drop(status);
        result.map(|()| report)
    }

    /// The turn. Whoever had it may have been dropped while they waited for an entry that names a new copy, and what is on a disk
    /// must not be judged before that entry has its place in the log (protocols.md 4). Entries are applied in the order in which
    /// they were proposed, so one that changes nothing shows when all of them were.
    async fn take_turn(&self) -> Result<tokio::sync::MutexGuard<'_, State>, CuratorError> {
        let mut state = self.turn.lock().await;
        if state.interrupted {
            self.access.root(RootCommand::AddDead { dead: Vec::new() }).await?;
        }
        state.interrupted = true;
        Ok(state)
    }

    /// What of the state people may see.
    fn show(&self, state: &State) {
        let mut status = self.status.lock();
        status.repairs_waiting = state.repairs.len() as u64;
        status.hurt_groups = state.hurt.len() as u64;
        status.hurt = state.hurt.values().flatten().take(limits::NAMED).cloned().collect();
    }

    async fn work(&self, state: &mut State, report: &mut RoundReport) -> Result<(), CuratorError> {
        self.access.controller().tend().await;
        self.take_findings(state);
        let mut first = FirstError::default();
        if !self.is_quiet(state) {
            self.groups_and_contents(state, report, &mut first).await?;
        }
        first.note(self.repair_some(state, report).await)?;
        if (self.config.leads)() {
            self.check_stopping()?;
            let (access, config) = (&self.access, &self.config);
            first.note(strips::work(access, config, &mut state.strips, &state.repairs, report).await)?;
        }
        first.note(self.scrub_some(state, report).await)?;
        self.check_stopping()?;
        first.note(self.forget(state).await)?;
        first.into_result()?;
        let waits = state.reclaimer.is_waiting()
            || [&state.sealing, &state.settling, &state.punching].iter().any(|p| !p.is_empty());
        state.quiet_at = (report.is_idle() && !waits).then(|| self.seen());
        Ok(())
    }

    /// No entry since a round that had nothing to do: neither has this one.
    fn is_quiet(&self, state: &State) -> bool {
        state.quiet_at == Some(self.seen()) && !self.compare_is_due(state)
    }

    /// At the start. In a cluster now and then as well: an order to drop a file may have been lost on its way here.
    fn compare_is_due(&self, state: &State) -> bool {
        let again =
            |at: Duration| self.access.disks().is_clustered() && self.access.now() >= at + limits::COMPARE_EVERY;
        state.compared.is_none_or(again) || self.compare_again.load(Ordering::Relaxed)
    }

    /// The next round compares the files of this node with the records.
    pub fn compare_again(&self) {
        self.compare_again.store(true, Ordering::Relaxed);
    }

    fn seen(&self) -> Seen {
        let entries = self.access.controller().metadata().stats().entries;
        (entries, self.access.disks().map_changes(), (self.config.leads)())
    }

    /// Each step by itself: a row that one of them cannot read must not keep the others from giving space back (rule R30).
    async fn groups_and_contents(
        &self,
        state: &mut State,
        report: &mut RoundReport,
        first: &mut FirstError,
    ) -> Result<(), CuratorError> {
        let (access, config) = (&self.access, &self.config);
        let leads = (self.config.leads)();
        if leads {
            first.note(seal::seal(access, &mut state.sealing, &mut state.repairs, report).await)?;
        }
        if self.compare_is_due(state) {
            self.compare_again.store(false, Ordering::Relaxed);
            let compared = files::compare(access, &mut state.repairs, &mut state.to_come, report).await;
            if compared.is_ok() {
                state.compared = Some(access.now());
            }
            first.note(compared)?;
        }
        self.check_stopping()?;
        if !leads {
            // The rest is about what all nodes share.
            return Ok(());
        }
        first.note(settle::settle(access, config, &mut state.breaker, &mut state.settling, report).await)?;
        self.check_stopping()?;
        if !state.owners_settled {
            let settled = owners::settle(access, report).await;
            state.owners_settled = *settled.as_ref().unwrap_or(&false);
            first.note(settled.map(drop))?;
        }
        first.note(state.reclaimer.work(access, config, report).await)?;
        first.note(outbox::deliver(access, report).await)?;
        self.check_stopping()?;
        first.note(space::work(access, &mut state.punched, &mut state.punching, report).await)
    }

    fn take_findings(&self, state: &mut State) {
        for finding in self.access.controller().findings().take() {
            state.repairs.add(finding.group, finding.disk);
        }
    }

    async fn repair_some(&self, state: &mut State, report: &mut RoundReport) -> Result<(), CuratorError> {
        let now = self.access.now();
        let groups: Vec<_> = state.repairs.groups().into_iter().filter(|g| !state.repairing.waits(*g, now)).collect();
        for group in groups.into_iter().take(limits::REPAIRS_PER_ROUND) {
            self.check_stopping()?;
            self.repair_one(state, group, report).await?;
        }
        Ok(())
    }

    /// Repairs a group that is queued, and keeps it in mind if that is not possible.
    async fn repair_one(
        &self,
        state: &mut State,
        group: GroupId,
        report: &mut RoundReport,
    ) -> Result<Repaired, CuratorError> {
        // Kept until it is done: whoever drops this future has not repaired anything.
        let suspects = state.repairs.suspects(group);
        let again = state.repairs.is_again(group);
        let result = repair::repair(&self.access, group, &suspects, again, report).await;
        let unfinished = match &result {
            Ok(Repaired::Sound | Repaired::Replaced(_)) => {
                state.hurt.remove(&group);
                false
            }
            Ok(Repaired::Hurt(lines)) => {
                if state.hurt.insert(group, lines.iter().take(limits::NAMED).cloned().collect()).is_none() {
                    tracing::error!(%group, hurt = ?lines.first(), count = lines.len(), "extents are bad on every replica; all copies are kept");
                }
                true
            }
            Ok(Repaired::Waits(why)) => {
                tracing::warn!(%group, why, "a repair waits");
                true
            }
            Err(_) => true,
        };
        if unfinished {
            state.repairing.postpone(group, self.access.now());
        } else {
            state.repairs.remove(group);
        }
        result
    }

    /// A piece of the background pass.
    async fn scrub_some(&self, state: &mut State, report: &mut RoundReport) -> Result<(), CuratorError> {
        if self.config.scrub_bytes == 0 {
            return Ok(());
        }
        let now = self.access.now();
        if state.pass.is_none() && state.pass_began.is_none_or(|began| now >= began + self.config.scrub_every) {
            (state.pass, state.pass_began) = (Some(Pass::new()), Some(now));
        }
        let mut bytes = 0;
        while bytes < self.config.scrub_bytes {
            let Some(pass) = &mut state.pass else { return Ok(()) };
            self.check_stopping()?;
            let Some((group, extents)) = pass.next(&self.access).await? else {
                state.pass = None;
                self.status.lock().scrub_passes += 1;
                return Ok(());
            };
            let verified = scrub::verify(&self.access, group, &extents, &mut state.repairs).await?;
            report.scrubbed += verified.frames;
            bytes += verified.bytes;
        }
        Ok(())
    }

    /// Remembered Completes that are old enough are forgotten.
    async fn forget(&self, state: &mut State) -> Result<(), CuratorError> {
        files::make_room(&self.access).await;
        let now = self.access.now();
        if state.forgot.is_some_and(|at| now < at + limits::FORGET_EVERY) {
            return Ok(());
        }
        let first = state.forgot.replace(now).is_none();
        files::purge(&self.access, &self.config, &mut state.watched).await;
        if first {
            return Ok(());
        }
        let kept_ms = u64::try_from(limits::COMPLETED_KEPT.as_millis()).unwrap_or(u64::MAX);
        let completed_before_ms = self.access.wall_ms().saturating_sub(kept_ms);
        for shard in self.access.shards() {
            for _ in 0..limits::FORGETS {
                let forget = ShardCommand::Forget { completed_before_ms };
                if !matches!(self.access.shard(shard.id, forget).await?, Outcome::Left(left) if left > 0) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Verifies every owned extent on every replica now, repairs what is bad, and says what is left. The turn is given back
    /// between groups.
    pub async fn scrub(&self, mut progress: impl FnMut(u64, u64, &str) + Send) -> Result<ScrubReport, CuratorError> {
        let mut report = ScrubReport::default();
        let mut compared = RoundReport::default();
        let total = scrub::total_bytes(&self.access).await?;
        {
            let mut state = self.take_turn().await?;
            let State { repairs, to_come, .. } = &mut *state;
            files::compare(&self.access, repairs, to_come, &mut compared).await?;
            for group in state.repairs.groups() {
                self.scrub_repair(&mut state, group, &mut report).await?;
            }
            state.interrupted = false;
        }
        let mut pass = Pass::new();
        while let Some((group, extents)) = pass.next(&self.access).await? {
            self.check_stopping()?;
            let mut state = self.take_turn().await?;
            let verified = scrub::verify(&self.access, group, &extents, &mut state.repairs).await?;
            report.groups += 1;
            report.frames += verified.frames;
            report.bytes += verified.bytes;
            report.damaged += verified.damaged;
            if verified.damaged > 0 {
                self.scrub_repair(&mut state, group, &mut report).await?;
                self.show(&state);
            }
            state.interrupted = false;
            drop(state);
            progress(report.bytes, total.max(report.bytes), "bytes");
        }
        report.ok = report.hurt_extents == 0 && report.waiting == 0;
        Ok(report)
    }

    async fn scrub_repair(
        &self,
        state: &mut State,
        group: GroupId,
        report: &mut ScrubReport,
    ) -> Result<(), CuratorError> {
        match self.repair_one(state, group, &mut RoundReport::default()).await? {
            Repaired::Sound => {}
            Repaired::Replaced(count) => report.repaired += count,
            Repaired::Waits(_) => report.waiting += 1,
            Repaired::Hurt(lines) => {
                report.hurt_extents += lines.len() as u64;
                let room = limits::NAMED - report.hurt.len();
                report.hurt.extend(lines.into_iter().take(room));
            }
        }
        Ok(())
    }

    /// Proves that what contents name is what is stored.
    pub async fn audit(&self, progress: impl FnMut(u64, u64, &str) + Send) -> Result<AuditReport, CuratorError> {
        // Nobody punches, drops or moves meanwhile.
        let mut turn = self.take_turn().await?;
        // An audit changes nothing.
        turn.interrupted = false;
        audit::audit(&self.access, &self.stopping, progress).await
    }

    /// What was done since the start.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Work in progress ends at its next step.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn check_stopping(&self) -> Result<(), CuratorError> {
        if self.stopping.load(Ordering::Relaxed) { Err(CuratorError::Stopping) } else { Ok(()) }
    }
}
