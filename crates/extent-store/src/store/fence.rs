//! Fences: from which generation on older appends are refused, and the length that was answered (protocols.md 1).
//!
//! Promises: a fence refuses in memory before it is answered, and is durable (an empty file whose *name* says group,
//! generation and length) before it is answered; the answer never changes afterwards, whatever happens to the file.
//! Refuses to know: what the answers of other replicas are.

use std::io;

use env::disk::{Caching, Disk, Open};
use parking_lot::Mutex;
use types::GroupId;

use super::scan::{Depth, FrameScan, Scanned};
use super::writer::Command;
use super::{DiskStore, Fences, Inner};
use crate::error::{Damage, FenceError, ReadError};
use crate::format::FileKind;
use crate::limits::FIRST_FRAME_OFFSET;
use crate::paths::{FENCES, FileKey, fence_file, group_dir, parse_triple};

/// A fence that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Appends of older generations are refused.
    pub generation: u32,
    /// The durable length that was answered: end of the last frame before the first gap, or 0 if there was no file.
    pub length: u64,
}

/// A fence on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceState {
    generation: u32,
    /// Known once the file was closed or looked at.
    length: Option<u64>,
    /// The newest one whose name is durable.
    durable: Option<Fence>,
}

/// What raising a fence gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised {
    /// `None`: the disk must be looked at.
    length: Option<u64>,
    /// This very fence is durable already.
    durable: bool,
}

#[derive(Debug)]
pub(super) struct FenceTable {
    fences: Mutex<Fences>,
}

impl FenceTable {
    /// Reads the fences of a disk. Names that are not fences are left alone.
    pub(super) fn load(disk: &dyn Disk) -> io::Result<FenceTable> {
        let mut fences = Fences::new();
        for name in disk.list(FENCES)? {
            let Some((group, generation, length)) = parse_triple(&name) else {
                tracing::warn!(name, "not a fence; left alone");
                continue;
            };
            let fence = Fence { generation, length };
            let state = FenceState { generation, length: Some(length), durable: Some(fence) };
            let known = fences.entry(group).or_insert(state);
            if known.generation < generation {
                *known = state;
            }
        }
        // The names may stem from a process that was killed before it made them durable.
        disk.sync_dir(FENCES)?;
        Ok(FenceTable { fences: Mutex::new(fences) })
    }

    /// The generation of the fence that refuses appends to this file, if there is one.
    pub(super) fn above(&self, (group, generation): FileKey) -> Option<u32> {
        let fence = self.fences.lock().get(&group).map(|fence| fence.generation)?;
        (fence > generation).then_some(fence)
    }

    pub(super) fn durable(&self, group: GroupId) -> Option<Fence> {
        self.fences.lock().get(&group).and_then(|fence| fence.durable)
    }

    /// Refuses older generations from now on. `length` is what the writer knows of the file it just closed.
    pub(super) fn raise(&self, group: GroupId, generation: u32, length: Option<u64>) -> Result<Raised, FenceError> {
        let mut fences = self.fences.lock();
        let state = fences.entry(group).or_insert(FenceState { generation, length: None, durable: None });
        if state.generation > generation {
            return Err(FenceError::Superseded(state.generation));
        }
        state.generation = generation;
        // What an earlier fence answered stays the answer: nothing was appended since.
        state.length = state.length.or(length);
        let durable = state.durable.is_some_and(|fence| fence.generation == generation);
        Ok(Raised { length: state.length, durable })
    }

    /// Keeps a length that was found by looking; the first one found is the answer.
    fn settle_length(&self, group: GroupId, length: u64) -> u64 {
        let mut fences = self.fences.lock();
        match fences.get_mut(&group) {
            Some(state) => *state.length.get_or_insert(length),
            None => length,
        }
    }

    /// The fence's name is durable. Gives the older fence whose name may go.
    fn made_durable(&self, group: GroupId, fence: Fence) -> Option<Fence> {
        let mut fences = self.fences.lock();
        let state = fences.get_mut(&group)?;
        match state.durable {
            Some(old) if old.generation >= fence.generation => None,
            old => {
                state.durable = Some(fence);
                old
            }
        }
    }

    /// Forgets the group's fence and gives its name back for removal.
    fn forget(&self, group: GroupId) -> Option<Fence> {
        self.fences.lock().remove(&group).and_then(|fence| fence.durable)
    }
}

impl DiskStore {
    /// Refuses every append to the group's files of generations below `generation` from now on, syncs those accepted
    /// before, stores the fence durably, and only then answers with the durable length: the end of the last frame before
    /// the first gap, at least 4,096; 0 if the group has no file here.
    ///
    /// Asked again with the same generation it gives the same answer, after a restart too.
    pub async fn fence(&self, group: GroupId, generation: u32) -> Result<u64, FenceError> {
        let raised = self.ask(|reply| Command::Fence { group, generation, reply }).await??;
        let length = match raised.length {
            Some(length) => length,
            None => self.run(move |inner| inner.look_for_length(group)).await?,
        };
        if !raised.durable {
            let fence = Fence { generation, length };
            self.run(move |inner| inner.store_fence(group, fence)).await.map_err(FenceError::Io)?;
        }
        Ok(length)
    }

    /// Forgets the fence of a group that has no file here: by order of a record that names the group as dropped.
    /// `false` if there is a file.
    pub async fn forget_fence(&self, group: GroupId) -> bool {
        self.run(move |inner| inner.forget_fence(group)).await
    }

    /// The durable length of a file as the disk has it now: everything is synced, then frames are verified from the
    /// first on, payload included, until the first that is missing or damaged. Of a copy: the sealed length it was made with.
    pub async fn durable_length(&self, group: GroupId, generation: u32) -> Result<u64, ReadError> {
        self.run(move |inner| inner.durable_length((group, generation))).await
    }
}

fn unreadable() -> ReadError {
    ReadError::Io(io::Error::other("a part of the file before its end cannot be read"))
}

impl Inner {
    /// Of the file that was appended to. A copy says nothing of what was acknowledged here: it may be the unused one of a switch
    /// whose outcome was never known.
    fn look_for_length(&self, group: GroupId) -> Result<u64, FenceError> {
        let failed = |error| match error {
            ReadError::Damaged(damage) => FenceError::Damaged(damage),
            ReadError::Io(error) => FenceError::Io(error),
            ReadError::Missing | ReadError::Invalid => FenceError::Io(io::ErrorKind::NotFound.into()),
        };
        let mut length = 0;
        for key in self.files.of(group) {
            if FrameScan::open(self, key, Depth::Headers).map_err(failed)?.file_header().kind != FileKind::Copy {
                length = self.durable_length(key).map_err(failed)?;
                break;
            }
        }
        Ok(self.fences.settle_length(group, length))
    }

    pub(super) fn durable_length(&self, key: FileKey) -> Result<u64, ReadError> {
        let mut scan = FrameScan::open(self, key, Depth::Payloads)?;
        if scan.file_header().kind == FileKind::Copy {
            return Ok(scan.file_header().sealed_length);
        }
        // What a killed process wrote may be in the file without being durable, and so may the file's name.
        scan.sync().map_err(ReadError::Io)?;
        self.disk.sync_dir(&group_dir(key.0)).map_err(ReadError::Io)?;
        let mut length = FIRST_FRAME_OFFSET;
        for item in &mut scan {
            match item {
                Scanned::Frame(header) => length = header.address.offset + header.frame_bytes(),
                // A disk that cannot be read has no length: better no answer than one that is too small.
                Scanned::Damaged { damage: Damage::Unreadable, .. } => return Err(unreadable()),
                Scanned::Hole { .. } | Scanned::Damaged { .. } => break,
            }
        }
        let beyond = scan.filter(|item| matches!(item, Scanned::Frame(_))).count();
        if beyond > 0 {
            // Usually a batch that was never acknowledged; if not, a lost or damaged frame stands before acknowledged ones.
            tracing::warn!(group = %key.0, generation = key.1, length, beyond, "sound frames lie beyond the first gap");
        }
        Ok(length)
    }

    fn store_fence(&self, group: GroupId, fence: Fence) -> io::Result<()> {
        let path = fence_file(group, fence.generation, fence.length);
        match self.disk.open(&path, Open::CreateNew, Caching::Buffered) {
            Ok(file) => file.sync_data()?,
            // By an earlier call whose answer got lost, or by one that runs beside this one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.disk.sync_dir(FENCES)?;
        if let Some(old) = self.fences.made_durable(group, fence) {
            self.remove_fence(group, old);
        }
        Ok(())
    }

    /// Forgets the fence of a group whose last file is gone.
    pub(super) fn forget_fence(&self, group: GroupId) -> bool {
        if !self.files.of(group).is_empty() {
            return false;
        }
        if let Some(fence) = self.fences.forget(group) {
            self.remove_fence(group, fence);
        }
        true
    }

    /// Removes a fence's name. That it may come back after a crash does no harm: the newest counts.
    fn remove_fence(&self, group: GroupId, fence: Fence) {
        let path = fence_file(group, fence.generation, fence.length);
        if let Err(error) = self.disk.remove(&path) {
            tracing::warn!(path, %error, "an old fence was left behind");
        }
    }
}
