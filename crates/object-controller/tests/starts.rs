//! Starts and writes under a bad clock or after a bad end: what is sound is served again.

mod fixture;

use env::clock::Clock;
use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{Node, Setup};

const HOUR_MS: u64 = 3_600_000;

/// Makes a bucket, puts an object, reads it, deletes it.
fn works(node: &Node, bucket: &'static str) {
    let key = "key";
    let (put, got, gone) = node.run(move |c| async move {
        let bucket = ask::make_bucket(&c, bucket).await;
        let put = ask::put(&c, &bucket, key, content(1, 100_000)).await;
        let got = ask::get(&c, &bucket, key, None).await;
        let gone = ask::delete(&c, &bucket, key, None).await;
        (put.map(drop), got, gone.map(drop))
    });
    assert!(put.is_ok(), "{bucket}: written: {put:?}");
    assert_eq!(got.expect("read").1, content(1, 100_000), "{bucket}");
    assert!(gone.is_ok(), "{bucket}: deleted: {gone:?}");
}

#[test]
fn a_wall_clock_that_goes_back_stops_nothing() {
    let node = Node::born(1, Setup::default());
    node.clock.set_wall_ms(node.clock.wall_ms() + 48 * HOUR_MS);
    works(&node, "far-ahead");
    node.clock.set_wall_ms(node.clock.wall_ms() - 50 * HOUR_MS);
    works(&node, "back-then");
    assert!(node.metadata.now_ms() > node.clock.wall_ms() + 49 * HOUR_MS, "cluster time never goes back");
    // A start forgets what was in memory; the rows remember.
    let node = node.crash(CrashPolicy::KeepNone);
    assert!(node.metadata.now_ms() > node.clock.wall_ms() + 40 * HOUR_MS);
    works(&node, "after-a-crash");
    let node = node.restart();
    works(&node, "after-a-restart");
}

#[test]
fn a_start_with_a_log_that_is_far_too_long_waits_for_its_flush() {
    // First with a log that may grow, then with one that may not.
    let long = Setup { segment_bytes: 64 << 10, log_bytes: 64 << 20, ..Setup::default() };
    let mut node = Node::born(3, long);
    node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "log-bucket").await;
        for n in 0..64 {
            ask::put(&c, &bucket, &format!("k{n}"), content(n, 16_000)).await.expect("written");
        }
    });
    assert_eq!(node.metadata.stats().flushes, 0);
    node.setup.log_bytes = 1;
    let node = node.crash(CrashPolicy::KeepNone);
    works(&node, "after-that");
}
