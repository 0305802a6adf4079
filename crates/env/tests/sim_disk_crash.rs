//! What a power cut leaves of a simulated disk.
//!
//! Promises: the crash tests of the crates above stand on a disk that really loses what was not synced.
//! Refuses to know: faults of a running disk (`sim_disk_faults.rs`).
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use env::disk::{Caching, Disk, DiskFile, Open};
use env::sim_disk::{CrashPolicy, SimDisk, is_crashed};

fn new_disk() -> SimDisk {
    SimDisk::new(1, 64 << 20)
}

fn create(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(path, Open::CreateNew, Caching::Buffered).unwrap()
}

/// A file that is durable with its name, holding `bytes`.
fn durable(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = create(disk, path);
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    file
}

fn content(disk: &SimDisk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read, Caching::Buffered)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[test]
fn synced_bytes_and_names_survive_every_policy() {
    let disk = new_disk();
    durable(&disk, "a", b"synced");
    create(&disk, "b").write_at(b"not", 0).unwrap();
    for policy in policies() {
        assert_eq!(content(&disk.crash(policy), "a").unwrap(), b"synced", "{policy:?}");
    }
}

fn policies() -> Vec<CrashPolicy> {
    let mut policies = vec![CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::PrefixOf(1)];
    policies.extend((0..20).map(CrashPolicy::RandomSubset));
    policies.extend((0..20).map(CrashPolicy::RandomWithGarbage));
    policies
}

#[test]
fn unsynced_bytes_and_names_are_gone_when_none_are_kept() {
    let disk = new_disk();
    let file = durable(&disk, "a", b"old");
    file.write_at(b"newer", 0).unwrap();
    create(&disk, "b").sync_data().unwrap();
    disk.create_dir_all("d").unwrap();
    let after = disk.crash(CrashPolicy::KeepNone);
    assert_eq!(content(&after, "a").unwrap(), b"old");
    assert_eq!(after.list("").unwrap(), ["a"], "a synced file without a synced name is lost");
}

#[test]
fn unsynced_changes_are_there_when_all_are_kept() {
    let disk = new_disk();
    durable(&disk, "a", b"old").write_at(b"newer", 0).unwrap();
    disk.rename("a", "b").unwrap();
    let after = disk.crash(CrashPolicy::KeepAll);
    assert_eq!((after.list("").unwrap(), content(&after, "b").unwrap()), (vec!["b".to_owned()], b"newer".to_vec()));
    assert_eq!(after.unsynced(), 0, "what is found after a crash is durable");
}

#[test]
fn a_prefix_keeps_the_oldest_operations() {
    let disk = new_disk();
    let file = durable(&disk, "a", b"....");
    for (at, byte) in [b"1", b"2", b"3"].into_iter().enumerate() {
        file.write_at(byte, at as u64).unwrap();
    }
    assert_eq!(disk.unsynced(), 3);
    let kept: Vec<_> = (0..=3).map(|n| content(&disk.crash(CrashPolicy::PrefixOf(n)), "a").unwrap()).collect();
    assert_eq!(kept, [b"....", b"1...", b"12..", b"123."]);
    assert_eq!(content(&disk.crash(CrashPolicy::Subset(0b101)), "a").unwrap(), b"1.3.");
}

#[test]
fn random_subsets_tear_writes_at_sectors_and_nowhere_else() {
    let disk = new_disk();
    durable(&disk, "a", &[1; 16 * 512]).write_at(&[2; 16 * 512], 0).unwrap();
    let mut torn = 0;
    for seed in 0..50 {
        let bytes = content(&disk.crash(CrashPolicy::RandomSubset(seed)), "a").unwrap();
        let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "seed {seed}");
        torn += usize::from(sectors.contains(&1) && sectors.contains(&2));
    }
    assert!(torn > 5, "{torn} of 50 torn");
}

#[test]
fn an_unsynced_growth_may_stop_anywhere_and_shows_garbage_only_when_asked() {
    let disk = new_disk();
    durable(&disk, "a", &[1; 512]).write_at(&[2; 20 * 512], 512).unwrap();
    let mut lengths = BTreeSet::new();
    let mut foreign = [0, 0];
    for seed in 0..200 {
        let policies = [CrashPolicy::RandomSubset(seed), CrashPolicy::RandomWithGarbage(seed)];
        for (count, policy) in foreign.iter_mut().zip(policies) {
            let bytes = content(&disk.crash(policy), "a").unwrap();
            lengths.insert(bytes.len());
            assert_eq!(bytes[..512], [1; 512], "synced bytes are never garbage");
            *count += usize::from(bytes[512..].iter().any(|byte| ![0, 2].contains(byte)));
        }
    }
    assert!(lengths.contains(&512) && lengths.contains(&(21 * 512)) && lengths.len() > 5, "{lengths:?}");
    assert_eq!(foreign[0], 0);
    assert!(foreign[1] > 0);
}

#[test]
fn names_survive_without_bytes_and_bytes_without_names() {
    let disk = new_disk();
    let file = create(&disk, "a");
    file.write_at(b"bytes", 0).unwrap();
    let seen: BTreeSet<Option<Vec<u8>>> =
        (0..100).map(|seed| content(&disk.fork().crash(CrashPolicy::RandomSubset(seed)), "a").ok()).collect();
    assert!(seen.contains(&None), "no name");
    assert!(seen.contains(&Some(Vec::new())), "a name without bytes");
    assert!(seen.contains(&Some(b"bytes".to_vec())));
    file.sync_data().unwrap();
    assert!(content(&disk.crash(CrashPolicy::KeepNone), "a").is_err(), "sync_data does not sync the name");
}

#[test]
fn a_rename_is_seen_whole_or_not_at_all() {
    let disk = new_disk();
    durable(&disk, "old", b"old");
    durable(&disk, "new", b"new");
    disk.rename("new", "old").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let after = disk.crash(CrashPolicy::RandomSubset(seed));
        seen.insert((after.list("").unwrap().len(), content(&after, "old").unwrap()));
    }
    assert_eq!(seen, BTreeSet::from([(2, b"old".to_vec()), (1, b"new".to_vec())]));
    disk.crash(CrashPolicy::KeepNone);
}

#[test]
fn a_rename_across_directories_never_loses_the_file() {
    let disk = new_disk();
    disk.create_dir_all("d").unwrap();
    durable(&disk, "a", b"x");
    disk.rename("a", "d/a").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let after = disk.crash(CrashPolicy::RandomSubset(seed));
        seen.insert((content(&after, "a").is_ok(), content(&after, "d/a").is_ok()));
    }
    assert_eq!(seen, BTreeSet::from([(true, false), (true, true), (false, true)]));
}

#[test]
fn syncing_one_directory_of_a_rename_is_not_enough() {
    let disk = new_disk();
    disk.create_dir_all("d").unwrap();
    durable(&disk, "a", b"x");
    disk.rename("a", "d/a").unwrap();
    disk.sync_dir("d").unwrap();
    let after = disk.fork().crash(CrashPolicy::KeepNone);
    assert!(content(&after, "a").is_ok() && content(&after, "d/a").is_ok());
    disk.sync_dir("").unwrap();
    let after = disk.crash(CrashPolicy::KeepNone);
    assert!(content(&after, "a").is_err() && content(&after, "d/a").is_ok());
}

#[test]
fn a_name_made_durable_is_not_undone_by_older_changes_of_it() {
    let disk = new_disk();
    disk.create_dir_all("d").unwrap();
    durable(&disk, "a", b"renamed");
    create(&disk, "d/name");
    disk.rename("a", "d/name").unwrap();
    // Makes the disappearance of "a" durable, and so the name it got; the creation of "d/name" is older and still un-synced.
    disk.sync_dir("").unwrap();
    assert_eq!(content(&disk.crash(CrashPolicy::KeepAll), "d/name").unwrap(), b"renamed");
    assert_eq!(content(&disk.crash(CrashPolicy::KeepNone), "d/name").unwrap(), b"renamed");
}

#[test]
fn the_file_created_at_the_crash_point_may_survive() {
    let disk = new_disk();
    disk.crash_after(0);
    let error = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap_err();
    assert!(is_crashed(&error));
    assert!(content(&disk.crash(CrashPolicy::KeepNone), "a").is_err());
    assert_eq!(content(&disk.crash(CrashPolicy::KeepAll), "a").unwrap(), b"");
}

#[test]
fn a_file_in_a_directory_whose_name_was_not_synced_is_lost() {
    let disk = new_disk();
    disk.create_dir_all("d/e").unwrap();
    create(&disk, "d/e/f").sync_data().unwrap();
    disk.sync_dir("d/e").unwrap();
    disk.sync_dir("d").unwrap();
    let forgotten = disk.fork().crash(CrashPolicy::KeepNone);
    assert_eq!(forgotten.list("").unwrap(), Vec::<String>::new());
    forgotten.create_dir_all("d").unwrap();
    assert_eq!(forgotten.list("d").unwrap(), Vec::<String>::new(), "nor does it come back with a new directory");
    disk.sync_dir("").unwrap();
    assert_eq!(disk.crash(CrashPolicy::KeepNone).list("d/e").unwrap(), ["f"]);
}

#[test]
fn an_unsynced_removal_may_come_back() {
    let disk = new_disk();
    durable(&disk, "a", b"x");
    disk.remove("a").unwrap();
    assert_eq!(content(&disk.fork().crash(CrashPolicy::KeepNone), "a").unwrap(), b"x");
    disk.sync_dir("").unwrap();
    assert!(content(&disk.crash(CrashPolicy::KeepNone), "a").is_err());
}

#[test]
fn a_killed_process_loses_nothing_but_makes_nothing_durable() {
    let disk = new_disk();
    let file = durable(&disk, "a", b"old");
    file.write_at(b"new", 0).unwrap();
    let next = disk.kill();
    assert!(is_crashed(&file.write_at(b"ghost", 0).unwrap_err()), "handles of the dead process are dead");
    assert_eq!(content(&next, "a").unwrap(), b"new");
    assert_eq!(content(&next.crash(CrashPolicy::KeepNone), "a").unwrap(), b"old");
}

#[test]
fn after_the_crash_point_every_call_says_crashed() {
    let disk = new_disk();
    let file = durable(&disk, "a", b"old");
    disk.crash_after(disk.mutations() + 1);
    file.write_at(b"1", 0).unwrap();
    let crashed = [
        file.sync_data().unwrap_err(),
        file.read_at(&mut [0], 0).unwrap_err(),
        disk.list("").unwrap_err(),
        disk.open("a", Open::Read, Caching::Buffered).unwrap_err(),
        disk.sync_dir("").unwrap_err(),
    ];
    assert!(is_crashed(&crashed[0]) && crashed[1..].iter().all(is_crashed_or_sticky));
    assert_eq!(content(&disk.crash(CrashPolicy::KeepNone), "a").unwrap(), b"old", "the sync in flight did nothing");
}

fn is_crashed_or_sticky(error: &io::Error) -> bool {
    is_crashed(error) || error.kind() == ErrorKind::Other
}

#[test]
fn the_write_in_flight_at_the_crash_point_may_survive() {
    let disk = new_disk();
    let file = durable(&disk, "a", b"old");
    disk.crash_after(disk.mutations());
    assert!(is_crashed(&file.write_at(b"new", 0).unwrap_err()));
    assert_eq!(content(&disk.crash(CrashPolicy::KeepNone), "a").unwrap(), b"old");
    assert_eq!(content(&disk.crash(CrashPolicy::KeepAll), "a").unwrap(), b"new");
}

/// A file replaced the proper way: at every crash point the old or the new content is found, whole.
#[test]
fn every_crash_point_of_a_careful_replacement_is_safe_and_of_a_careless_one_is_not() {
    assert_eq!(unsafe_crash_points(true), 0);
    assert!(unsafe_crash_points(false) > 0, "the simulation sees the missing sync");
}

fn unsafe_crash_points(with_sync: bool) -> usize {
    let start = new_disk();
    durable(&start, "name", b"old content");
    let replace = |disk: &SimDisk| -> io::Result<()> {
        let file = disk.open("tmp", Open::CreateNew, Caching::Buffered)?;
        file.write_at(b"new content", 0)?;
        if with_sync {
            file.sync_data()?;
        }
        disk.rename("tmp", "name")?;
        disk.sync_dir("")
    };
    let whole = start.fork();
    replace(&whole).unwrap();
    let mut bad = 0;
    for last in start.mutations()..=whole.mutations() {
        let disk = start.fork();
        disk.crash_after(last);
        let done = replace(&disk).is_ok();
        for mask in 0..1 << disk.unsynced() {
            let found = content(&disk.crash(CrashPolicy::Subset(mask)), "name").unwrap_or_default();
            let right = found == b"new content" || (found == b"old content" && !done);
            bad += usize::from(!right);
        }
    }
    bad
}

#[test]
fn the_same_seed_gives_the_same_disk_after_the_crash() {
    let run = || {
        let disk = new_disk();
        let file = durable(&disk, "a", &[1; 9000]);
        for at in 0..10 {
            file.write_at(&[at as u8; 1000], at * 700).unwrap();
        }
        let after = disk.crash(CrashPolicy::RandomWithGarbage(9));
        (disk.digest(), disk.trace(), content(&after, "a").unwrap())
    };
    assert_eq!(run(), run());
}
