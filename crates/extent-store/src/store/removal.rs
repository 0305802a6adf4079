//! Taking files away: dropping by order of a record, setting aside on any other ground (rules R24, R33).
//!
//! Promises: `drop_file` is the only way bytes of a named file are removed, and `purge` of a quarantined one; a quarantined
//! file keeps its bytes and the reason, and can be put back. Refuses to know: why the caller thinks it may.

use std::io;

use env::disk::{Caching, Open};
use types::GroupId;

use super::writer::Command;
use super::{DiskStore, Inner};
use crate::error::FileError;
use crate::limits::REASON_MAX_BYTES;
use crate::paths::{FileKey, QUARANTINE, REASON, group_dir, group_file, parse_triple, quarantine_name};

/// A file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its name in quarantine, by which it is restored or purged.
    pub name: String,
    /// Group.
    pub group: GroupId,
    /// File generation.
    pub generation: u32,
    /// Since when, milliseconds since the epoch by this node's clock.
    pub since_ms: u64,
    /// Why.
    pub reason: String,
    /// Bytes it occupies.
    pub allocated_bytes: u64,
}

impl DiskStore {
    /// Removes a file for good, durable when it returns; open readers go on. For a caller that holds a record naming this
    /// group and generation as dropped or replaced. The group's fence goes with its last file.
    pub async fn drop_file(&self, group: GroupId, generation: u32) -> Result<(), FileError> {
        self.retire((group, generation)).await?;
        self.run(move |inner| inner.drop_file((group, generation))).await
    }

    /// Moves a file into quarantine with the reason beside it, durable when it returns; gives its name there.
    pub async fn quarantine(&self, group: GroupId, generation: u32, reason: &str) -> Result<String, FileError> {
        self.retire((group, generation)).await?;
        let mut reason = reason.to_owned();
        reason.truncate(reason.floor_char_boundary(REASON_MAX_BYTES));
        self.run(move |inner| inner.quarantine((group, generation), &reason)).await
    }

    /// What is in quarantine, by name.
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, FileError> {
        self.run(|inner| inner.quarantined()).await
    }

    /// Puts a quarantined file back under its name, durable when it returns. It is not open for appends.
    pub async fn restore(&self, name: &str) -> Result<(), FileError> {
        let name = name.to_owned();
        self.run(move |inner| inner.restore(&name)).await
    }

    /// Removes a quarantined file for good: after its days, by space pressure, or by order of an operator.
    pub async fn purge(&self, name: &str) -> Result<(), FileError> {
        let name = name.to_owned();
        self.run(move |inner| inner.purge(&name)).await
    }

    async fn retire(&self, key: FileKey) -> Result<(), FileError> {
        if !self.inner.files.contains(key) {
            return Err(FileError::Missing);
        }
        self.ask(|reply| Command::Retire { key, reply }).await.map_err(|_| FileError::Closed)
    }
}

impl Inner {
    fn drop_file(&self, key: FileKey) -> Result<(), FileError> {
        if !self.files.forget(key) {
            return Err(FileError::Missing);
        }
        if let Err(error) = self.disk.remove(&group_file(key)) {
            self.files.arrived(key);
            return Err(error.into());
        }
        self.disk.sync_dir(&group_dir(key.0))?;
        self.forget_fence(key.0);
        Ok(())
    }

    fn quarantine(&self, key: FileKey, reason: &str) -> Result<String, FileError> {
        if !self.files.forget(key) {
            return Err(FileError::Missing);
        }
        let moved = self.set_aside(key, reason);
        if moved.is_err() {
            self.files.arrived(key);
        }
        Ok(moved?)
    }

    fn set_aside(&self, key: FileKey, reason: &str) -> io::Result<String> {
        let (name, reason_file) = self.free_quarantine_name(key)?;
        if !reason.is_empty() {
            reason_file.write_at(reason.as_bytes(), 0)?;
        }
        reason_file.sync_data()?;
        self.disk.rename(&group_file(key), &format!("{QUARANTINE}/{name}"))?;
        self.disk.sync_dir(QUARANTINE)?;
        self.disk.sync_dir(&group_dir(key.0))?;
        tracing::warn!(group = %key.0, generation = key.1, reason, "set aside into quarantine");
        Ok(name)
    }

    /// Takes a name by creating the reason's file; a rename would replace what is there.
    fn free_quarantine_name(&self, key: FileKey) -> io::Result<(String, std::sync::Arc<dyn env::disk::DiskFile>)> {
        let mut since_ms = self.clock.wall_ms();
        loop {
            let name = quarantine_name(key, since_ms);
            let path = format!("{QUARANTINE}/{name}{REASON}");
            match self.disk.open(&path, Open::CreateNew, Caching::Buffered) {
                Ok(file) => return Ok((name, file)),
                // Set aside in the same millisecond, or a crash came between the reason and the move.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => since_ms = since_ms.wrapping_add(1),
                Err(error) => return Err(error),
            }
        }
    }

    fn quarantined(&self) -> Result<Vec<Quarantined>, FileError> {
        let mut list = Vec::new();
        for name in self.disk.list(QUARANTINE)? {
            let Some((group, generation, since_ms)) = parse_triple(&name) else { continue };
            let file = self.disk.open(&format!("{QUARANTINE}/{name}"), Open::Read, Caching::Buffered)?;
            let (allocated_bytes, reason) = (file.allocated_bytes()?, self.reason(&name));
            list.push(Quarantined { name, group, generation, since_ms, reason, allocated_bytes });
        }
        Ok(list)
    }

    fn reason(&self, name: &str) -> String {
        let mut bytes = vec![0; REASON_MAX_BYTES];
        let path = format!("{QUARANTINE}/{name}{REASON}");
        let read = self.disk.open(&path, Open::Read, Caching::Buffered).and_then(|file| file.read_at(&mut bytes, 0));
        bytes.truncate(read.unwrap_or(0));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn restore(&self, name: &str) -> Result<(), FileError> {
        let key = self.quarantined_key(name)?;
        if !self.files.reserve(key) {
            return Err(FileError::Exists);
        }
        let path = format!("{QUARANTINE}/{name}");
        if let Err(error) = self.ensure_dir(key.0).and_then(|_| self.disk.rename(&path, &group_file(key))) {
            self.files.forget(key);
            return Err(error.into());
        }
        self.files.arrived(key);
        self.disk.sync_dir(&group_dir(key.0))?;
        self.remove_reason(name);
        self.disk.sync_dir(QUARANTINE)?;
        Ok(())
    }

    fn purge(&self, name: &str) -> Result<(), FileError> {
        self.quarantined_key(name)?;
        self.disk.remove(&format!("{QUARANTINE}/{name}"))?;
        self.remove_reason(name);
        self.disk.sync_dir(QUARANTINE)?;
        Ok(())
    }

    /// The key of a file that is in quarantine; anything else (a path, say) is not a name.
    fn quarantined_key(&self, name: &str) -> Result<FileKey, FileError> {
        let (group, generation, _) = parse_triple(name).ok_or(FileError::Missing)?;
        let there = self.disk.list(QUARANTINE)?.iter().any(|found| found == name);
        there.then_some((group, generation)).ok_or(FileError::Missing)
    }

    fn remove_reason(&self, name: &str) {
        let path = format!("{QUARANTINE}/{name}{REASON}");
        if let Err(error) = self.disk.remove(&path) {
            tracing::warn!(path, %error, "a quarantine reason was left behind");
        }
    }
}
