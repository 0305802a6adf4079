//! A tree that cannot be read when an entry is applied or replayed: with another folder it costs that folder only.

mod driver_support;

use driver_support::{Words, config, propose, words};
use env::sim_disk::{CrashPolicy, SimDisk};
use env::{Env, SimEnv};
use metadata::command::{Command, Entry, Outcome, RootCommand};
use metadata::node::{Metadata, ProposeError, StartError};
use metadata::shard::{Shard, ShardId, StateMachine};
use metadata::tree::{Read, TreeError, WriteBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// [`Words`] for which the first so many reads for the word "rotten" fail.
struct Rotten(Arc<AtomicU32>);

impl StateMachine for Rotten {
    fn apply(
        &mut self,
        shard: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError> {
        let rotten = matches!(&entry.command, Command::Root(RootCommand::DeleteUser(word)) if word == "rotten");
        let one_less = |left: u32| left.checked_sub(1);
        if rotten && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(TreeError("a rotten block".to_owned()));
        }
        Words.apply(shard, entry, read, batch)
    }
}

fn open(sim: &SimEnv, disks: &[SimDisk], failures: &Arc<AtomicU32>) -> Result<Metadata, StartError> {
    Metadata::open(config(&sim.env, disks), Box::new(Rotten(failures.clone())))
}

fn two_disks() -> Vec<SimDisk> {
    (0..2).map(|n| SimDisk::new(n, 64 << 20)).collect()
}

fn reopen(sim: SimEnv, metadata: Metadata, disks: &[SimDisk], failures: u32) -> Result<(SimEnv, Metadata), StartError> {
    drop(metadata);
    sim.scheduler.abandon();
    let disks: Vec<SimDisk> = disks.iter().map(|disk| disk.crash(CrashPolicy::KeepNone)).collect();
    let sim = Env::simulated(2);
    let metadata = open(&sim, &disks, &Arc::new(AtomicU32::new(failures)))?;
    Ok((sim, metadata))
}

#[test]
fn an_entry_is_applied_by_the_folder_that_can_be_read_and_the_other_leaves_and_is_filled_anew() {
    let (sim, disks, failures) = (Env::simulated(1), two_disks(), Arc::new(AtomicU32::new(1)));
    let metadata = open(&sim, &disks, &failures).expect("opens");
    for word in ["a", "rotten", "b"] {
        propose(&sim, &metadata, 1, word).expect("one folder can be read");
    }
    sim.scheduler.drain();
    assert_eq!(metadata.stats().logs.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 3);
    let (_, metadata) = reopen(sim, metadata, &disks, 0).expect("opens");
    assert_eq!((metadata.stats().logs.len(), words(&metadata.snapshot(), ShardId(1)).len()), (2, 3));
}

#[test]
fn an_entry_that_no_folder_can_apply_ends_writing_and_no_folder_leaves() {
    let (sim, disks, failures) = (Env::simulated(1), two_disks(), Arc::new(AtomicU32::new(2)));
    let metadata = open(&sim, &disks, &failures).expect("opens");
    assert!(matches!(propose(&sim, &metadata, 1, "rotten"), Err(ProposeError::Failed(_))));
    sim.scheduler.drain();
    assert_eq!(metadata.stats().logs.len(), 2);
}

#[test]
fn a_folder_that_cannot_be_replayed_is_filled_anew_from_the_other() {
    let (sim, disks) = (Env::simulated(1), two_disks());
    let metadata = open(&sim, &disks, &Arc::default()).expect("opens");
    for word in ["a", "rotten", "b"] {
        propose(&sim, &metadata, 1, word).expect("answers");
    }
    let (sim, metadata) = reopen(sim, metadata, &disks, 1).expect("the second folder is whole");
    assert_eq!((metadata.stats().logs.len(), words(&metadata.snapshot(), ShardId(1)).len()), (2, 3));
    propose(&sim, &metadata, 1, "c").expect("answers");
    let none = reopen(sim, metadata, &disks, 2);
    assert!(matches!(none, Err(StartError::Contradiction(_))), "no folder is whole");
}
