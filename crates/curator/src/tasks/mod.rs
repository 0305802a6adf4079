//! What is done about redundancy, by this node: planned from the records, begun within a second of a change, within a budget.
//!
//! There is no dispatcher. Every node reads all records, plans for itself, and does what falls to it: of each group, one node that holds
//! a copy. Two that believe to be that one do no harm, for every step is a compare-and-set on the group's record, and a copy has a
//! generation that no other attempt has ([`add`]). This runs beside the rounds, not in their turn: whoever judges files on disks lets
//! those alone that a record may still name (`groups::files`), and those are told apart by their generation.
//!
//! Promises: may be dropped at any await; what was begun and not finished is begun anew by the next plan. Refuses to know: who is
//! down, what is required.

mod add;
mod board;
pub mod overview;
pub(crate) mod pace;
pub mod status;
mod switch;
mod trim;

use crate::access::Access;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::plan::{Kind, Plan, Task};
use crate::policy;
use crate::view::View;
use board::{Board, Slot};
use futures_util::future::{Either, select};
use metadata::read::{ReadError, root};
use metadata::rows::GroupRecord;
use metadata::strip::StripState;
use metadata::tree::Read;
use object_controller::Controller;
use pace::Pace;
use parking_lot::Mutex;
use status::RedundancyStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use types::bucket::BucketInfo;
use types::{BucketId, GroupId, NodeId, StripId};

/// How a task ended.
#[derive(Debug)]
enum Ended {
    /// It is done, and committed.
    Done,
    /// It is not needed any more.
    NotNeeded,
    /// It cannot be done now; why.
    Waits(String),
}

/// The tasks of this node. Cheap to clone.
#[derive(Clone)]
pub struct Redundancy {
    inner: Arc<Inner>,
}

struct Inner {
    node: NodeId,
    access: Access,
    config: Config,
    pace: Pace,
    board: Mutex<Board>,
    /// A task ended, or somebody wants a new plan.
    changed: Notify,
    stopping: AtomicBool,
}

impl Redundancy {
    /// Of that node. Nothing is done before [`Redundancy::run`].
    pub fn new(node: NodeId, controller: Controller, config: Config) -> Redundancy {
        let (access, pace) = (Access::new(controller, &config), Pace::new(config.env.clone()));
        let (board, changed, stopping) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        Redundancy { inner: Arc::new(Inner { node, access, config, pace, board, changed, stopping }) }
    }

    /// Plans and works until [`Redundancy::stop`]; what is under way then is waited for. For the owner to spawn and join.
    pub async fn run(self) {
        while !self.inner.is_stopping() {
            let view = self.inner.access.view();
            if !view.disks.is_empty() && self.inner.access.disks().is_clustered() {
                self.turn(&view).await;
            }
            let (pause, changed) =
                (self.inner.config.env.timers.sleep(limits::LOOK_EVERY), self.inner.changed.notified());
            if let Either::Right(_) = select(pin!(pause), pin!(changed)).await {
                // Many tasks that end at once are one change.
                self.inner.config.env.timers.sleep(limits::GATHER).await;
            }
        }
        while !self.inner.board.lock().is_idle() {
            self.inner.config.env.timers.sleep(limits::GATHER).await;
        }
    }

    /// Tasks under way end at their next step.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
        self.inner.changed.notify_one();
    }

    /// How redundancy stands as of the last plan, and what this node does about it.
    pub fn status(&self) -> RedundancyStatus {
        let now = self.inner.access.now();
        self.inner.board.lock().status(self.inner.node, now, &self.inner.pace)
    }

    /// Plans anew, from the records as they are now; answers how they stand.
    pub async fn scan(&self) -> Result<RedundancyStatus, CuratorError> {
        self.plan(&self.inner.access.view()).await?;
        self.inner.changed.notify_one();
        Ok(self.status())
    }

    /// Lifts the limits for so long, from now on; no time ends that.
    pub fn boost(&self, time: Duration) {
        tracing::info!(seconds = time.as_secs(), "an operator lifts the limits of background work");
        self.inner.pace.boost(time);
        self.inner.changed.notify_one();
    }

    async fn turn(&self, view: &View) {
        let inner = &self.inner;
        inner.pace.adjust(|| inner.is_pressed());
        let entries = inner.access.controller().metadata().stats().entries;
        let now = inner.access.now();
        if inner.board.lock().is_due(view, entries, now)
            && let Err(error) = self.plan(view).await
        {
            tracing::debug!(%error, "redundancy was not planned");
            inner.board.lock().note_unplanned(error.to_string(), inner.access.now());
        }
        let boosted = inner.pace.is_boosted();
        loop {
            let task = inner.board.lock().take(inner.access.now(), boosted);
            let Some(task) = task else { break };
            self.begin(task);
        }
    }

    async fn plan(&self, view: &View) -> Result<(), CuratorError> {
        let inner = &self.inner;
        // What is not heard is not waited for, neither by reads nor by walks.
        view.down().into_iter().for_each(|node| inner.access.disks().set_silent(node, true));
        let entries = inner.access.controller().metadata().stats().entries;
        let (seen, node) = (view.clone(), inner.node);
        let plan = inner.access.read(move |read| {
            let mut plan = Plan::default();
            let required = Required::of(read, &seen)?;
            for row in root::groups(read) {
                let (group, record) = row?;
                plan.add(&seen, node, (group, &record, required.of_group(&record)));
            }
            Ok(plan.finish())
        });
        let plan = plan.await?;
        inner.board.lock().set_plan(plan, view, entries, inner.access.now());
        Ok(())
    }

    fn begin(&self, task: Task) {
        let (this, slot) = (self.clone(), Slot::new(self.inner.clone(), task.clone()));
        self.inner.config.env.tasks.spawn(async move {
            let result = this.perform(&task).await;
            slot.end(result);
        });
    }

    async fn perform(&self, task: &Task) -> Result<Ended, CuratorError> {
        let inner = &self.inner;
        match task.kind {
            Kind::Seal => {
                let Some(record) = inner.access.group(task.group).await? else { return Ok(Ended::NotNeeded) };
                let contents = object_controller::Contents::Unknown;
                inner.access.controller().seal_group(task.group, record.generation, contents).await?;
                Ok(Ended::Done)
            }
            Kind::Leave => {
                // Uploads in it end first, but not while what others have in it has one copy less.
                let left = inner.access.controller().leave_group(task.group);
                let why = if left { "its uploads end first" } else { "it is being sealed" };
                Ok(Ended::Waits(why.into()))
            }
            Kind::Add => add::add(inner, task).await,
            Kind::Forget => trim::forget(inner, task.group).await,
            Kind::Trim => trim::trim(inner, task.group).await,
        }
    }
}

impl Inner {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn check_stopping(&self) -> Result<(), CuratorError> {
        if self.is_stopping() { Err(CuratorError::Stopping) } else { Ok(()) }
    }

    /// Whether clients wait: the queue of a disk of this node is long, or the server says that they do.
    fn is_pressed(&self) -> bool {
        let queued = self.access.disks().local().iter().any(|disk| disk.queued() > limits::PRESSED_QUEUE);
        queued || (self.config.pressed)()
    }

    /// The record as it is now, with the copies it requires.
    async fn look_up(&self, group: GroupId, view: &View) -> Result<Option<(GroupRecord, usize)>, CuratorError> {
        let seen = view.clone();
        self.access
            .read(move |read| {
                let Some(record) = root::group(read, group)? else { return Ok(None) };
                let required = Required::of(read, &seen)?.of_group(&record);
                Ok(Some((record, required)))
            })
            .await
    }
}

/// What groups require, as of one position of root.
struct Required {
    buckets: BTreeMap<BucketId, BucketInfo>,
    /// Strips whose parity stands for copies.
    encoded: BTreeSet<StripId>,
    default_rf: u8,
}

impl Required {
    fn of(read: &dyn Read, view: &View) -> Result<Required, ReadError> {
        let buckets = root::buckets(read).map(|bucket| bucket.map(|bucket| (bucket.id, bucket)));
        let mut encoded = BTreeSet::new();
        for row in root::strips(read) {
            let (strip, record) = row?;
            encoded.extend((record.state == StripState::Encoded).then_some(strip));
        }
        Ok(Required { buckets: buckets.collect::<Result<_, _>>()?, encoded, default_rf: view.default_rf })
    }

    /// Until a group is settled, damage may hide a bucket of it: it keeps what it was opened with.
    fn of_group(&self, record: &GroupRecord) -> usize {
        if record.strip.as_ref().is_some_and(|place| self.encoded.contains(&place.strip)) {
            return 1;
        }
        let required = policy::required_rf(&self.buckets, record, self.default_rf);
        usize::from(if record.settled { required } else { required.max(record.rf) })
    }
}
