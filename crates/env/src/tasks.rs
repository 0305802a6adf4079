//! Work that blocks: queues served by threads, or by a seeded scheduler in place of them.
//!
//! A [`Worker`] is one owner of one state with a bounded queue: messages are handed over in batches, which is where
//! group commit comes from. Replies travel in `tokio::sync::oneshot` channels inside the messages.
//!
//! Promises: a full queue is an answer, not a wait; what was accepted is handled, in order, unless a handler panics,
//! which closes that worker for good and is logged. Refuses to know: what the messages are.

mod domains;
mod pool;
mod queue;
mod scheduler;
mod worker;

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

pub use domains::DomainId;
pub(crate) use domains::Machine;
pub use pool::Pool;
pub use scheduler::{Event, Scheduler, SimHandle};
pub use worker::{Gather, HandlerPanicked, SubmitError, Worker};

use crate::clock::SimClock;

/// How workers run. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// One thread for each worker, a small pool for [`Tasks::run`].
    Threads(Arc<Pool>),
    /// Nothing runs by itself: the simulation's loop picks, by seed, which worker handles how many of its messages next.
    /// They belong to the domain.
    Simulated(Arc<Scheduler>, DomainId),
}

impl Tasks {
    /// Real threads; `pool_threads` (at least one) serve [`Tasks::run`].
    pub fn threads(pool_threads: usize) -> Tasks {
        Tasks::Threads(Arc::new(Pool::new(pool_threads)))
    }

    /// A seeded scheduler in place of threads; the caller drives it.
    pub fn simulated(seed: u64) -> (Tasks, Arc<Scheduler>) {
        Tasks::simulated_by(seed, Arc::new(SimClock::new(0)))
    }

    /// The same, whose timers move `clock`.
    pub(crate) fn simulated_by(seed: u64, clock: Arc<SimClock>) -> (Tasks, Arc<Scheduler>) {
        let scheduler = Arc::new(Scheduler::new(seed, clock));
        (Tasks::Simulated(scheduler.clone(), DomainId::OUTSIDE), scheduler)
    }

    /// Runs a future by itself, on the tokio runtime of the caller or as a client of the simulation. Nobody waits for its end:
    /// whoever needs that takes a channel along. A panic ends it alone, except in a simulation, where it reaches the test.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            Tasks::Threads(_) => drop(tokio::spawn(future)),
            Tasks::Simulated(scheduler, domain) => scheduler.spawn_background(*domain, future),
        }
    }

    /// Whether anything given to it still runs: not in a node of a simulation that was killed.
    pub fn is_alive(&self) -> bool {
        match self {
            Tasks::Threads(_) => true,
            Tasks::Simulated(scheduler, domain) => scheduler.local_time(*domain).is_some(),
        }
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
                Tasks::Simulated(scheduler, domain) => scheduler.run_job(*domain, f).await,
            };
            result.unwrap_or_else(|panic| resume_unwind(panic))
        }
    }
}
