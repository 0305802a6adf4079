//! The whole state of a simulated disk.
//!
//! Promises: one place where files, names, faults and the crash point meet; all of it is copied by `clone` (pages are shared).
//! Refuses to know: locks and handles.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use bytes::Bytes;

use super::faults::Faults;
use super::image::{Image, PAGE_BYTES};
use super::names::{Entry, Names};
use super::{Crashed, DiskEvent};
use crate::disk::Open;
use crate::random::Xoshiro;
use crate::trace::{Digest, Trace};

/// A change of a file's content.
#[derive(Clone, Debug)]
pub(super) enum FileOp {
    Write { offset: u64, bytes: Bytes },
    Reserve { offset: u64, len: u64 },
    Punch { offset: u64, len: u64 },
}

impl FileOp {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            FileOp::Write { offset, bytes } => image.write(*offset, bytes),
            FileOp::Reserve { offset, len } => image.reserve(*offset, *len),
            FileOp::Punch { offset, len } => image.punch(*offset, *len),
        }
    }

    /// Offset and length.
    pub(super) fn range(&self) -> (u64, u64) {
        match self {
            FileOp::Write { offset, bytes } => (*offset, bytes.len() as u64),
            FileOp::Reserve { offset, len } | FileOp::Punch { offset, len } => (*offset, *len),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What reads see.
    pub(super) live: Image,
    /// What a power cut leaves for certain.
    pub(super) synced: Image,
    /// Un-synced operations with their sequence numbers, oldest first.
    pub(super) pending: Vec<(u64, FileOp)>,
    /// Open handles.
    pub(super) handles: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    On,
    /// Power cut or process killed: this state is seen no more.
    Off,
    /// The disk is dead.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) random: Xoshiro,
    pub(super) capacity_bytes: u64,
    pub(super) files: BTreeMap<u64, File>,
    pub(super) names: Names,
    pub(super) faults: Faults,
    pub(super) power: Power,
    pub(super) mutations: u64,
    /// The mutation after this many finds the power cut.
    pub(super) crash_after: Option<u64>,
    pub(super) trace: Trace<DiskEvent>,
    used_pages: u64,
    next_seq: u64,
}

impl State {
    pub(super) fn new(seed: u64, capacity_bytes: u64) -> State {
        State {
            seed,
            random: Xoshiro::new(seed),
            capacity_bytes,
            files: BTreeMap::new(),
            names: Names::default(),
            faults: Faults::default(),
            power: Power::On,
            mutations: 0,
            crash_after: None,
            trace: Trace::new(),
            used_pages: 0,
            next_seq: 1,
        }
    }

    pub(super) fn check_power(&self) -> io::Result<()> {
        match self.power {
            Power::On => Ok(()),
            Power::Off => Err(Crashed.into()),
            Power::Lost => Err(eio()),
        }
    }

    /// Runs one mutating call. At the crash point the call is in flight: what it adds to the un-synced operations may
    /// survive, but it answers [`Crashed`].
    pub(super) fn mutate<T>(&mut self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.check_power()?;
        self.mutations += 1;
        if self.crash_after.is_some_and(|last| self.mutations > last) {
            drop(call(self));
            self.power = Power::Off;
            return Err(Crashed.into());
        }
        call(self)
    }

    /// As `mutate`, for calls that make things durable: at the crash point they do nothing.
    pub(super) fn mutate_durably<T>(&mut self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.check_power()?;
        let dies = self.crash_after.is_some_and(|last| self.mutations >= last);
        self.mutate(|state| if dies { Err(Crashed.into()) } else { call(state) })
    }

    pub(super) fn open(&mut self, path: &str, how: Open) -> io::Result<u64> {
        let id = match how {
            Open::CreateNew => self.mutate(|state| state.create(path))?,
            Open::Read | Open::ReadWrite => match self.names.file(path) {
                Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(ErrorKind::InvalidInput.into()),
                other => other?,
            },
        };
        self.file(id).handles += 1;
        Ok(id)
    }

    fn create(&mut self, path: &str) -> io::Result<u64> {
        self.names.require_dir(super::names::parent(path))?;
        if self.names.get(path).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let id = self.take_seq();
        self.files.insert(id, File::default());
        let seq = self.take_seq();
        self.names.set(seq, path, Some(Entry::File(id)));
        Ok(id)
    }

    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        match self.names.require_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.mutate(|state| {
                let seq = state.take_seq();
                state.names.set(seq, path, Some(Entry::Dir));
                Ok(())
            }),
            known => known,
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let next = &mut self.next_seq;
        self.names.rename(from, to, || {
            *next += 1;
            *next - 1
        })?;
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.names.file(path)?;
        let seq = self.take_seq();
        self.names.set(seq, path, None);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.names.require_dir(dir)?;
        if self.faults.dir_sync_fails() {
            return Err(eio());
        }
        self.names.sync_dir(dir);
        self.forget_unreferenced();
        Ok(())
    }

    pub(super) fn read(&mut self, id: u64, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_power()?;
        self.trace.record(DiskEvent::Read { file: id, offset, len: buf.len() });
        let target = self.faults.read_target(id);
        let (id, offset) = self.redirected(target).unwrap_or((id, offset));
        let count = self.file(id).live.read(buf, offset);
        self.faults.spoil(id, offset, &mut buf[..count])?;
        Ok(count)
    }

    pub(super) fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.trace.record(DiskEvent::Write { file: id, offset, len: bytes.len(), digest: Digest::of(bytes) });
        if self.faults.write_fails() {
            return Err(eio());
        }
        let target = self.faults.write_target(id);
        let (id, offset) = self.redirected(target).unwrap_or((id, offset));
        let fits = self.bytes_that_fit(id, offset, bytes.len());
        let len = fits as u64;
        let op = match self.faults.write_is_lost(id) {
            // The metadata went through, the data did not.
            true => FileOp::Reserve { offset, len },
            false => FileOp::Write { offset, bytes: Bytes::copy_from_slice(&bytes[..fits]) },
        };
        if fits > 0 {
            self.change(id, op);
        }
        if fits < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub(super) fn allocate(&mut self, id: u64, offset: u64, len: u64) -> io::Result<()> {
        self.trace.record(DiskEvent::Allocate { file: id, offset, len });
        if self.file(id).live.holes_in(offset, len) > self.free_pages() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.change(id, FileOp::Reserve { offset, len });
        Ok(())
    }

    pub(super) fn punch(&mut self, id: u64, offset: u64, len: u64) {
        self.trace.record(DiskEvent::Punch { file: id, offset, len });
        self.change(id, FileOp::Punch { offset, len });
    }

    pub(super) fn sync(&mut self, id: u64) -> io::Result<()> {
        self.trace.record(DiskEvent::Sync { file: id });
        let fails = self.faults.sync_fails();
        let file = self.file(id);
        let pending = std::mem::take(&mut file.pending);
        if fails {
            // The kernel marks the pages clean all the same: reads still see them, no later sync writes them.
            return Err(eio());
        }
        for (_, op) in pending {
            op.apply(&mut file.synced);
        }
        Ok(())
    }

    /// The place a misdirected call goes to, if its file still exists.
    fn redirected(&self, target: Option<(u64, u64)>) -> Option<(u64, u64)> {
        target.filter(|(id, _)| self.files.contains_key(id))
    }

    fn change(&mut self, id: u64, op: FileOp) {
        let seq = self.take_seq();
        let (offset, len) = op.range();
        let file = self.file(id);
        let before = file.live.occupied_pages();
        op.apply(&mut file.live);
        let after = file.live.occupied_pages();
        file.pending.push((seq, op));
        self.used_pages = self.used_pages + after - before;
        self.faults.heal(id, offset, len);
    }

    /// How much of a write finds space: all, or up to a page boundary.
    fn bytes_that_fit(&mut self, id: u64, offset: u64, len: usize) -> usize {
        let mut free = self.free_pages();
        let image = &self.file(id).live;
        for span in super::image::spans(offset, len as u64) {
            if image.is_hole(span.page) {
                if free == 0 {
                    return span.at;
                }
                free -= 1;
            }
        }
        len
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_pages * PAGE_BYTES
    }

    fn free_pages(&self) -> u64 {
        (self.capacity_bytes / PAGE_BYTES).saturating_sub(self.used_pages)
    }

    pub(super) fn file(&mut self, id: u64) -> &mut File {
        self.files.get_mut(&id).expect("a file stays while a name or a handle leads to it")
    }

    /// Sequence numbers of the un-synced operations, oldest first.
    pub(super) fn unsynced_seqs(&self) -> Vec<u64> {
        let data = self.files.values().flat_map(|file| file.pending.iter().map(|(seq, _)| *seq));
        let mut seqs: Vec<u64> = data.chain(self.names.pending_seqs()).collect();
        seqs.sort_unstable();
        seqs
    }

    pub(super) fn close_handle(&mut self, id: u64) {
        let file = self.file(id);
        file.handles -= 1;
        if file.handles == 0 && !self.names.mentions(id) {
            self.files.remove(&id);
            self.count_used_pages();
        }
    }

    /// Frees files that no name and no handle leads to.
    pub(super) fn forget_unreferenced(&mut self) {
        let named = self.names.mentioned();
        self.files.retain(|id, file| file.handles > 0 || named.contains(id));
        self.count_used_pages();
    }

    pub(super) fn count_used_pages(&mut self) {
        self.used_pages = self.files.values().map(|file| file.live.occupied_pages()).sum();
    }

    pub(super) fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }
}

/// The error of a failing device.
pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}
