//! Faults of a simulated disk, planned while it runs.
//!
//! Promises: rot and unreadable sectors lie over pristine bytes, so a test can take them away and knows what was there;
//! writing over a place heals it. Refuses to know: how many faults the system above promises to survive.

use std::collections::BTreeMap;
use std::io;

use super::SimDisk;
use super::state::{Power, eio};

/// Unit of unreadable places, in bytes.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Bits that reads see flipped, by file and byte.
    flips: BTreeMap<(u64, u64), u8>,
    /// Sectors whose reads fail, by file and sector.
    unreadable: BTreeMap<(u64, u64), ()>,
    /// The next read of the file gives the bytes at another file and offset.
    read_elsewhere: BTreeMap<u64, (u64, u64)>,
    /// The next write of the file lands at another file and offset.
    write_elsewhere: BTreeMap<u64, (u64, u64)>,
    /// So many next writes of the file are dropped.
    lost_writes: BTreeMap<u64, u64>,
    failing_write: Countdown,
    failing_sync: Countdown,
    failing_dir_sync: Countdown,
    /// Opens that still succeed, then opens that find no descriptor left.
    refused_opens: (u64, u64),
}

/// Goes off at the nth call, once.
#[derive(Clone, Copy, Debug, Default)]
struct Countdown(u64);

impl Countdown {
    fn goes_off(&mut self) -> bool {
        let now = self.0 == 1;
        self.0 = self.0.saturating_sub(1);
        now
    }
}

impl Faults {
    pub(super) fn read_target(&mut self, id: u64) -> Option<(u64, u64)> {
        self.read_elsewhere.remove(&id)
    }

    pub(super) fn write_target(&mut self, id: u64) -> Option<(u64, u64)> {
        self.write_elsewhere.remove(&id)
    }

    pub(super) fn write_is_lost(&mut self, id: u64) -> bool {
        let Some(left) = self.lost_writes.get_mut(&id).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    pub(super) fn write_fails(&mut self) -> bool {
        self.failing_write.goes_off()
    }

    pub(super) fn sync_fails(&mut self) -> bool {
        self.failing_sync.goes_off()
    }

    pub(super) fn open_fails(&mut self) -> bool {
        let (before, refused) = &mut self.refused_opens;
        if *before > 0 {
            *before -= 1;
            return false;
        }
        let fails = *refused > 0;
        *refused = refused.saturating_sub(1);
        fails
    }

    pub(super) fn dir_sync_fails(&mut self) -> bool {
        self.failing_dir_sync.goes_off()
    }

    /// Does to bytes just read what the medium does to them.
    pub(super) fn spoil(&self, id: u64, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if self.unreadable.range((id, offset / SECTOR_BYTES)..(id, end.div_ceil(SECTOR_BYTES))).next().is_some() {
            return Err(eio());
        }
        for ((_, at), mask) in self.flips.range((id, offset)..(id, end)) {
            bytes[(at - offset) as usize] ^= mask;
        }
        Ok(())
    }

    /// A place was written: what ailed it is gone.
    pub(super) fn heal(&mut self, id: u64, offset: u64, len: u64) {
        let end = offset + len;
        self.flips.retain(|(file, at), _| *file != id || !(offset..end).contains(at));
        self.unreadable.retain(|(file, sector), ()| {
            let start = sector * SECTOR_BYTES;
            *file != id || start + SECTOR_BYTES <= offset || start >= end
        });
    }
}

/// The plan of faults. Paths must exist (`NotFound` otherwise); faults stick to the file, also through renames and crashes.
impl SimDisk {
    /// Reads see this bit flipped, until the byte is written again or [`SimDisk::heal`].
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> io::Result<()> {
        assert!(bit < 8, "a byte has no bit {bit}");
        self.with_file(path, |state, id| *state.faults.flips.entry((id, offset)).or_default() ^= 1 << bit)
    }

    /// Reads that touch a sector of the range fail with EIO, until it is written again or [`SimDisk::heal`].
    pub fn make_unreadable(&self, path: &str, offset: u64, len: u64) -> io::Result<()> {
        self.with_file(path, |state, id| {
            for sector in offset / SECTOR_BYTES..(offset + len).div_ceil(SECTOR_BYTES) {
                state.faults.unreadable.insert((id, sector), ());
            }
        })
    }

    /// Takes flipped bits and unreadable sectors off the whole file.
    pub fn heal(&self, path: &str) -> io::Result<()> {
        self.with_file(path, |state, id| state.faults.heal(id, 0, u64::MAX))
    }

    /// The next read of `path`, wherever it aims, gives what lies at `offset` of `other`.
    pub fn misdirect_read(&self, path: &str, other: &str, offset: u64) -> io::Result<()> {
        let target = self.with_file(other, |_, id| id)?;
        self.with_file(path, |state, id| {
            state.faults.read_elsewhere.insert(id, (target, offset));
        })
    }

    /// The next write of `path`, wherever it aims, lands at `offset` of `other` instead, and answers success.
    pub fn misdirect_write(&self, path: &str, other: &str, offset: u64) -> io::Result<()> {
        let target = self.with_file(other, |_, id| id)?;
        self.with_file(path, |state, id| {
            state.faults.write_elsewhere.insert(id, (target, offset));
        })
    }

    /// The next `count` writes of `path` answer success and grow the file, but leave the old bytes; syncs succeed.
    pub fn lose_writes(&self, path: &str, count: u64) -> io::Result<()> {
        self.with_file(path, |state, id| {
            state.faults.lost_writes.insert(id, count);
        })
    }

    /// The `nth` write from now (1 is the next), on any file, fails with EIO.
    pub fn fail_write(&self, nth: u64) {
        self.state.lock().faults.failing_write = Countdown(nth);
    }

    /// The `nth` `sync_data` from now (1 is the next), on any file, fails with EIO. The file's un-synced bytes are marked
    /// clean all the same: reads go on seeing them, syncs through other handles succeed, and a crash loses them.
    pub fn fail_sync(&self, nth: u64) {
        self.state.lock().faults.failing_sync = Countdown(nth);
    }

    /// After `before` more opens, the next `count` of any file fail with EMFILE: the process has no descriptor left.
    pub fn refuse_opens(&self, before: u64, count: u64) {
        self.state.lock().faults.refused_opens = (before, count);
    }

    /// The `nth` `sync_dir` from now (1 is the next) fails with EIO and makes nothing durable.
    pub fn fail_dir_sync(&self, nth: u64) {
        self.state.lock().faults.failing_dir_sync = Countdown(nth);
    }

    /// Changes the size of the disk: writes and reservations beyond it give `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// The disk dies: every call, also after a crash or a restart, fails with EIO.
    pub fn lose(&self) {
        self.state.lock().power = Power::Lost;
    }

    /// A lying disk: cuts the file to `len`, bytes that were synced included, and what is un-synced with them.
    pub fn truncate_synced(&self, path: &str, len: u64) -> io::Result<()> {
        self.with_file(path, |state, id| {
            let file = state.file(id);
            file.pending.clear();
            file.live.truncate(len);
            file.synced.truncate(len);
            state.count_used_pages();
        })
    }

    /// A foreign hand: puts `bytes` at `offset`, durable at once, no call of the program involved.
    pub fn overwrite_synced(&self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_file(path, |state, id| {
            let file = state.file(id);
            file.live.write(offset, bytes);
            file.synced.write(offset, bytes);
            state.count_used_pages();
        })
    }
}
