//! Damage, failing and full disks: right bytes or an error, and another replica where there is one.

mod fixture;

use bytes::Bytes;
use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use fixture::ask::{self, Chunks, content};
use fixture::{Node, Setup};
use metadata::read::{content as rows, root};
use metadata::rows::{GroupState, ReplicaState};
use metadata::shard::KeyRange;
use object_controller::Contents;
use object_controller::api::{BodyError, BodySource, BodySummary, PutConditions, StoreError};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::task::Poll;
use types::GroupId;

const MIB: u64 = 1 << 20;

/// Paths of all group files of a disk.
fn group_files(disk: &SimDisk) -> Vec<String> {
    let mut files = Vec::new();
    for dir in disk.list("extents").expect("a directory") {
        for name in disk.list(&format!("extents/{dir}")).expect("a directory") {
            files.push(format!("extents/{dir}/{name}"));
        }
    }
    files
}

fn condemned(node: &Node) -> usize {
    rows::condemned(&node.metadata.snapshot(), &KeyRange::ALL, None).count()
}

fn groups(node: &Node) -> Vec<(GroupId, metadata::rows::GroupRecord)> {
    root::groups(&node.metadata.snapshot()).map(|g| g.expect("a sound record")).collect()
}

/// A client that sends what it has and then nothing, for ever.
struct Stalls {
    left: Bytes,
}

impl BodySource for Stalls {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + '_>> {
        let len = self.left.len().min(100_000);
        if len == 0 {
            return Box::pin(pending());
        }
        Box::pin(ready(Ok(Some(self.left.split_to(len)))))
    }

    fn finish(&mut self) -> Result<BodySummary, BodyError> {
        unreachable!("the body never ends")
    }
}

/// Lets the workers run.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| match std::mem::replace(&mut yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn with_one_replica_damaged_the_other_serves_every_byte() {
    let node = Node::born(12, Setup { disks: 2, ..Setup::mirrored() });
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        ask::put(&c, &bucket, "k", content(1, 3_000_000)).await.expect("a put");
        bucket
    });
    for file in group_files(&node.disks[0]) {
        for offset in [8192 + 5, 8192 + 100_000, 8192 + 1_048_576 + 4096 + 7] {
            // The group kept in reserve is shorter.
            let _ = node.disks[0].flip_bit(&file, offset, 3);
        }
    }
    let (_, bytes) = node.run(|c| async move { ask::get(&c, &bucket, "k", None).await }).expect("the other replica");
    assert_eq!(bytes, content(1, 3_000_000));
    let findings = node.controller.findings().take();
    assert!(!findings.is_empty() && findings.iter().all(|f| f.disk.0 == 0xD1), "{findings:?}");
}

#[test]
fn without_another_replica_damage_is_an_error_and_never_a_missing_key() {
    let node = Node::born(13, Setup::default());
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        ask::put(&c, &bucket, "k", content(1, 3_000_000)).await.expect("a put");
        bucket
    });
    for file in group_files(&node.disks[0]) {
        let _ = node.disks[0].flip_bit(&file, 8192 + 100_000, 3);
    }
    let answer = node.run(|c| async move {
        let (info, _) = ask::get_range(&c, &bucket, "k", None, Some((0, 60_000))).await.expect("a sound slice");
        assert_eq!(info.size, 3_000_000, "HEAD goes on");
        ask::get(&c, &bucket, "k", None).await
    });
    assert!(matches!(answer, Err(StoreError::Damaged(_))), "{answer:?}");
    assert_eq!(node.controller.findings().take().len(), 1);
}

#[test]
fn a_failed_sync_ends_the_group_and_what_was_acknowledged_survives_any_one_disk() {
    let mut unvouched = 0;
    for nth in 0..4 {
        let node = Node::born(20 + nth, Setup::mirrored());
        let bucket = node.run(|c| async move {
            let bucket = ask::make_bucket(&c, "bucket").await;
            ask::put(&c, &bucket, "first", content(1, 1_200_000)).await.expect("a put");
            bucket
        });
        node.settle();
        // The third disk holds no metadata, so only extents meet the fault.
        node.disks[2].fail_sync(nth);
        let name = bucket.clone();
        node.run(|c| async move {
            for round in 0..4 {
                ask::put(&c, &name, &format!("k{round}"), content(30 + round, 3_000_000)).await.expect("elsewhere");
            }
        });
        node.settle();
        let ended = groups(&node).iter().filter(|(_, g)| g.state == GroupState::Sealed).count();
        assert!(ended > 0);
        unvouched += groups(&node).iter().filter(|(_, g)| g.account.as_ref().is_some_and(|a| !a.is_empty())).count();
        let node = node.crash(CrashPolicy::KeepNone);
        for lost in 0..3 {
            let files = group_files(&node.disks[lost]);
            files.iter().for_each(|f| node.disks[lost].make_unreadable(f, 0, 16 * MIB).expect("a file"));
            let name = bucket.clone();
            node.run(|c| async move {
                let (_, first) = ask::get(&c, &name, "first", None).await.expect("the first");
                assert_eq!(first, content(1, 1_200_000));
                for round in 0..4 {
                    let (_, bytes) = ask::get(&c, &name, &format!("k{round}"), None).await.expect("acknowledged");
                    assert_eq!(bytes, content(30 + round, 3_000_000));
                }
            });
            files.iter().for_each(|f| node.disks[lost].heal(f).expect("a file"));
        }
    }
    // A group that failed while it was written cannot vouch for the extent that was written again elsewhere.
    assert!(unvouched > 0);
}

#[test]
fn case_198_a_put_whose_sync_fails_is_an_error_or_is_there_after_a_crash() {
    let mut refused = 0;
    for nth in 1..8 {
        let node = Node::born(60 + nth, Setup::default());
        let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
        node.settle();
        node.disks[0].fail_sync(nth);
        let name = bucket.clone();
        let answers = node.run(|c| async move {
            // To extents, then inline: the log is the only one of its node.
            let large = ask::put(&c, &name, "large", content(1, 100_000)).await;
            (large, ask::put(&c, &name, "small", content(2, 100)).await)
        });
        node.disks[0].fail_sync(0);
        let node = node.crash(CrashPolicy::KeepNone);
        for (key, answer, bytes) in [("large", answers.0, content(1, 100_000)), ("small", answers.1, content(2, 100))] {
            refused += u32::from(answer.is_err());
            let name = bucket.clone();
            let found = node.run(|c| async move { ask::get(&c, &name, key, None).await });
            match (answer, found) {
                (Ok(_), found) => assert_eq!(found.expect("acknowledged").1, bytes, "{nth} {key}"),
                (Err(_), Ok((_, found))) => assert_eq!(found, bytes, "{nth} {key}"),
                (Err(_), Err(error)) => assert!(matches!(error, StoreError::NoSuchKey { .. }), "{nth} {key}: {error}"),
            }
        }
    }
    assert!(refused > 0, "no fault was met");
}

#[test]
fn a_full_disk_is_an_answer_and_room_made_is_used_without_a_restart() {
    let node = Node::born(14, Setup { disk_bytes: 192 * MIB, ..Setup::default() });
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    let name = bucket.clone();
    let stored = node.run(|c| async move {
        for round in 0..64 {
            match ask::put(&c, &name, &format!("k{round}"), content(round, 2_000_000)).await {
                Ok(_) => {}
                Err(StoreError::NoSpace) => return round,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("the disk never fills");
    });
    assert!(stored > 3, "{stored}");
    let name = bucket.clone();
    node.run(|c| async move {
        for round in 0..stored {
            let (_, bytes) = ask::get(&c, &name, &format!("k{round}"), None).await.expect("reads go on");
            assert_eq!(bytes, content(round, 2_000_000));
        }
        ask::delete(&c, &name, "k0", None).await.expect("deletes go on");
        ask::put(&c, &name, "small", content(1, 100)).await.expect("inline objects have room in the log");
    });
    node.settle();
    node.disks[0].set_capacity(256 * MIB);
    node.run(|c| async move {
        ask::put(&c, &bucket, "after", content(99, 2_000_000)).await.expect("room again");
        assert_eq!(ask::get(&c, &bucket, "after", None).await.expect("stored").1, content(99, 2_000_000));
    });
}

#[test]
fn a_wrong_digest_stores_nothing_and_condemns_the_bytes() {
    let node = Node::born(15, Setup::default());
    node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        // From now on a group is open, so that extents are on their way before the digest is known.
        ask::put(&c, &bucket, "first", content(9, 100_000)).await.expect("a put");
        let mut body = Chunks::with_bad_digest(content(1, 2_000_000));
        let answer = ask::put_body(&c, &bucket, "k", PutConditions::default(), None, &mut body).await;
        assert!(matches!(answer, Err(StoreError::Body(e)) if e.code == "BadDigest"));
        let found = ask::get(&c, &bucket, "k", None).await;
        assert!(matches!(found, Err(StoreError::NoSuchKey { delete_marker: None })));
    });
    node.settle();
    assert_eq!(condemned(&node), 1);
}

#[test]
fn a_dropped_upload_is_abandoned() {
    let node = Node::born(16, Setup::default());
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    node.run(|c| async move {
        let mut body = Stalls { left: content(1, 3_000_000) };
        let mut upload =
            Box::pin(ask::put_body(&c, &bucket, "k", PutConditions::default(), Some(4_000_000), &mut body));
        // Until the body stalls with nothing in flight that could still wake it.
        for _ in 0..200 {
            let polled = poll_fn(|context| Poll::Ready(upload.as_mut().poll(context))).await;
            assert!(polled.is_pending());
            yield_once().await;
        }
    });
    node.settle();
    assert_eq!(condemned(&node), 1);
    let open_accounts = groups(&node).iter().filter(|(_, g)| g.account.as_ref().is_some_and(|a| !a.is_empty())).count();
    assert_eq!(open_accounts, 0);
}

#[test]
fn full_groups_are_sealed_with_an_empty_account_and_their_buckets() {
    let node = Node::born(17, Setup::mirrored());
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        for round in 0..8 {
            ask::put(&c, &bucket, &format!("k{round}"), content(round, 3_500_000)).await.expect("a put");
        }
        bucket
    });
    node.settle();
    let sealed: Vec<_> = groups(&node).into_iter().filter(|(_, g)| g.state == GroupState::Sealed).collect();
    assert!(sealed.len() >= 2, "{}", sealed.len());
    for (_, record) in sealed {
        assert_eq!(record.account, Some(Vec::new()));
        assert_eq!(record.buckets, [bucket.id]);
        assert!(record.replicas.len() == 2 && record.replicas.iter().all(|r| r.state == ReplicaState::Whole));
        assert!(record.length > 4096);
    }
}

#[test]
fn a_group_of_a_killed_node_is_sealed_by_whoever_comes_after() {
    let node = Node::born(18, Setup::mirrored());
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        ask::put(&c, &bucket, "k", content(1, 2_500_000)).await.expect("a put");
        bucket
    });
    let node = node.crash(CrashPolicy::KeepNone);
    let open: Vec<_> = groups(&node).into_iter().filter(|(_, g)| g.state == GroupState::Open).collect();
    assert!(!open.is_empty());
    let mut named = 0;
    for (group, record) in open {
        assert!(record.writer.1 < node.controller.session().1, "of a former session");
        let sealed = node.run(|c| async move { c.seal_group(group, record.generation, Contents::Unknown).await });
        let sealed = sealed.expect("sealed");
        assert_eq!((sealed.state, &sealed.account), (GroupState::Sealed, &None));
        named += sealed.buckets.iter().filter(|b| **b == bucket.id).count();
        let again = node.run(|c| async move { c.seal_group(group, record.generation, Contents::Unknown).await });
        assert_eq!(again.expect("the loser reads the record"), sealed);
    }
    assert_eq!(named, 1, "the group that holds the object names its bucket");
    let (_, bytes) = node.run(|c| async move { ask::get(&c, &bucket, "k", None).await }).expect("acknowledged");
    assert_eq!(bytes, content(1, 2_500_000));
}
