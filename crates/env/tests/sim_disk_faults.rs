//! The planned faults of a simulated disk: each is seen, and none where it was not planned.
//!
//! Promises: a test that injects a fault here knows that the fault happens. Refuses to know: power cuts (`sim_disk_crash.rs`).
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::io::ErrorKind;
use std::sync::Arc;

use env::disk::{Caching, Disk, DiskFile, Open};
use env::sim_disk::{CrashPolicy, SimDisk};

fn disk_with(content: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new(1, 1 << 20);
    let file = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    (disk, file)
}

fn reopen(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(path, Open::ReadWrite, Caching::Buffered).unwrap()
}

fn read(file: &dyn DiskFile, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    let count = file.read_at(&mut buf, 0).unwrap();
    buf.truncate(count);
    buf
}

#[test]
fn a_flipped_bit_is_read_until_the_byte_is_written_or_healed() {
    let (disk, file) = disk_with(&[1; 8]);
    disk.flip_bit("a", 3, 7).unwrap();
    disk.flip_bit("a", 5, 0).unwrap();
    assert_eq!(read(&*file, 8), [1, 1, 1, 129, 1, 0, 1, 1]);
    assert_eq!(disk.synced_bytes("a").unwrap(), [1; 8], "the bytes beneath are pristine");
    file.write_at(&[9], 3).unwrap();
    assert_eq!(read(&*file, 8), [1, 1, 1, 9, 1, 0, 1, 1]);
    let after = disk.crash(CrashPolicy::KeepNone);
    assert_eq!(read(&*reopen(&after, "a"), 8)[5], 0, "rot outlives a crash");
    after.heal("a").unwrap();
    assert_eq!(read(&*reopen(&after, "a"), 8), [1; 8], "the write was not synced");
}

#[test]
fn an_unreadable_sector_fails_reads_that_touch_it_only() {
    let (disk, file) = disk_with(&[7; 4096]);
    disk.make_unreadable("a", 1024, 1).unwrap();
    let mut buf = [0; 512];
    for (offset, readable) in [(0, true), (512, true), (513, false), (1024, false), (1535, false), (1536, true)] {
        assert_eq!(file.read_at(&mut buf, offset).is_ok(), readable, "at {offset}");
    }
    file.write_at(&[8; 512], 1024).unwrap();
    file.read_at(&mut buf, 1024).unwrap();
    assert_eq!(buf, [8; 512]);
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_answers_success() {
    let (disk, file) = disk_with(b"aaaa");
    let other = disk.open("b", Open::CreateNew, Caching::Buffered).unwrap();
    other.write_at(b"bbbb", 0).unwrap();
    disk.misdirect_write("a", "b", 2).unwrap();
    file.write_at(b"X", 0).unwrap();
    assert_eq!((read(&*file, 9), read(&*other, 9)), (b"aaaa".to_vec(), b"bbXb".to_vec()));
    file.write_at(b"Y", 0).unwrap();
    assert_eq!(read(&*file, 9), b"Yaaa", "only one write went astray");
}

#[test]
fn a_misdirected_read_gives_other_bytes_once() {
    let (disk, file) = disk_with(b"0123");
    disk.misdirect_read("a", "a", 2).unwrap();
    assert_eq!(read(&*file, 2), b"23");
    assert_eq!(read(&*file, 2), b"01");
}

#[test]
fn a_lost_write_answers_success_and_leaves_the_old_bytes() {
    let (disk, file) = disk_with(b"old");
    disk.lose_writes("a", 1).unwrap();
    file.write_at(b"newer", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(&*file, 9), b"old\0\0");
    file.write_at(b"third", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.synced_bytes("a").unwrap(), b"third");
}

#[test]
fn a_failed_sync_sticks_to_the_handle_and_drops_the_pages() {
    let (disk, file) = disk_with(b"old");
    disk.fail_sync(2);
    file.sync_data().unwrap();
    file.write_at(b"new", 0).unwrap();
    file.sync_data().unwrap_err();
    file.sync_data().unwrap_err();
    file.write_at(b"new", 0).unwrap_err();
    file.punch(0, 1).unwrap_err();
    assert_eq!(read(&*file, 9), b"new", "the page cache still shows it");
    reopen(&disk, "a").sync_data().unwrap();
    let after = disk.crash(CrashPolicy::KeepAll);
    assert_eq!(read(&*reopen(&after, "a"), 9), b"old", "the later success was a lie");
}

#[test]
fn a_failed_write_sticks_to_the_handle_only() {
    let (disk, file) = disk_with(b"old");
    disk.fail_write(1);
    file.write_at(b"x", 0).unwrap_err();
    file.sync_data().unwrap_err();
    let other = reopen(&disk, "a");
    other.write_at(b"n", 0).unwrap();
    other.sync_data().unwrap();
    assert_eq!(disk.synced_bytes("a").unwrap(), b"nld");
}

#[test]
fn a_failed_directory_sync_makes_no_name_durable() {
    let (disk, _) = disk_with(b"x");
    disk.rename("a", "b").unwrap();
    disk.fail_dir_sync(1);
    disk.sync_dir("").unwrap_err();
    assert_eq!(disk.fork().crash(CrashPolicy::KeepNone).list("").unwrap(), ["a"]);
    disk.sync_dir("").unwrap();
    assert_eq!(disk.crash(CrashPolicy::KeepNone).list("").unwrap(), ["b"]);
}

#[test]
fn a_full_disk_refuses_reservations_softly_and_writes_for_good() {
    let disk = SimDisk::new(1, 3 * 4096);
    let file = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap();
    file.allocate(0, 2 * 4096).unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 4096);
    assert_eq!(file.allocate(0, 4 * 4096).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(&[1; 2 * 4096], 0).expect("reserved space is there");
    assert_eq!(file.write_at(&[2; 3 * 4096], 4096).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(&[1], 0).expect_err("a failed write is final");
    assert_eq!(file.len().unwrap(), 3 * 4096, "what fitted may be there");
}

#[test]
fn space_comes_back_by_punching_and_by_removing() {
    let disk = SimDisk::new(1, 4 * 4096);
    let file = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(&[1; 4 * 4096], 0).unwrap();
    file.punch(0, 2 * 4096).unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 2 * 4096);
    disk.remove("a").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 2 * 4096, "an open file keeps its blocks");
    drop(file);
    assert_eq!(disk.space().unwrap().free_bytes, 4 * 4096);
}

#[test]
fn a_lost_disk_stays_lost() {
    let (disk, file) = disk_with(b"x");
    disk.lose();
    file.read_at(&mut [0], 0).unwrap_err();
    disk.list("").unwrap_err();
    disk.crash(CrashPolicy::KeepAll).list("").unwrap_err();
    disk.kill().list("").unwrap_err();
}

#[test]
fn a_lying_disk_forgets_or_changes_what_was_synced() {
    let (disk, file) = disk_with(b"0123456789");
    disk.overwrite_synced("a", 10_000, b"far").unwrap();
    disk.truncate_synced("a", 4).unwrap();
    assert_eq!((read(&*file, 99), file.allocated_bytes().unwrap()), (b"0123".to_vec(), 4096));
    disk.overwrite_synced("a", 1, b"##").unwrap();
    assert_eq!(read(&*reopen(&disk.crash(CrashPolicy::KeepNone), "a"), 99), b"0##3");
}

#[test]
fn faults_need_a_file() {
    let disk = SimDisk::new(1, 4096);
    assert_eq!(disk.flip_bit("a", 0, 0).unwrap_err().kind(), ErrorKind::NotFound);
}
