//! Making a new group file.
//!
//! Promises: under its name a file is whole (header written, space reserved, both durable) or not there at all.
//! Refuses to know: appends.

use std::io;
use std::sync::Arc;

use env::buf::AlignedBuf;
use env::disk::{Caching, DiskFile, Open};
use types::GroupId;

use super::writer::Command;
use super::{DiskStore, Inner};
use crate::error::{CreateError, is_no_space};
use crate::format::{FileHeader, FileKind};
use crate::limits::{FIRST_FRAME_OFFSET, HEADER_BYTES};
use crate::paths::{FileKey, UNFINISHED, group_file};

impl DiskStore {
    /// Creates the file of a new group, durable under its name and with `preallocate_bytes` reserved (rule R68), and opens it
    /// for appends from offset 4,096.
    ///
    /// The group's record must exist before. A crash within leaves no file, or an empty one that nobody was told of.
    pub async fn create(&self, group: GroupId, generation: u32, preallocate_bytes: u64) -> Result<(), CreateError> {
        let key = (group, generation);
        if let Some(newer) = self.inner.fences.above(key) {
            return Err(CreateError::Fenced(newer));
        }
        if !self.inner.files.reserve(key) {
            return Err(CreateError::Exists);
        }
        let reserved = preallocate_bytes.max(FIRST_FRAME_OFFSET);
        let file = self.run(move |inner| inner.make_and_list(key, reserved)).await?;
        let adopted = self.ask(|reply| Command::Adopt { key, file, reserved, reply }).await;
        let Err(error) = adopted.unwrap_or(Err(CreateError::Closed)) else { return Ok(()) };
        // Nobody was told of it and nothing was ever appended.
        self.run(move |inner| inner.unmake(key)).await;
        Err(error)
    }
}

impl Inner {
    fn make_and_list(&self, key: FileKey, reserved: u64) -> Result<Arc<dyn DiskFile>, CreateError> {
        match self.make(key, reserved) {
            Ok(file) => {
                self.files.arrived(key);
                Ok(file)
            }
            Err(error) => {
                self.count_write_error(&error);
                self.unmake(key);
                Err(if is_no_space(&error) { CreateError::NoSpace } else { CreateError::Io(error) })
            }
        }
    }

    fn make(&self, key: FileKey, reserved: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.begin_file(key, FileKind::Appended, 0)?;
        if reserved > FIRST_FRAME_OFFSET {
            file.allocate(FIRST_FRAME_OFFSET, reserved - FIRST_FRAME_OFFSET)?;
        }
        file.sync_data()?;
        self.name_file(key)?;
        Ok(file)
    }

    /// A file with its header under an unfinished name; nothing durable yet.
    pub(super) fn begin_file(
        &self,
        (group, generation): FileKey,
        kind: FileKind,
        sealed_length: u64,
    ) -> io::Result<Arc<dyn DiskFile>> {
        self.ensure_dir(group)?;
        let path = group_file((group, generation)) + UNFINISHED;
        let file = self.disk.open(&path, Open::CreateNew, Caching::Direct)?;
        let header = FileHeader {
            kind,
            cluster: self.identity.cluster,
            disk: self.identity.disk,
            group,
            generation,
            sealed_length,
        };
        let mut block = AlignedBuf::zeroed(HEADER_BYTES);
        header.encode(&mut block);
        file.write_at(&block, 0)?;
        Ok(file)
    }

    /// Gives an unfinished file, already synced, its name; durable when it returns.
    pub(super) fn name_file(&self, key: FileKey) -> io::Result<()> {
        let path = group_file(key);
        self.disk.rename(&(path.clone() + UNFINISHED), &path)?;
        self.disk.sync_dir(&crate::paths::group_dir(key.0))
    }

    /// Removes what a failed or refused creation left.
    pub(super) fn unmake(&self, key: FileKey) {
        let path = group_file(key);
        for path in [path.clone() + UNFINISHED, path] {
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path, %error, "an unfinished file was left behind");
                }
                _ => {}
            }
        }
        self.files.forget(key);
    }
}
