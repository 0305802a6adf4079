//! Timers, real and simulated, and futures that run by themselves.
//!
//! Promises: nothing fires early, everything fires in order, a simulation never waits for real time. Refuses to know: how exact
//! the runtime's timers are.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use env::clock::Clock;
use env::tasks::Worker;
use env::{Env, SimEnv};
use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn simulated_sleeps_end_in_the_order_of_their_times_and_move_the_clock() {
    let sim = Env::simulated(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let wall = sim.clock.wall_ms();
    for seconds in [5, 1, 3, 4, 2] {
        let (sleep, order, clock) = (sim.env.timers.sleep(SECOND * seconds), order.clone(), sim.clock.clone());
        sim.scheduler.spawn(async move {
            sleep.await;
            order.lock().push((seconds, clock.monotonic()));
        });
    }
    sim.scheduler.run();
    assert_eq!(*order.lock(), (1..=5).map(|seconds| (seconds, SECOND * seconds)).collect::<Vec<_>>());
    assert_eq!(sim.clock.wall_ms(), wall + 5_000);
}

#[test]
fn time_stands_still_while_anything_can_run() {
    let sim = Env::simulated(1);
    let (clock, seen) = (sim.clock.clone(), Arc::new(Mutex::new(Vec::new())));
    let record = seen.clone();
    let worker = Worker::spawn(&sim.env.tasks, "w", 100, 1, move |_: Vec<u8>| record.lock().push(clock.monotonic()));
    let timers = sim.env.timers.clone();
    sim.scheduler.block_on(async move {
        for _ in 0..20 {
            worker.submit(0).unwrap();
        }
        timers.sleep(SECOND).await;
    });
    assert_eq!(*seen.lock(), [Duration::ZERO; 20]);
}

#[test]
fn a_sleep_counts_from_the_call_and_not_from_the_first_poll() {
    let sim = Env::simulated(1);
    let (timers, clock) = (sim.env.timers.clone(), sim.clock.clone());
    sim.scheduler.block_on(async move {
        let long = timers.sleep(SECOND * 3);
        timers.sleep(SECOND).await;
        long.await;
        assert_eq!(clock.monotonic(), SECOND * 3);
    });
}

#[test]
fn a_clock_that_a_test_moves_takes_the_timers_along() {
    let sim = Env::simulated(1);
    let (sleep, clock) = (sim.env.timers.sleep(SECOND), sim.clock.clone());
    let mut slept = sim.scheduler.spawn(async move {
        sleep.await;
        clock.monotonic()
    });
    let tasks = sim.env.tasks.clone();
    sim.scheduler.block_on(async move { tasks.run(|| ()).await });
    sim.clock.advance(SECOND * 10);
    sim.scheduler.run();
    assert_eq!(slept.take(), Some(SECOND * 10));
}

#[test]
fn a_timeout_gives_what_came_in_time_and_drops_what_did_not() {
    let sim = Env::simulated(1);
    let timers = sim.env.timers.clone();
    let dropped = Arc::new(());
    let held = dropped.clone();
    sim.scheduler.block_on(async move {
        let in_time = async { 7 };
        assert_eq!(timers.timeout(Duration::ZERO, in_time).await, Some(7));
        let slow = timers.sleep(SECOND);
        assert_eq!(timers.timeout(SECOND * 2, slow).await, Some(()));
        let never = async move {
            pending::<()>().await;
            drop(held);
        };
        assert_eq!(timers.timeout(SECOND, never).await, None);
    });
    assert_eq!(Arc::strong_count(&dropped), 1);
    assert_eq!(sim.clock.monotonic(), SECOND * 2);
}

#[test]
fn a_dropped_sleep_leaves_no_timer_that_moves_time() {
    let sim = Env::simulated(1);
    let timers = sim.env.timers.clone();
    sim.scheduler.block_on(async move {
        assert_eq!(timers.timeout(SECOND, timers.sleep(SECOND * 100)).await, None);
    });
    let stuck = catch_unwind(AssertUnwindSafe(|| sim.scheduler.block_on(pending::<()>())));
    assert!(stuck.is_err(), "a deadlock, for no timer is left");
    assert_eq!(sim.clock.monotonic(), SECOND);
}

#[test]
fn a_future_that_runs_by_itself_goes_on_for_ever_and_nobody_waits_for_it() {
    let sim = Env::simulated(1);
    let ticks = Arc::new(Mutex::new(0));
    tick(&sim, &ticks);
    let timers = sim.env.timers.clone();
    sim.scheduler.spawn(async move { timers.sleep(SECOND * 5 / 2).await });
    sim.scheduler.run();
    assert_eq!(*ticks.lock(), 2);
    sim.scheduler.abandon();
    assert_eq!(Arc::strong_count(&ticks), 1, "a power cut ends it");
}

fn tick(sim: &SimEnv, ticks: &Arc<Mutex<u32>>) {
    let (timers, ticks) = (sim.env.timers.clone(), ticks.clone());
    sim.env.tasks.spawn(async move {
        loop {
            timers.sleep(SECOND).await;
            *ticks.lock() += 1;
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_order_of_timers_that_are_due_at_once_and_another_seed_another() {
    let play = |seed| {
        let sim = Env::simulated(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..8 {
            let (sleep, order) = (sim.env.timers.sleep(SECOND), order.clone());
            sim.scheduler.spawn(async move {
                sleep.await;
                order.lock().push(number);
            });
        }
        sim.scheduler.run();
        let order = order.lock().clone();
        (order, sim.scheduler.digest())
    };
    assert_eq!(play(3), play(3));
    assert_ne!(play(3).0, play(4).0);
}

#[tokio::test(start_paused = true)]
async fn real_timers_count_from_the_call_and_a_timeout_is_too_late_only_then() {
    let env = Env::system(1);
    let begin = tokio::time::Instant::now();
    let long = env.timers.sleep(SECOND * 3);
    env.timers.sleep(SECOND).await;
    long.await;
    assert_eq!(begin.elapsed().as_secs(), 3);
    assert_eq!(env.timers.timeout(SECOND, async { 7 }).await, Some(7));
    assert_eq!(env.timers.timeout(SECOND, env.timers.sleep(SECOND * 5)).await, None);
    assert_eq!(env.timers.timeout(Duration::MAX, async { 8 }).await, Some(8));
}

#[tokio::test]
async fn a_real_future_runs_by_itself() {
    let env = Env::system(1);
    let (done, waits) = tokio::sync::oneshot::channel();
    env.tasks.spawn(async move { done.send(5).unwrap() });
    assert_eq!(waits.await, Ok(5));
}
