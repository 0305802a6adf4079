//! Writing a group's live frames at the same offsets into a new file of a new generation (protocols.md 2, rule R66b).
//!
//! Promises: the file gets its name only after every frame in it was synced and read back around the page cache; what is
//! not finished leaves nothing. Nothing is overwritten. Refuses to know: where the frames come from, which are live.

use std::io;
use std::sync::Arc;

use env::buf::AlignedBuf;
use env::disk::DiskFile;
use types::{ClusterId, GroupId};

use super::scan::{Depth, FrameScan, Scanned};
use super::{DiskStore, Inner};
use crate::error::{CopyError, Damage, ReadError, is_no_space};
use crate::format::{FileKind, FrameAddress, FrameHeader};
use crate::frame::Frame;
use crate::limits::{FILE_MAX_BYTES, FIRST_FRAME_OFFSET, HEADER_BYTES};
use crate::paths::{FileKey, UNFINISHED, group_file};

/// A copy being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct CopyWriter {
    store: DiskStore,
    key: FileKey,
    cluster: ClusterId,
    file: Arc<dyn DiskFile>,
    sealed_length: u64,
    /// End of the last frame.
    end: u64,
    /// What must read back.
    written: Vec<FrameHeader>,
    state: CopyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    Writing,
    Failed,
    Named,
}

impl DiskStore {
    /// Begins a copy of `group` as file `generation`, for a group sealed at `sealed_length`.
    pub async fn begin_copy(
        &self,
        group: GroupId,
        generation: u32,
        sealed_length: u64,
    ) -> Result<CopyWriter, CopyError> {
        let key = (group, generation);
        if sealed_length > FILE_MAX_BYTES {
            return Err(CopyError::ForeignFrame);
        }
        if !self.inner.files.reserve(key) {
            return Err(CopyError::Exists);
        }
        let store = self.clone();
        self.run(move |inner| match inner.begin_file(key, FileKind::Copy, sealed_length) {
            Ok(file) => Ok(CopyWriter {
                key,
                cluster: inner.identity.cluster,
                file,
                sealed_length,
                end: FIRST_FRAME_OFFSET,
                written: Vec::new(),
                state: CopyState::Writing,
                store,
            }),
            Err(error) => {
                inner.discard_copy(key);
                Err(inner.copy_failed(error))
            }
        })
        .await
    }
}

impl CopyWriter {
    /// Writes a verified frame of another replica at its offset. Frames come in the order of their offsets.
    pub async fn put(&mut self, frame: Frame) -> Result<(), CopyError> {
        let address = FrameAddress { generation: self.key.1, ..frame.address() };
        let fits = address.offset >= self.end && frame.end() <= self.sealed_length;
        if address.group != self.key.0 || frame.cluster() != self.cluster || !fits || self.state != CopyState::Writing {
            return Err(CopyError::ForeignFrame);
        }
        // Not finished unless this very write succeeds, also if the future is dropped meanwhile.
        self.state = CopyState::Failed;
        let header = FrameHeader { address, ..frame.header() };
        let (file, encoded, end) = (self.file.clone(), header.clone(), frame.end());
        let written = self
            .store
            .run(move |inner| write_frame(&*file, &encoded, &frame).map_err(|error| inner.copy_failed(error)));
        written.await?;
        self.written.push(header);
        self.end = end;
        self.state = CopyState::Writing;
        Ok(())
    }

    /// Syncs, reads everything back around the page cache, and gives the file its name: durable and readable when it returns.
    pub async fn finish(mut self) -> Result<(), CopyError> {
        if self.state != CopyState::Writing {
            return Err(CopyError::ForeignFrame);
        }
        let (key, file, written) = (self.key, self.file.clone(), std::mem::take(&mut self.written));
        self.store.run(move |inner| inner.finish_copy(key, &*file, &written)).await?;
        self.state = CopyState::Named;
        Ok(())
    }
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        // A finish whose future was dropped may have named the file meanwhile: then only its unfinished name is looked for,
        // which is gone. One unlink, rare enough to do here.
        if self.state != CopyState::Named && !self.store.inner.files.contains(self.key) {
            self.store.inner.discard_copy(self.key);
        }
    }
}

impl Inner {
    fn finish_copy(&self, key: FileKey, file: &dyn DiskFile, written: &[FrameHeader]) -> Result<(), CopyError> {
        file.sync_data().map_err(|error| {
            self.counters.sync_errors.add(1);
            self.copy_failed(error)
        })?;
        self.read_back(key, written).map_err(CopyError::NotReadBack)?;
        if let Err(error) = self.name_file(key) {
            // It may have its name without that being durable: nobody was told of it.
            self.unmake(key);
            return Err(self.copy_failed(error));
        }
        self.files.arrived(key);
        Ok(())
    }

    fn read_back(&self, key: FileKey, written: &[FrameHeader]) -> Result<(), ReadError> {
        let mut expected = written.iter();
        for item in FrameScan::open_unfinished(self, key, Depth::Payloads)? {
            match item {
                Scanned::Frame(found) if expected.next() == Some(&found) => {}
                Scanned::Hole { .. } => {}
                Scanned::Frame(_) => return Err(ReadError::Damaged(Damage::OtherExtent("frame"))),
                Scanned::Damaged { damage, .. } => return Err(ReadError::Damaged(damage)),
            }
        }
        if expected.next().is_none() { Ok(()) } else { Err(ReadError::Missing) }
    }

    fn discard_copy(&self, key: FileKey) {
        let path = group_file(key) + UNFINISHED;
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path, %error, "an unfinished copy was left behind until the next start");
            }
            _ => {}
        }
        self.files.forget(key);
    }

    fn copy_failed(&self, error: io::Error) -> CopyError {
        self.count_write_error(&error);
        if is_no_space(&error) { CopyError::NoSpace } else { CopyError::Io(error) }
    }
}

/// The header is another one (its generation differs), the payload is written from where it lies.
fn write_frame(file: &dyn DiskFile, header: &FrameHeader, frame: &Frame) -> io::Result<()> {
    let mut block = AlignedBuf::zeroed(HEADER_BYTES);
    header.encode(&mut block);
    file.write_at(&block, header.address.offset)?;
    file.write_at(&frame.bytes()[HEADER_BYTES..], header.address.offset + HEADER_BYTES as u64)
}
