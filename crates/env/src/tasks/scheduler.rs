//! The simulation's loop: workers, blocking jobs and client futures in one thread, in an order drawn from a seed.
//!
//! Promises: same seed and same program, same order, so same trace. Everything runs inside the caller's call.
//! Refuses to know: time (move a `SimClock` between steps), threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Result as ThreadResult;

use parking_lot::Mutex;
use tokio::sync::oneshot;

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
}

type Job = Box<dyn FnOnce() + Send>;
type Client = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The loop. Shared by the [`super::Tasks`] it stands behind and by the test that drives it.
pub struct Scheduler {
    state: Mutex<State>,
    woken: Arc<Mutex<BTreeSet<u64>>>,
}

struct State {
    random: Xoshiro,
    stations: BTreeMap<u64, Arc<dyn Station>>,
    jobs: BTreeMap<u64, Job>,
    clients: BTreeMap<u64, Client>,
    /// Clients that are not finished, including the one being polled.
    unfinished: BTreeSet<u64>,
    next_id: u64,
    trace: Trace<Event>,
}

enum Choice {
    Batch(Arc<dyn Station>, usize),
    Job(Job),
    Client(u64, Client),
}

impl Scheduler {
    pub(super) fn new(seed: u64) -> Scheduler {
        let state = State {
            random: Xoshiro::new(seed),
            stations: BTreeMap::new(),
            jobs: BTreeMap::new(),
            clients: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            next_id: 0,
            trace: Trace::new(),
        };
        Scheduler { state: Mutex::new(state), woken: Arc::default() }
    }

    /// Adds a client future; [`Scheduler::run`] and [`Scheduler::block_on`] poll it. The handle gives its result.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> SimHandle<T> {
        let (reply, result) = oneshot::channel();
        let client = async move {
            // The handle may have been dropped: the future ran for its effects.
            let _ = reply.send(future.await);
        };
        let mut state = self.state.lock();
        let id = state.take_id();
        state.clients.insert(id, Box::pin(client));
        state.unfinished.insert(id);
        self.woken.lock().insert(id);
        SimHandle { id, result }
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

    /// Runs until all client futures are done and nothing is queued.
    ///
    /// Asserts that there is no deadlock: futures that wait while nothing can wake them.
    pub fn run(&self) {
        while self.advance(true) {}
        let stuck = self.state.lock().unfinished.clone();
        assert!(stuck.is_empty(), "deadlock: nothing is runnable, but the futures {stuck:?} still wait");
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
            let ran = self.advance(true);
            assert!(ran, "deadlock: nothing is runnable, but the future {} still waits", handle.id);
        }
    }

    /// A power cut: drops all queued messages, closures, futures and workers' states, unhandled. The scheduler can be used again.
    pub fn abandon(&self) {
        let (stations, jobs, clients) = {
            let mut state = self.state.lock();
            self.woken.lock().clear();
            state.unfinished.clear();
            let State { stations, jobs, clients, .. } = &mut *state;
            (std::mem::take(stations), std::mem::take(jobs), std::mem::take(clients))
        };
        // Outside the lock: dropping may wake or submit. Futures first, they hold workers' handles.
        drop(clients);
        drop(jobs);
        for station in stations.values() {
            station.abandon();
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

    pub(super) fn register(&self, station: Arc<dyn Station>) {
        let mut state = self.state.lock();
        let id = state.take_id();
        state.stations.insert(id, station);
    }

    pub(super) async fn run_job<T, F>(&self, f: F) -> ThreadResult<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The receiver is gone if the caller gave up; the work was done all the same.
            let _ = reply.send(catch_unwind(AssertUnwindSafe(f)));
        });
        {
            let mut state = self.state.lock();
            let id = state.take_id();
            state.jobs.insert(id, job);
        }
        match result.await {
            Ok(result) => result,
            // Abandoned: the power is off, and whoever awaits never hears.
            Err(_) => pending().await,
        }
    }

    /// Makes and carries out one choice; `false` when there is none.
    fn advance(&self, with_clients: bool) -> bool {
        self.retire();
        let Some(choice) = self.choose(with_clients) else { return false };
        // Carried out without the lock: handlers submit, futures spawn.
        match choice {
            Choice::Batch(station, count) => station.handle(count),
            Choice::Job(job) => job(),
            Choice::Client(id, client) => self.poll(id, client),
        }
        true
    }

    fn choose(&self, with_clients: bool) -> Option<Choice> {
        let mut state = self.state.lock();
        let busy: Vec<u64> = state.stations.iter().filter(|(_, s)| s.queued() > 0).map(|(id, _)| *id).collect();
        let jobs: Vec<u64> = state.jobs.keys().copied().collect();
        let mut woken = self.woken.lock();
        // A wake may outlive its future; and a future that steps the scheduler itself is woken but not here.
        woken.retain(|id| state.unfinished.contains(id));
        let here = woken.iter().filter(|id| with_clients && state.clients.contains_key(id));
        let clients: Vec<u64> = here.copied().collect();
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
            return state.jobs.remove(id).map(Choice::Job);
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
            Poll::Pending if state.unfinished.contains(&id) => {
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
            let ids: Vec<u64> = state.stations.iter().filter(|(_, s)| s.is_over()).map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| state.stations.remove(id)).collect()
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
        let station = self.stations[&id].clone();
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
