//! The contract of `Disk` and `DiskFile`, run over the real and the simulated disk.
//!
//! Promises: what is asserted here holds for both, so code tested on one runs on the other.
//! Refuses to know: crashes and faults (`sim_disk_*.rs`), symbolic links (`real_disk.rs`).
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use env::buf::AlignedBuf;
use env::disk::{Caching, Disk, DiskFile, Open};
use env::real_disk::RealDisk;
use env::sim_disk::SimDisk;

const CAPACITY_BYTES: u64 = 64 << 20;

/// One test of each kind for each implementation.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod real_disk {
            $(#[test]
            fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&super::RealDisk::open(dir.path(), false).unwrap());
            })*
        }
        mod sim_disk {
            $(#[test]
            fn $name() {
                super::$name(&super::SimDisk::new(1, super::CAPACITY_BYTES));
            })*
        }
    };
}

contract!(
    a_write_is_read_back_by_every_handle,
    holes_read_as_zeros,
    a_read_stops_at_the_end_of_the_file,
    a_cached_read_agrees_or_declines,
    create_new_refuses_an_existing_file,
    opening_never_truncates,
    opening_what_is_not_there_is_not_found,
    a_missing_directory_is_not_found,
    a_handle_opened_for_reading_does_not_write,
    allocate_grows_reads_as_zeros_and_keeps_content,
    allocate_occupies_and_punch_gives_back,
    punching_half_a_page_zeroes_only_that_half,
    empty_ranges_do_nothing,
    rename_replaces_and_open_handles_follow_the_file,
    a_removed_file_lives_on_in_its_handles,
    names_are_listed_sorted_without_their_children,
    directories_are_made_with_their_ancestors_and_again,
    a_file_where_a_directory_should_be_is_refused,
    a_directory_does_not_open_as_a_file,
    paths_that_could_leave_the_root_are_refused,
    direct_io_reads_what_it_wrote,
    a_direct_read_at_the_end_is_short,
    unaligned_direct_io_is_asserted,
    counters_count_calls_and_bytes,
    writing_makes_space_scarcer,
    files_are_shared_between_threads,
);

fn create(disk: &dyn Disk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(path, Open::CreateNew, Caching::Buffered).unwrap()
}

fn read(file: &dyn DiskFile, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let count = file.read_at(&mut buf, offset).unwrap();
    buf.truncate(count);
    buf
}

fn open_error(disk: &dyn Disk, path: &str, how: Open) -> ErrorKind {
    disk.open(path, how, Caching::Buffered).expect_err("the open is refused").kind()
}

fn a_write_is_read_back_by_every_handle(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(b"hello world", 3).unwrap();
    file.write_at(b"W", 9).unwrap();
    let other = disk.open("a", Open::Read, Caching::Buffered).unwrap();
    for handle in [&file, &other] {
        assert_eq!(read(&**handle, 3, 11), b"hello World");
        assert_eq!(handle.len().unwrap(), 14);
    }
    file.sync_data().unwrap();
    assert_eq!(read(&*other, 8, 6), b" World");
}

fn holes_read_as_zeros(disk: &dyn Disk) {
    let file = create(disk, "a");
    assert!(file.is_empty().unwrap());
    file.write_at(b"x", 100_000).unwrap();
    assert_eq!(read(&*file, 0, 100_000), vec![0; 100_000]);
    assert_eq!(file.len().unwrap(), 100_001);
    assert!(file.allocated_bytes().unwrap() < 100_000);
}

fn a_read_stops_at_the_end_of_the_file(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(&[7; 5000], 0).unwrap();
    assert_eq!(read(&*file, 4990, 100), [7; 10]);
    assert_eq!(read(&*file, 5000, 100), []);
    assert_eq!(read(&*file, 1 << 40, 100), []);
}

fn a_cached_read_agrees_or_declines(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(&[7; 5000], 0).unwrap();
    let mut answered = 0;
    for _ in 0..64 {
        let mut buf = [0; 100];
        if let Some(count) = file.read_at_cached(&mut buf, 4990).unwrap() {
            assert_eq!((count, &buf[..count]), (10, &[7; 10][..]));
            answered += 1;
        }
    }
    assert!(answered > 0, "just written and still never cached");
}

fn create_new_refuses_an_existing_file(disk: &dyn Disk) {
    create(disk, "a").write_at(b"keep", 0).unwrap();
    assert_eq!(open_error(disk, "a", Open::CreateNew), ErrorKind::AlreadyExists);
    disk.create_dir_all("d").unwrap();
    assert_eq!(open_error(disk, "d", Open::CreateNew), ErrorKind::AlreadyExists);
    assert_eq!(read(&*disk.open("a", Open::Read, Caching::Buffered).unwrap(), 0, 9), b"keep");
}

fn opening_never_truncates(disk: &dyn Disk) {
    create(disk, "a").write_at(b"keep", 0).unwrap();
    for how in [Open::Read, Open::ReadWrite] {
        let file = disk.open("a", how, Caching::Buffered).unwrap();
        assert_eq!(read(&*file, 0, 9), b"keep");
    }
}

fn opening_what_is_not_there_is_not_found(disk: &dyn Disk) {
    for how in [Open::Read, Open::ReadWrite] {
        assert_eq!(open_error(disk, "a", how), ErrorKind::NotFound);
    }
    assert_eq!(disk.list("").unwrap(), Vec::<String>::new());
}

fn a_missing_directory_is_not_found(disk: &dyn Disk) {
    create(disk, "a");
    assert_eq!(open_error(disk, "d/a", Open::CreateNew), ErrorKind::NotFound);
    assert_eq!(disk.list("d").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.sync_dir("d").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.remove("d/a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.rename("b", "c").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.rename("a", "d/a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.list("").unwrap(), ["a"]);
}

fn a_handle_opened_for_reading_does_not_write(disk: &dyn Disk) {
    create(disk, "a").write_at(b"keep", 0).unwrap();
    let file = disk.open("a", Open::Read, Caching::Buffered).unwrap();
    file.write_at(b"lost", 0).unwrap_err();
    file.allocate(0, 8192).unwrap_err();
    assert_eq!(read(&*file, 0, 9), b"keep");
}

fn allocate_grows_reads_as_zeros_and_keeps_content(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(b"keep", 0).unwrap();
    file.allocate(0, 10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert_eq!(read(&*file, 0, 4), b"keep");
    assert_eq!(read(&*file, 4, 10_000), vec![0; 9_996]);
    file.allocate(0, 100).unwrap();
    assert_eq!(file.len().unwrap(), 10_000, "allocating less does not shorten");
}

fn allocate_occupies_and_punch_gives_back(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.allocate(0, 1 << 20).unwrap();
    let occupied = file.allocated_bytes().unwrap();
    assert!(occupied >= 1 << 20);
    file.write_at(&vec![9; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    file.punch(4096, 512 << 10).unwrap();
    assert!(file.allocated_bytes().unwrap() <= occupied - (512 << 10));
    assert_eq!(file.len().unwrap(), 1 << 20);
    assert_eq!(read(&*file, 0, 4096), vec![9; 4096]);
    assert_eq!(read(&*file, 4096, 512 << 10), vec![0; 512 << 10]);
    assert_eq!(read(&*file, 4096 + (512 << 10), 10), [9; 10]);
}

fn punching_half_a_page_zeroes_only_that_half(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(&[9; 8192], 0).unwrap();
    file.punch(2048, 4096).unwrap();
    let bytes = read(&*file, 0, 8192);
    assert_eq!(bytes[..2048], [9; 2048]);
    assert_eq!(bytes[2048..6144], [0; 4096]);
    assert_eq!(bytes[6144..], [9; 2048]);
}

fn empty_ranges_do_nothing(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.allocate(100, 0).unwrap();
    file.punch(100, 0).unwrap();
    file.write_at(&[], 100).unwrap();
    assert_eq!(file.len().unwrap(), 0);
    file.write_at(b"still works", 0).unwrap();
}

fn rename_replaces_and_open_handles_follow_the_file(disk: &dyn Disk) {
    disk.create_dir_all("d").unwrap();
    let new = create(disk, "new");
    let old = create(disk, "d/name");
    new.write_at(b"new", 0).unwrap();
    old.write_at(b"old", 0).unwrap();
    disk.rename("new", "d/name").unwrap();
    assert_eq!(read(&*disk.open("d/name", Open::Read, Caching::Buffered).unwrap(), 0, 9), b"new");
    assert_eq!((read(&*new, 0, 9), read(&*old, 0, 9)), (b"new".to_vec(), b"old".to_vec()));
    assert_eq!(disk.list("").unwrap(), ["d"]);
    disk.rename("d/name", "d/name").unwrap();
    assert_eq!(disk.list("d").unwrap(), ["name"]);
}

fn a_removed_file_lives_on_in_its_handles(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(b"here", 0).unwrap();
    disk.remove("a").unwrap();
    assert_eq!(open_error(disk, "a", Open::Read), ErrorKind::NotFound);
    file.write_at(b"there", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(&*file, 0, 9), b"there");
    assert!(create(disk, "a").is_empty().unwrap(), "the name is free for another file");
    assert_eq!(disk.remove("b").unwrap_err().kind(), ErrorKind::NotFound);
}

fn names_are_listed_sorted_without_their_children(disk: &dyn Disk) {
    disk.create_dir_all("b/inner").unwrap();
    for name in ["c", "a", "b.x", "b/y", "B"] {
        create(disk, name);
    }
    assert_eq!(disk.list("").unwrap(), ["B", "a", "b", "b.x", "c"]);
    assert_eq!(disk.list("b").unwrap(), ["inner", "y"]);
    assert_eq!(disk.list("b/inner").unwrap(), Vec::<String>::new());
}

fn directories_are_made_with_their_ancestors_and_again(disk: &dyn Disk) {
    disk.create_dir_all("a/b/c").unwrap();
    disk.create_dir_all("a/b/c").unwrap();
    disk.create_dir_all("a/b/d").unwrap();
    assert_eq!(disk.list("a/b").unwrap(), ["c", "d"]);
    for dir in ["", "a", "a/b", "a/b/c"] {
        disk.sync_dir(dir).unwrap();
    }
}

fn a_file_where_a_directory_should_be_is_refused(disk: &dyn Disk) {
    create(disk, "a");
    disk.create_dir_all("a").unwrap_err();
    disk.create_dir_all("a/b").unwrap_err();
    assert_eq!(disk.list("a").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.list("").unwrap(), ["a"]);
}

fn a_directory_does_not_open_as_a_file(disk: &dyn Disk) {
    disk.create_dir_all("d").unwrap();
    for how in [Open::Read, Open::ReadWrite] {
        disk.open("d", how, Caching::Buffered).unwrap_err();
    }
    disk.remove("d").unwrap_err();
    assert_eq!(disk.list("").unwrap(), ["d"]);
}

fn paths_that_could_leave_the_root_are_refused(disk: &dyn Disk) {
    for path in ["", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "./a", "a\0b"] {
        assert_eq!(open_error(disk, path, Open::CreateNew), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(disk.create_dir_all(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(disk.remove(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(disk.rename("x", path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
    }
    for path in ["/", "..", "a/.."] {
        assert_eq!(disk.list(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(disk.sync_dir(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
    }
}

fn direct_io_reads_what_it_wrote(disk: &dyn Disk) {
    let file = disk.open("a", Open::CreateNew, Caching::Direct).unwrap();
    let mut out = AlignedBuf::zeroed(3 * 4096);
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = (index / 13) as u8;
    }
    file.write_at(&out, 4096).unwrap();
    file.sync_data().unwrap();
    let mut back = AlignedBuf::zeroed(3 * 4096);
    assert_eq!(file.read_at(&mut back, 4096).unwrap(), 3 * 4096);
    assert_eq!(*back, *out);
    let buffered = disk.open("a", Open::Read, Caching::Buffered).unwrap();
    assert_eq!(read(&*buffered, 4096, 3 * 4096), *out, "both ways see the same bytes");
    assert!(file.read_at_cached(&mut back, 4096).unwrap().is_none_or(|count| count == 3 * 4096));
}

fn a_direct_read_at_the_end_is_short(disk: &dyn Disk) {
    create(disk, "a").write_at(&[5; 5000], 0).unwrap();
    let file = disk.open("a", Open::Read, Caching::Direct).unwrap();
    let mut buf = AlignedBuf::zeroed(4 * 4096);
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 5000);
    assert_eq!(buf[..5000], [5; 5000]);
    assert_eq!(file.read_at(&mut buf, 8192).unwrap(), 0);
}

fn unaligned_direct_io_is_asserted(disk: &dyn Disk) {
    let file = disk.open("a", Open::CreateNew, Caching::Direct).unwrap();
    let mut buf = AlignedBuf::zeroed(8192);
    assert!(catch_unwind(AssertUnwindSafe(|| file.write_at(&buf[..100], 0))).is_err(), "length");
    assert!(catch_unwind(AssertUnwindSafe(|| file.write_at(&buf[..4096], 512))).is_err(), "offset");
    assert!(catch_unwind(AssertUnwindSafe(|| file.read_at(&mut buf[8..4104], 0))).is_err(), "memory");
    assert!(file.is_empty().unwrap());
}

fn counters_count_calls_and_bytes(disk: &dyn Disk) {
    let file = create(disk, "a");
    file.write_at(&[1; 100], 0).unwrap();
    file.write_at(&[1; 50], 100).unwrap();
    read(&*file, 100, 100);
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    let counters = disk.counters();
    assert_eq!((counters.writes, counters.written_bytes), (2, 150));
    assert_eq!((counters.reads, counters.read_bytes), (1, 50));
    assert_eq!((counters.syncs, counters.dir_syncs), (1, 1));
}

fn writing_makes_space_scarcer(disk: &dyn Disk) {
    let space = disk.space().unwrap();
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    // Other processes use the host's disk too, so only the reservation's own size is looked at.
    let file = create(disk, "a");
    let before = file.allocated_bytes().unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert!(file.allocated_bytes().unwrap() >= before + (1 << 20));
}

fn files_are_shared_between_threads(disk: &dyn Disk) {
    let file = create(disk, "a");
    std::thread::scope(|scope| {
        for index in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for block in 0..16_u64 {
                    file.write_at(&[index + 1; 100], (block * 4 + u64::from(index)) * 100).unwrap();
                }
            });
        }
    });
    for block in 0..64_u64 {
        assert_eq!(read(&*file, block * 100, 100), [(block % 4) as u8 + 1; 100]);
    }
}
