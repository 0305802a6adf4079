//! The simulation's loop: workers, blocking jobs and client futures in one thread, in an order drawn from a seed.
//!
//! Promises: same seed and same program, same order, so same trace. Everything runs inside the caller's call. Time passes only when
//! nothing else can run: then the earliest timer fires ([`Scheduler::block_on`] and [`Scheduler::run`] do it, steps do not).
//! Refuses to know: threads, what a domain stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Result as ThreadResult;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::domains::{DomainId, Domains, Machine};
use crate::clock::SimClock;
use crate::random::Xoshiro;
use crate::trace::Trace;

/// A worker as the scheduler sees it.
pub(super) trait Station: Send + Sync {
    fn name(&self) -> Arc<str>;
    fn queued(&self) -> usize;
    fn max_batch(&self) -> usize;
    /// Closed and drained.
    fn is_over(&self) -> bool;
    /// Takes `count` messages (fewer if fewer are there) and handles them.
    fn handle(&self, count: usize);
    /// Drops the handler of a worker that is over.
    fn finish(&self);
    /// Drops messages and handler, unhandled.
    fn abandon(&self);
}

/// One choice the scheduler made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A future, by the number [`Scheduler::spawn`] counted, was polled.
    Polled(u64),
    /// A worker handled so many messages.
    Handled(Arc<str>, usize),
    /// A closure of [`super::Tasks::run`], by its number, ran.
    Ran(u64),
    /// Nothing could run, so time passed.
    Passed(Duration),
}

/// What a step of the simulation takes at most, where work takes time.
const STEP_MICROS: usize = 20;

type Job = Box<dyn FnOnce() + Send>;
type Client = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The loop. Shared by the [`super::Tasks`] it stands behind and by the test that drives it.
pub struct Scheduler {
    state: Mutex<State>,
    /// Taken after `state` where both are.
    domains: Mutex<Domains>,
    woken: Arc<Mutex<BTreeSet<u64>>>,
}

struct State {
    random: Xoshiro,
    /// What each step takes is drawn from here; `None`: time stands still while anything runs.
    durations: Option<Xoshiro>,
    stations: BTreeMap<u64, (DomainId, Arc<dyn Station>)>,
    jobs: BTreeMap<u64, (DomainId, Job)>,
    clients: BTreeMap<u64, Client>,
    /// Clients that are not finished, including the one being polled.
    unfinished: BTreeMap<u64, Membership>,
    next_id: u64,
    trace: Trace<Event>,
}

/// Where a client belongs, and whether [`Scheduler::run`] waits for its end.
#[derive(Clone, Copy)]
struct Membership {
    domain: DomainId,
    awaited: bool,
}

enum Choice {
    Batch(Arc<dyn Station>, usize),
    Job(Job),
    Client(u64, Client),
}

impl Scheduler {
    pub(super) fn new(seed: u64, clock: Arc<SimClock>) -> Scheduler {
        let state = State {
            random: Xoshiro::new(seed),
            durations: None,
            stations: BTreeMap::new(),
            jobs: BTreeMap::new(),
            clients: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            next_id: 0,
            trace: Trace::new(),
        };
        Scheduler { state: Mutex::new(state), domains: Mutex::new(Domains::new(clock)), woken: Arc::default() }
    }

    /// Adds a client future; [`Scheduler::run`] and [`Scheduler::block_on`] poll it. The handle gives its result.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> SimHandle<T> {
        self.spawn_in(DomainId::OUTSIDE, future)
    }

    pub(crate) fn spawn_in<T: Send + 'static>(
        &self,
        domain: DomainId,
        future: impl Future<Output = T> + Send + 'static,
    ) -> SimHandle<T> {
        let (reply, result) = oneshot::channel();
        let client = async move {
            // The handle may have been dropped: the future ran for its effects.
            let _ = reply.send(future.await);
        };
        let id = self.add_client(Membership { domain, awaited: true }, Box::pin(client));
        SimHandle { id, result }
    }

    /// Adds a future that may go on for ever: nobody waits for its end.
    pub(super) fn spawn_background(&self, domain: DomainId, future: impl Future<Output = ()> + Send + 'static) {
        self.add_client(Membership { domain, awaited: false }, Box::pin(future));
    }

    fn add_client(&self, membership: Membership, client: Client) -> u64 {
        let mut state = self.state.lock();
        let id = state.take_id();
        if !self.domains.lock().is_alive(membership.domain) {
            drop(state);
            // Outside the lock: dropping may wake or submit.
            drop(client);
            return id;
        }
        state.clients.insert(id, client);
        state.unfinished.insert(id, membership);
        self.woken.lock().insert(id);
        id
    }

    /// Hands one worker some of its messages, or runs one closure; `false` when nothing is queued anywhere.
    /// Futures are not polled.
    pub fn step(&self) -> bool {
        self.advance(false)
    }

    /// Steps until nothing is queued anywhere.
    pub fn drain(&self) {
        while self.step() {}
    }

    /// Runs until all client futures are done and nothing is queued. Those of [`super::Tasks::spawn`] are not waited for.
    ///
    /// Asserts that there is no deadlock: futures that wait while nothing can wake them.
    pub fn run(&self) {
        loop {
            while self.advance(true) {}
            let stuck = self.awaited();
            if stuck.is_empty() {
                return;
            }
            let passed = self.pass_to_timer(Duration::MAX);
            assert!(passed, "deadlock: nothing is runnable, but the futures {stuck:?} still wait");
        }
    }

    /// Runs until this future is done (others, spawned before, may run meanwhile) and gives its result.
    ///
    /// Asserts that there is no deadlock.
    pub fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let mut handle = self.spawn(future);
        loop {
            if let Some(result) = handle.take() {
                return result;
            }
            let ran = self.advance(true) || self.pass_to_timer(Duration::MAX);
            assert!(ran, "deadlock: nothing is runnable, but the future {} still waits", handle.id);
        }
    }

    /// A power cut: drops all queued messages, closures, futures and workers' states, unhandled. The scheduler can be used again.
    pub fn abandon(&self) {
        let (stations, jobs, clients, timers) = {
            let mut state = self.state.lock();
            self.woken.lock().clear();
            state.unfinished.clear();
            let timers = self.domains.lock().clear_timers();
            let State { stations, jobs, clients, .. } = &mut *state;
            (std::mem::take(stations), std::mem::take(jobs), std::mem::take(clients), timers)
        };
        // Outside the lock: dropping may wake or submit. Futures first, they hold workers' handles.
        drop(clients);
        drop(timers);
        drop(jobs);
        for (_, station) in stations.values() {
            station.abandon();
        }
    }

    /// Ends one domain: drops its messages, closures, futures, timers and workers' states, unhandled, and whatever it is given later.
    pub(crate) fn kill(&self, domain: DomainId) {
        let (stations, jobs, clients, timers) = {
            let mut state = self.state.lock();
            let timers = self.domains.lock().remove(domain);
            let stations: Vec<_> = state.stations.extract_if(.., |_, (of, _)| *of == domain).collect();
            let jobs: Vec<_> = state.jobs.extract_if(.., |_, (of, _)| *of == domain).collect();
            let ids: Vec<u64> =
                state.unfinished.extract_if(.., |_, of| of.domain == domain).map(|(id, _)| id).collect();
            let clients: Vec<_> = ids.iter().filter_map(|id| state.clients.remove(id)).collect();
            (stations, jobs, clients, timers)
        };
        // Outside the lock, and futures first, as in `abandon`.
        drop(clients);
        drop(timers);
        drop(jobs);
        for (_, (_, station)) in stations {
            station.abandon();
        }
    }

    pub(crate) fn add_machine(&self, machine: Machine) -> usize {
        self.domains.lock().add_machine(machine)
    }

    pub(crate) fn set_drift(&self, machine: usize, drift_ppm: i32) {
        self.domains.lock().set_drift(machine, drift_ppm);
    }

    pub(crate) fn add_domain(&self, machine: usize, label: &str) -> DomainId {
        self.domains.lock().add(machine, Arc::from(label))
    }

    pub(crate) fn set_paused(&self, domain: DomainId, paused: bool) {
        self.domains.lock().set_paused(domain, paused);
    }

    /// From now on a little time passes with every step.
    pub(crate) fn let_work_take_time(&self) {
        let mut state = self.state.lock();
        // A stream of its own: how long a step takes does not choose what is next.
        state.durations = Some(Xoshiro::new(state.random.clone().next_u64()));
    }

    /// One step, or time to the next timer, or to `end` on the clock of the world if nothing happens before.
    pub(crate) fn advance_until(&self, end: Duration) {
        if self.advance(true) {
            return;
        }
        let left = end.saturating_sub(self.local_time(DomainId::OUTSIDE).unwrap_or_default());
        if !self.pass_to_timer(left) {
            self.domains.lock().pass(left);
        }
    }

    /// The last choices made, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.state.lock().trace.events()
    }

    /// A digest of all choices ever made: equal for two runs of the same seed.
    pub fn digest(&self) -> u64 {
        self.state.lock().trace.digest()
    }

    /// Time of a domain on its own monotonic clock. `None`: it was killed.
    pub(crate) fn local_time(&self, domain: DomainId) -> Option<Duration> {
        self.domains.lock().local_time(domain)
    }

    pub(crate) fn set_timer(&self, domain: DomainId, at: Duration, waker: &Waker) -> u64 {
        self.domains.lock().set_timer(domain, at, waker)
    }

    pub(crate) fn take_timer(&self, domain: DomainId, at: Duration, number: u64) {
        let timer = self.domains.lock().take_timer(domain, at, number);
        // Outside the lock: the waker may be the last to hold something.
        drop(timer);
    }

    pub(super) fn register(&self, domain: DomainId, station: Arc<dyn Station>) {
        let mut state = self.state.lock();
        let id = state.take_id();
        if self.domains.lock().is_alive(domain) {
            state.stations.insert(id, (domain, station));
            return;
        }
        drop(state);
        station.abandon();
    }

    /// What distinguishes the workers of a domain from those of others of the same name; empty outside of all.
    pub(super) fn label(&self, domain: DomainId) -> Arc<str> {
        self.domains.lock().label(domain)
    }

    pub(super) async fn run_job<T, F>(&self, domain: DomainId, f: F) -> ThreadResult<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The receiver is gone if the caller gave up; the work was done all the same.
            let _ = reply.send(catch_unwind(AssertUnwindSafe(f)));
        });
        self.add_job(domain, job);
        match result.await {
            Ok(result) => result,
            // Abandoned: the power is off, and whoever awaits never hears.
            Err(_) => pending().await,
        }
    }

    fn add_job(&self, domain: DomainId, job: Job) {
        let mut state = self.state.lock();
        let id = state.take_id();
        if self.domains.lock().is_alive(domain) {
            state.jobs.insert(id, (domain, job));
            return;
        }
        drop(state);
        drop(job);
    }

    /// Futures whose end is waited for.
    fn awaited(&self) -> Vec<u64> {
        let state = self.state.lock();
        state.unfinished.iter().filter(|(_, membership)| membership.awaited).map(|(id, _)| *id).collect()
    }

    /// Lets time pass to the next timer if that is at most `limit` away, and wakes whom it is due for.
    fn pass_to_timer(&self, limit: Duration) -> bool {
        let next = self.domains.lock().next_timer();
        let Some(time) = next.filter(|time| *time <= limit) else { return false };
        self.state.lock().trace.record(Event::Passed(time));
        self.domains.lock().pass(time);
        self.wake_due();
        true
    }

    /// Wakes whoever's time has come: also because a test moved a clock by hand.
    fn wake_due(&self) {
        let due = self.domains.lock().take_due();
        due.into_iter().for_each(Waker::wake);
    }

    /// Makes and carries out one choice; `false` when there is none.
    fn advance(&self, with_clients: bool) -> bool {
        self.retire();
        self.wake_due();
        let Some(choice) = self.choose(with_clients) else { return false };
        // Carried out without the lock: handlers submit, futures spawn.
        match choice {
            Choice::Batch(station, count) => station.handle(count),
            Choice::Job(job) => job(),
            Choice::Client(id, client) => self.poll(id, client),
        }
        self.take_time();
        true
    }

    fn take_time(&self) {
        let drawn = self.state.lock().durations.as_mut().map(|durations| durations.below(STEP_MICROS + 1));
        if let Some(micros) = drawn {
            self.domains.lock().pass(Duration::from_micros(micros as u64));
        }
    }

    fn choose(&self, with_clients: bool) -> Option<Choice> {
        let mut state = self.state.lock();
        let domains = self.domains.lock();
        let busy = state.stations.iter().filter(|(_, (domain, s))| s.queued() > 0 && domains.runs(*domain));
        let busy: Vec<u64> = busy.map(|(id, _)| *id).collect();
        let jobs = state.jobs.iter().filter(|(_, (domain, _))| domains.runs(*domain));
        let jobs: Vec<u64> = jobs.map(|(id, _)| *id).collect();
        let mut woken = self.woken.lock();
        // A wake may outlive its future; and a future that steps the scheduler itself is woken but not here.
        woken.retain(|id| state.unfinished.contains_key(id));
        let may_run = |id: &u64| state.unfinished.get(id).is_some_and(|client| domains.runs(client.domain));
        let here = woken.iter().filter(|id| with_clients && state.clients.contains_key(id) && may_run(id));
        let clients: Vec<u64> = here.copied().collect();
        drop(domains);
        let count = busy.len() + jobs.len() + clients.len();
        if count == 0 {
            return None;
        }
        let pick = state.random.below(count);
        if let Some(id) = busy.get(pick) {
            return Some(state.choose_batch(*id));
        }
        if let Some(id) = jobs.get(pick - busy.len()) {
            state.trace.record(Event::Ran(*id));
            return state.jobs.remove(id).map(|(_, job)| Choice::Job(job));
        }
        let id = clients[pick - busy.len() - jobs.len()];
        woken.remove(&id);
        state.trace.record(Event::Polled(id));
        state.clients.remove(&id).map(|client| Choice::Client(id, client))
    }

    fn poll(&self, id: u64, mut client: Client) {
        let waker = Waker::from(Arc::new(ClientWaker { id, woken: self.woken.clone() }));
        let polled = client.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.state.lock();
        match polled {
            Poll::Ready(()) => {
                state.unfinished.remove(&id);
                drop(state);
                drop(client);
            }
            Poll::Pending if state.unfinished.contains_key(&id) => {
                state.clients.insert(id, client);
            }
            // Abandoned by what it did itself.
            Poll::Pending => {
                drop(state);
                drop(client);
            }
        }
    }

    /// Lets workers end whose last handle is gone.
    fn retire(&self) {
        let over: Vec<Arc<dyn Station>> = {
            let mut state = self.state.lock();
            let over = state.stations.iter().filter(|(_, (_, station))| station.is_over());
            let ids: Vec<u64> = over.map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| state.stations.remove(id)).map(|(_, station)| station).collect()
        };
        for station in over {
            station.finish();
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl State {
    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn choose_batch(&mut self, id: u64) -> Choice {
        let station = self.stations[&id].1.clone();
        let count = 1 + self.random.below(station.queued().min(station.max_batch()));
        self.trace.record(Event::Handled(station.name(), count));
        Choice::Batch(station, count)
    }
}

struct ClientWaker {
    id: u64,
    woken: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for ClientWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().insert(self.id);
    }
}

/// The result of a future given to [`Scheduler::spawn`], once it is there. Also a future itself.
#[derive(Debug)]
pub struct SimHandle<T> {
    id: u64,
    result: oneshot::Receiver<T>,
}

impl<T> SimHandle<T> {
    /// The result, once, if the future is done.
    pub fn take(&mut self) -> Option<T> {
        self.result.try_recv().ok()
    }
}

impl<T> Future for SimHandle<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.result).poll(context) {
            Poll::Ready(Ok(result)) => Poll::Ready(result),
            // Abandoned: never.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}
