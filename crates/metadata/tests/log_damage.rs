//! Damage to what was synced is told from a torn tail: the log does not open, and says what is hurt.

use bytes::Bytes;
use env::disk::{Caching, Disk, Open};
use env::sim_disk::{CrashPolicy, SimDisk};
use metadata::log::format::{Item, LogEntry};
use metadata::log::{Damage, Log, LogConfig, OpenError};
use metadata::shard::ShardId;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 64 << 10;

fn config(disk: &SimDisk) -> LogConfig {
    LogConfig { disk: Arc::new(disk.clone()), dir: "log".to_owned(), segment_bytes: SEGMENT_BYTES }
}

fn entry(shard: u32, index: u64, bytes: usize) -> Item {
    let data = Bytes::from(vec![b'x'; bytes]);
    Item::Entry(LogEntry { shard: ShardId(shard), index, term: 1, kind: 0, data })
}

/// A log of 30 entries in several segments.
fn filled(disk: &SimDisk) -> Log {
    let mut log = Log::create(config(disk), 7).expect("creates");
    for index in 1..=30 {
        log.append(&[entry(1, index, 5000), entry(2, index, 20)]).expect("appends");
    }
    log
}

fn damage(disk: &SimDisk) -> Damage {
    match Log::open(config(disk)) {
        Err(OpenError::Damaged { damage, .. }) => damage,
        Ok(_) => unreachable!("the damage was not seen"),
        Err(e) => unreachable!("another error: {e}"),
    }
}

/// The file that is written to.
fn current(disk: &SimDisk) -> String {
    let names = disk.list("log").expect("lists");
    let number = |path: &String| {
        let mut head = [0; 64];
        let file = disk.open(path, Open::Read, Caching::Buffered).expect("opens");
        file.read_at(&mut head, 0).expect("reads");
        head[24]
    };
    names.iter().map(|name| format!("log/{name}")).max_by_key(number).expect("files")
}

/// Every block that holds the head of a frame: file and offset.
fn frames(disk: &SimDisk) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for name in disk.list("log").expect("lists") {
        let path = format!("log/{name}");
        let file = disk.open(&path, Open::Read, Caching::Buffered).expect("opens");
        for offset in (0..u64::from(SEGMENT_BYTES)).step_by(4096) {
            let mut magic = [0; 4];
            file.read_at(&mut magic, offset).expect("reads");
            if &magic == b"AFRM" {
                found.push((path.clone(), offset));
            }
        }
    }
    found
}

#[test]
fn a_flipped_bit_in_any_frame_known_to_be_synced_is_refused() {
    let disk = SimDisk::new(1, 8 << 20);
    let mut log = filled(&disk);
    log.mark().expect("marks");
    drop(log);
    let frames = frames(&disk);
    assert!(frames.len() > 30);
    let (mut refused, mut accepted) = (0, 0);
    for (path, offset) in &frames {
        for at in [4, 20, 56, 70] {
            let disk = disk.fork();
            disk.flip_bit(path, offset + at, 2).expect("flips");
            match Log::open(config(&disk)) {
                Err(OpenError::Damaged { .. }) => refused += 1,
                Err(e) => unreachable!("another error: {e}"),
                Ok((_, recovered)) => {
                    // The mark itself and the words "the log goes on" hold nothing that was acknowledged.
                    assert_eq!(recovered.entries[&ShardId(1)].len(), 30, "{path} at {offset}");
                    accepted += 1;
                }
            }
        }
    }
    // The mark, the repeated state before it, and a word "the log goes on" for each of five segments.
    assert!(accepted <= 7 * 4, "{refused} refused, {accepted} accepted");
}

#[test]
fn damage_names_the_shards_and_the_entries() {
    let disk = SimDisk::new(2, 8 << 20);
    drop(filled(&disk));
    let (path, offset) = frames(&disk)[11].clone();
    disk.flip_bit(&path, offset + 80, 0).expect("flips");
    let damage = damage(&disk);
    assert_eq!(damage.hurt.len(), 2, "{damage}");
    for (shard, from, to) in &damage.hurt {
        assert!(*to == Some(*from) && (1..30).contains(from), "one entry of shard {shard:?} is hurt: {damage}");
    }
    assert!(damage.to_string().contains("lacks entries"), "{damage}");
}

#[test]
fn an_unreadable_block_is_damage_even_at_the_end() {
    let disk = SimDisk::new(3, 8 << 20);
    drop(filled(&disk));
    let (path, offset) = frames(&disk).into_iter().next_back().expect("frames");
    disk.make_unreadable(&path, offset, 4096).expect("breaks");
    damage(&disk);
}

#[test]
fn a_missing_segment_is_refused_first_middle_or_last() {
    let disk = SimDisk::new(4, 8 << 20);
    drop(filled(&disk));
    let mut used: Vec<String> = frames(&disk).into_iter().map(|(path, _)| path).collect();
    used.dedup();
    assert!(used.len() >= 4);
    for path in &used {
        let disk = disk.fork();
        disk.remove(path).expect("removes");
        damage(&disk);
    }
}

#[test]
fn both_header_copies_damaged_is_refused_and_one_is_not() {
    let disk = SimDisk::new(5, 8 << 20);
    drop(filled(&disk));
    let mut used: Vec<String> = frames(&disk).into_iter().map(|(path, _)| path).collect();
    used.dedup();
    for path in &used {
        for copy in [0, 4096] {
            let disk = disk.fork();
            disk.flip_bit(path, copy + 30, 1).expect("flips");
            let (_, recovered) = Log::open(config(&disk)).expect("the other copy serves");
            assert_eq!(recovered.entries[&ShardId(1)].len(), 30);
        }
        let disk = disk.fork();
        disk.flip_bit(path, 30, 1).expect("flips");
        disk.flip_bit(path, 4096 + 30, 1).expect("flips");
        damage(&disk);
    }
}

#[test]
fn a_file_put_back_from_an_old_image_is_refused() {
    let disk = SimDisk::new(6, 8 << 20);
    let mut log = filled(&disk);
    let image = |path: &str| {
        let mut bytes = vec![0; SEGMENT_BYTES as usize];
        let file = disk.open(path, Open::Read, Caching::Buffered).expect("opens");
        file.read_at(&mut bytes, 0).expect("reads");
        bytes
    };
    let names = disk.list("log").expect("lists");
    let old: Vec<(String, Vec<u8>)> =
        names.iter().map(|name| format!("log/{name}")).map(|p| (p.clone(), image(&p))).collect();
    log.truncate(&[(ShardId(1), 28, 1), (ShardId(2), 28, 1)]).expect("truncates");
    for index in 31..=90 {
        log.append(&[entry(1, index, 5000)]).expect("appends");
    }
    drop(log);
    let used_before = |bytes: &[u8]| bytes[24..32] != [0; 8];
    let (path, old) = old
        .into_iter()
        .find(|(path, old)| used_before(old) && image(path)[..64] != old[..64])
        .expect("one is used again");
    disk.overwrite_synced(&path, 0, &old).expect("puts it back");
    damage(&disk);
}

#[test]
fn a_write_that_the_disk_lost_is_refused_once_later_ones_are_known() {
    let disk = SimDisk::new(7, 8 << 20);
    let mut log = filled(&disk);
    let mut lost = false;
    for index in 31..=34 {
        if index == 32 {
            lost = disk.lose_writes(&current(&disk), 1).is_ok();
        }
        log.append(&[entry(1, index, 100)]).expect("the disk says so");
    }
    assert!(lost);
    drop(log);
    let after = disk.crash(CrashPolicy::KeepNone);
    assert!(Log::open(config(&after)).is_err());
}

#[test]
fn a_file_cut_short_is_refused() {
    let disk = SimDisk::new(8, 8 << 20);
    drop(filled(&disk));
    let path = frames(&disk)[3].0.clone();
    disk.truncate_synced(&path, 20_480).expect("cuts");
    damage(&disk);
}

#[test]
fn another_format_is_refused_and_nothing_is_changed() {
    let disk = SimDisk::new(9, 8 << 20);
    drop(filled(&disk));
    let path = frames(&disk)[0].0.clone();
    let file = disk.open(&path, Open::Read, Caching::Buffered).expect("opens");
    let mut head = vec![0; 64];
    file.read_at(&mut head, 0).expect("reads");
    head[8] = 2;
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &head[..56]);
    head[56..].copy_from_slice(&crc.to_le_bytes());
    disk.overwrite_synced(&path, 0, &head).expect("writes");
    let before = disk.mutations();
    let text = damage(&disk).to_string();
    assert!(text.contains("format 2"), "{text}");
    assert_eq!(disk.mutations(), before);
}
