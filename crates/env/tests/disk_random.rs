//! Random programs: the real and the simulated disk answer alike, and a crash touches only what was not synced.
//!
//! Promises: each failure names its seed. Refuses to know: faults.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use env::disk::{Caching, Disk, DiskFile, Open};
use env::random::{Random, SimRandom};
use env::real_disk::RealDisk;
use env::sim_disk::{CrashPolicy, SimDisk};

const PATHS: [&str; 7] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"];
const LONGEST_BYTES: u64 = 20_000;

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Write { slot: usize, offset: u64, bytes: Vec<u8> },
    Allocate { slot: usize, offset: u64, len: u64 },
    Punch { slot: usize, offset: u64, len: u64 },
    Read { slot: usize, offset: u64, len: usize },
    Sync(usize),
    MakeDir(usize),
    Rename(usize, usize),
    Remove(usize),
    List(usize),
    SyncDir(usize),
}

fn draw(random: &SimRandom) -> Step {
    let below = |bound: u64| random.next_u64() % bound;
    let path = || below(PATHS.len() as u64) as usize;
    let (slot, offset, len) = (below(4) as usize, below(LONGEST_BYTES), below(LONGEST_BYTES / 2));
    match below(14) {
        0 | 1 => Step::Create(path()),
        2..=4 => Step::Write { slot, offset, bytes: vec![below(255) as u8 + 1; len as usize] },
        5 => Step::Allocate { slot, offset, len },
        6 => Step::Punch { slot, offset, len },
        7 | 8 => Step::Read { slot, offset, len: len as usize },
        9 => Step::Sync(slot),
        10 => Step::MakeDir(path()),
        11 => Step::Rename(path(), path()),
        12 => Step::Remove(path()),
        _ if below(2) == 0 => Step::List(path()),
        _ => Step::SyncDir(path()),
    }
}

/// A disk with the last four files opened.
struct Machine<'d> {
    disk: &'d dyn Disk,
    slots: Vec<Arc<dyn DiskFile>>,
}

impl Machine<'_> {
    /// What the step answered, as text to compare.
    fn run(&mut self, step: &Step) -> io::Result<String> {
        let slot = |index: usize| self.slots.get(index).cloned().ok_or(io::Error::other("no such slot"));
        match step {
            Step::Create(path) => {
                let how = if self.disk.open(PATHS[*path], Open::Read, Caching::Buffered).is_ok() {
                    Open::ReadWrite
                } else {
                    Open::CreateNew
                };
                let file = self.disk.open(PATHS[*path], how, Caching::Buffered)?;
                self.slots.insert(0, file);
                self.slots.truncate(4);
            }
            Step::Write { slot: s, offset, bytes } => slot(*s)?.write_at(bytes, *offset)?,
            Step::Allocate { slot: s, offset, len } => slot(*s)?.allocate(*offset, *len)?,
            Step::Punch { slot: s, offset, len } => slot(*s)?.punch(*offset, *len)?,
            Step::Read { slot: s, offset, len } => {
                let mut buf = vec![0xaa; *len];
                let count = slot(*s)?.read_at(&mut buf, *offset)?;
                return Ok(format!("{count} {:?} of {}", &buf[..count], slot(*s)?.len()?));
            }
            Step::Sync(s) => slot(*s)?.sync_data()?,
            Step::MakeDir(path) => self.disk.create_dir_all(PATHS[*path])?,
            Step::Rename(from, to) => self.disk.rename(PATHS[*from], PATHS[*to])?,
            Step::Remove(path) => self.disk.remove(PATHS[*path])?,
            Step::List(path) => return Ok(format!("{:?}", self.disk.list(PATHS[*path])?)),
            Step::SyncDir(path) => self.disk.sync_dir(PATHS[*path])?,
        }
        Ok(String::new())
    }
}

/// Renames nobody makes: of a directory (the simulation refuses it), or of a file onto a directory above it (the host has
/// its own error for that).
fn is_outside_the_contract(disk: &dyn Disk, step: &Step) -> bool {
    let Step::Rename(from, to) = step else { return false };
    disk.list(PATHS[*from]).is_ok() || PATHS[*from].starts_with(&format!("{}/", PATHS[*to]))
}

#[test]
fn the_real_and_the_simulated_disk_answer_alike() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let (real, simulated) = (RealDisk::open(dir.path(), false).unwrap(), SimDisk::new(seed, 1 << 30));
        let mut machines =
            [Machine { disk: &real, slots: Vec::new() }, Machine { disk: &simulated, slots: Vec::new() }];
        let random = SimRandom::new(seed);
        for index in 0..150 {
            let step = draw(&random);
            if is_outside_the_contract(&simulated, &step) {
                continue;
            }
            let [real, simulated] = machines.each_mut().map(|machine| machine.run(&step).map_err(|e| e.kind()));
            assert_eq!(real, simulated, "seed {seed}, step {index}: {step:?}");
        }
    }
}

/// Of one file: the bytes at the last sync, and what was written since.
#[derive(Clone, Default)]
struct Expected {
    synced: Vec<u8>,
    current: Vec<u8>,
    /// Offset, length and the byte written.
    writes: Vec<(usize, usize, u8)>,
}

impl Expected {
    fn write(&mut self, offset: usize, len: usize, byte: u8) {
        self.current.resize(self.current.len().max(offset + len), 0);
        self.current[offset..offset + len].fill(byte);
        self.writes.push((offset, len, byte));
    }

    fn sync(&mut self) {
        self.synced = self.current.clone();
        self.writes.clear();
    }

    /// Where there were synced bytes there are these still, or some that were written over them; never anything else.
    fn check(&self, found: &[u8], context: &str) {
        assert!(found.len() >= self.synced.len() && found.len() <= self.current.len(), "{context}: length");
        for (at, synced) in self.synced.iter().enumerate().filter(|(at, synced)| found[*at] != **synced) {
            let written =
                |(offset, len, byte): &(usize, usize, u8)| (*offset..offset + len).contains(&at) && *byte == found[at];
            assert!(self.writes.iter().any(written), "{context}: byte {at} was {synced} and is {}", found[at]);
        }
    }
}

#[test]
fn a_crash_changes_nothing_but_what_was_not_synced() {
    for seed in 0..200 {
        let random = SimRandom::new(seed);
        let disk = SimDisk::new(seed, 1 << 30);
        let mut expected: BTreeMap<&str, Expected> = BTreeMap::new();
        let files = ["a", "b"].map(|path| {
            expected.insert(path, Expected::default());
            (path, disk.open(path, Open::CreateNew, Caching::Buffered).unwrap())
        });
        disk.sync_dir("").unwrap();
        for _ in 0..12 {
            let (path, file) = &files[(random.next_u64() % 2) as usize];
            let model = expected.get_mut(path).unwrap();
            if random.next_u64().is_multiple_of(4) {
                file.sync_data().unwrap();
                model.sync();
            } else {
                let (byte, len) = ((random.next_u64() % 255) as u8 + 1, (random.next_u64() % 3000) as usize + 1);
                let offset = random.next_u64() % 8000;
                file.write_at(&vec![byte; len], offset).unwrap();
                model.write(offset as usize, len, byte);
            }
        }
        let policies = [CrashPolicy::KeepNone, CrashPolicy::RandomSubset(seed), CrashPolicy::RandomWithGarbage(seed)];
        for policy in policies {
            let after = disk.crash(policy);
            for (path, model) in &expected {
                let found = after.synced_bytes(path).unwrap();
                model.check(&found, &format!("seed {seed}, {policy:?}, {path}"));
                if policy == CrashPolicy::KeepNone {
                    assert_eq!(found, model.synced);
                }
            }
        }
    }
}
