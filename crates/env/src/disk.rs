//! A disk: one directory tree with positioned reads and writes and explicit syncs.
//!
//! Paths are relative to the disk's root, `/`-separated, without `.` or `..`. All calls block; callers run them on
//! [`crate::tasks`] workers. Nothing is durable before [`DiskFile::sync_data`] (and [`Disk::sync_dir`] for names) returned 0.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::buf::PooledBuf;

/// How a file is opened. Never truncates (rule R5). Symbolic links are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Open {
    /// Must exist; reads only.
    Read,
    /// Must exist.
    ReadWrite,
    /// Must not exist; mode 0600.
    CreateNew,
}

/// Whether reads and writes go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache.
    Buffered,
    /// Around it (O_DIRECT where the file system allows): offset, length and memory must be multiples of 4,096.
    Direct,
}

/// Bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What an unprivileged writer may still take.
    pub free_bytes: u64,
}

/// Whether the error says that the process or the machine lacks something for a moment (descriptors, memory): it is no fault of
/// the disk, and the very same call may succeed later.
pub fn is_transient(error: &io::Error) -> bool {
    let lacking = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR];
    let by_kind =
        matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    by_kind || error.raw_os_error().is_some_and(|code| lacking.contains(&code))
}

/// Memory, offsets and lengths of [`Caching::Direct`] I/O are multiples of this many bytes.
pub const DIRECT_ALIGN: usize = 4096;

/// What a disk object did since it was opened. Failed calls count as calls; bytes are those that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Calls of `read_at`, and of `read_at_cached` that answered.
    pub reads: u64,
    /// Bytes they gave.
    pub read_bytes: u64,
    /// Calls of `write_at`.
    pub writes: u64,
    /// Bytes they took.
    pub written_bytes: u64,
    /// Calls of `sync_data`.
    pub syncs: u64,
    /// Calls of `sync_dir`.
    pub dir_syncs: u64,
}

/// One disk.
///
/// Error kinds that callers may rely on: `NotFound` (no such file or directory), `AlreadyExists` (by `CreateNew`),
/// `NotADirectory` (a file on the way), `StorageFull`, `Unsupported` (punch), `InvalidInput` (a path that is absolute, empty or has `.`/`..` components).
/// A symbolic link anywhere in a path is an error of the host's kind (ELOOP or ENOTDIR). Everything else is a fault of the disk.
pub trait Disk: Send + Sync + Debug {
    /// Opens `path`, a regular file. Its name, if new, is durable after `sync_dir` of its directory.
    fn open(&self, path: &str, how: Open, caching: Caching) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates `path` and its missing ancestors (mode 0700). Their names are durable after [`Disk::sync_dir`] of each parent.
    fn create_dir_all(&self, path: &str) -> io::Result<()>;
    /// Names in `dir`, sorted; `NotFound` if it does not exist.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Renames a file within the disk, replacing `to`; durable after `sync_dir` of both parents.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Unlinks a file; open handles go on working. Durable after `sync_dir`.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes the names in `dir` ("" is the root) durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Asks the host to drop what it has cached of all files of the disk, for measurements. What is not yet written back stays; a
    /// host without a cache has nothing to do.
    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }
    /// Free and total bytes.
    fn space(&self) -> io::Result<Space>;
    /// Where the root lies in the host's file system, for engines that open their own files; `None` when simulated.
    fn host_path(&self) -> Option<&Path>;
    /// What it did since it was opened, all files together.
    fn counters(&self) -> DiskCounters;
}

/// A read that was begun gives the buffer back with what [`DiskFile::read_at`] would have answered.
pub type ReadDone = (PooledBuf, io::Result<usize>);
/// A read that was begun. Dropped, it goes on all the same.
pub type Reading = oneshot::Receiver<ReadDone>;

/// One open file. Positioned, shareable between threads.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`; returns how many bytes there were before the end of the file. Holes read as zeros.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As `read_at`, but only if it need not wait for the disk; `Ok(None)` where it would have to (or cannot tell).
    fn read_at_cached(&self, _buf: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }
    /// Begins to fill a part of `buf` from `offset`, as `read_at` does but without blocking; gives the buffer back where that
    /// cannot be done, or not now: then `read_at` is to be called where blocking is allowed.
    fn start_read(self: Arc<Self>, buf: PooledBuf, _part: Range<usize>, _offset: u64) -> Result<Reading, PooledBuf> {
        Err(buf)
    }
    /// Writes all of `buf` at `offset`, growing the file if needed. An error is final for this handle (rule R4): the bytes may be
    /// there in part, and every later write, sync, allocate and punch answers an error.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// `fdatasync`: makes the file's bytes and length durable (not its name: [`Disk::sync_dir`]). An error is final for the file
    /// (rule R3): the caller never retries on it, and this handle answers errors from then on. Other handles of the same file may never hear of it, and their
    /// syncs may succeed without the lost bytes: one owner per file (rule R4).
    fn sync_data(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reserves space for `[offset, offset + len)` and grows the file to that end if shorter; the new part reads as zeros and
    /// what was there stays. Durable after `sync_data`. `StorageFull` when there is no space; that is not final. Where the file
    /// system cannot reserve, only the length is set.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the blocks of `[offset, offset + len)` back; they read as zeros; the length stays. Durable after `sync_data`;
    /// until then a power cut may undo it, in part too.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Bytes really occupied on the disk (holes excluded).
    fn allocated_bytes(&self) -> io::Result<u64>;
}

/// Asserts what [`Caching::Direct`] asks of its callers, on every implementation and also where the host would not mind.
pub(crate) fn assert_direct(caching: Caching, buf: &[u8], offset: u64) {
    if caching == Caching::Direct {
        let aligned = buf.as_ptr().addr().is_multiple_of(DIRECT_ALIGN)
            && buf.len().is_multiple_of(DIRECT_ALIGN)
            && offset.is_multiple_of(DIRECT_ALIGN as u64);
        assert!(
            aligned,
            "direct I/O of {} bytes at {offset}, memory at {:p}: not multiples of 4096",
            buf.len(),
            buf.as_ptr()
        );
    }
}
