//! The logs of several folders as one, when one of them fails, is full, or was cut off while the set changed.

mod driver_support;

use bytes::Bytes;
use driver_support::{Words, config, open, propose, words};
use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use env::{Env, SimEnv};
use metadata::log::format::{Item, LogEntry};
use metadata::log::{Log, LogConfig, LogError, LogSet};
use metadata::node::{Metadata, MetadataConfig};
use metadata::shard::ShardId;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 64 << 10;

fn log_config(disk: &SimDisk) -> LogConfig {
    LogConfig { disk: Arc::new(disk.clone()), dir: "log".to_owned(), segment_bytes: SEGMENT_BYTES }
}

fn entry(index: u64, bytes: usize) -> Item {
    let data = Bytes::from(vec![index as u8; bytes]);
    Item::Entry(LogEntry { shard: ShardId(1), index, term: 1, kind: 0, data })
}

fn two_disks() -> [SimDisk; 2] {
    [SimDisk::new(1, 64 << 20), SimDisk::new(2, 64 << 20)]
}

fn set(sim: &SimEnv, disks: &[SimDisk; 2]) -> LogSet {
    let logs = disks.iter().zip(7..).map(|(disk, id)| Log::create(log_config(disk), id).expect("a log"));
    LogSet::create(&sim.env.tasks, logs.collect()).expect("a set")
}

fn segment_files(disk: &SimDisk) -> usize {
    disk.list("log").expect("a listing").len()
}

#[test]
fn a_folder_that_fails_while_room_is_made_does_not_keep_the_others_from_making_theirs() {
    let (sim, disks) = (Env::simulated(1), two_disks());
    let mut set = set(&sim, &disks);
    // The first roll takes a spare; the next time there is no room a new one is made, in every folder.
    for index in 1..=2 {
        set.append(&[entry(index, 40_000)]).expect("room");
    }
    let before = segment_files(&disks[1]);
    disks[0].fail_write(1);
    set.append(&[entry(3, 40_000)]).expect("the other folder has it");
    assert_eq!(set.folders(), [1]);
    assert_eq!(segment_files(&disks[1]), before + 1);
}

#[test]
fn a_set_that_cannot_be_changed_for_want_of_space_has_failed_and_does_not_merely_refuse() {
    let (sim, disks) = (Env::simulated(1), two_disks());
    drop(set(&sim, &disks));
    // Each start takes a spare; afterwards there is none.
    for _ in 0..2 {
        disks.iter().for_each(|disk| drop(Log::open(log_config(disk)).expect("opens")));
    }
    let opened = disks.iter().map(|disk| Log::open(log_config(disk))).collect();
    let mut set = LogSet::open(&sim.env.tasks, opened, 0).expect("opens").set;
    for disk in &disks {
        let space = disk.space().expect("space");
        disk.set_capacity(space.total_bytes - space.free_bytes);
    }
    let full = (1..100).find_map(|index| set.append(&[entry(index, 100)]).err());
    assert_eq!(full, Some(LogError::NoSpace));
    assert!(matches!(set.exclude(0), Err(LogError::Failed(_))));
    assert!(matches!(set.append(&[entry(200, 100)]), Err(LogError::Failed(_))));
}

#[test]
fn a_power_cut_while_a_store_is_made_leaves_no_folder_that_does_not_know_the_set() {
    let make = |disks: &[SimDisk; 2]| open(&Env::simulated(1).env, disks).map(drop);
    let whole = two_disks();
    make(&whole).expect("opens");
    let mutations = whole[1].mutations();
    assert!(mutations > 20);
    for cut in 0..mutations {
        let disks = two_disks();
        disks[1].crash_after(cut);
        let made = make(&disks);
        let disks = disks.each_ref().map(|disk| disk.crash(CrashPolicy::KeepNone));
        let sim = Env::simulated(2);
        let metadata = open(&sim.env, &disks).unwrap_or_else(|e| unreachable!("cut {cut}, {made:?}: {e}"));
        propose(&sim, &metadata, 1, "a").expect("answers");
        drop(metadata);
        sim.scheduler.abandon();
        let disks = disks.each_ref().map(|disk| disk.crash(CrashPolicy::KeepNone));
        // The operator says that the first disk is gone for good.
        disks[0].lose();
        let sim = Env::simulated(3);
        // Its folder cannot even be listed, so it is not named any more.
        let config = MetadataConfig { create: false, lost: 1, ..config(&sim.env, &disks[1..]) };
        let metadata = Metadata::open(config, Box::new(Words));
        let metadata = metadata.unwrap_or_else(|e| unreachable!("cut {cut}: {e}"));
        assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 1, "cut {cut}");
    }
}
