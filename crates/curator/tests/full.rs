//! A disk that is full: growing is refused, shrinking never is, and space comes back without a restart and without a wait.

mod fixture;

use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{MIB, Node, Setup};
use object_controller::api::{BucketInfo, ObjectStore, StoreError};
use std::sync::Arc;
use std::time::Duration;
use types::limits::PART_MIN_BYTES;

/// Puts objects of that size until one is refused for want of space; answers how many were acknowledged.
fn fill(node: &Node, bucket: &Arc<BucketInfo>, word: &'static str, size: usize) -> u64 {
    let bucket = bucket.clone();
    node.run(|c| async move {
        for round in 0..8192 {
            match ask::put(&c, &bucket, &format!("{word}{round}"), content(round, size)).await {
                Err(StoreError::NoSpace) => return round,
                answer => _ = answer.expect("a full disk answers NoSpace, nothing else"),
            }
        }
        unreachable!("the disk never fills");
    })
}

fn is_acknowledged(node: &Node, bucket: &Arc<BucketInfo>, word: &str, count: u64, size: usize) {
    for round in [0, count / 2, count - 1] {
        assert_eq!(node.get(bucket, &format!("{word}{round}")), Some(content(round, size)), "{word}{round}");
    }
}

#[test]
fn a_full_disk_refuses_what_grows_and_gives_space_back_when_all_is_deleted() {
    let node = Node::born(61, Setup { reclaim_delay: Duration::from_secs(600), ..Setup::default() });
    let bucket = node.bucket();
    node.disks[0].set_capacity(192 * MIB);
    let large = fill(&node, &bucket, "large", 2_000_000);
    let small = fill(&node, &bucket, "small", 16_000);
    assert!(large > 8 && small > 8, "{large} large and {small} small");
    let others = bucket.clone();
    node.run(|c| async move {
        let copied = ask::copy(&c, &others, "large0", "copied").await;
        assert!(matches!(copied, Err(StoreError::NoSpace)), "{copied:?}");
        assert!(matches!(ask::begin(&c, &others, "upload").await, Err(StoreError::NoSpace)));
    });
    // At the fullest moment the power goes.
    let node = node.crash(CrashPolicy::KeepNone);
    is_acknowledged(&node, &bucket, "large", large, 2_000_000);
    is_acknowledged(&node, &bucket, "small", small, 16_000);
    (0..large).for_each(|round| node.delete(&bucket, &format!("large{round}")));
    node.rounds();
    let again = fill(&node, &bucket, "again", 2_000_000);
    assert!(again + 8 >= large, "{again} fit where {large} had been");
    is_acknowledged(&node, &bucket, "small", small, 16_000);
    is_acknowledged(&node, &bucket, "again", again, 2_000_000);
}

#[test]
fn a_multipart_body_is_read_to_its_end_though_the_object_is_deleted_and_the_curator_works() {
    let node = Node::born(62, Setup::default());
    let bucket = node.bucket();
    let (first, second) = (content(1, PART_MIN_BYTES as usize), content(2, 70_000));
    let (name, sent) = (bucket.clone(), [first.clone(), second.clone()]);
    let mut body = node.run(|c| async move {
        let id = ask::begin(&c, &name, "k").await.expect("an upload");
        let mut list = Vec::new();
        for (number, bytes) in (1..).zip(sent) {
            let part = ask::part(&c, &name, "k", id, number, bytes).await.expect("a part");
            list.push((number, part.etag.to_string()));
        }
        ask::complete(&c, &name, "k", id, &list).await.expect("completed");
        let handle = c.lookup(&name, &ask::key("k"), None, true).await.expect("a handle");
        handle.read(0, PART_MIN_BYTES + 70_000)
    });
    node.delete(&bucket, "k");
    for _ in 0..4 {
        node.round().expect("a round");
    }
    let read = node.run(|_| async move {
        let mut all = Vec::new();
        while let Some(chunk) = body.next().await.expect("verified bytes") {
            all.extend_from_slice(&chunk);
        }
        all
    });
    assert_eq!(read, [first, second].concat());
    // Its open group is sealed.
    let node = node.restart();
    node.rounds();
    node.assert_clean();
}
