//! The parts of a simulated world that fail one by one: each has a clock, timers, and may stand still.
//!
//! Promises: timers of all domains fire in the order of world time; a clock that runs fast or slow takes its timers along; a domain
//! that is paused keeps its time but fires nothing. Refuses to know: what runs in a domain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::clock::{Clock, SimClock};

/// A part of the world that can be killed or paused by itself. Never used again after it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub(crate) u64);

impl DomainId {
    /// What is there from the beginning: all of a world of one node, else what lies outside of the nodes.
    pub const OUTSIDE: DomainId = DomainId(0);
}

const MILLION: u128 = 1_000_000;

/// A clock of the simulation. It outlives the domains that read it, as a machine outlives its processes.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    clock: Arc<SimClock>,
    /// Parts per million by which it runs too fast.
    drift_ppm: i32,
}

impl Machine {
    pub(crate) fn new(clock: Arc<SimClock>, drift_ppm: i32) -> Machine {
        assert!(drift_ppm.unsigned_abs() < 500_000, "a clock that runs {drift_ppm} ppm off is none");
        Machine { clock, drift_ppm }
    }

    fn rate(&self) -> u128 {
        (MILLION as i128 + i128::from(self.drift_ppm)).unsigned_abs()
    }

    /// World time after which the clock has moved by `local` at least.
    fn world_time(&self, local: Duration) -> Duration {
        nanoseconds((local.as_nanos() * MILLION).div_ceil(self.rate()))
    }

    fn pass(&self, world: Duration) {
        self.clock.advance(nanoseconds(world.as_nanos() * self.rate() / MILLION));
    }
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

struct Domain {
    machine: usize,
    label: Arc<str>,
    paused: bool,
    /// By the domain's own monotonic time, then in the order they were set.
    timers: BTreeMap<(Duration, u64), Waker>,
}

pub(super) struct Domains {
    machines: Vec<Machine>,
    domains: BTreeMap<DomainId, Domain>,
    next_domain: u64,
    next_timer: u64,
}

impl Domains {
    /// A world with [`DomainId::OUTSIDE`] only, which lives by `clock`.
    pub(super) fn new(clock: Arc<SimClock>) -> Domains {
        let mut domains =
            Domains { machines: vec![Machine::new(clock, 0)], domains: BTreeMap::new(), next_domain: 0, next_timer: 0 };
        domains.add(0, Arc::from(""));
        domains
    }

    pub(super) fn add_machine(&mut self, machine: Machine) -> usize {
        self.machines.push(machine);
        self.machines.len() - 1
    }

    pub(super) fn set_drift(&mut self, machine: usize, drift_ppm: i32) {
        self.machines[machine] = Machine::new(self.machines[machine].clock.clone(), drift_ppm);
    }

    pub(super) fn add(&mut self, machine: usize, label: Arc<str>) -> DomainId {
        let id = DomainId(self.next_domain);
        self.next_domain += 1;
        self.domains.insert(id, Domain { machine, label, paused: false, timers: BTreeMap::new() });
        id
    }

    /// Ends a domain; its timers are for the caller to drop outside of the lock.
    pub(super) fn remove(&mut self, id: DomainId) -> Vec<Waker> {
        self.domains.remove(&id).map_or_else(Vec::new, |domain| domain.timers.into_values().collect())
    }

    /// Forgets all timers, of all domains; they are for the caller to drop outside of the lock.
    pub(super) fn clear_timers(&mut self) -> Vec<Waker> {
        self.domains.values_mut().flat_map(|domain| std::mem::take(&mut domain.timers).into_values()).collect()
    }

    pub(super) fn is_alive(&self, id: DomainId) -> bool {
        self.domains.contains_key(&id)
    }

    /// Whether what belongs to the domain may run now.
    pub(super) fn runs(&self, id: DomainId) -> bool {
        self.domains.get(&id).is_some_and(|domain| !domain.paused)
    }

    pub(super) fn set_paused(&mut self, id: DomainId, paused: bool) {
        if let Some(domain) = self.domains.get_mut(&id) {
            domain.paused = paused;
        }
    }

    pub(super) fn label(&self, id: DomainId) -> Arc<str> {
        self.domains.get(&id).map_or_else(|| Arc::from(""), |domain| domain.label.clone())
    }

    /// The domain's own monotonic time. `None`: it was killed.
    pub(super) fn local_time(&self, id: DomainId) -> Option<Duration> {
        self.domains.get(&id).map(|domain| self.machines[domain.machine].clock.monotonic())
    }

    /// Sets a timer to local time `at`, and gives its number. A domain that was killed takes none: it will never fire.
    pub(super) fn set_timer(&mut self, id: DomainId, at: Duration, waker: &Waker) -> u64 {
        self.next_timer += 1;
        if let Some(domain) = self.domains.get_mut(&id) {
            domain.timers.insert((at, self.next_timer), waker.clone());
        }
        self.next_timer
    }

    pub(super) fn take_timer(&mut self, id: DomainId, at: Duration, number: u64) -> Option<Waker> {
        self.domains.get_mut(&id)?.timers.remove(&(at, number))
    }

    /// World time until the next timer is due, if there is one.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        let due = |domain: &Domain| {
            let machine = &self.machines[domain.machine];
            let ((at, _), _) = domain.timers.first_key_value()?;
            Some(machine.world_time(at.saturating_sub(machine.clock.monotonic())))
        };
        self.domains.values().filter(|domain| !domain.paused).filter_map(due).min()
    }

    /// Moves the clocks of all machines.
    pub(super) fn pass(&mut self, time: Duration) {
        self.machines.iter().for_each(|machine| machine.pass(time));
    }

    /// Takes the timers that are due, for the caller to wake outside of the lock.
    pub(super) fn take_due(&mut self) -> Vec<Waker> {
        let mut due = Vec::new();
        for domain in self.domains.values_mut().filter(|domain| !domain.paused) {
            let now = self.machines[domain.machine].clock.monotonic();
            while let Some(first) = domain.timers.first_entry().filter(|first| first.key().0 <= now) {
                due.push(first.remove());
            }
        }
        due
    }
}
