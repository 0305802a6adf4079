//! Disks of other nodes, through a network that delays, doubles and loses.
#![allow(clippy::unwrap_used)]

mod net;

use env::Env;
use env::buf::BufPool;
use env::world::SimWorld;
use extent_store::limits::HEADER_BYTES;
use extent_store::{
    AppendError, Depth, FenceError, Frame, FrameAddress, FrameOrigin, ReadError, ReadRequest, Scanned, SliceCrcs,
};
use futures_util::future::join_all;
use net::{CLUSTER, DiskNode, Faults, Net, disk_of};
use replicas::{Away, Replica, Replicas, Whereabouts, is_away};
use rpc::{Boxed, Handler, Message};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use types::{AttemptId, BucketId, GroupId, NodeId, ObjectKey};

const GROUP: GroupId = GroupId(0xAB);
const WRITER: NodeId = 1;
const DISK_NODE: NodeId = 2;

struct Two {
    world: SimWorld,
    net: Arc<Net>,
    there: DiskNode,
    replicas: Replicas,
}

impl Two {
    fn new(seed: u64) -> Two {
        let world = SimWorld::new(seed);
        let net = Net::new(&world);
        let (here, away) = (world.node(1), world.node(2));
        let there = DiskNode::born(DISK_NODE, &away, seed);
        there.serve(&net, &away);
        let replicas = Replicas::new(Default::default(), CLUSTER, net.door(WRITER, &here), here);
        replicas.set_remote(&[(disk_of(DISK_NODE), DISK_NODE)].into(), BTreeSet::new());
        Two { world, net, there, replicas }
    }

    fn remote(&self) -> Replica {
        self.replicas.get(disk_of(DISK_NODE)).unwrap()
    }

    fn env(&self) -> Env {
        self.world.node(1)
    }

    fn create(&self) {
        let disk = self.remote();
        self.world.block_on(async move { disk.create(GROUP, 1, 1 << 20).await }).unwrap();
    }
}

/// Payload of the extent: different for every `fill`.
fn payload(fill: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| fill ^ (index / 7) as u8).collect()
}

fn frame_at(generation: u32, offset: u64, fill: u8, bytes: usize) -> Frame {
    let pool = BufPool::new(4 << 20);
    let mut buf = pool.try_take(HEADER_BYTES + bytes + HEADER_BYTES).unwrap();
    buf.resize_zeroed(HEADER_BYTES);
    buf.extend_from_slice(&payload(fill, bytes));
    let crcs = SliceCrcs::of(&buf[HEADER_BYTES..]);
    let origin = FrameOrigin { content: content(fill), index: 0, bucket: BucketId(1), key: key() };
    Frame::build(buf, CLUSTER, FrameAddress { group: GROUP, generation, offset }, &origin, &crcs)
}

fn content(fill: u8) -> AttemptId {
    AttemptId { node: 1, session: 1, sequence: u64::from(fill) }
}

fn key() -> ObjectKey {
    ObjectKey::new("k").unwrap()
}

/// Frames one behind the other.
fn frames(count: u8, bytes: usize) -> Vec<Frame> {
    let mut offset = 4096;
    let each = (0..count).map(|fill| {
        let frame = frame_at(1, offset, fill, bytes);
        offset = frame.end();
        frame
    });
    each.collect()
}

fn wanted(frame: &Frame, fill: u8, bytes: u32, range: std::ops::Range<u32>) -> ReadRequest {
    ReadRequest { address: frame.address(), content: content(fill), index: 0, payload_bytes: bytes, range }
}

#[test]
fn every_operation_of_a_disk_works_on_one_of_another_node() {
    let two = Two::new(1);
    two.create();
    let (disk, frames) = (two.remote(), frames(3, 100_000));
    let story = {
        let frames = frames.clone();
        async move {
            for frame in &frames {
                disk.append(frame.clone()).await.unwrap();
            }
            assert!(matches!(disk.create(GROUP, 1, 0).await, Err(extent_store::CreateError::Exists)));
            let bytes = disk.read(wanted(&frames[1], 1, 100_000, 70_000..70_010)).await.unwrap();
            assert_eq!(bytes, payload(1, 100_000)[70_000..70_010]);
            assert_eq!(disk.read_frame(frames[2].address()).await.unwrap().bytes(), frames[2].bytes());
            let end = frames[2].end();
            assert!(matches!(
                disk.read(wanted(&frames[1], 2, 100_000, 0..1)).await,
                Err(ReadError::Damaged(extent_store::Damage::OtherExtent("content")))
            ));
            let behind = FrameAddress { offset: end, ..frames[2].address() };
            assert!(matches!(disk.read_frame(behind).await, Err(ReadError::Missing)));
            let not_fenced = disk.punch(GROUP, 1, &[(4096, frames[0].bytes().len() as u64)]).await;
            assert!(matches!(not_fenced, Err(extent_store::PunchError::NotFenced)));
            assert_eq!(disk.fence(GROUP, 2).await.unwrap(), end);
            assert_eq!(disk.fence(GROUP, 2).await.unwrap(), end, "asked again");
            assert!(matches!(disk.fence(GROUP, 1).await, Err(FenceError::Superseded(2))));
            let page = disk.scan_page(GROUP, 1, Depth::Payloads, 0).await.unwrap();
            let found = page.items.iter().filter(|item| matches!(item, Scanned::Frame(_))).count();
            assert_eq!(found, 3);
            disk.punch(GROUP, 1, &[(4096, frames[0].bytes().len() as u64)]).await.unwrap();
            assert!(matches!(disk.read_frame(frames[0].address()).await, Err(ReadError::Missing)));
            let mut copy = disk.begin_copy(GROUP, 3, end).await.unwrap();
            copy.put(frames[1].clone()).await.unwrap();
            copy.put(frames[2].clone()).await.unwrap();
            copy.finish().await.unwrap();
            let copied = FrameAddress { generation: 3, ..frames[1].address() };
            assert_eq!(disk.read_frame(copied).await.unwrap().payload(), frames[1].payload());
            let files = disk.list_files().await.unwrap();
            assert_eq!(files.iter().map(|file| file.generation).collect::<Vec<_>>(), [1, 3]);
            disk.quarantine(GROUP, 1, "a test").await.unwrap();
            assert_eq!(disk.quarantined().await.unwrap()[0].reason, "a test");
            assert!(!disk.forget_fence(GROUP).await, "there is a file");
            disk.drop_file(GROUP, 3).await.unwrap();
            assert!(matches!(disk.drop_file(GROUP, 3).await, Err(extent_store::FileError::Missing)));
            assert!(disk.list_files().await.unwrap().is_empty());
        }
    };
    two.world.block_on(story);
}

/// What a run of appends came to.
fn append_all(two: &Two, frames: &[Frame]) -> Vec<Result<(), AppendError>> {
    let (disk, frames) = (two.remote(), frames.to_vec());
    two.world.block_on(async move { join_all(frames.iter().rev().map(|frame| disk.append(frame.clone()))).await })
}

#[test]
fn appends_are_acknowledged_whatever_the_order_of_their_arrival_and_however_often_they_come() {
    for seed in 0..20 {
        let two = Two::new(seed);
        two.create();
        two.net.set_faults(Faults { double: 40, delay_ms: 300, ..Faults::default() });
        let frames = frames(12, 5000);
        let answers = append_all(&two, &frames);
        assert!(answers.iter().all(Result::is_ok), "seed {seed}: {answers:?}");
        let store = two.there.store();
        let found = store.scan(GROUP, 1, Depth::Payloads).unwrap().filter(|item| matches!(item, Scanned::Frame(_)));
        assert_eq!(found.count(), 12, "seed {seed}");
    }
}

#[test]
fn a_frame_whose_predecessor_never_comes_is_refused_in_bounded_time() {
    let two = Two::new(3);
    two.create();
    let (began, frames) = (two.world.now(), frames(3, 5000));
    let answers = append_all(&two, &[frames[0].clone(), frames[2].clone()]);
    assert!(matches!(answers[1], Ok(())));
    let expected = frames[0].end();
    assert!(matches!(answers[0], Err(AppendError::OutOfOrder { expected: at }) if at == expected), "{answers:?}");
    assert!(two.world.now() - began < Duration::from_secs(4));
}

#[test]
fn the_same_frame_again_is_acknowledged_without_writing_and_another_is_refused() {
    let two = Two::new(4);
    two.create();
    let frames = frames(2, 5000);
    assert!(append_all(&two, &frames).iter().all(Result::is_ok));
    let before = two.there.disk.mutations();
    assert!(matches!(append_all(&two, &frames[..1])[0], Ok(())));
    assert_eq!(two.there.disk.mutations(), before);
    let other = frame_at(1, 4096, 9, 5000);
    assert!(matches!(append_all(&two, &[other])[0], Err(AppendError::OutOfOrder { .. })));
    assert_eq!(two.there.disk.mutations(), before);
}

#[test]
fn after_the_answer_to_a_fence_nothing_older_is_acknowledged_whatever_arrives_when() {
    for seed in 0..60 {
        let two = Two::new(seed);
        two.create();
        two.net.set_faults(Faults { double: 30, delay_ms: 40, ..Faults::default() });
        let (disk, frames) = (two.remote(), frames(6, 5000));
        let env = two.env();
        let story = {
            let (disk, frames) = (disk.clone(), frames.clone());
            async move {
                let appends: Vec<_> = frames.iter().map(|frame| disk.append(frame.clone())).collect();
                env.timers.sleep(Duration::from_millis(seed)).await;
                let length = disk.fence(GROUP, 2).await.unwrap();
                let acknowledged = join_all(appends).await;
                (length, acknowledged)
            }
        };
        let (length, answers) = two.world.block_on(story);
        for (frame, answer) in frames.iter().zip(&answers) {
            assert!(answer.is_err() || frame.end() <= length, "seed {seed}: {length} {answers:?}");
        }
        let late = frame_at(1, length.max(4096), 7, 100);
        let answer = two.world.block_on(async move { disk.append(late).await });
        assert!(matches!(answer, Err(AppendError::Fenced(2) | AppendError::Stale)), "seed {seed}: {answer:?}");
        // The answer stays, and what it covers is there after a power cut.
        let disk = two.there.disk.crash(env::sim_disk::CrashPolicy::KeepNone);
        let env = two.world.node(9);
        let again = DiskNode::start(DISK_NODE, &env, disk).store();
        assert_eq!(again.fence_of(GROUP).map(|fence| fence.length), Some(length), "seed {seed}");
        let durable = two.world.block_on(async move { again.durable_length(GROUP, 1).await }).unwrap();
        assert!(durable >= length, "seed {seed}: {durable} of {length}");
    }
}

#[test]
fn a_lost_answer_is_not_asked_for_again() {
    let two = Two::new(5);
    two.create();
    two.net.set_faults(Faults { lose_answer: 100, ..Faults::default() });
    let before = *two.net.delivered.lock();
    let answers = append_all(&two, &frames(1, 5000));
    let Err(AppendError::Failed(error)) = &answers[0] else { unreachable!("{answers:?}") };
    assert_eq!(Away::of(error), Some(&Away::Lost(DISK_NODE)));
    assert_eq!(*two.net.delivered.lock(), before + 1);
}

/// Changes a byte of every answer's body.
struct Liar(Arc<dyn Handler>, usize);

impl Handler for Liar {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let (answer, at) = (self.0.call(from, message), self.1);
        Box::pin(async move {
            let mut answer = answer.await?;
            let mut body = answer.body.to_vec();
            if let Some(byte) = body.get_mut(at) {
                *byte ^= 1;
            }
            answer.body = body.into();
            Ok(answer)
        })
    }

    fn receive(&self, _: NodeId, _: Message) {}
}

#[test]
fn bytes_that_a_network_changed_are_never_handed_out() {
    let two = Two::new(6);
    two.create();
    let frames = frames(1, 100_000);
    assert!(append_all(&two, &frames)[0].is_ok());
    for at in [0, 50, 200, 4095, 4096, 40_000, 4096 + 65_536 - 1] {
        let sound = replicas::serve(two.there.stores.clone(), two.world.node(2));
        two.net.attach(DISK_NODE, two.world.node(2), Arc::new(Liar(sound, at)));
        let (disk, frame) = (two.remote(), frames[0].clone());
        let read = two.world.block_on(async move { disk.read(wanted(&frame, 0, 100_000, 0..10)).await });
        assert!(matches!(read, Err(ReadError::Damaged(_))), "byte {at}: {read:?}");
        let (disk, frame) = (two.remote(), frames[0].clone());
        let read = two.world.block_on(async move { disk.read_frame(frame.address()).await });
        assert!(matches!(read, Err(ReadError::Damaged(_))), "byte {at}: {read:?}");
    }
}

#[test]
fn a_node_that_is_down_answers_at_once_and_is_silent_until_it_is_heard_again() {
    let two = Two::new(7);
    two.create();
    two.net.set_down(DISK_NODE, true);
    let began = two.world.now();
    let disk = two.remote();
    let asked = {
        let disk = disk.clone();
        two.world.block_on(async move { disk.fence(GROUP, 2).await })
    };
    assert!(matches!(&asked, Err(FenceError::Io(error)) if is_away(error)), "{asked:?}");
    assert!(two.world.now() - began < Duration::from_millis(100));
    assert!(disk.is_silent());
    let (replicas, env) = (two.replicas.clone(), two.env());
    let candidates = two.world.block_on(async move { replicas.ask_all(&env).await });
    assert!(candidates.is_empty(), "no new group goes there");
    two.net.set_down(DISK_NODE, false);
    let replicas = two.replicas.clone();
    two.world.block_on(async move { replicas.tend().await });
    assert!(!disk.is_silent());
    assert!(disk.known_space().is_some());
}

#[test]
fn a_node_that_swallows_questions_is_waited_for_long_once_and_then_briefly() {
    let two = Two::new(8);
    two.create();
    two.net.set_deaf(DISK_NODE, true);
    let mut waited = Vec::new();
    for _ in 0..2 {
        let (disk, began) = (two.remote(), two.world.now());
        let asked = two.world.block_on(async move { disk.fence(GROUP, 2).await });
        assert!(matches!(&asked, Err(FenceError::Io(error)) if is_away(error)), "{asked:?}");
        waited.push(two.world.now() - began);
    }
    assert!(waited[0] >= Duration::from_secs(4) && waited[1] < Duration::from_secs(2), "{waited:?}");
}

#[test]
fn a_disk_that_the_map_does_not_know_is_not_lost() {
    let two = Two::new(9);
    let strange = types::DiskId(77);
    assert_eq!(two.replicas.whereabouts(strange), Whereabouts::Unknown);
    two.replicas.set_remote(&[(disk_of(DISK_NODE), DISK_NODE)].into(), [strange].into());
    assert_eq!(two.replicas.whereabouts(strange), Whereabouts::Lost);
    assert_eq!(two.replicas.whereabouts(disk_of(DISK_NODE)), Whereabouts::There(DISK_NODE));
    assert_eq!(Replicas::from(two.there.stores.clone()).whereabouts(strange), Whereabouts::Lost, "a node alone");
}

#[test]
fn a_copy_survives_doubles_and_one_that_is_given_up_leaves_nothing() {
    for seed in 0..20 {
        let two = Two::new(seed);
        two.net.set_faults(Faults { double: 50, delay_ms: 30, ..Faults::default() });
        let (disk, frames) = (two.remote(), frames(4, 5000));
        let end = frames[3].end();
        let story = {
            let (disk, frames) = (disk.clone(), frames.clone());
            async move {
                // A double of the beginning may be answered first, that the copy is under way: then the caller tries again later.
                let Ok(mut copy) = disk.begin_copy(GROUP, 2, end).await else { return false };
                for frame in frames {
                    if copy.put(frame).await.is_err() {
                        return false;
                    }
                }
                copy.finish().await.is_ok()
            }
        };
        let done = two.world.block_on(story);
        two.world.run_for(Duration::from_secs(5));
        let store = two.there.store();
        match done {
            true => {
                let scan = store.scan(GROUP, 2, Depth::Payloads).unwrap();
                let found: Vec<u64> = scan
                    .filter_map(|item| match item {
                        Scanned::Frame(header) => Some(header.address.offset),
                        _ => None,
                    })
                    .collect();
                let expected: Vec<u64> = frames.iter().map(|frame| frame.address().offset).collect();
                assert_eq!(found, expected, "seed {seed}");
            }
            false => {
                // Named or not, what is there is whole.
                if let Ok(scan) = store.scan(GROUP, 2, Depth::Payloads) {
                    assert_eq!(scan.filter(|item| matches!(item, Scanned::Frame(_))).count(), 4, "seed {seed}");
                }
            }
        }
        let abandoned = two.world.block_on(async move {
            let copy = disk.begin_copy(GROUP, 9, end).await;
            copy.is_ok()
        });
        two.world.run_for(Duration::from_secs(5));
        let names: Vec<u32> = two.there.store().list_files().iter().map(|file| file.generation).collect();
        assert!(!names.contains(&9), "seed {seed}: {abandoned} {names:?}");
    }
}
