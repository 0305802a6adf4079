//! The power is cut at every mutating call of the disk while the curator works: no live byte is lost, and the rounds of the next
//! start end in a clean audit.

mod fixture;

use bytes::Bytes;
use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{MIB, Node, Setup};
use object_controller::api::BucketInfo;
use std::collections::BTreeMap;
use std::sync::Arc;

type Expected = BTreeMap<String, Bytes>;

/// Groups that are wholly dead, partly dead and live, condemned contents and manifests, orphans of a killed upload; not a round
/// has been made.
fn prepared(setup: Setup) -> (Node, Arc<BucketInfo>, Expected) {
    let node = Node::born(31, Setup { group_bytes: 2 * MIB, ..setup });
    let bucket = node.bucket();
    let mut expected = Expected::new();
    node.begin_stalled_put(&bucket, "never", content(90, 1_300_000));
    for seed in 0..24 {
        let key = format!("k{:02}", seed % 20);
        let bytes = content(seed, 150_000 + 40 * seed as usize);
        node.put(&bucket, &key, bytes.clone());
        expected.insert(key, bytes);
    }
    for seed in 0..14 {
        let key = format!("k{seed:02}");
        node.delete(&bucket, &key);
        expected.remove(&key);
    }
    node.copy(&bucket, "k15", "b");
    node.copy(&bucket, "k16", "z");
    node.delete(&bucket, "k15");
    node.delete(&bucket, "z");
    expected.insert("b".into(), expected["k15"].clone());
    expected.remove("k15");
    for (key, keep) in [("m", true), ("n", false)] {
        let (to, bytes) = (bucket.clone(), content(70, 90_000));
        let sent = bytes.clone();
        node.run(|c| async move {
            let id = ask::begin(&c, &to, key).await.expect("an upload");
            let part = ask::part(&c, &to, key, id, 1, sent).await.expect("a part");
            ask::complete(&c, &to, key, id, &[(1, part.etag.to_string())]).await.expect("completed");
        });
        if keep {
            expected.insert(key.into(), bytes);
        } else {
            node.delete(&bucket, key);
        }
    }
    (node.crash(CrashPolicy::KeepAll), bucket, expected)
}

fn assert_all_there(node: &Node, bucket: &Arc<BucketInfo>, expected: &Expected, when: &str) {
    for (key, bytes) in expected {
        assert_eq!(node.get(bucket, key).as_ref(), Some(bytes), "{key}, {when}");
    }
    for key in ["k00", "k15", "z", "n", "never"] {
        assert_eq!(node.get(bucket, key), None, "{key}, {when}");
    }
}

/// Cuts the power of one disk at each of its mutations in turn, with the policies taking turns.
fn cut_everywhere(
    (base, bucket, expected): (Node, Arc<BucketInfo>, Expected),
    act: impl Fn(&Node),
    check: impl Fn(&Node, &str),
) {
    let mut cuts = 0;
    for at in 0..base.disks.len() {
        let whole = base.fork();
        let begin = whole.disks[at].mutations();
        act(&whole);
        let count = whole.disks[at].mutations() - begin;
        assert_all_there(&whole, &bucket, &expected, "without a cut");
        check(&whole, "without a cut");
        cuts += count;
        for cut in 0..count {
            let node = base.fork();
            assert_eq!(node.disks[at].mutations(), begin, "a start is a function of the disk and the seed");
            node.disks[at].crash_after(begin + cut);
            act(&node);
            node.scheduler.drain();
            node.scheduler.abandon();
            let policy =
                [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomSubset(cut)][cut as usize % 3];
            let disks = node.disks.iter().map(|disk| disk.crash(policy)).collect();
            let again = Node::start(100 + cut, node.setup.clone(), disks, false);
            let when = format!("disk {at}, cut {cut} of {count}, {policy:?}");
            assert_all_there(&again, &bucket, &expected, &when);
            again.rounds();
            assert_all_there(&again, &bucket, &expected, &when);
            check(&again, &when);
        }
    }
    assert!(cuts > 20, "a story that writes: {cuts}");
}

/// Offsets of the frames in a file.
fn frames(node: &Node, disk: usize, path: &str) -> Vec<u64> {
    let bytes = node.disks[disk].synced_bytes(path).expect("its bytes");
    let begins = |at: &usize| bytes[*at..*at + 8].starts_with(b"ASHLARFR");
    (4096..bytes.len()).step_by(4096).filter(begins).map(|at| at as u64).collect()
}

/// Rounds until nothing is left to do or the power is off.
fn rounds(node: &Node) {
    for _ in 0..12 {
        match node.round() {
            Ok(report) if !report.is_idle() => {}
            _ => return,
        }
    }
}

fn assert_clean(node: &Node, when: &str) {
    let audit = node.audit();
    assert!(audit.ok && audit.pending_bytes == 0 && audit.unpunched_bytes == 0, "{when}: {audit:#?}");
}

#[test]
fn a_power_cut_while_garbage_is_found_reclaimed_punched_and_dropped_loses_nothing() {
    cut_everywhere(prepared(Setup::default()), rounds, assert_clean);
}

#[test]
fn a_power_cut_while_garbage_of_three_shards_is_reclaimed_loses_nothing() {
    cut_everywhere(prepared(Setup::three_shards()), rounds, assert_clean);
}

#[test]
fn a_power_cut_while_replicas_are_repaired_loses_nothing() {
    // Metadata on one disk only: when that is cut everything stands still, as when the power goes.
    let (node, bucket, expected) = prepared(Setup { folders: Some(1), ..Setup::mirrored() });
    node.rounds();
    // Of one group both replicas are needed: each has a bad bit in another frame. And a file of the second disk is gone.
    let flipped = node.files(0).into_iter().find(|path| frames(&node, 0, path).len() >= 2).expect("a file");
    let other = (1..3).find(|at| node.files(*at).contains(&flipped)).expect("the other replica");
    for (at, frame) in [(0, 0), (other, 1)] {
        let header = frames(&node, at, &flipped)[frame];
        node.disks[at].flip_bit(&flipped, header + 4096 + 77, 3).expect("a fault");
    }
    let removed = node.files(1).into_iter().find(|path| *path != flipped).expect("a file");
    env::disk::Disk::remove(&node.disks[1], &removed).expect("removed");
    env::disk::Disk::sync_dir(&node.disks[1], removed.rsplit_once('/').expect("a directory").0).expect("synced");
    let base = node.crash(CrashPolicy::KeepNone);
    let act = |node: &Node| {
        let rounds = node.rounds.clone();
        let _ = node.scheduler.block_on(async move { rounds.scrub(|_, _, _| {}).await });
    };
    let check = |node: &Node, when: &str| {
        let scrub = node.scrub();
        assert!(scrub.ok, "{when}: {scrub:#?}");
        node.rounds();
        assert_clean(node, when);
    };
    cut_everywhere((base, bucket, expected), act, check);
}
