//! What proposers, the driver, apply and the flushes tell each other.
//!
//! Promises: never more in flight than the limits say; the first failure is kept and ends acknowledging.
//! Refuses to know: who does the work.

use crate::cache::ObjectCache;
use crate::limits::{IN_FLIGHT_BYTES, IN_FLIGHT_PROPOSALS};
use crate::log::LogStats;
use crate::tree::Tree;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters since the start.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
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
}

impl Shared {
    pub(crate) fn new(tree: Arc<dyn Tree>, objects: ObjectCache) -> Shared {
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
        }
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
        self.failed.store(true, Ordering::Release);
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
