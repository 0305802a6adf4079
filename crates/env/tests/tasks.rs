//! Workers and blocking work, with threads and simulated.
//!
//! Promises: order, bounds, closing and panics behave as documented in both; the simulation repeats itself by seed.
//! Refuses to know: how fast anything is.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use env::Env;
use env::tasks::{Event, Gather, SubmitError, Tasks, Worker};
use tokio::sync::oneshot;

/// A worker whose first batch waits for `go`, so that more can be queued behind it.
fn gated(tasks: &Tasks, queue: usize, max_batch: usize) -> (Worker<u32>, oneshot::Sender<()>, Receiver<Vec<u32>>) {
    let (go, gate) = oneshot::channel();
    let (report, batches) = channel();
    let mut gate = Some(gate);
    let worker = Worker::spawn(tasks, "gated", queue, max_batch, move |batch| {
        report.send(batch).unwrap();
        if let Some(gate) = gate.take() {
            gate.blocking_recv().unwrap();
        }
    });
    (worker, go, batches)
}

#[test]
fn a_thread_takes_what_waits_in_batches_and_in_order() {
    let (worker, go, batches) = gated(&Tasks::threads(1), 100, 4);
    worker.submit(0).unwrap();
    assert_eq!(batches.recv().unwrap(), [0]);
    for message in 1..=6 {
        worker.submit(message).unwrap();
    }
    assert_eq!(worker.queued(), 6);
    go.send(()).unwrap();
    worker.join().unwrap();
    assert_eq!(batches.iter().collect::<Vec<_>>(), [vec![1, 2, 3, 4], vec![5, 6]]);
}

#[test]
fn many_producers_lose_nothing_and_each_keeps_its_order() {
    let (report, handled) = channel();
    let worker = Worker::spawn(&Tasks::threads(1), "busy", 8, 5, move |batch: Vec<(u32, u32)>| {
        assert!((1..=5).contains(&batch.len()));
        batch.into_iter().for_each(|message| report.send(message).unwrap());
    });
    std::thread::scope(|scope| {
        for producer in 0..4 {
            let worker = worker.clone();
            scope.spawn(move || {
                for number in 0..2000 {
                    while worker.submit((producer, number)).is_err_and(|error| error.is_full()) {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    worker.join().unwrap();
    let all: Vec<(u32, u32)> = handled.iter().collect();
    for producer in 0..4 {
        let numbers = all.iter().filter(|(from, _)| *from == producer).map(|(_, number)| *number);
        assert!(numbers.eq(0..2000), "producer {producer}");
    }
}

#[test]
fn a_full_queue_is_an_answer_and_gives_the_message_back() {
    let (worker, go, batches) = gated(&Tasks::threads(1), 2, 1);
    worker.submit(0).unwrap();
    batches.recv().unwrap();
    worker.submit(1).unwrap();
    worker.submit(2).unwrap();
    let refused = worker.submit(3).unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_message(), 3);
    go.send(()).unwrap();
    worker.join().unwrap();
    assert_eq!(batches.iter().flatten().collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_waiting_submit_goes_on_when_there_is_room() {
    let (worker, go, batches) = gated(&Tasks::threads(1), 1, 1);
    worker.submit(0).unwrap();
    batches.recv().unwrap();
    worker.submit(1).unwrap();
    let waiting = tokio::spawn({
        let worker = worker.clone();
        async move { worker.submit_async(2).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    go.send(()).unwrap();
    waiting.await.unwrap().unwrap();
    worker.join().unwrap();
    assert!(matches!(worker.submit_async(3).await, Err(SubmitError::Closed(3))));
    assert_eq!(batches.iter().flatten().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_closed_worker_finishes_what_is_queued_and_accepts_no_more() {
    let (worker, go, batches) = gated(&Tasks::threads(1), 10, 10);
    let clone = worker.clone();
    worker.submit(0).unwrap();
    batches.recv().unwrap();
    worker.submit(1).unwrap();
    clone.close();
    assert!(matches!(worker.submit(2), Err(SubmitError::Closed(2))));
    go.send(()).unwrap();
    worker.join().unwrap();
    clone.join().unwrap();
    assert_eq!(batches.iter().collect::<Vec<_>>(), [[1]]);
}

#[test]
fn dropping_the_last_handle_ends_the_thread_and_drops_its_state() {
    let (worker, go, batches) = gated(&Tasks::threads(1), 10, 10);
    worker.submit(0).unwrap();
    worker.submit(1).unwrap();
    drop(worker);
    go.send(()).unwrap();
    // The iterator ends when the handler, and with it the sender, is dropped.
    assert_eq!(batches.iter().flatten().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_panicking_handler_closes_its_worker_and_drops_the_waiting_replies() {
    let worker = Worker::spawn(&Tasks::threads(1), "fragile", 10, 1, |batch: Vec<oneshot::Sender<()>>| {
        assert!(batch.is_empty(), "the planned panic");
    });
    let (first, first_reply) = oneshot::channel();
    let (second, second_reply) = oneshot::channel();
    worker.submit(first).unwrap();
    // May come before or after the panic.
    let _ = worker.submit(second);
    first_reply.blocking_recv().unwrap_err();
    second_reply.blocking_recv().unwrap_err();
    assert_eq!(worker.join().unwrap_err().0, "fragile");
    let (third, _) = oneshot::channel();
    assert!(matches!(worker.submit(third), Err(SubmitError::Closed(_))));
}

#[tokio::test]
async fn blocking_work_runs_elsewhere_and_gives_its_result() {
    let tasks = Tasks::threads(2);
    let here = std::thread::current().id();
    let there = tasks.run(|| std::thread::current().id()).await;
    assert_ne!(here, there);
    let many: Vec<_> = (0..5000_u64).map(|n| tokio::spawn(tasks.run(move || n * 2))).collect();
    let mut sum = 0;
    for job in many {
        sum += job.await.unwrap();
    }
    assert_eq!(sum, 4999 * 5000);
}

#[tokio::test]
async fn a_panic_in_blocking_work_reaches_the_caller_and_not_the_pool() {
    let tasks = Tasks::threads(1);
    let failed = tokio::spawn(tasks.run(|| assert_eq!(1, 2, "the planned panic"))).await;
    assert!(failed.unwrap_err().is_panic());
    assert_eq!(tasks.run(|| 5).await, 5);
}

#[test]
fn simulated_workers_run_only_when_stepped() {
    let (tasks, scheduler) = Tasks::simulated(1);
    let (report, batches) = channel();
    let worker = Worker::spawn(&tasks, "w", 100, 4, move |batch: Vec<u32>| report.send(batch).unwrap());
    for message in 0..20 {
        worker.submit(message).unwrap();
    }
    assert_eq!(batches.try_iter().count(), 0);
    assert!(scheduler.step());
    assert_eq!(batches.try_iter().count(), 1);
    scheduler.drain();
    assert!(!scheduler.step());
    let rest: Vec<Vec<u32>> = batches.try_iter().collect();
    assert!(rest.iter().all(|batch| (1..=4).contains(&batch.len())));
    assert_eq!(rest.concat().last(), Some(&19));
}

/// Three clients talk to two workers, one of which passes on to the other, and to the pool.
fn play(seed: u64) -> (Vec<Event>, u64, Vec<u32>) {
    let sim = Env::simulated(seed);
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let sink = log.clone();
    let second = Worker::spawn(&sim.env.tasks, "second", 4, 3, move |batch: Vec<(u32, oneshot::Sender<u32>)>| {
        for (number, reply) in batch {
            sink.lock().push(number);
            reply.send(number + 1).unwrap();
        }
    });
    let first = Worker::spawn(&sim.env.tasks, "first", 64, 2, {
        let second = second.clone();
        move |batch: Vec<(u32, oneshot::Sender<u32>)>| {
            for message in batch {
                // A full queue is an answer: the client sees its reply dropped and asks again.
                drop(second.submit(message));
            }
        }
    });
    for client in 0..3 {
        let (first, tasks) = (first.clone(), sim.env.tasks.clone());
        sim.scheduler.spawn(async move {
            for round in 0..10 {
                let number = tasks.run(move || client * 100 + round).await;
                loop {
                    let (reply, answer) = oneshot::channel();
                    first.submit((number, reply)).unwrap();
                    if let Ok(answer) = answer.await {
                        assert_eq!(answer, number + 1);
                        break;
                    }
                }
            }
        });
    }
    sim.scheduler.run();
    let order = log.lock().clone();
    (sim.scheduler.events(), sim.scheduler.digest(), order)
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    assert_eq!(play(3), play(3));
    let orders: std::collections::BTreeSet<Vec<u32>> = (0..10).map(|seed| play(seed).2).collect();
    assert!(orders.len() > 5, "seeds hardly change the order: {}", orders.len());
    for order in orders {
        assert_eq!(order.len(), 30);
    }
}

#[test]
fn block_on_gives_the_result_and_a_handle_gives_another() {
    let sim = Env::simulated(1);
    let tasks = sim.env.tasks.clone();
    let mut side = sim.scheduler.spawn(async { 7 });
    assert_eq!(sim.scheduler.block_on(async move { tasks.run(|| 5).await }), 5);
    sim.scheduler.run();
    assert_eq!((side.take(), side.take()), (Some(7), None));
}

#[test]
fn a_deadlock_is_named() {
    let sim = Env::simulated(1);
    sim.scheduler.spawn(pending::<()>());
    let panic = catch_unwind(AssertUnwindSafe(|| sim.scheduler.run())).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("deadlock"));
}

#[test]
fn a_simulated_panic_closes_the_worker_and_reaches_the_test() {
    let (tasks, scheduler) = Tasks::simulated(1);
    let worker =
        Worker::spawn(&tasks, "fragile", 10, 1, |batch: Vec<u8>| assert!(batch.is_empty(), "the planned panic"));
    worker.submit(1).unwrap();
    worker.submit(2).unwrap();
    catch_unwind(AssertUnwindSafe(|| scheduler.step())).unwrap_err();
    assert!(matches!(worker.submit(3), Err(SubmitError::Closed(3))));
    assert!(worker.join().is_err());
    assert!(!scheduler.step(), "nothing is left to run");
}

/// Counts how often the state of a worker is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_simulated_worker_without_handles_finishes_its_queue_and_drops_its_state() {
    let (tasks, scheduler) = Tasks::simulated(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let handled = Arc::new(AtomicUsize::new(0));
    let (state, sum) = (Counted(drops.clone()), handled.clone());
    let worker = Worker::spawn(&tasks, "w", 10, 1, move |batch: Vec<usize>| {
        let _state = &state;
        sum.fetch_add(batch[0], Ordering::SeqCst);
    });
    worker.submit(1).unwrap();
    worker.submit(2).unwrap();
    drop(worker);
    scheduler.drain();
    assert_eq!((handled.load(Ordering::SeqCst), drops.load(Ordering::SeqCst)), (3, 1));
}

#[test]
fn a_power_cut_drops_everything_unhandled() {
    let sim = Env::simulated(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let state = Counted(drops.clone());
    let worker = Worker::spawn(&sim.env.tasks, "w", 10, 1, move |_: Vec<u8>| {
        let _state = &state;
        unreachable!("nothing is handled after the power cut");
    });
    worker.submit(1).unwrap();
    let tasks = sim.env.tasks.clone();
    let inside = Counted(drops.clone());
    sim.scheduler.spawn(async move {
        tasks.run(move || drop(inside)).await;
    });
    sim.scheduler.abandon();
    sim.scheduler.run();
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    assert!(matches!(worker.submit(2), Err(SubmitError::Closed(2))));
}

const LONG: Duration = Duration::from_secs(3600);

/// A worker that handled a batch of six while two more messages came, and is then let go: eight senders, as far as it knows.
fn crowded(gather: Gather) -> (Worker<u32>, Receiver<Vec<u32>>) {
    let (go, gate) = channel();
    let (report, batches) = channel();
    let worker = Worker::spawn_gathering(&Tasks::threads(1), "crowd", 100, 100, gather, move |batch: Vec<u32>| {
        report.send(batch).unwrap();
        // An error once nobody holds the gate any more.
        let _: Result<(), _> = gate.recv();
    });
    worker.submit(0).unwrap();
    assert_eq!(batches.recv().unwrap(), [0]);
    (1..=6).for_each(|n| worker.submit(n).unwrap());
    go.send(()).unwrap();
    assert_eq!(batches.recv().unwrap(), [1, 2, 3, 4, 5, 6]);
    (7..=8).for_each(|n| worker.submit(n).unwrap());
    (worker, batches)
}

#[test]
fn most_of_a_crowd_of_senders_is_waited_for() {
    let (worker, batches) = crowded(Gather { few: 7, at_most: LONG });
    // So many that the wait ends also if the worker looks only when all are there, and takes the crowd for a larger one.
    for n in 9..=24 {
        worker.submit(n).unwrap();
        std::thread::yield_now();
    }
    assert!(batches.recv().unwrap().len() >= 6, "three quarters of eight");
}

#[test]
fn among_few_senders_nobody_is_waited_for() {
    let (_worker, batches) = crowded(Gather { few: 8, at_most: LONG });
    assert_eq!(batches.recv().unwrap(), [7, 8]);
}

#[test]
fn a_crowd_that_went_away_is_waited_for_only_so_long() {
    let (_worker, batches) = crowded(Gather { few: 7, at_most: Duration::from_millis(1) });
    assert_eq!(batches.recv().unwrap(), [7, 8]);
}

#[test]
fn closing_ends_the_wait_for_a_crowd() {
    let (worker, batches) = crowded(Gather { few: 7, at_most: LONG });
    worker.join().unwrap();
    assert_eq!(batches.iter().flatten().collect::<Vec<_>>(), [7, 8]);
}
