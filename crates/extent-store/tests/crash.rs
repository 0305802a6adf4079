//! The power goes at every single mutation of a workload, and any part of what was not synced survives.
//!
//! The workload creates two groups, appends (several at once), fences, punches, copies, drops and sets aside. A notebook
//! keeps what was acknowledged and what was begun; after every crash the disk must still keep every acknowledged promise.
#![allow(clippy::panic)]

mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use env::sim_disk::{CrashPolicy, SimDisk};
use env::tasks::Scheduler;
use extent_store::{Depth, DiskIdentity, DiskStore, Frame, FrameAddress, FrameHeader, ReadError, Scanned};
use fixture::{CLUSTER, DISK, Extent, GROUP, OTHER, Runner, STEP, World, at, extent, frame_in, path, sim_disk};

/// What the workload was told, and what it had begun when the power went.
#[derive(Clone, Debug, Default)]
struct Notebook {
    acknowledged: BTreeMap<FrameAddress, Extent>,
    submitted: BTreeMap<FrameAddress, Extent>,
    fences: BTreeMap<types::GroupId, (u32, u64)>,
    punch_begun: BTreeSet<FrameAddress>,
    removal_begun: BTreeSet<(types::GroupId, u32)>,
    copied: BTreeMap<FrameAddress, Extent>,
    finished: bool,
}

type Shared = Arc<Mutex<Notebook>>;

struct Client {
    store: DiskStore,
    scheduler: Arc<Scheduler>,
    buffers: env::buf::BufPool,
    disk: SimDisk,
    notes: Shared,
}

impl Client {
    /// Appends all at once; each acknowledgement is checked against what a power cut would leave at that very moment.
    async fn append(&self, group: types::GroupId, from: u64, extents: &[Extent]) -> Option<u64> {
        let mut offset = from;
        let mut waiting = Vec::new();
        for extent in extents {
            let frame = frame_in(&self.buffers, at(group, 1, offset), *extent);
            offset = frame.end();
            self.notes.lock().expect("one thread").submitted.insert(frame.address(), *extent);
            let (append, disk, notes, extent) =
                (self.store.append(frame.clone()), self.disk.clone(), self.notes.clone(), *extent);
            waiting.push(self.scheduler.spawn(async move {
                let acknowledged = append.await.is_ok();
                if acknowledged {
                    assert_durable_up_to(&disk, &frame);
                    notes.lock().expect("one thread").acknowledged.insert(frame.address(), extent);
                }
                acknowledged
            }));
        }
        let mut all = true;
        for append in waiting {
            all &= append.await;
        }
        all.then_some(offset)
    }

    async fn fence(&self, group: types::GroupId, generation: u32) -> Option<u64> {
        let length = self.store.fence(group, generation).await.ok()?;
        let mut notes = self.notes.lock().expect("one thread");
        let covered = notes.acknowledged.keys().filter(|address| address.group == group).all(|a| a.offset < length);
        assert!(covered, "the fence of {group} answered {length}: {notes:?}");
        notes.fences.insert(group, (generation, length));
        Some(length)
    }

    /// Ends early, with `None`, when the power goes.
    async fn work(&self) -> Option<()> {
        self.store.create(GROUP, 1, STEP).await.ok()?;
        let end = self.append(GROUP, 4096, &[extent(1, 1), extent(2, 5000), extent(3, 70_000)]).await?;
        self.store.create(OTHER, 1, STEP).await.ok()?;
        self.append(OTHER, 4096, &[extent(4, 30_000), extent(5, 4096)]).await?;
        self.append(GROUP, end, &[extent(6, 20_000), extent(7, 9)]).await?;
        let length = self.fence(GROUP, 2).await?;
        let frames: Vec<FrameAddress> =
            self.notes.lock().expect("one thread").acknowledged.keys().filter(|a| a.group == GROUP).copied().collect();
        let punched = frames[1];
        self.notes.lock().expect("one thread").punch_begun.insert(punched);
        self.store.punch(GROUP, 1, &[(punched.offset, Frame::bytes_for(5000))]).await.ok()?;
        self.copy(&frames, punched, length).await?;
        self.notes.lock().expect("one thread").removal_begun.insert((GROUP, 1));
        self.store.drop_file(GROUP, 1).await.ok()?;
        self.fence(OTHER, 3).await?;
        self.notes.lock().expect("one thread").removal_begun.insert((OTHER, 1));
        self.store.quarantine(OTHER, 1, "a test").await.ok()?;
        self.notes.lock().expect("one thread").finished = true;
        Some(())
    }

    async fn copy(&self, frames: &[FrameAddress], punched: FrameAddress, length: u64) -> Option<()> {
        let mut copy = self.store.begin_copy(GROUP, 3, length).await.ok()?;
        for address in frames.iter().filter(|address| **address != punched) {
            copy.put(self.store.read_frame(*address).await.ok()?).await.ok()?;
        }
        copy.finish().await.ok()?;
        let mut notes = self.notes.lock().expect("one thread");
        for address in frames.iter().filter(|address| **address != punched) {
            let extent = notes.acknowledged[address];
            notes.copied.insert(FrameAddress { generation: 3, ..*address }, extent);
        }
        Some(())
    }
}

/// Rule R2, at the moment of the acknowledgement: the frame and everything before it in the file is durable.
fn assert_durable_up_to(disk: &SimDisk, frame: &Frame) {
    let address = frame.address();
    let bytes = disk.synced_bytes(&path(address.group, address.generation)).expect("the file has a name");
    let mut offset = 4096;
    while offset <= address.offset {
        let at = offset as usize;
        let header =
            bytes.get(at..).and_then(|bytes| FrameHeader::decode(bytes).ok()).expect("acknowledged, so durable");
        let end = at + header.frame_bytes() as usize;
        Frame::verify(bytes::Bytes::copy_from_slice(&bytes[at..end])).expect("acknowledged, so durable");
        offset = end as u64;
    }
    let start = address.offset as usize;
    assert_eq!(&bytes[start..start + frame.bytes().len()], &frame.bytes()[..]);
}

/// Runs the workload until it ends or the power goes.
fn run_workload(disk: &SimDisk, seed: u64) -> Notebook {
    let world = World::simulated(seed);
    let Runner::Simulated(scheduler) = &world.runner else { unreachable!("simulated") };
    let notes = Shared::default();
    if let Ok((store, _)) = world.try_open(Arc::new(disk.clone())) {
        let client = Client {
            store,
            scheduler: scheduler.clone(),
            buffers: world.buffers.clone(),
            disk: disk.clone(),
            notes: notes.clone(),
        };
        scheduler.block_on(async move { client.work().await });
    }
    scheduler.abandon();
    notes.lock().expect("one thread").clone()
}

/// Everything the disk promised, looked at by a new process. Gives what it saw, to compare with a second look.
fn recover(disk: &SimDisk, notes: &Notebook, context: &str) -> Vec<String> {
    let world = World::simulated(7);
    let (store, found) = world.open(Arc::new(disk.clone()));
    assert!(store.strangers().is_empty(), "{context}: {:?}", store.strangers());
    for (address, extent) in &notes.acknowledged {
        let gone =
            notes.punch_begun.contains(address) || notes.removal_begun.contains(&(address.group, address.generation));
        match world.read(&store, *address, *extent) {
            Ok(bytes) => assert_eq!(bytes, extent.payload(), "{context}: {address:?}"),
            Err(error) => assert!(gone, "{context}: {address:?} was acknowledged: {error}"),
        }
    }
    // What was never acknowledged may be there or not, but never as other bytes.
    for (address, extent) in &notes.submitted {
        match world.read(&store, *address, *extent) {
            Ok(bytes) => assert_eq!(bytes, extent.payload(), "{context}: {address:?}"),
            Err(ReadError::Missing | ReadError::Damaged(_)) => {}
            Err(error) => panic!("{context}: {address:?}: {error}"),
        }
    }
    for (address, extent) in &notes.copied {
        let bytes = world.read(&store, *address, *extent);
        assert_eq!(bytes.expect("a finished copy"), extent.payload(), "{context}: {address:?}");
    }
    for (group, (generation, length)) in &notes.fences {
        let fence = store.fence_of(*group).map(|fence| (fence.generation, fence.length));
        assert!(
            fence.is_some_and(|fence| fence == (*generation, *length) || fence.0 > *generation),
            "{context}: {fence:?}"
        );
    }
    let mut seen = Vec::new();
    for file in found {
        let items: Vec<Scanned> = store.scan(file.group, file.generation, Depth::Payloads).expect(context).collect();
        let asked = store.clone();
        let length = world.run(async move { asked.durable_length(file.group, file.generation).await }).expect(context);
        if file.generation == 1 {
            assert_eq!(length, end_before_first_gap(&items), "{context}");
            let acknowledged = notes.acknowledged.keys().filter(|a| (a.group, a.generation) == (file.group, 1));
            let last = acknowledged.map(|address| address.offset).max().unwrap_or(0);
            assert!(length > last || !notes.punch_begun.is_empty(), "{context}: {length} leaves out {last}");
        }
        seen.push(format!("{file:?} {length} {items:?}"));
    }
    // A group that is asked again after the crash gives the answer it gave.
    for (group, (generation, length)) in &notes.fences {
        assert_eq!(world.fence(&store, *group, generation + 10), *length, "{context}");
    }
    let finished_files = if notes.finished { vec![(GROUP, 3)] } else { Vec::new() };
    for (group, generation) in finished_files {
        let files = store.list_files();
        assert_eq!(
            files.iter().map(|f| (f.group, f.generation)).collect::<Vec<_>>(),
            [(group, generation)],
            "{context}"
        );
    }
    store.close();
    seen
}

fn end_before_first_gap(items: &[Scanned]) -> u64 {
    let frames = items.iter().map_while(|item| match item {
        Scanned::Frame(header) => Some(header.address.offset + header.frame_bytes()),
        _ => None,
    });
    frames.last().unwrap_or(4096)
}

fn policies(unsynced: usize, round: u64) -> Vec<CrashPolicy> {
    let mut policies = vec![CrashPolicy::KeepNone, CrashPolicy::KeepAll];
    policies.extend((1..unsynced.min(4)).map(CrashPolicy::PrefixOf));
    policies.extend((0..3).map(|i| CrashPolicy::RandomSubset(round * 8 + i)));
    policies.extend((0..2).map(|i| CrashPolicy::RandomWithGarbage(round * 8 + i)));
    policies.push(CrashPolicy::Subset(0xAAAA_AAAA_AAAA_AAAA));
    policies
}

#[test]
fn acknowledged_frames_fences_and_copies_survive_a_crash_at_every_mutation() {
    for seed in 0..3 {
        let start = sim_disk(seed);
        DiskIdentity::create(&start, CLUSTER, 1, DISK).expect("an empty disk");
        let whole = start.fork();
        let notes = run_workload(&whole, seed);
        assert!(notes.finished, "the workload ends when nothing fails: {notes:?}");
        assert_eq!(notes.acknowledged.len(), 7);
        for last in start.mutations()..=whole.mutations() {
            let disk = start.fork();
            disk.crash_after(last);
            let notes = run_workload(&disk, seed);
            for policy in policies(disk.unsynced(), last) {
                let context = format!("seed {seed}, power cut after mutation {last}, {policy:?}");
                let image = disk.crash(policy);
                let first = recover(&image, &notes, &context);
                // Recovery changed nothing but fences: a second start, after another power cut, sees the same frames.
                let again = recover(&image.crash(CrashPolicy::KeepNone), &notes, &context);
                assert_eq!(first.len(), again.len(), "{context}");
                for (first, again) in first.iter().zip(&again) {
                    assert_eq!(frames_of(first), frames_of(again), "{context}");
                }
            }
        }
    }
}

/// What was seen without the fence, which the first look raised.
fn frames_of(seen: &str) -> &str {
    seen.split_once("} ").map_or(seen, |(_, frames)| frames)
}

#[test]
fn a_killed_process_leaves_nothing_that_its_successor_takes_for_durable_without_syncing() {
    let start = sim_disk(11);
    let whole = start.fork();
    run_workload(&whole, 11);
    for last in 0..=whole.mutations() {
        let disk = start.fork();
        disk.crash_after(last);
        run_workload(&disk, 11);
        // The process dies, the machine does not: un-synced bytes are still to be seen.
        let heir = disk.kill();
        let world = World::simulated(1);
        let Ok((store, found)) = world.try_open(Arc::new(heir.clone())) else { continue };
        let mut answers = Vec::new();
        for file in found.iter().filter(|file| file.generation == 1 && file.fence.is_none()) {
            answers.push((file.group, world.fence(&store, file.group, 9)));
        }
        // Now the machine dies too. What was answered must be there.
        let image = heir.crash(CrashPolicy::KeepNone);
        let world = World::simulated(2);
        let (store, _) = world.open(Arc::new(image));
        for (group, length) in answers {
            let asked = store.clone();
            let durable = world.run(async move { asked.durable_length(group, 1).await });
            assert_eq!(durable.expect("answered for"), length, "kill after mutation {last}");
            assert_eq!(store.fence_of(group).map(|fence| fence.length), Some(length));
        }
    }
}
