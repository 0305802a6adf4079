//! Repairs at bad moments: uploads that are not committed yet, groups that are not settled, disks that never come back, too few
//! descriptors, repairs that nobody waits for any more.

mod fixture;

use bytes::Bytes;
use env::sim_disk::CrashPolicy;
use extent_store::{FrameAddress, FrameHeader, FrameOrigin, SliceCrcs};
use fixture::ask::{self, content};
use fixture::{CLUSTER, MIB, Node, Setup};
use metadata::rows::{GroupState, ReplicaState};
use object_controller::Contents;
use object_controller::api::{BodyError, BodySource, BodySummary, BucketInfo, PutConditions, PutOutcome, StoreError};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{AttemptId, GroupId};

/// A body that pauses before its end until it is told to go on.
struct Held {
    bytes: Bytes,
    summary: BodySummary,
    go: Option<oneshot::Receiver<()>>,
}

impl BodySource for Held {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + '_>> {
        Box::pin(async {
            if self.bytes.is_empty()
                && let Some(go) = self.go.take()
                && go.await.is_err()
            {
                // Nobody will ever say so.
                std::future::pending::<()>().await;
            }
            let len = self.bytes.len().min(200_000);
            Ok((len > 0).then(|| self.bytes.split_to(len)))
        })
    }

    fn finish(&mut self) -> Result<BodySummary, BodyError> {
        Ok(self.summary.clone())
    }
}

type Upload = env::tasks::SimHandle<Result<PutOutcome, StoreError>>;

/// An upload that waits before its end.
fn begin_held_put(node: &Node, bucket: &Arc<BucketInfo>, key: &str, bytes: Bytes) -> (Upload, oneshot::Sender<()>) {
    let (go, told) = oneshot::channel();
    let summary = BodySummary { size: bytes.len() as u64, md5: ask::md5(&bytes), checksum: None };
    let (c, bucket, key) = (node.controller.clone(), bucket.clone(), key.to_owned());
    let upload = node.scheduler.spawn(async move {
        let mut body = Held { bytes, summary, go: Some(told) };
        ask::put_body(&c, &bucket, &key, PutConditions::default(), None, &mut body).await
    });
    (upload, go)
}

fn seal(node: &Node, group: GroupId) {
    let (_, record) = node.records().into_iter().find(|(id, _)| *id == group).expect("a record");
    node.run(|c| async move { c.seal_group(group, record.generation, Contents::Unknown).await.expect("sealed") });
}

/// The group with a frame of that key.
fn group_of(node: &Node, key: &str) -> GroupId {
    let holds = |group: &GroupId| {
        node.replicas(*group).iter().any(|replica| replica.frames.iter().any(|(name, _)| name == key))
    };
    node.records().into_iter().map(|(group, _)| group).find(holds).expect("a group with it")
}

#[test]
fn a_frame_that_may_still_be_committed_is_not_left_out_of_a_copy() {
    let node = Node::born(71, Setup::mirrored());
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    let (mut upload, go) = begin_held_put(&node, &bucket, "slow", content(9, 1_300_000));
    let written = (0..500).map(|_| node.audit().in_progress_bytes).find(|bytes| *bytes >= MIB);
    assert!(written.is_some(), "its first extent is on the disks");
    node.put(&bucket, "two", content(2, 900_000));
    let group = group_of(&node, "slow");
    seal(&node, group);
    // Each replica has a bad frame that the other one has, and neither can give that of the upload for now.
    for (replica, bad) in node.replicas(group).iter().zip(["one", "two"]) {
        node.disks[replica.at].flip_bit(&replica.path, replica.of(bad) + 4096 + 500, 3).expect("a fault");
        node.disks[replica.at].make_unreadable(&replica.path, replica.of("slow") + 4096, MIB).expect("a fault");
    }
    let before = node.replicas(group);
    let scrub = node.scrub();
    assert!(!scrub.ok && scrub.waiting > 0 && scrub.repaired == 0, "{scrub:#?}");
    for replica in &before {
        assert!(node.files(replica.at).contains(&replica.path), "every file stays");
        let (disk, path) = (&node.disks[replica.at], &replica.path);
        disk.heal(path).expect("healed");
    }
    for (replica, bad) in before.iter().zip(["one", "two"]) {
        node.disks[replica.at].flip_bit(&replica.path, replica.of(bad) + 4096 + 500, 3).expect("a fault");
    }
    go.send(()).expect("the upload waits");
    node.scheduler.run();
    upload.take().expect("it is over").expect("acknowledged");
    let scrub = node.scrub();
    assert!(scrub.ok && scrub.repaired == 2, "{scrub:#?}");
    for (key, bytes) in [("slow", content(9, 1_300_000)), ("one", content(1, 900_000)), ("two", content(2, 900_000))] {
        assert_eq!(node.get(&bucket, key), Some(bytes), "{key}");
    }
}

#[test]
fn want_of_descriptors_is_no_damage_and_no_copy_is_made_of_what_could_not_be_read() {
    let node = Node::born(72, Setup::mirrored());
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    node.put(&bucket, "two", content(2, 900_000));
    let node = node.restart();
    node.rounds();
    let group = group_of(&node, "one");
    let before = node.replicas(group);
    let (at, path) = (before[0].at, before[0].path.clone());
    node.disks[at].flip_bit(&path, before[0].of("one") + 4096 + 500, 3).expect("a fault");
    for from in 0..8 {
        let node = node.fork();
        node.disks.iter().for_each(|disk| disk.refuse_opens(from, 1000));
        let scrub = node.scrub();
        assert_eq!((scrub.hurt_extents, scrub.damaged <= 1), (0, true), "{from}: {scrub:#?}");
        node.disks.iter().for_each(|disk| disk.refuse_opens(0, 0));
        node.clock.advance(Duration::from_secs(31));
        let scrub = node.scrub();
        assert!(scrub.ok, "{from}: {scrub:#?}");
        node.rounds();
        node.assert_clean();
        assert_eq!(node.get(&bucket, "one"), Some(content(1, 900_000)));
        assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
    }
}

/// A node that was cut off with a group open, in which a dead upload stands between two objects.
fn cut_off(seed: u64, setup: Setup) -> (Node, Arc<BucketInfo>, GroupId) {
    let node = Node::born(seed, setup);
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    let (upload, _go) = begin_held_put(&node, &bucket, "dead", content(9, 1_300_000));
    let written = (0..500).map(|_| node.audit().in_progress_bytes).find(|bytes| *bytes >= MIB);
    assert!(written.is_some(), "its first extent is on the disks");
    node.put(&bucket, "two", content(2, 900_000));
    drop(upload);
    let group = group_of(&node, "dead");
    let replicas = node.replicas(group);
    assert!(replicas.iter().all(|r| r.of("one") < r.of("dead") && r.of("dead") < r.of("two")), "{replicas:?}");
    (node, bucket, group)
}

#[test]
fn a_copy_is_not_made_by_a_length_that_damage_made_too_small() {
    let (node, bucket, group) = cut_off(73, Setup::mirrored());
    // Nobody owns the frame that is bad on both; each replica has one of the others that the other has not.
    for (replica, bad) in node.replicas(group).iter().zip(["one", "two"]) {
        for key in [bad, "dead"] {
            node.disks[replica.at].flip_bit(&replica.path, replica.of(key) + 4096 + 500, 3).expect("a fault");
        }
    }
    let node = node.crash(CrashPolicy::KeepAll);
    seal(&node, group);
    // Before any round settles it.
    let scrub = node.scrub();
    assert!(scrub.ok, "{scrub:#?}");
    assert_eq!(node.get(&bucket, "one"), Some(content(1, 900_000)));
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
    node.rounds();
    let scrub = node.scrub();
    assert!(scrub.ok && scrub.damaged == 0, "{scrub:#?}");
    node.rounds();
    node.assert_clean();
}

#[test]
fn groups_that_were_open_on_a_disk_that_is_gone_get_their_copies_and_are_settled() {
    let (node, bucket, group) = cut_off(74, Setup { folders: Some(1), ..Setup::mirrored() });
    let lost = node.replicas(group).iter().map(|replica| replica.at).max().expect("two");
    assert!(lost > 0, "the metadata is on the first disk");
    node.scheduler.abandon();
    let mut disks: Vec<_> = node.disks.iter().map(|disk| disk.crash(CrashPolicy::KeepAll)).collect();
    disks.remove(lost);
    let node = Node::start(75, node.setup.clone(), disks, false);
    for _ in 0..4 {
        node.rounds();
        node.clock.advance(Duration::from_secs(31));
    }
    let here = |record: &metadata::rows::GroupRecord| {
        record.replicas.iter().all(|r| r.state == ReplicaState::Whole && node.stores.get(r.disk).is_some())
    };
    for (group, record) in node.records() {
        assert!(record.state == GroupState::Sealed && record.settled && here(&record), "{group}: {record:?}");
    }
    node.assert_clean();
    assert!(node.scrub().ok);
    assert_eq!(node.get(&bucket, "one"), Some(content(1, 900_000)));
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
}

#[test]
fn a_scrub_that_nobody_waits_for_any_more_leaves_every_group_with_its_files() {
    let base = Node::born(76, Setup::mirrored());
    let bucket = base.bucket();
    base.put(&bucket, "one", content(1, 100_000));
    let base = base.restart();
    base.rounds();
    let group = group_of(&base, "one");
    let generation = base.records().iter().find(|(id, _)| *id == group).expect("a record").1.generation;
    let victim = &base.replicas(group)[0];
    base.disks[victim.at].flip_bit(&victim.path, victim.of("one") + 4096 + 500, 3).expect("a fault");
    // Where the new copy has its name and the record does not name it yet, and just before and after.
    let (mut cuts, mut first) = (0, 1);
    for seed in 0..10 {
        let from = first;
        for polls in from..200 {
            let disks = base.disks.iter().map(env::sim_disk::SimDisk::fork).collect();
            let node = Node::start(100 + seed, base.setup.clone(), disks, false);
            let rounds = node.rounds.clone();
            let over = node.scheduler.block_on(async move {
                let mut scrub = Box::pin(async move { rounds.scrub(|_, _, _| {}).await });
                let mut polled = 0;
                poll_fn(|context| {
                    polled += 1;
                    let over = scrub.as_mut().poll(context).is_ready();
                    if over || polled == polls { Poll::Ready(over) } else { Poll::Pending }
                })
                .await
            });
            if over {
                break;
            }
            let copied = |at: usize| node.files(at).iter().any(|path| !path.ends_with("00000001"));
            if !(0..node.disks.len()).any(copied) {
                continue;
            }
            if cuts == 0 {
                // About where it is with other seeds too.
                first = polls - 3;
            }
            cuts += 1;
            let scrub = node.scrub();
            assert!(scrub.hurt_extents == 0, "{seed}, {polls}: {scrub:#?}");
            // The copy was named by its record once, or set aside and made again; never both.
            let (_, record) = node.records().into_iter().find(|(id, _)| *id == group).expect("a record");
            assert_eq!(record.generation, generation + 1, "{seed}, {polls}: {record:?}");
            assert_eq!(node.get(&bucket, "one"), Some(content(1, 100_000)), "{seed}, {polls}");
        }
    }
    assert!(cuts > 20, "{cuts}");
}

#[test]
fn what_was_set_aside_is_kept_for_its_days_whatever_the_wall_clock_says() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let node = Node::born(77, Setup::mirrored());
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    let node = node.restart();
    node.rounds();
    let victim = &node.replicas(group_of(&node, "one"))[0];
    node.disks[victim.at].flip_bit(&victim.path, victim.of("one") + 4096 + 500, 3).expect("a fault");
    assert_eq!(node.scrub().repaired, 1);
    let kept = |node: &Node, after: Duration| {
        node.clock.advance(after);
        node.round().expect("a round");
        node.audit().quarantined_files
    };
    let hour = Duration::from_secs(3601);
    assert_eq!(kept(&node, hour), 1);
    node.clock.set_wall_ms(env::clock::Clock::wall_ms(&*node.clock) + 30 * 24 * 3_600_000);
    assert_eq!(kept(&node, hour), 1, "the clock jumped while it was watched");
    let node = node.restart();
    node.clock.set_wall_ms(env::clock::Clock::wall_ms(&*node.clock) + 30 * 24 * 3_600_000);
    assert_eq!((kept(&node, hour), kept(&node, hour)), (1, 1), "a start does not believe the clock at once");
    assert_eq!(kept(&node, DAY), 0, "but after a day");
}

#[test]
fn a_dead_range_that_is_refused_keeps_no_other_from_being_given_back() {
    let node = Node::born(78, Setup::default());
    let bucket = node.bucket();
    for (seed, key) in (1..).zip(["one", "two", "three"]) {
        node.put(&bucket, key, content(seed, 900_000));
    }
    let node = node.restart();
    node.rounds();
    let group = group_of(&node, "one");
    let replica = &node.replicas(group)[0];
    // A sound header of a frame that would reach over the end of the first one.
    let header = FrameHeader {
        cluster: CLUSTER,
        address: FrameAddress { group, generation: 1, offset: replica.of("one") },
        origin: FrameOrigin {
            content: AttemptId { node: 9, session: 9, sequence: 9 },
            index: 0,
            bucket: bucket.id,
            key: ask::key("one"),
        },
        crcs: SliceCrcs::of(&vec![7; MIB as usize]),
    };
    let mut block = vec![0; 4096];
    header.encode(&mut block);
    node.disks[replica.at].overwrite_synced(&replica.path, replica.of("one"), &block).expect("a fault");
    let before = node.allocated_bytes();
    node.delete(&bucket, "one");
    node.delete(&bucket, "three");
    let done = node.rounds();
    assert_eq!(done.alarms.len(), 1, "{done:?}");
    assert_eq!(before - node.allocated_bytes(), 900_000u64.next_multiple_of(4096) + 4096);
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
}
