//! Work that blocks: queues served by threads, or by a seeded scheduler in place of them.
//!
//! A [`Worker`] is one owner of one state with a bounded queue: messages are handed over in batches, which is where
//! group commit comes from. Replies travel in `tokio::sync::oneshot` channels inside the messages.

use std::sync::Arc;

/// How workers run.
#[derive(Clone)]
pub enum Tasks {
    /// One thread for each worker, a small pool for [`Tasks::run`].
    Threads(Arc<Pool>),
    /// Nothing runs by itself: the simulation's loop picks, by seed, which worker handles how many of its messages next.
    Simulated(Arc<Scheduler>),
}
