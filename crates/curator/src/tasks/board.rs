//! What is planned, what is under way, what was done.
//!
//! Promises: a group has one task at a time; tasks are taken in the plan's order, as many as there may be at once; what failed is left
//! alone for a while. Refuses to know: how a task is done.

use super::pace::Pace;
use super::status::{RedundancyStatus, TaskStatus};
use super::{Ended, Inner};
use crate::error::CuratorError;
use crate::limits;
use crate::plan::census::{Amount, Census, PRIORITIES};
use crate::plan::place::UnderWay;
use crate::plan::{Kind, Plan, Task};
use crate::view::{DiskState, Health, View};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{DiskId, GroupId, NodeId};

/// What of a view makes a new plan necessary at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    disks: BTreeMap<DiskId, (NodeId, Health, DiskState, bool)>,
    default_rf: u8,
}

impl Shape {
    fn of(view: &View) -> Shape {
        let disks = view.disks.iter().map(|(id, d)| (*id, (d.node, d.health, d.state, d.awaited)));
        Shape { disks: disks.collect(), default_rf: view.default_rf }
    }
}

#[derive(Default)]
pub(super) struct Board {
    shape: Option<Shape>,
    planned: Option<Duration>,
    /// When a plan was last tried for.
    tried: Option<Duration>,
    /// Entries of the metadata before the plan.
    entries: u64,
    /// Something ended since the plan.
    dirty: bool,
    queue: VecDeque<Task>,
    under_way: BTreeMap<GroupId, (Task, Duration)>,
    copies: UnderWay,
    /// Since when patient tasks are in the plan without a break.
    ripening: BTreeMap<(GroupId, Kind), Duration>,
    postponed: BTreeMap<GroupId, Duration>,
    census: Census,
    done: [Amount; PRIORITIES],
    waited: u64,
    last_error: Option<String>,
}

impl Board {
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether there may be something that the last plan does not know.
    pub(super) fn is_due(&self, view: &View, entries: u64, now: Duration) -> bool {
        let Some(tried) = self.tried else { return true };
        let since = now.saturating_sub(tried);
        if since < limits::PLAN_AGAIN {
            return false;
        }
        let changed = self.shape.as_ref() != Some(&Shape::of(view));
        let nothing_left = self.dirty && self.under_way.is_empty();
        let often = if self.census.is_fully_redundant() { limits::PLAN_EVERY } else { limits::PLAN_SOON };
        changed || nothing_left || (entries != self.entries && since >= often)
    }

    pub(super) fn note_unplanned(&mut self, error: String, now: Duration) {
        (self.tried, self.last_error) = (Some(now), Some(error));
        // The view may have been taken up by nothing.
        self.shape = None;
    }

    pub(super) fn set_plan(&mut self, plan: Plan, view: &View, entries: u64, now: Duration) {
        (self.shape, self.entries, self.dirty) = (Some(Shape::of(view)), entries, false);
        (self.planned, self.tried) = (Some(now), Some(now));
        let before = std::mem::take(&mut self.ripening);
        let patient = plan.tasks.iter().filter(|task| task.patient).map(|task| (task.group, task.kind));
        self.ripening = patient.map(|key| (key, before.get(&key).copied().unwrap_or(now))).collect();
        self.postponed.retain(|_, until| now < *until);
        self.queue = plan.tasks.into();
        self.census = plan.census;
    }

    /// The next task that may begin; it is under way from now on.
    pub(super) fn take(&mut self, now: Duration, boosted: bool) -> Option<Task> {
        let most = if boosted { limits::TASKS_BOOSTED } else { limits::TASKS };
        let (running, trims) = (self.under_way.len(), self.running(Kind::Trim));
        let may_begin = |task: &Task| {
            let ripe = !task.patient || boosted || {
                let since = self.ripening.get(&(task.group, task.kind));
                since.is_some_and(|since| now.saturating_sub(*since) >= limits::RIPE)
            };
            let room = if task.is_last_copy() { running < 2 * most } else { running < most };
            let alone = task.kind != Kind::Trim || task.priority < 5 || boosted || trims == 0;
            let left_alone = self.postponed.get(&task.group).is_some_and(|until| now < *until);
            ripe && room && alone && !left_alone && !self.under_way.contains_key(&task.group)
        };
        let at = self.queue.iter().position(may_begin)?;
        let task = self.queue.remove(at)?;
        self.under_way.insert(task.group, (task.clone(), now));
        Some(task)
    }

    fn running(&self, kind: Kind) -> usize {
        self.under_way.values().filter(|(task, _)| task.kind == kind).count()
    }

    pub(super) fn copies(&self) -> UnderWay {
        self.copies.clone()
    }

    pub(super) fn copy_begins(&mut self, disk: DiskId) {
        *self.copies.entry(disk).or_default() += 1;
    }

    pub(super) fn copy_ended(&mut self, disk: DiskId) {
        if let Some(count) = self.copies.get_mut(&disk) {
            *count = count.saturating_sub(1);
        }
        self.copies.retain(|_, count| *count > 0);
    }

    fn ended(&mut self, task: &Task, result: Result<Ended, CuratorError>, now: Duration) {
        self.under_way.remove(&task.group);
        self.dirty = true;
        let why = match result {
            Ok(Ended::Done) => {
                let done = &mut self.done[usize::from(task.priority).clamp(1, PRIORITIES) - 1];
                (done.groups, done.bytes) = (done.groups + 1, done.bytes + task.bytes);
                return;
            }
            Ok(Ended::NotNeeded) | Err(CuratorError::Stopping) => return,
            Ok(Ended::Waits(why)) => why,
            Err(error) => error.to_string(),
        };
        tracing::info!(group = %task.group, kind = ?task.kind, why, "a task waits");
        self.waited += 1;
        self.last_error = Some(format!("group {}: {why}", task.group));
        self.postponed.insert(task.group, now + limits::TASK_PATIENCE);
    }

    pub(super) fn status(&self, node: NodeId, now: Duration, pace: &Pace) -> RedundancyStatus {
        let mut waiting = [Amount::default(); PRIORITIES];
        for task in &self.queue {
            let amount = &mut waiting[usize::from(task.priority).clamp(1, PRIORITIES) - 1];
            (amount.groups, amount.bytes) = (amount.groups + 1, amount.bytes + task.bytes);
        }
        let running = self
            .under_way
            .values()
            .map(|(task, since)| TaskStatus::of(task, node, Some(now.saturating_sub(*since).as_millis() as u64)));
        let queued = self.queue.iter().map(|task| TaskStatus::of(task, node, None));
        RedundancyStatus {
            node,
            census: self.census.clone(),
            planned_ms_ago: self.planned.map(|at| now.saturating_sub(at).as_millis() as u64),
            tasks: running.chain(queued).take(limits::NAMED).collect(),
            running: self.under_way.len() as u64,
            waiting,
            done: self.done,
            waited: self.waited,
            copied_bytes: pace.copied_bytes(),
            bytes_per_second: pace.bytes_per_second(),
            pace_percent: pace.percent(),
            boost_ms: pace.boost_left().map(|left| left.as_millis() as u64),
            last_error: self.last_error.clone(),
        }
    }
}

/// The place of a task under way: whoever drops it without a result, by a panic say, leaves the group to the next plan.
pub(super) struct Slot {
    inner: Arc<Inner>,
    task: Task,
    ended: bool,
}

impl Slot {
    pub(super) fn new(inner: Arc<Inner>, task: Task) -> Slot {
        Slot { inner, task, ended: false }
    }

    pub(super) fn end(mut self, result: Result<Ended, CuratorError>) {
        self.ended = true;
        self.note(result);
    }

    fn note(&self, result: Result<Ended, CuratorError>) {
        self.inner.board.lock().ended(&self.task, result, self.inner.access.now());
        self.inner.changed.notify_one();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.ended {
            self.note(Ok(Ended::Waits("it ended badly".into())));
        }
    }
}
