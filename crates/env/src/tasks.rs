//! Work that blocks: queues served by threads, or by a seeded scheduler in place of them.
//!
//! A [`Worker`] is one owner of one state with a bounded queue: messages are handed over in batches, which is where
//! group commit comes from. Replies travel in `tokio::sync::oneshot` channels inside the messages.
//!
//! Promises: a full queue is an answer, not a wait; what was accepted is handled, in order, unless a handler panics,
//! which closes that worker for good and is logged. Refuses to know: what the messages are.

mod pool;
mod queue;
mod scheduler;
mod worker;

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

pub use pool::Pool;
pub use scheduler::{Event, Scheduler, SimHandle};
pub use worker::{Gather, HandlerPanicked, SubmitError, Worker};

/// How workers run. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// One thread for each worker, a small pool for [`Tasks::run`].
    Threads(Arc<Pool>),
    /// Nothing runs by itself: the simulation's loop picks, by seed, which worker handles how many of its messages next.
    Simulated(Arc<Scheduler>),
}

impl Tasks {
    /// Real threads; `pool_threads` (at least one) serve [`Tasks::run`].
    pub fn threads(pool_threads: usize) -> Tasks {
        Tasks::Threads(Arc::new(Pool::new(pool_threads)))
    }

    /// A seeded scheduler in place of threads; the caller drives it.
    pub fn simulated(seed: u64) -> (Tasks, Arc<Scheduler>) {
        let scheduler = Arc::new(Scheduler::new(seed));
        (Tasks::Simulated(scheduler.clone()), scheduler)
    }

    /// Runs `f`, which may block, away from the async threads, and gives its result.
    ///
    /// `f` is queued when the future is first polled; once queued it runs to its end even if the future is dropped.
    /// A panic of `f` is passed on to whoever awaits. The queue is bounded; the future waits for room in it.
    pub fn run<T, F>(&self, f: F) -> impl Future<Output = T> + Send + 'static
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let tasks = self.clone();
        async move {
            let result = match &tasks {
                Tasks::Threads(pool) => pool.run(f).await,
                Tasks::Simulated(scheduler) => scheduler.run_job(f).await,
            };
            result.unwrap_or_else(|panic| resume_unwind(panic))
        }
    }
}
