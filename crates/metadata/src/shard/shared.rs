//! What proposers, the driver, apply and the flushes tell each other.
//!
//! Promises: never more in flight than the limits say; the first failure is kept and ends acknowledging.
//! Refuses to know: who does the work.

use super::members::Members;
use super::rows::Applied;
use super::snapshot::Serving;
use super::{Shard, ShardId};
use crate::cache::ObjectCache;
use crate::limits::{APPLIED_WAITING, IN_FLIGHT_BYTES, IN_FLIGHT_PROPOSALS, READS_IN_FLIGHT};
use crate::log::LogStats;
use crate::node::ProposeError;
use crate::tree::{Snapshot, Tree};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::oneshot;
use types::NodeId;

/// Counters since the start.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) read_rounds: AtomicU64,
}

/// A group as the driver last told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupStatus {
    pub(crate) term: u64,
    pub(crate) leader: Option<NodeId>,
    pub(crate) members: Members,
}

/// What [`GroupStatus`] is made of, where the driver has it.
pub(crate) struct GroupNow<'a> {
    pub(crate) term: u64,
    pub(crate) leader: Option<NodeId>,
    pub(crate) members: &'a Members,
}

type AppliedReply = oneshot::Sender<Result<(), ProposeError>>;

/// How far a shard is applied and readable, and who waits for more.
#[derive(Default)]
struct Reached {
    index: u64,
    waiting: Vec<(u64, AppliedReply)>,
}

/// Shared state of one node's metadata.
pub(crate) struct Shared {
    /// The tree that is read.
    tree: RwLock<Arc<dyn Tree>>,
    /// Above it. Apply closes what it touched before it publishes.
    pub(crate) objects: ObjectCache,
    failure: Mutex<Option<String>>,
    failed: AtomicBool,
    /// The trees are behind: proposals are answered "busy".
    pub(crate) tree_behind: AtomicBool,
    /// The log is too long: proposals are answered "busy".
    pub(crate) log_behind: AtomicBool,
    /// The log is long enough that a flush shall let it be truncated.
    pub(crate) log_long: AtomicBool,
    /// Apply was asked to look and has not yet: asking again would only fill its queue.
    pub(crate) look_asked: AtomicBool,
    in_flight: Mutex<(usize, usize)>,
    /// Cluster time: the newest stamp of any entry, also of former runs. Never goes back, whatever the wall clock does.
    last_stamp_ms: AtomicU64,
    /// Of each folder in the log set, as the driver last saw them.
    pub(crate) log_stats: Mutex<BTreeMap<usize, LogStats>>,
    pub(crate) counters: Counters,
    /// The shards of this node.
    pub(crate) shards: ArcSwap<BTreeMap<ShardId, Shard>>,
    /// Whether there may be other nodes.
    clustered: bool,
    status: RwLock<BTreeMap<ShardId, GroupStatus>>,
    /// This node decides alone in all of them.
    decides: AtomicBool,
    /// Of a clustered node only.
    reached: Mutex<BTreeMap<ShardId, Reached>>,
    reads: AtomicUsize,
    /// Batches of other nodes that the driver has not seen.
    pub(crate) received: AtomicUsize,
    /// The driver was told of a tick and has not seen it.
    pub(crate) tick_asked: AtomicBool,
    /// Snapshots that are open for other nodes, by id.
    pub(crate) serving: Mutex<BTreeMap<u64, Arc<Serving>>>,
    /// Odd while a snapshot is being installed.
    installs: AtomicU64,
    /// What is read meanwhile.
    held: Mutex<Option<Snapshot>>,
}

impl Shared {
    pub(crate) fn new(tree: Arc<dyn Tree>, objects: ObjectCache, clustered: bool) -> Shared {
        Shared {
            tree: RwLock::new(tree),
            objects,
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            tree_behind: AtomicBool::new(false),
            log_behind: AtomicBool::new(false),
            log_long: AtomicBool::new(false),
            look_asked: AtomicBool::new(false),
            in_flight: Mutex::new((0, 0)),
            last_stamp_ms: AtomicU64::new(0),
            log_stats: Mutex::default(),
            counters: Counters::default(),
            shards: ArcSwap::default(),
            clustered,
            status: RwLock::default(),
            decides: AtomicBool::new(false),
            reached: Mutex::default(),
            reads: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            tick_asked: AtomicBool::new(false),
            serving: Mutex::default(),
            installs: AtomicU64::new(0),
            held: Mutex::default(),
        }
    }

    pub(crate) fn is_clustered(&self) -> bool {
        self.clustered
    }

    /// A reader at the newest published position; while a snapshot is installed, at the one before. The count is looked at before and
    /// after: equal and even says that no installation was under way at any moment in between.
    pub(crate) fn snapshot(&self) -> Snapshot {
        loop {
            let before = self.installs.load(Ordering::Acquire);
            let published = Snapshot::published(&self.tree());
            if before.is_multiple_of(2) && before == self.installs.load(Ordering::Acquire) {
                return published;
            }
            if let Some(held) = &*self.held.lock() {
                return held.again();
            }
        }
    }

    /// Lets readers go on with what is published now, until the answer is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        *self.held.lock() = Some(Snapshot::published(&self.tree()));
        self.installs.fetch_add(1, Ordering::AcqRel);
        Hold { shared: self.clone() }
    }

    /// Tells who leads and takes part. `node` is this one. Asked after every round of the driver, and almost never anything new.
    pub(crate) fn set_status(&self, shard: ShardId, now: GroupNow<'_>, node: NodeId) {
        let GroupNow { term, leader, members } = now;
        let is = |known: &GroupStatus| (known.term, known.leader) == (term, leader) && known.members == *members;
        if self.status.read().get(&shard).is_some_and(is) {
            return;
        }
        let mut known = self.status.write();
        known.insert(shard, GroupStatus { term, leader, members: members.clone() });
        let decides = known.values().all(|status| status.leader == Some(node) && status.members.decides(node));
        self.decides.store(decides, Ordering::Release);
    }

    /// Whether this node leads every shard and no other has a vote. Asked often.
    pub(crate) fn decides_alone(&self) -> bool {
        !self.clustered || self.decides.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self, shard: ShardId) -> Option<GroupStatus> {
        self.status.read().get(&shard).cloned()
    }

    /// This node leads nothing and follows nobody any more.
    pub(crate) fn forget_leaders(&self) {
        self.status.write().values_mut().for_each(|status| status.leader = None);
        self.decides.store(false, Ordering::Release);
    }

    /// Everything up to these entries is readable.
    pub(crate) fn reached(&self, applied: &BTreeMap<ShardId, Applied>) {
        if !self.clustered {
            return;
        }
        let mut reached = self.reached.lock();
        for (shard, (index, _)) in applied {
            let shard = reached.entry(*shard).or_default();
            shard.index = shard.index.max(*index);
            let (now, later) = std::mem::take(&mut shard.waiting).into_iter().partition(|(at, _)| *at <= shard.index);
            shard.waiting = later;
            let now: Vec<(u64, AppliedReply)> = now;
            // Whoever waited may have given up.
            now.into_iter().for_each(|(_, reply)| drop(reply.send(Ok(()))));
        }
    }

    /// How far the shard is applied here.
    pub(crate) fn reached_index(&self, shard: ShardId) -> u64 {
        self.reached.lock().get(&shard).map_or(0, |reached| reached.index)
    }

    /// Waits for an entry; `None`: it is applied.
    pub(crate) fn wait_for(
        &self,
        shard: ShardId,
        index: u64,
    ) -> Result<Option<oneshot::Receiver<Result<(), ProposeError>>>, ProposeError> {
        let mut reached = self.reached.lock();
        let reached = reached.entry(shard).or_default();
        if reached.index >= index {
            return Ok(None);
        }
        if let Some(reason) = self.failure() {
            return Err(ProposeError::ReadOnly(reason));
        }
        if reached.waiting.len() >= APPLIED_WAITING {
            reached.waiting.retain(|(_, reply)| !reply.is_closed());
            if reached.waiting.len() >= APPLIED_WAITING {
                return Err(ProposeError::Busy);
            }
        }
        let (reply, answer) = oneshot::channel();
        reached.waiting.push((index, reply));
        Ok(Some(answer))
    }

    /// Room for one more read on its way; `None`: there are too many.
    pub(crate) fn admit_read(self: &Arc<Self>) -> Option<ReadSlot> {
        let before = self.reads.fetch_add(1, Ordering::AcqRel);
        let slot = ReadSlot { shared: self.clone() };
        (before < READS_IN_FLIGHT).then_some(slot)
    }

    pub(crate) fn tree(&self) -> Arc<dyn Tree> {
        self.tree.read().clone()
    }

    pub(crate) fn set_tree(&self, tree: Arc<dyn Tree>) {
        *self.tree.write() = tree;
    }

    /// Stops acknowledging for good. Reads go on.
    pub(crate) fn fail(&self, reason: String) {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            tracing::error!(%reason, "metadata acknowledges nothing any more");
            *failure = Some(reason);
        }
        let reason = failure.clone().unwrap_or_default();
        drop(failure);
        self.failed.store(true, Ordering::Release);
        let waiting =
            self.reached.lock().values_mut().flat_map(|reached| reached.waiting.drain(..)).collect::<Vec<_>>();
        for (_, reply) in waiting {
            // Whoever waited may have given up.
            let _ = reply.send(Err(ProposeError::Failed(reason.clone())));
        }
    }

    /// Why nothing is acknowledged any more.
    pub(crate) fn failure(&self) -> Option<String> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().clone()
    }

    /// Cluster time, if the wall clock says `wall_ms`.
    pub(crate) fn time_ms(&self, wall_ms: u64) -> u64 {
        wall_ms.max(self.last_stamp_ms.load(Ordering::Acquire))
    }

    /// An entry was stamped with this.
    pub(crate) fn stamped(&self, stamp_ms: u64) {
        self.last_stamp_ms.fetch_max(stamp_ms, Ordering::AcqRel);
    }

    /// Whether proposals are turned away for now.
    pub(crate) fn behind(&self) -> bool {
        self.tree_behind.load(Ordering::Relaxed) || self.log_behind.load(Ordering::Relaxed)
    }

    /// Room for a proposal of `bytes`; `None`: too much is in flight.
    pub(crate) fn admit(self: &Arc<Self>, bytes: usize) -> Option<InFlight> {
        let mut in_flight = self.in_flight.lock();
        let (proposals, sum) = (in_flight.0 + 1, in_flight.1 + bytes);
        if proposals > IN_FLIGHT_PROPOSALS || sum > IN_FLIGHT_BYTES {
            return None;
        }
        *in_flight = (proposals, sum);
        Some(InFlight { shared: self.clone(), bytes })
    }
}

/// One read on its way; leaves when dropped.
pub(crate) struct ReadSlot {
    shared: Arc<Shared>,
}

impl Drop for ReadSlot {
    fn drop(&mut self) {
        self.shared.reads.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Readers do not see what is published; they do again when it is dropped.
pub(crate) struct Hold {
    shared: Arc<Shared>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Even first: who finds nothing held looks again and finds what is published.
        self.shared.installs.fetch_add(1, Ordering::AcqRel);
        *self.shared.held.lock() = None;
    }
}

/// One proposal on its way; leaves when dropped.
pub(crate) struct InFlight {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = self.shared.in_flight.lock();
        in_flight.0 -= 1;
        in_flight.1 -= self.bytes;
    }
}
