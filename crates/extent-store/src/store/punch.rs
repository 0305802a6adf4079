//! Giving back the space of dead frames (protocols.md 5).
//!
//! Promises: only whole frames of fenced groups or copies; durable when it returns. Refuses to know: which frames are dead.

use env::buf::AlignedBuf;
use env::disk::{Caching, DiskFile, Open};
use types::GroupId;

use super::scan::{Depth, FrameScan};
use super::{DiskStore, Inner};
use crate::error::{PunchError, ReadError};
use crate::format::{FileKind, FrameAddress};
use crate::limits::{FIRST_FRAME_OFFSET, HEADER_BYTES};
use crate::paths::{FileKey, group_file};

const BLOCK: u64 = HEADER_BYTES as u64;

impl DiskStore {
    /// Makes holes of `ranges`, each (offset, bytes) a run of whole frames. Idempotent. The caller took them from a version
    /// of the group's record that calls them dead.
    ///
    /// A file that is not fenced on this disk is refused: a hole in it would pass for its end.
    pub async fn punch(&self, group: GroupId, generation: u32, ranges: &[(u64, u64)]) -> Result<(), PunchError> {
        let ranges = ranges.to_vec();
        self.run(move |inner| inner.punch((group, generation), &ranges)).await
    }
}

impl Inner {
    fn punch(&self, key: FileKey, ranges: &[(u64, u64)]) -> Result<(), PunchError> {
        if !self.files.contains(key) {
            return Err(PunchError::Missing);
        }
        let fenced = self.fences.durable(key.0).is_some_and(|fence| fence.generation > key.1);
        if !fenced && !self.is_copy(key) {
            return Err(PunchError::NotFenced);
        }
        let file = self.disk.open(&group_file(key), Open::ReadWrite, Caching::Direct)?;
        let end = file.len()?.next_multiple_of(BLOCK);
        // All are judged before the first is punched.
        for (offset, bytes) in ranges {
            self.check_range(&*file, key, (*offset, *bytes), end)?;
        }
        for (offset, bytes) in ranges {
            file.punch(*offset, *bytes)?;
        }
        file.sync_data().map_err(|error| {
            self.counters.sync_errors.add(1);
            self.counters.suspect();
            PunchError::Io(error)
        })
    }

    fn is_copy(&self, key: FileKey) -> bool {
        FrameScan::open(self, key, Depth::Headers).is_ok_and(|scan| scan.file_header().kind == FileKind::Copy)
    }

    /// A range must not begin in the file's header, must lie in the file, and no frame that begins in it may end outside.
    /// Damaged blocks do not count as frames: dead ones must be punchable too.
    fn check_range(
        &self,
        file: &dyn DiskFile,
        (group, generation): FileKey,
        (offset, bytes): (u64, u64),
        file_end: u64,
    ) -> Result<(), PunchError> {
        let refused = PunchError::NotWholeFrames { offset, bytes };
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= file_end) else { return Err(refused) };
        let aligned = offset.is_multiple_of(BLOCK) && bytes.is_multiple_of(BLOCK) && bytes > 0;
        if !aligned || offset < FIRST_FRAME_OFFSET {
            return Err(refused);
        }
        let mut block = AlignedBuf::zeroed(HEADER_BYTES);
        let mut at = offset;
        while at < end {
            let read = file.read_at(&mut block, at)?;
            let address = FrameAddress { group, generation, offset: at };
            at += match self.judge_header(&block[..read], address) {
                Ok(view) => view.frame_bytes(),
                Err(ReadError::Missing | ReadError::Damaged(_) | ReadError::Io(_) | ReadError::Invalid) => BLOCK,
            };
        }
        if at == end { Ok(()) } else { Err(refused) }
    }
}
