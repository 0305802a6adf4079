//! The one door to the world: clock, randomness, disks, tasks — each real and simulated.
//!
//! Promises: everything above this crate is deterministic when it is given the simulated half.
//! Refuses to know: any word of the domain (extents, shards, objects).

pub mod buf;
pub mod clock;
pub mod disk;
pub mod random;
pub mod tasks;

use std::sync::Arc;

/// The world as one process sees it. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Wall and monotonic time.
    pub clock: Arc<dyn clock::Clock>,
    /// Randomness.
    pub random: Arc<dyn random::Random>,
    /// Threads, or a seeded scheduler in place of them.
    pub tasks: tasks::Tasks,
}
