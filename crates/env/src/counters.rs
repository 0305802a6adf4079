//! Counts of what a disk did.
//!
//! Promises: cheap (relaxed atomics), each number right by itself. Refuses to know: rates, latencies.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::disk::DiskCounters;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    dir_syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, result: &io::Result<usize>) {
        self.reads.fetch_add(1, Relaxed);
        if let Ok(count) = result {
            self.read_bytes.fetch_add(*count as u64, Relaxed);
        }
    }

    pub(crate) fn write(&self, len: usize, result: &io::Result<()>) {
        self.writes.fetch_add(1, Relaxed);
        if result.is_ok() {
            self.written_bytes.fetch_add(len as u64, Relaxed);
        }
    }

    pub(crate) fn sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn dir_sync(&self) {
        self.dir_syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> DiskCounters {
        DiskCounters {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            dir_syncs: self.dir_syncs.load(Relaxed),
        }
    }
}
