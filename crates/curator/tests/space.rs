//! Whatever clients do, after a few rounds what is stored is what is referenced.

mod fixture;

use bytes::Bytes;
use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{MIB, Node, Setup};
use metadata::rows::GroupState;
use object_controller::api::{BucketInfo, ObjectStore, Versioning};
use std::sync::Arc;
use std::time::Duration;
use types::limits::PART_MIN_BYTES;

const FRAME: u64 = MIB + 4096;

fn multipart(node: &Node, bucket: &Arc<BucketInfo>, key: &'static str, seed: u64) -> Bytes {
    let parts = [content(seed, PART_MIN_BYTES as usize), content(seed + 1, 70_000)];
    let (bucket, sent) = (bucket.clone(), parts.clone());
    node.run(|c| async move {
        let id = ask::begin(&c, &bucket, key).await.expect("an upload");
        let mut list = Vec::new();
        for (number, bytes) in (1..).zip(sent) {
            let part = ask::part(&c, &bucket, key, id, number, bytes).await.expect("a part");
            list.push((number, part.etag.to_string()));
        }
        // A part that is replaced, and one that is not listed.
        ask::part(&c, &bucket, key, id, 9, content(seed + 2, 200_000)).await.expect("a part");
        ask::part(&c, &bucket, key, id, 9, content(seed + 3, 200_000)).await.expect("a part");
        ask::complete(&c, &bucket, key, id, &list).await.expect("completed");
    });
    parts.concat().into()
}

#[test]
fn after_puts_overwrites_deletes_copies_and_uploads_the_audit_is_clean_and_nothing_else_is_stored() {
    for setup in [Setup::default(), Setup::mirrored(), Setup::three_shards()] {
        let rf = u64::from(setup.rf);
        let node = Node::born(11, setup);
        let bucket = node.bucket();
        for (seed, key) in (1..).zip(["a", "k", "z"]) {
            node.put(&bucket, key, content(seed, 1_500_000));
            node.put(&bucket, key, content(seed + 10, 1_300_000));
        }
        node.put(&bucket, "small", content(5, 900));
        node.copy(&bucket, "a", "y");
        node.copy(&bucket, "z", "b");
        node.delete(&bucket, "z");
        node.delete(&bucket, "k");
        let whole = multipart(&node, &bucket, "m", 20);
        multipart(&node, &bucket, "n", 30);
        node.copy(&bucket, "n", "o");
        node.delete(&bucket, "n");
        node.delete(&bucket, "o");
        // What is open belongs to the live session: it is sealed by a restart.
        let node = node.restart();
        let done = node.rounds();
        assert!(done.reclaimed > 0 && done.punched_bytes > 0 && done.dropped > 0, "{done:?}");
        let audit = node.assert_clean();
        assert_eq!(audit.in_progress_bytes, 0, "{audit:#?}");
        let frames = audit.owned_bytes * rf;
        assert_eq!(audit.stored_bytes, frames);
        let headers: u64 = (0..node.disks.len()).map(|disk| node.files(disk).len() as u64 * 4096).sum();
        assert_eq!(node.allocated_bytes(), frames + headers, "only live frames and file headers are on the disks");
        assert_eq!(node.get(&bucket, "a"), Some(content(11, 1_300_000)));
        assert_eq!(node.get(&bucket, "y"), Some(content(11, 1_300_000)));
        assert_eq!(node.get(&bucket, "b"), Some(content(13, 1_300_000)));
        assert_eq!(node.get(&bucket, "m"), Some(whole));
        for key in ["a", "y", "b", "m", "small"] {
            node.delete(&bucket, key);
        }
        node.rounds();
        let audit = node.assert_clean();
        assert_eq!((audit.owned_extents, audit.groups), (0, 0), "{audit:#?}");
        assert_eq!(node.allocated_bytes(), 0);
    }
}

#[test]
fn a_key_that_is_overwritten_again_and_again_occupies_about_one_copy() {
    // Case 196.
    let node = Node::born(12, Setup::default());
    let bucket = node.bucket();
    for round in 0..60 {
        node.put(&bucket, "key", content(round, MIB as usize));
        if round % 7 == 0 {
            node.rounds();
        }
    }
    node.rounds();
    let audit = node.audit();
    assert!(audit.ok, "{audit:#?}");
    assert_eq!(audit.owned_bytes, FRAME);
    // The live session's open groups and what it keeps reserved: no more than two groups.
    assert!(node.allocated_bytes() <= 2 * 8 * MIB, "{} bytes", node.allocated_bytes());
    let node = node.restart();
    node.rounds();
    node.assert_clean();
    assert_eq!(node.allocated_bytes(), FRAME + 4096);
    assert_eq!(node.get(&bucket, "key"), Some(content(59, MIB as usize)));
}

#[test]
fn a_chain_of_copies_keeps_the_bytes_until_the_last_is_deleted() {
    // Case 135.
    for setup in [Setup::default(), Setup::three_shards()] {
        let node = Node::born(13, setup);
        let bucket = node.bucket();
        let bytes = content(1, 3_000_000);
        node.put(&bucket, "a", bytes.clone());
        node.copy(&bucket, "a", "k");
        node.copy(&bucket, "k", "z");
        node.delete(&bucket, "a");
        node.delete(&bucket, "k");
        node.rounds();
        node.rounds();
        assert_eq!(node.get(&bucket, "z"), Some(bytes.clone()));
        let node = node.restart();
        node.rounds();
        assert_eq!(node.get(&bucket, "z"), Some(bytes));
        node.assert_clean();
        node.delete(&bucket, "z");
        node.rounds();
        let audit = node.assert_clean();
        assert_eq!((audit.owned_extents, audit.groups, node.allocated_bytes()), (0, 0, 0), "{audit:#?}");
    }
}

#[test]
fn versions_are_kept_until_they_are_deleted_themselves() {
    let node = Node::born(14, Setup::default());
    let bucket = node.bucket();
    node.run(|c| {
        let bucket = bucket.clone();
        async move { ask::versioning(&c, &bucket, Versioning::Enabled).await }
    });
    node.put(&bucket, "k", content(1, 1_200_000));
    node.put(&bucket, "k", content(2, 1_200_000));
    node.delete(&bucket, "k");
    let node = node.restart();
    node.rounds();
    let audit = node.assert_clean();
    assert_eq!(audit.owned_extents, 4, "two versions of two extents behind a delete marker");
}

#[test]
fn nothing_that_an_open_read_needs_is_reclaimed() {
    let node = Node::born(15, Setup::default());
    let bucket = node.bucket();
    let bytes = content(3, 2_500_000);
    node.put(&bucket, "k", bytes.clone());
    let node = node.restart();
    node.rounds();
    let opened = node.run(|c| {
        let bucket = bucket.clone();
        async move { c.lookup(&bucket, &ask::key("k"), None, true).await.expect("a handle") }
    });
    node.delete(&bucket, "k");
    for _ in 0..4 {
        node.round().expect("a round");
    }
    assert!(node.audit().pending_bytes > 0, "the content waits for its reader");
    let read = node.run(|_| async move {
        let mut body = opened.read(0, 2_500_000);
        let mut all = Vec::new();
        while let Some(chunk) = body.next().await.expect("verified bytes") {
            all.extend_from_slice(&chunk);
        }
        Bytes::from(all)
    });
    assert_eq!(read, bytes);
    node.rounds();
    node.assert_clean();
    assert_eq!(node.allocated_bytes(), 0);
}

#[test]
fn nothing_is_reclaimed_before_the_delay_has_passed() {
    let node = Node::born(16, Setup { reclaim_delay: Duration::from_secs(600), ..Setup::default() });
    let bucket = node.bucket();
    node.put(&bucket, "k", content(1, 1_500_000));
    node.delete(&bucket, "k");
    node.put(&bucket, "l", content(2, 1_500_000));
    let node = node.restart();
    for seconds in [0, 200, 399] {
        node.clock.advance(Duration::from_secs(seconds));
        assert_eq!(node.round().expect("a round").reclaimed, 0, "{seconds}");
    }
    let audit = node.audit();
    assert!(audit.ok && audit.pending_bytes > 0, "condemned is explained: {audit:#?}");
    node.clock.advance(Duration::from_secs(1));
    assert_eq!(node.round().expect("a round").reclaimed, 1);
    node.rounds();
    node.assert_clean();
}

#[test]
fn what_a_killed_upload_left_becomes_dead_and_what_was_committed_beside_it_stays() {
    for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomSubset(3)] {
        for setup in [Setup::default(), Setup::mirrored()] {
            let node = Node::born(17, setup);
            let bucket = node.bucket();
            node.begin_stalled_put(&bucket, "never", content(9, 4_300_000));
            for seed in 0..4 {
                node.put(&bucket, &format!("k{seed}"), content(seed, 1_100_000));
            }
            let before = node.audit();
            assert!(
                before.ok && before.in_progress_bytes > 0,
                "uploads of the live session are explained: {before:#?}"
            );
            let node = node.crash(policy);
            assert!(!node.audit().ok, "nothing is proved before it is settled");
            let done = node.rounds();
            assert!(done.found_dead_bytes > 0 && done.settled > 0, "{done:?}");
            let audit = node.assert_clean();
            assert_eq!(audit.in_progress_bytes, 0);
            for seed in 0..4 {
                assert_eq!(node.get(&bucket, &format!("k{seed}")), Some(content(seed, 1_100_000)));
            }
            let headers: u64 = (0..node.disks.len()).map(|disk| node.files(disk).len() as u64 * 4096).sum();
            assert_eq!(node.allocated_bytes(), audit.stored_bytes + headers);
        }
    }
}

#[test]
fn a_session_that_lives_is_never_judged() {
    let node = Node::born(18, Setup::default());
    let bucket = node.bucket();
    node.begin_stalled_put(&bucket, "slow", content(9, 2_300_000));
    for seed in 0..12 {
        node.put(&bucket, "k", content(seed, 1_100_000));
    }
    node.rounds();
    let open = node.records().iter().filter(|(_, r)| !r.settled).count();
    assert!(open > 0, "the group of the slow upload waits");
    let audit = node.audit();
    assert!(audit.ok && audit.in_progress_bytes > 2 * MIB, "{audit:#?}");
}

#[test]
fn more_without_an_owner_than_crashes_explain_stops_settling() {
    let node = Node::born(19, Setup { unexplained_floor_bytes: MIB, ..Setup::default() });
    let bucket = node.bucket();
    node.begin_stalled_put(&bucket, "never", content(9, 4_300_000));
    node.put(&bucket, "k", content(1, 1_100_000));
    let node = node.crash(CrashPolicy::KeepAll);
    let done = node.rounds();
    assert_eq!((done.settled, done.alarms.len()), (0, 1), "{done:?}");
    assert!(!node.audit().ok);
    assert!(node.records().iter().all(|(_, record)| record.state == GroupState::Sealed && !record.settled));
    assert_eq!(node.get(&bucket, "k"), Some(content(1, 1_100_000)));
}

#[test]
fn a_sealed_group_of_a_live_session_waits_for_the_uploads_it_cannot_vouch_for() {
    let node = Node::born(20, Setup::mirrored());
    let bucket = node.bucket();
    node.begin_stalled_put(&bucket, "slow", content(9, 2_300_000));
    node.put(&bucket, "k", content(1, 1_100_000));
    // The third disk keeps no metadata; a failed append there ends the group, in which the slow upload has bytes.
    node.disks[2].fail_write(1);
    node.put(&bucket, "l", content(2, 1_100_000));
    let done = node.rounds();
    let waiting = |record: &metadata::rows::GroupRecord| {
        record.state == GroupState::Sealed && !record.settled && record.account.as_ref().is_some_and(|a| !a.is_empty())
    };
    let records = node.records();
    assert!(records.iter().any(|(_, record)| waiting(record)), "{records:?}");
    assert_eq!((done.found_dead_bytes, done.punched_bytes), (0, 0), "{done:?}");
    let audit = node.audit();
    assert!(audit.ok && audit.in_progress_bytes > 2 * MIB, "{audit:#?}");
    let node = node.crash(CrashPolicy::KeepAll);
    assert!(node.rounds().found_dead_bytes > 2 * MIB, "now it is over");
    node.assert_clean();
    assert_eq!(node.get(&bucket, "k"), Some(content(1, 1_100_000)));
    assert_eq!(node.get(&bucket, "l"), Some(content(2, 1_100_000)));
}
