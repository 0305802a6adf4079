//! A world of several nodes that die, stand still and have clocks of their own.
//!
//! Promises: what happens to one node does not touch another; a seed tells the whole story. Refuses to know: networks, disks.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::Env;
use env::tasks::{SubmitError, Worker};
use env::world::SimWorld;
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the seconds of a node, by its worker, from its own future.
fn count_seconds(env: &Env) -> Arc<AtomicU64> {
    let seconds = Arc::new(AtomicU64::new(0));
    let count = seconds.clone();
    let worker = Worker::spawn(&env.tasks, "count", 10, 10, move |batch: Vec<u64>| {
        count.fetch_add(batch.iter().sum(), Ordering::SeqCst);
    });
    let timers = env.timers.clone();
    env.tasks.spawn(async move {
        loop {
            timers.sleep(SECOND).await;
            worker.submit(1).unwrap();
        }
    });
    seconds
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

#[test]
fn a_killed_node_stops_with_all_it_had_and_the_others_go_on() {
    let world = SimWorld::new(1);
    let (first, second) = (count_seconds(&world.node(1)), count_seconds(&world.node(2)));
    world.run_for(SECOND * 21 / 2);
    assert_eq!((read(&first), read(&second)), (10, 10));
    let dead = world.node(1);
    world.kill(1);
    assert!(!world.is_alive(1) && world.is_alive(2));
    assert!(!dead.tasks.is_alive() && world.node(2).tasks.is_alive());
    assert_eq!(Arc::strong_count(&first), 1, "its future, its worker and their states are dropped");
    world.run_for(SECOND * 10);
    assert_eq!((read(&first), read(&second)), (10, 20));
    let again = count_seconds(&world.node(1));
    world.run_for(SECOND * 21 / 2);
    assert_eq!((read(&first), read(&again)), (10, 10));
}

#[test]
fn what_a_dead_node_still_asks_for_never_happens() {
    let world = SimWorld::new(1);
    let dead = world.node(1);
    world.kill(1);
    let worker = Worker::spawn(&dead.tasks, "late", 10, 10, |_: Vec<u8>| panic!("a dead node works"));
    assert!(matches!(worker.submit(1), Err(SubmitError::Closed(1))));
    dead.tasks.spawn(async { panic!("a dead node runs") });
    let (job, sleep) = (dead.tasks.run(|| panic!("a dead node blocks")), dead.timers.sleep(SECOND));
    let mut ran = world.spawn(job);
    let mut slept = world.spawn(sleep);
    world.run_for(SECOND * 10);
    assert_eq!((ran.take(), slept.take()), (None::<()>, None));
}

#[test]
fn a_future_of_a_killed_node_drops_what_others_wait_for() {
    let world = SimWorld::new(1);
    let (reply, answer) = oneshot::channel::<()>();
    let timers = world.node(1).timers.clone();
    world.spawn_on(1, async move {
        timers.sleep(SECOND * 100).await;
        reply.send(()).unwrap();
    });
    let mut heard = world.spawn(answer);
    world.run_for(SECOND);
    world.kill(1);
    world.run_for(SECOND);
    assert!(heard.take().unwrap().is_err());
}

#[test]
fn a_paused_node_does_nothing_and_finds_its_time_gone_by() {
    let world = SimWorld::new(1);
    let (first, second) = (count_seconds(&world.node(1)), count_seconds(&world.node(2)));
    world.run_for(SECOND / 2);
    let before = world.node(1).clock.monotonic();
    world.pause(1);
    world.run_for(SECOND * 10);
    assert_eq!((read(&first), read(&second)), (0, 10));
    assert!(world.node(1).clock.monotonic() - before > SECOND * 9);
    world.resume(1);
    world.run_for(SECOND / 10);
    assert_eq!(read(&first), 1, "the timer was long due");
}

#[test]
fn what_others_give_to_a_paused_node_waits_until_it_goes_on() {
    let world = SimWorld::new(1);
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let node = world.node(1);
    let worker = Worker::spawn(&node.tasks, "w", 10, 10, move |batch: Vec<u64>| {
        count.fetch_add(batch.iter().sum(), Ordering::SeqCst);
    });
    world.pause(1);
    worker.submit(1).unwrap();
    let (job, future) = (handled.clone(), handled.clone());
    world.spawn(node.tasks.run(move || job.fetch_add(10, Ordering::SeqCst)));
    node.tasks.spawn(async move {
        future.fetch_add(100, Ordering::SeqCst);
    });
    world.run_for(SECOND);
    assert_eq!(read(&handled), 0);
    world.resume(1);
    world.run_for(SECOND);
    assert_eq!(read(&handled), 111);
}

#[test]
fn timers_of_all_nodes_end_in_the_order_of_the_worlds_time() {
    let world = SimWorld::new(1);
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    for (node, seconds) in [(1, 4), (2, 1), (3, 3), (1, 2), (2, 6), (3, 5)] {
        let (sleep, order) = (world.node(node).timers.sleep(SECOND * seconds), order.clone());
        world.spawn_on(node, async move {
            sleep.await;
            order.lock().push(seconds);
        });
    }
    world.run_for(SECOND * 10);
    assert_eq!(*order.lock(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn clocks_of_nodes_are_off_and_drift_and_jump_and_timers_follow_the_own_clock() {
    let world = SimWorld::new(5);
    let walls: BTreeSet<u64> = (1..=5).map(|n| world.node(n).clock.wall_ms()).collect();
    assert!(walls.len() > 3 && walls.last().unwrap() - walls.first().unwrap() <= 1000, "{walls:?}");
    let node = world.node(1);
    world.set_drift(1, -100_000);
    let (local, before) = (node.clock.monotonic(), world.now());
    world.block_on(node.timers.sleep(SECOND * 9));
    let took = world.now() - before;
    assert!(node.clock.monotonic() - local >= SECOND * 9);
    assert!(took >= SECOND * 10 && took < SECOND * 10 + Duration::from_millis(1), "{took:?}");
    let (wall, monotonic) = (node.clock.wall_ms(), node.clock.monotonic());
    world.jump_clock(1, -3_600_000);
    assert_eq!((node.clock.wall_ms(), node.clock.monotonic()), (wall - 3_600_000, monotonic));
}

#[test]
fn each_node_and_each_life_of_it_draws_its_own_numbers() {
    let world = SimWorld::new(7);
    let mut drawn = BTreeSet::new();
    for _ in 0..3 {
        for node in 1..=3 {
            assert!(drawn.insert(world.node(node).random.next_u64()));
            world.kill(node);
        }
    }
    assert_eq!(SimWorld::new(7).node(1).random.next_u64(), SimWorld::new(7).node(1).random.next_u64());
}

#[test]
fn a_condition_is_met_when_it_holds_and_not_after_the_limit() {
    let world = SimWorld::new(1);
    let seconds = count_seconds(&world.node(1));
    assert!(world.run_until(|| read(&seconds) == 3, SECOND * 10));
    assert!(world.now() >= SECOND * 2 && world.now() < SECOND * 4);
    assert!(!world.run_until(|| read(&seconds) == 100, SECOND * 10));
    assert!(world.now() >= SECOND * 12);
}

#[test]
fn a_node_that_never_rests_does_not_stop_time() {
    let world = SimWorld::new(1);
    world.node(1).tasks.spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let seconds = count_seconds(&world.node(2));
    world.run_for(SECOND * 3 / 2);
    assert_eq!(read(&seconds), 1);
}

/// Nodes pass a number around a ring of channels; one is killed and one paused on the way.
fn play(seed: u64) -> (u64, u64, Duration) {
    let world = SimWorld::new(seed);
    let sum = Arc::new(AtomicU64::new(0));
    for number in 1..=3 {
        let (env, sum) = (world.node(number), sum.clone());
        world.spawn_on(number, async move {
            loop {
                let pause = env.random.next_u64() % 50_000;
                env.timers.sleep(Duration::from_micros(pause)).await;
                let drawn = env.tasks.run({
                    let random = env.random.clone();
                    move || random.next_u64() >> 32
                });
                sum.fetch_add(drawn.await, Ordering::SeqCst);
            }
        });
    }
    world.run_for(SECOND);
    world.kill(2);
    world.pause(3);
    world.run_for(SECOND);
    world.resume(3);
    world.run_for(SECOND);
    (world.digest(), read(&sum), world.now())
}

#[test]
fn the_same_seed_tells_the_same_story_and_another_seed_another() {
    assert_eq!(play(11), play(11));
    let stories: BTreeSet<u64> = (0..10).map(|seed| play(seed).0).collect();
    assert_eq!(stories.len(), 10);
}
