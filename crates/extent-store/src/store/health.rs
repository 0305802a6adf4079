//! What a disk went through: counters, and a hook for histograms.
//!
//! Promises: counting costs a relaxed atomic; a disk whose sync failed once stays suspect until the process ends.
//! Refuses to know: how metrics are shown, what is done about a suspect disk.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Told of what takes time. Called on the disk's own threads: must not block.
pub trait Observer: Send + Sync {
    /// One `fdatasync` ended, well or badly, for so many appends.
    fn synced(&self, took: Duration, appends: usize);
}

/// A snapshot of a disk's counters since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskHealth {
    /// A write or sync failed: nothing new should be placed here until an operator looked.
    pub suspect: bool,
    /// Appends acknowledged.
    pub appends: u64,
    /// Bytes of acknowledged frames.
    pub appended_bytes: u64,
    /// `fdatasync` calls for appends.
    pub syncs: u64,
    /// Syncs that failed.
    pub sync_errors: u64,
    /// Writes or reservations that failed for want of space.
    pub no_space_errors: u64,
    /// Writes that failed otherwise.
    pub write_errors: u64,
    /// Reads of the disk or page cache for clients.
    pub data_reads: u64,
    /// Bytes of those.
    pub data_read_bytes: u64,
    /// Of those reads, how many were answered by the page cache without leaving the caller's thread.
    pub inline_reads: u64,
    /// How many were waited for without a thread.
    pub begun_reads: u64,
    /// Reads that failed with an error of the disk.
    pub read_errors: u64,
    /// Reads that met damage.
    pub damaged_reads: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) suspect: AtomicBool,
    pub(super) appends: Counter,
    pub(super) appended_bytes: Counter,
    pub(super) syncs: Counter,
    pub(super) sync_errors: Counter,
    pub(super) no_space_errors: Counter,
    pub(super) write_errors: Counter,
    pub(super) data_reads: Counter,
    pub(super) data_read_bytes: Counter,
    pub(super) inline_reads: Counter,
    pub(super) begun_reads: Counter,
    pub(super) read_errors: Counter,
    pub(super) damaged_reads: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> DiskHealth {
        DiskHealth {
            suspect: self.suspect.load(Ordering::Relaxed),
            appends: self.appends.get(),
            appended_bytes: self.appended_bytes.get(),
            syncs: self.syncs.get(),
            sync_errors: self.sync_errors.get(),
            no_space_errors: self.no_space_errors.get(),
            write_errors: self.write_errors.get(),
            data_reads: self.data_reads.get(),
            data_read_bytes: self.data_read_bytes.get(),
            inline_reads: self.inline_reads.get(),
            begun_reads: self.begun_reads.get(),
            read_errors: self.read_errors.get(),
            damaged_reads: self.damaged_reads.get(),
        }
    }
}
