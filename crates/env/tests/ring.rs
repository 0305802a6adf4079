//! Reads by io_uring give what plain reads give. Where the machine does not allow io_uring the tests say so and pass.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::ops::Range;
use std::sync::Arc;

use env::buf::{AlignedBuf, BufPool, PooledBuf};
use env::disk::{Caching, Disk, DiskFile, Open, ReadDone};
use env::random::{Random, SimRandom};
use env::real_disk::RealDisk;
use env::ring::Ring;

const FILE_BYTES: usize = (1 << 20) + 1000;

struct Fixture {
    _dir: tempfile::TempDir,
    disk: RealDisk,
    pool: BufPool,
    content: Vec<u8>,
    random: SimRandom,
}

/// A file of known bytes on a disk with a ring; `None` where there is no io_uring.
fn fixture() -> Option<Fixture> {
    let ring = match Ring::start() {
        Ok(ring) => ring,
        Err(error) => {
            eprintln!("skipped: no io_uring here: {error}");
            return None;
        }
    };
    let dir = tempfile::tempdir_in(".").unwrap();
    let disk = RealDisk::open(dir.path(), false).unwrap().with_ring(Some(ring));
    let random = SimRandom::new(7);
    let mut content = vec![0; FILE_BYTES];
    random.fill(&mut content);
    let file = disk.open("f", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(&content, 0).unwrap();
    file.sync_data().unwrap();
    Some(Fixture { _dir: dir, disk, pool: BufPool::new(64 << 20), content, random })
}

impl Fixture {
    fn open(&self, caching: Caching) -> Arc<dyn DiskFile> {
        self.disk.open("f", Open::Read, caching).unwrap()
    }

    fn buf(&self, len: usize) -> PooledBuf {
        let mut buf = self.pool.try_take(len).unwrap();
        buf.resize_zeroed(len);
        buf
    }

    fn read(&self, file: &Arc<dyn DiskFile>, part: Range<usize>, offset: u64) -> ReadDone {
        let buf = self.buf(part.end);
        file.clone().start_read(buf, part, offset).unwrap().blocking_recv().unwrap()
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }
}

#[test]
fn a_read_by_the_ring_is_the_plain_read_also_at_the_end_and_beyond() {
    let Some(world) = fixture() else { return };
    for (caching, step) in [(Caching::Buffered, 1), (Caching::Direct, 4096)] {
        let file = world.open(caching);
        for _ in 0..300 {
            let offset = world.below(FILE_BYTES as u64 + 100_000) / step * step;
            let start = (world.below(9000) / step * step) as usize;
            let len = ((world.below(200_000) / step + 1) * step) as usize;
            let (buf, count) = world.read(&file, start..start + len, offset);
            let count = count.unwrap();
            let mut plain = AlignedBuf::zeroed(len);
            assert_eq!(count, file.read_at(&mut plain, offset).unwrap(), "{caching:?} {offset} {len}");
            let from = (offset as usize).min(FILE_BYTES);
            assert_eq!(buf[start..start + count], world.content[from..from + count]);
            assert!(buf[..start].iter().all(|byte| *byte == 0), "only the part is filled");
        }
    }
}

#[test]
fn more_reads_than_the_kernel_is_given_at_once_are_all_answered() {
    let Some(world) = fixture() else { return };
    let file = world.open(Caching::Direct);
    let (mut begun, mut refused) = (Vec::new(), 0);
    for index in 0..2000u64 {
        let offset = index % 256 * 4096;
        match file.clone().start_read(world.buf(4096), 0..4096, offset) {
            Ok(reading) => begun.push((offset as usize, reading)),
            Err(_) => refused += 1,
        }
    }
    assert_eq!(begun.len() + refused, 2000);
    assert!(begun.len() >= 1024, "as many wait: {}", begun.len());
    for (offset, reading) in begun {
        let (buf, count) = reading.blocking_recv().unwrap();
        assert_eq!(count.unwrap(), 4096);
        assert_eq!(buf[..], world.content[offset..offset + 4096]);
    }
}

#[test]
fn what_is_read_for_nobody_comes_back_to_the_pool_and_the_ring_ends() {
    let Some(world) = fixture() else { return };
    let file = world.open(Caching::Direct);
    for index in 0..200u64 {
        drop(file.clone().start_read(world.buf(65536), 0..65536, index % 16 * 65536).unwrap());
    }
    let counted = world.disk.counters().reads;
    assert!(counted <= 200);
    let Fixture { disk, pool, _dir, .. } = world;
    drop(file);
    // The last handle waits for the thread, and the thread for the kernel.
    drop(disk);
    assert_eq!(pool.in_use_bytes(), 0);
}

#[test]
fn without_a_ring_the_buffer_comes_back_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(dir.path(), false).unwrap();
    let file = disk.open("f", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(b"abc", 0).unwrap();
    let pool = BufPool::new(1 << 20);
    let mut buf = pool.try_take(4096).unwrap();
    buf.resize_zeroed(4096);
    assert!(file.start_read(buf, 0..4096, 0).is_err());
}
