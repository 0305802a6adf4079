//! The disk's one writer: batches the appends of all groups, syncs once per touched file, acknowledges in offset order.
//!
//! Promises: nothing is acknowledged before the `fdatasync` that covers it and everything before it in the file returned
//! 0; a failed write or sync is final for its file and never retried (rule R3); once a group is fenced, no append of an
//! older generation is accepted or acknowledged. Refuses to know: what frames hold.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use env::disk::DiskFile;
use tokio::sync::oneshot;
use types::GroupId;

use super::fence::Raised;
use super::{Inner, StoreConfig};
use crate::error::{AppendError, CreateError, FenceError, is_no_space};
use crate::frame::Frame;
use crate::limits::{FILE_MAX_BYTES, FIRST_FRAME_OFFSET};
use crate::paths::FileKey;

type AppendReply = oneshot::Sender<Result<(), AppendError>>;

/// A message to the writer.
pub(crate) enum Command {
    /// A new file, durable and empty, from now on open for appends.
    Adopt {
        key: FileKey,
        file: Arc<dyn DiskFile>,
        reserved: u64,
        reply: oneshot::Sender<Result<(), CreateError>>,
    },
    Append {
        frame: Frame,
        reply: AppendReply,
    },
    /// Closes the group's file and refuses older generations from now on.
    Fence {
        group: GroupId,
        generation: u32,
        reply: oneshot::Sender<Result<Raised, FenceError>>,
    },
    /// The file is about to be moved away or removed.
    Retire {
        key: FileKey,
        reply: oneshot::Sender<()>,
    },
}

/// The writer's state: the files that are open for appends.
pub(super) struct Writer {
    inner: Arc<Inner>,
    open: BTreeMap<FileKey, OpenFile>,
    /// Appends written but not yet synced, in the order of their files' offsets.
    written: BTreeMap<FileKey, Vec<Written>>,
}

struct OpenFile {
    file: Arc<dyn DiskFile>,
    /// End of the last frame that was handed to the file, well or badly.
    tail: u64,
    /// End of the last frame that is durable together with everything before it.
    durable: u64,
    /// End of what is reserved.
    reserved: u64,
    /// Set once, for ever.
    failed: Option<AppendError>,
}

struct Written {
    end: u64,
    bytes: u64,
    reply: AppendReply,
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>) -> Writer {
        Writer { inner, open: BTreeMap::new(), written: BTreeMap::new() }
    }

    pub(super) fn handle(&mut self, commands: Vec<Command>) {
        // A receiver that is gone gave up waiting; what was done stays done.
        for command in commands {
            match command {
                Command::Append { frame, reply } => self.append(&frame, reply),
                Command::Adopt { key, file, reserved, reply } => {
                    let _ = reply.send(self.adopt(key, file, reserved));
                }
                Command::Fence { group, generation, reply } => {
                    // What was accepted before the fence is synced (or given up) before the fence is answered.
                    self.sync_written();
                    let _ = reply.send(self.fence(group, generation));
                }
                Command::Retire { key, reply } => {
                    self.sync_written();
                    self.open.remove(&key);
                    let _ = reply.send(());
                }
            }
        }
        self.sync_written();
    }

    fn adopt(&mut self, key: FileKey, file: Arc<dyn DiskFile>, reserved: u64) -> Result<(), CreateError> {
        if let Some(newer) = self.inner.fences.above(key) {
            return Err(CreateError::Fenced(newer));
        }
        let start = FIRST_FRAME_OFFSET;
        self.open.insert(key, OpenFile { file, tail: start, durable: start, reserved, failed: None });
        Ok(())
    }

    fn append(&mut self, frame: &Frame, reply: AppendReply) {
        let key = (frame.address().group, frame.address().generation);
        match self.write(key, frame) {
            Ok(()) => {
                let written = Written { end: frame.end(), bytes: frame.bytes().len() as u64, reply };
                self.written.entry(key).or_default().push(written);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn write(&mut self, key: FileKey, frame: &Frame) -> Result<(), AppendError> {
        if let Some(newer) = self.inner.fences.above(key) {
            return Err(AppendError::Fenced(newer));
        }
        let open = self.open.get_mut(&key).ok_or(AppendError::Stale)?;
        if let Some(failed) = &open.failed {
            return Err(failed.clone());
        }
        if frame.cluster() != self.inner.identity.cluster {
            return Err(AppendError::Stale);
        }
        if frame.address().offset != open.tail {
            return Err(AppendError::OutOfOrder { expected: open.tail });
        }
        if frame.end() > FILE_MAX_BYTES {
            return Err(AppendError::Full);
        }
        match open.put(frame, &self.inner) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.inner.count_write_error(&error);
                tracing::error!(group = %key.0, generation = key.1, %error, "a write failed; the file takes no more appends");
                Err(open.fail(error))
            }
        }
    }

    /// One `fdatasync` for each file with unsynced appends, then the acknowledgements in offset order.
    fn sync_written(&mut self) {
        for (key, written) in std::mem::take(&mut self.written) {
            let Some(open) = self.open.get_mut(&key) else { continue };
            let result = sync(&self.inner, key, open, written.len());
            if let (Ok(()), Some(last)) = (&result, written.last()) {
                open.durable = last.end;
                self.inner.counters.appends.add(written.len() as u64);
                self.inner.counters.appended_bytes.add(written.iter().map(|w| w.bytes).sum());
            }
            for append in written {
                let _ = append.reply.send(result.clone());
            }
        }
    }

    fn fence(&mut self, group: GroupId, generation: u32) -> Result<Raised, FenceError> {
        // The group's older files: at most one was ever open here.
        let closing: Vec<FileKey> = self.open.range((group, 0)..(group, generation)).map(|(key, _)| *key).collect();
        // What is acknowledged is durable and was all that was: no look at the disk can say more (or less) than this.
        let known = closing.iter().filter_map(|key| self.open.get(key)).map(|open| open.durable).max();
        let raised = self.inner.fences.raise(group, generation, known)?;
        for open in closing.iter().filter_map(|key| self.open.remove(key)) {
            open.release_reservation();
        }
        Ok(raised)
    }
}

/// Syncs a file with unsynced appends. A failure is final; a file that failed before while syncing is not asked again.
fn sync(inner: &Inner, key: FileKey, open: &mut OpenFile, appends: usize) -> Result<(), AppendError> {
    let start = inner.clock.monotonic();
    let result = open.file.sync_data();
    if let Some(observer) = &inner.config.observer {
        observer.synced(inner.clock.monotonic().saturating_sub(start), appends);
    }
    inner.counters.syncs.add(1);
    result.map_err(|error| {
        inner.counters.sync_errors.add(1);
        inner.counters.suspect();
        tracing::error!(group = %key.0, generation = key.1, %error, "fdatasync failed; the file takes no more appends and the disk is suspect");
        open.fail(error)
    })
}

impl OpenFile {
    /// Reserves room if needed and writes the frame at its place.
    fn put(&mut self, frame: &Frame, inner: &Inner) -> io::Result<()> {
        let end = frame.end();
        if end > self.reserved {
            self.reserve(end, &inner.config)?;
        }
        // Whatever happens to the write, these blocks are never written again.
        self.tail = end;
        self.file.write_at(frame.bytes(), frame.address().offset)
    }

    /// Reserves a step ahead, or on a disk too full for that just what is needed.
    fn reserve(&mut self, end: u64, config: &StoreConfig) -> io::Result<()> {
        // Never in steps beyond the group's size: what is reserved past it would only be given back.
        let ahead = (self.reserved + config.preallocate_bytes).min(config.group_bytes).max(end);
        let reserved = match self.file.allocate(self.reserved, ahead - self.reserved) {
            Err(error) if is_no_space(&error) && ahead > end => {
                self.file.allocate(self.reserved, end - self.reserved)?;
                end
            }
            result => {
                result?;
                ahead
            }
        };
        self.reserved = reserved;
        Ok(())
    }

    fn fail(&mut self, error: io::Error) -> AppendError {
        let failed = if is_no_space(&error) { AppendError::NoSpace } else { AppendError::Failed(Arc::new(error)) };
        self.failed.get_or_insert(failed).clone()
    }

    /// Gives the blocks back that were reserved and never written: a full disk needs them for the fence itself.
    fn release_reservation(&self) {
        if self.failed.is_some() || self.reserved <= self.tail {
            return;
        }
        if let Err(error) = self.file.punch(self.tail, self.reserved - self.tail) {
            tracing::warn!(%error, "the reservation of a fenced file was not given back");
        }
    }
}
