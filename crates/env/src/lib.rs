//! The one door to the world: clock, randomness, disks, tasks — each real and simulated.
//!
//! Promises: everything above this crate is deterministic when it is given the simulated half.
//! Refuses to know: any word of the domain (extents, shards, objects).

pub mod buf;
pub mod clock;
mod counters;
pub mod disk;
mod disk_path;
pub mod process;
pub mod random;
pub mod real_disk;
pub mod ring;
pub mod sim_disk;
pub mod small_file;
pub mod tasks;
pub mod timers;
mod trace;
pub mod world;

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
    /// Waiting for time to pass.
    pub timers: timers::Timers,
}

impl Env {
    /// The real world; `pool_threads` serve [`tasks::Tasks::run`].
    pub fn system(pool_threads: usize) -> Env {
        Env {
            clock: Arc::new(clock::SystemClock),
            random: Arc::new(random::SystemRandom::default()),
            tasks: tasks::Tasks::threads(pool_threads),
            timers: timers::Timers::Runtime,
        }
    }

    /// A world that is a function of `seed`, with the handles to drive it.
    pub fn simulated(seed: u64) -> SimEnv {
        let clock = Arc::new(clock::SimClock::new(SIMULATED_START_MS));
        let random = Arc::new(random::SimRandom::new(seed));
        // Another stream than `random`'s: what the code draws must not choose the order it runs in.
        let (tasks, scheduler) = tasks::Tasks::simulated_by(!seed, clock.clone());
        let timers = timers::Timers::Simulated(scheduler.clone(), tasks::DomainId::OUTSIDE);
        let env = Env { clock: clock.clone(), random: random.clone(), tasks, timers };
        SimEnv { env, clock, random, scheduler }
    }
}

/// Where simulated wall time begins: 2027-01-01T00:00:00Z.
const SIMULATED_START_MS: u64 = 1_798_761_600_000;

/// A simulated world and its controls.
pub struct SimEnv {
    /// What the code under test is given.
    pub env: Env,
    /// Moves time.
    pub clock: Arc<clock::SimClock>,
    /// The generator behind `env.random`.
    pub random: Arc<random::SimRandom>,
    /// Runs what waits.
    pub scheduler: Arc<tasks::Scheduler>,
}
