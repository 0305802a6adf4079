//! What only the disk of the host can show: links, modes, locks, alignment asserted.
//!
//! Promises: row 72 of the security plan. Refuses to know: the common contract (`disk_contract.rs`).
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};

use env::disk::{Caching, Disk, Open};
use env::real_disk::RealDisk;

fn disk() -> (tempfile::TempDir, RealDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(&dir.path().join("root"), true).unwrap();
    (dir, disk)
}

#[test]
fn a_symbolic_link_in_place_of_a_file_is_refused() {
    let (dir, disk) = disk();
    let secret = dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, dir.path().join("root/link")).unwrap();
    symlink(dir.path().join("nowhere"), dir.path().join("root/dangling")).unwrap();
    for name in ["link", "dangling"] {
        for how in [Open::Read, Open::ReadWrite, Open::CreateNew] {
            disk.open(name, how, Caching::Buffered).unwrap_err();
        }
    }
    assert!(!dir.path().join("nowhere").exists());
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
}

#[test]
fn a_symbolic_link_in_place_of_a_directory_is_refused() {
    let (dir, disk) = disk();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "x").unwrap();
    symlink(&outside, dir.path().join("root/d")).unwrap();
    disk.open("d/f", Open::Read, Caching::Buffered).unwrap_err();
    disk.open("d/new", Open::CreateNew, Caching::Buffered).unwrap_err();
    disk.list("d").unwrap_err();
    disk.sync_dir("d").unwrap_err();
    disk.create_dir_all("d/sub").unwrap_err();
    disk.remove("d/f").unwrap_err();
    disk.rename("d/f", "g").unwrap_err();
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_without_waiting() {
    let (dir, disk) = disk();
    let status = std::process::Command::new("mkfifo").arg(dir.path().join("root/pipe")).status().unwrap();
    assert!(status.success());
    disk.open("pipe", Open::Read, Caching::Buffered).unwrap_err();
}

#[test]
fn files_and_directories_are_closed_to_others() {
    let (dir, disk) = disk();
    disk.create_dir_all("a/b").unwrap();
    disk.open("a/b/f", Open::CreateNew, Caching::Buffered).unwrap();
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("root"), mode("root/a"), mode("root/a/b"), mode("root/a/b/f")], [0o700, 0o700, 0o700, 0o600]);
}

#[test]
fn a_locked_root_is_refused_to_the_next_until_it_is_dropped() {
    let (dir, first) = disk();
    first.lock().unwrap();
    let second = RealDisk::open(&dir.path().join("root"), false).unwrap();
    assert_eq!(second.lock().unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(first);
    second.lock().unwrap();
}

#[test]
fn a_missing_root_is_made_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("x/y");
    assert_eq!(RealDisk::open(&root, false).unwrap_err().kind(), ErrorKind::NotFound);
    RealDisk::open(&root, true).unwrap();
    let again = RealDisk::open(&root, true).unwrap();
    assert_eq!(again.host_path().unwrap(), root.canonicalize().unwrap());
}

#[test]
#[allow(unsafe_code)]
fn a_cached_read_gives_all_or_declines_never_a_part() {
    use std::os::fd::AsRawFd;
    let (dir, disk) = disk();
    let file = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(&[7; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    let host = fs::File::open(dir.path().join("root/a")).unwrap();
    // SAFETY: an advice on an open descriptor; no memory is passed. It drops the cached second half.
    let advised = unsafe { libc::posix_fadvise(host.as_raw_fd(), 512 << 10, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(advised, 0);
    let mut buf = vec![0; 1 << 20];
    assert!(file.read_at_cached(&mut buf, 0).unwrap().is_none_or(|count| count == 1 << 20));
    assert_eq!(file.read_at_cached(&mut buf[..4096], 0).unwrap(), Some(4096), "the first half is still cached");
}

#[test]
fn dropping_what_is_cached_reaches_synced_files_of_every_folder() {
    let (_dir, disk) = disk();
    disk.create_dir_all("x/y").unwrap();
    let paths = ["a", "x/b", "x/y/c"];
    let file = |path| disk.open(path, Open::CreateNew, Caching::Buffered).unwrap();
    let files = paths.map(file);
    let mut buf = vec![0; 64 << 10];
    for file in &files {
        file.write_at(&[7; 64 << 10], 0).unwrap();
        file.sync_data().unwrap();
        // Where the host cannot read from its cache alone there is nothing to be seen.
        assert!(file.read_at_cached(&mut buf, 0).unwrap().is_none_or(|count| count == 64 << 10));
    }
    for (file, path) in files.iter().zip(paths) {
        // A fast disk may have read the pages before the kernel looks whether they are there; not each time.
        let mut dropped = (0..100).map(|_| {
            disk.drop_cached().unwrap();
            file.read_at_cached(&mut buf, 0).unwrap()
        });
        assert!(dropped.any(|read| read.is_none()), "{path} is still cached");
        drop(dropped);
        assert_eq!((file.read_at(&mut buf, 0).unwrap(), buf[65_535]), (64 << 10, 7));
    }
}

#[test]
fn after_a_failed_write_the_handle_never_succeeds_again() {
    let (_dir, disk) = disk();
    let file = disk.open("a", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(b"good", 0).unwrap();
    // Beyond the largest file any file system allows.
    file.write_at(b"bad", u64::MAX / 2 - 1).unwrap_err();
    file.write_at(b"good", 0).unwrap_err();
    file.sync_data().unwrap_err();
    file.allocate(0, 4096).unwrap_err();
    let mut buf = [0; 4];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 4, "reads still go");
}
