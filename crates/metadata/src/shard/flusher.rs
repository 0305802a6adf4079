//! Flushes and compactions of one folder's tree, away from apply.
//!
//! Promises: the log is told of a flush only when it is complete. Refuses to know: when one is due.

use super::ShardId;
use super::applier::ToApply;
use super::driver::ToDriver;
use super::rows::Applied;
use super::shared::Shared;
use crate::limits::FLUSH_SPARE_BYTES;
use crate::tree::{Tree, TreeError};
use env::disk::Disk;
use env::tasks::{Tasks, Worker};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Flushes that may wait: one of the memtable, some asked for.
const QUEUE: usize = 64;

/// How it ended.
pub(crate) enum FlushEnd {
    /// What was sealed is durable.
    Durable,
    /// There is too little space to try; nothing was touched.
    Postponed,
    /// Nothing is left to reorganise.
    Compacted,
    /// The tree failed.
    Failed(String),
}

/// A flush of what was sealed.
pub(crate) struct FlushJob {
    /// What the sealed rows contain.
    pub(crate) applied: BTreeMap<ShardId, Applied>,
    /// Who asked for it.
    pub(crate) asked: Arc<Asked>,
}

/// Those who asked for a flush of all folders; answered when the last folder's job is dropped.
pub(crate) struct Asked {
    replies: Mutex<Vec<oneshot::Sender<Result<(), String>>>>,
    failed: Mutex<Option<String>>,
}

impl Asked {
    pub(crate) fn new(replies: Vec<oneshot::Sender<Result<(), String>>>) -> Arc<Asked> {
        Arc::new(Asked { replies: Mutex::new(replies), failed: Mutex::new(None) })
    }

    fn fail(&self, reason: String) {
        *self.failed.lock() = Some(reason);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let result = self.failed.lock().take().map_or(Ok(()), Err);
        for reply in self.replies.lock().drain(..) {
            // Whoever asked may have given up.
            let _ = reply.send(result.clone());
        }
    }
}

/// Where to send word. Emptied when the node closes, so that the workers, which hold each other, can end.
pub(crate) struct Slot<M: Send + 'static>(Mutex<Option<Worker<M>>>);

impl<M: Send + 'static> Slot<M> {
    pub(crate) fn new() -> Arc<Slot<M>> {
        Arc::new(Slot(Mutex::new(None)))
    }

    pub(crate) fn set(&self, worker: Worker<M>) {
        *self.0.lock() = Some(worker);
    }

    pub(crate) fn clear(&self) {
        let worker = self.0.lock().take();
        drop(worker);
    }

    /// Sends, if there is still somebody. Queues have room for these few messages.
    pub(crate) fn send(&self, message: M) {
        let worker = self.0.lock().clone();
        if let Some(Err(refused)) = worker.map(|worker| worker.submit(message)) {
            tracing::debug!(%refused, "a message between the workers of the metadata was not taken: it is closing");
        }
    }
}

/// The two workers of one folder's tree.
#[derive(Clone)]
pub(crate) struct Flusher {
    flush: Worker<FlushJob>,
    compact: Worker<()>,
}

/// Whom a flusher tells.
#[derive(Clone)]
pub(crate) struct Slots {
    pub(crate) driver: Arc<Slot<ToDriver>>,
    pub(crate) apply: Arc<Slot<ToApply>>,
}

impl Slots {
    pub(crate) fn clear(&self) {
        self.driver.clear();
        self.apply.clear();
    }
}

impl Flusher {
    pub(crate) fn spawn(
        tasks: &Tasks,
        folder: usize,
        disk: Arc<dyn Disk>,
        tree: Arc<dyn Tree>,
        slots: Slots,
        shared: Arc<Shared>,
    ) -> Flusher {
        let compact = compactor(tasks, folder, disk.clone(), tree.clone(), slots.clone(), shared.clone());
        let to_compact = compact.clone();
        // What the last run left undone. The queue is empty.
        let _ = compact.submit(());
        let handle = move |jobs: Vec<FlushJob>| {
            for job in jobs {
                if !has_room(&*disk, 2 * tree.flush_bytes()) {
                    job.asked.fail("no space to flush".to_owned());
                    slots.apply.send(ToApply::Ended(folder, FlushEnd::Postponed));
                    continue;
                }
                match unharmed("flush", || tree.flush()) {
                    Ok(()) => {
                        shared.counters.flushes.fetch_add(1, Ordering::Relaxed);
                        slots.driver.send(ToDriver::Flushed(folder, job.applied));
                        slots.apply.send(ToApply::Ended(folder, FlushEnd::Durable));
                        // Full: one that is waiting will see what this one would.
                        let _ = to_compact.submit(());
                    }
                    Err(e) => {
                        job.asked.fail(e.to_string());
                        slots.apply.send(ToApply::Ended(folder, FlushEnd::Failed(e.to_string())));
                    }
                }
            }
        };
        Flusher { flush: Worker::spawn(tasks, &format!("meta-flush-{folder}"), QUEUE, 1, handle), compact }
    }

    pub(crate) fn submit(&self, job: FlushJob) {
        if let Err(refused) = self.flush.submit(job) {
            tracing::warn!(%refused, "a flush was not taken");
            refused.into_message().asked.fail("flushing has ended".to_owned());
        }
    }

    /// Looks for something to compact.
    pub(crate) fn compact(&self) {
        // Full: one that is waiting will see what this one would.
        let _ = self.compact.submit(());
    }

    /// Waits until what was begun is done.
    pub(crate) fn join(&self) {
        if let Err(e) = self.flush.join().and(self.compact.join()) {
            tracing::error!(error = %e, "flushing ended badly");
        }
    }
}

/// Whether there is space for so many bytes. Asked before a flush, for afterwards the tree has failed.
pub(crate) fn has_room(disk: &dyn Disk, bytes: u64) -> bool {
    // A disk that cannot tell shows in the flush what is wrong with it.
    disk.space().map_or(true, |space| space.free_bytes >= bytes + FLUSH_SPARE_BYTES)
}

/// The tree's own answer, or its panic as an error: a flush that never ends would have the node wait for it for ever.
fn unharmed<T>(what: &str, work: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!(what, "the tree panicked");
        Err(TreeError(format!("a {what} panicked")))
    })
}

fn compactor(
    tasks: &Tasks,
    folder: usize,
    disk: Arc<dyn Disk>,
    tree: Arc<dyn Tree>,
    slots: Slots,
    shared: Arc<Shared>,
) -> Worker<()> {
    let handle = move |_| {
        while has_room(&*disk, tree.compact_bytes()) {
            match unharmed("compaction", || tree.compact()) {
                Ok(true) => drop(shared.counters.compactions.fetch_add(1, Ordering::Relaxed)),
                Ok(false) => break,
                Err(e) => return slots.apply.send(ToApply::Ended(folder, FlushEnd::Failed(e.to_string()))),
            }
        }
        slots.apply.send(ToApply::Ended(folder, FlushEnd::Compacted));
    };
    Worker::spawn(tasks, &format!("meta-compact-{folder}"), 1, 1, handle)
}
