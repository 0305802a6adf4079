//! A simulated world of many nodes: one order of events, and nodes that fail one by one.
//!
//! Promises: same seed and same program, same trace. Each node has a clock that is off by a little and runs a little fast or slow,
//! randomness of its own, and dies without touching the others. Work takes time: a little passes with every step, so a timeout may
//! end before what it waits for. Refuses to know: disks and networks (a test gives the same disk to a node's successor).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, SimClock};
use crate::random::{SimRandom, Xoshiro};
use crate::tasks::{DomainId, Machine, Scheduler, SimHandle, Tasks};
use crate::timers::Timers;
use crate::{Env, SIMULATED_START_MS};

/// A node's wall clock is off by at most so much at first.
const SKEW_MS: u64 = 500;
/// A node's clocks run too fast or too slow by at most so many parts per million, five times what quartz does.
const DRIFT_PPM: u64 = 250;
/// Nodes were switched on at different times: their monotonic clocks have nothing to do with each other.
const UP_FOR_MS: u64 = 1_000_000;
/// What [`SimWorld::block_on`] waits at most, in virtual time: a wait without end is a finding.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The world and its controls. Nodes have numbers chosen by the test.
pub struct SimWorld {
    seed: u64,
    scheduler: Arc<Scheduler>,
    clock: Arc<SimClock>,
    outside: Env,
    nodes: Mutex<BTreeMap<u64, Node>>,
}

struct Node {
    clock: Arc<SimClock>,
    machine: usize,
    /// The life it is in; a successor is another domain.
    life: Option<(DomainId, Env)>,
    lives: u64,
    paused: bool,
}

impl SimWorld {
    /// A world without nodes.
    pub fn new(seed: u64) -> SimWorld {
        let clock = Arc::new(SimClock::new(SIMULATED_START_MS));
        let (tasks, scheduler) = Tasks::simulated_by(!seed, clock.clone());
        scheduler.let_work_take_time();
        let timers = Timers::Simulated(scheduler.clone(), DomainId::OUTSIDE);
        let random = Arc::new(SimRandom::new(seed));
        let outside = Env { clock: clock.clone(), random, tasks, timers };
        SimWorld { seed, scheduler, clock, outside, nodes: Mutex::default() }
    }

    /// What a node's program is given. The same until the node is killed, then that of its next life: its clock went on meanwhile,
    /// its randomness is new.
    pub fn node(&self, number: u64) -> Env {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(number).or_insert_with(|| self.new_node(number));
        let (_, env) = node.life.get_or_insert_with(|| {
            node.lives += 1;
            let domain = self.scheduler.add_domain(node.machine, &format!("{number}/"));
            self.scheduler.set_paused(domain, node.paused);
            let env = Env {
                clock: node.clock.clone(),
                random: Arc::new(SimRandom::new(self.stream(number, node.lives))),
                tasks: Tasks::Simulated(self.scheduler.clone(), domain),
                timers: Timers::Simulated(self.scheduler.clone(), domain),
            };
            (domain, env)
        });
        env.clone()
    }

    /// What lies outside of all nodes and never dies: clients, the network. Its clock is the world's.
    pub fn outside(&self) -> Env {
        self.outside.clone()
    }

    /// The loop behind it.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// The node dies here and now: what it had queued, ran or waited for is dropped. The machine stays: [`SimWorld::node`] starts
    /// the next life. Not to be called by what belongs to the node.
    pub fn kill(&self, number: u64) {
        let life = self.nodes.lock().get_mut(&number).and_then(|node| node.life.take());
        if let Some((domain, _)) = life {
            self.scheduler.kill(domain);
        }
    }

    /// Whether the node is in a life.
    pub fn is_alive(&self, number: u64) -> bool {
        self.nodes.lock().get(&number).is_some_and(|node| node.life.is_some())
    }

    /// Nothing of the node runs until [`SimWorld::resume`]; its clocks go on.
    pub fn pause(&self, number: u64) {
        self.set_paused(number, true);
    }

    /// The node goes on, and finds its timers due.
    pub fn resume(&self, number: u64) {
        self.set_paused(number, false);
    }

    fn set_paused(&self, number: u64, paused: bool) {
        if let Some(node) = self.nodes.lock().get_mut(&number) {
            node.paused = paused;
            if let Some((domain, _)) = &node.life {
                self.scheduler.set_paused(*domain, paused);
            }
        }
    }

    /// The node's wall clock jumps, forwards or back.
    pub fn jump_clock(&self, number: u64, by_ms: i64) {
        if let Some(node) = self.nodes.lock().get(&number) {
            node.clock.set_wall_ms(node.clock.wall_ms().saturating_add_signed(by_ms));
        }
    }

    /// From now on the node's clocks run too fast by so many parts per million, or too slow.
    pub fn set_drift(&self, number: u64, drift_ppm: i32) {
        if let Some(node) = self.nodes.lock().get(&number) {
            self.scheduler.set_drift(node.machine, drift_ppm);
        }
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Adds a future outside of the nodes.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> SimHandle<T> {
        self.scheduler.spawn(future)
    }

    /// Adds a future to a node: it dies with it. A node that is dead comes to life.
    pub fn spawn_on<T: Send + 'static>(
        &self,
        number: u64,
        future: impl Future<Output = T> + Send + 'static,
    ) -> SimHandle<T> {
        drop(self.node(number));
        let domain = self.nodes.lock().get(&number).and_then(|node| node.life.as_ref().map(|(domain, _)| *domain));
        self.scheduler.spawn_in(domain.expect("`node` gave it a life"), future)
    }

    /// Lets the world run for so long.
    pub fn run_for(&self, time: Duration) {
        self.run_until(|| false, time);
    }

    /// Lets the world run until the condition holds, for at most `limit`; answers whether it holds.
    pub fn run_until(&self, mut condition: impl FnMut() -> bool, limit: Duration) -> bool {
        let end = self.now() + limit;
        loop {
            if condition() {
                return true;
            }
            if self.now() >= end {
                return false;
            }
            self.scheduler.advance_until(end);
        }
    }

    /// Runs until this future, outside of the nodes, is done, and gives its result. A future that is not done after an hour, or
    /// never can be, is a finding.
    pub fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let mut handle = self.spawn(future);
        let mut result = None;
        let done = || {
            result = handle.take();
            result.is_some()
        };
        self.run_until(done, LONGEST_WAIT);
        result.expect("the future is done within an hour of virtual time")
    }

    /// A digest of all that happened: equal for two runs of the same seed.
    pub fn digest(&self) -> u64 {
        self.scheduler.digest()
    }

    fn new_node(&self, number: u64) -> Node {
        let mut random = Xoshiro::new(self.stream(number, 0));
        let mut around_zero = |most: u64| (random.next_u64() % (2 * most + 1)) as i64 - most as i64;
        let (skew_ms, drift_ppm) = (around_zero(SKEW_MS), around_zero(DRIFT_PPM));
        let clock = Arc::new(SimClock::new(0));
        clock.advance(Duration::from_millis(random.next_u64() % UP_FOR_MS));
        clock.set_wall_ms(self.clock.wall_ms().saturating_add_signed(skew_ms));
        let machine = self.scheduler.add_machine(Machine::new(clock.clone(), drift_ppm as i32));
        Node { clock, machine, life: None, lives: 0, paused: false }
    }

    /// The seed of one life of one node.
    fn stream(&self, number: u64, life: u64) -> u64 {
        let mut mix = Xoshiro::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ life.rotate_left(32));
        mix.next_u64()
    }
}
