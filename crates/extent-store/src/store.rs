//! One disk: its group files from birth to removal.
//!
//! Promises: see each operation for the moment it gives. Every operation that blocks runs on `env::tasks`; appends and
//! fences of all groups go through one writer, which owns the files that are open. After a restart no file is open for
//! appends (rule R23): it is fenced, and its durable length found by looking. Refuses to know: which groups ought to be here.

mod copy;
mod create;
mod fence;
mod health;
mod punch;
mod reader;
mod removal;
mod scan;
mod table;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use env::Env;
use env::buf::BufPool;
use env::clock::Clock;
use env::disk::{Disk, Space, is_transient};
use env::tasks::{SubmitError, Tasks, Worker};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use types::{DiskId, GroupId};

pub use copy::CopyWriter;
pub use fence::Fence;
pub use health::{DiskHealth, Observer};
pub use reader::ReadRequest;
pub use removal::Quarantined;
pub use scan::{Depth, FrameScan, ScanPage, Scanned};

use crate::error::{AppendError, FenceError, OpenError};
use crate::frame::Frame;
use crate::identity::DiskIdentity;
use crate::limits;
use crate::paths::{self, EXTENTS, FENCES, QUARANTINE, UNFINISHED};
use fence::FenceTable;
use health::Counters;
use table::FileTable;
use writer::{Command, Writer};

/// Sizes and companions of a store.
#[derive(Clone)]
pub struct StoreConfig {
    /// Bytes reserved ahead of an open group's tail.
    pub preallocate_bytes: u64,
    /// Where an open group stops being reserved for; appends may go beyond.
    pub group_bytes: u64,
    /// Files kept open for reading.
    pub open_files: usize,
    /// Messages waiting for the writer.
    pub queue: usize,
    /// Messages of one batch.
    pub batch: usize,
    /// Buffers for reads; must hold at least one full frame.
    pub buffers: BufPool,
    /// Told of syncs.
    pub observer: Option<Arc<dyn Observer>>,
}

impl StoreConfig {
    /// The defaults of `limits`, with these buffers.
    pub fn new(buffers: BufPool) -> StoreConfig {
        StoreConfig {
            preallocate_bytes: limits::PREALLOCATE_BYTES,
            group_bytes: types::limits::GROUP_BYTES,
            open_files: limits::OPEN_FILES,
            queue: limits::WRITER_QUEUE,
            batch: limits::WRITER_BATCH,
            buffers,
            observer: None,
        }
    }
}

/// A group file found on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Group.
    pub group: GroupId,
    /// Generation in its name. The header is checked when the file is first judged.
    pub generation: u32,
    /// The group's newest durable fence on this disk, with the length it answered.
    pub fence: Option<Fence>,
}

/// One disk's extent store. Cheap to clone.
#[derive(Clone)]
pub struct DiskStore {
    inner: Arc<Inner>,
    writer: Worker<Command>,
}

/// What the writer, the readers and the background jobs share.
pub(crate) struct Inner {
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    identity: DiskIdentity,
    config: StoreConfig,
    files: FileTable,
    fences: FenceTable,
    /// Directories below `extents/` whose names were synced by this process.
    durable_dirs: Mutex<BTreeSet<String>>,
    strangers: Vec<String>,
    counters: Counters,
    /// For whole frames.
    frames: BufPool,
}

impl DiskStore {
    /// Opens the disk of that identity: makes missing directories, removes files that never got their name, lists the rest.
    ///
    /// Blocks. Reads names only, so it takes as long as listing the directories. What it found is for the controller to
    /// compare with the records; nothing but unfinished files is removed.
    pub fn open(
        env: &Env,
        disk: Arc<dyn Disk>,
        identity: DiskIdentity,
        config: StoreConfig,
    ) -> Result<(DiskStore, Vec<FoundFile>), OpenError> {
        for dir in [EXTENTS, FENCES, QUARANTINE] {
            disk.create_dir_all(dir)?;
        }
        disk.sync_dir("")?;
        let fences = FenceTable::load(&*disk)?;
        let listing = Listing::of(&*disk)?;
        let files = FileTable::new(listing.files.iter().copied(), config.open_files);
        let inner = Arc::new(Inner {
            tasks: env.tasks.clone(),
            clock: env.clock.clone(),
            disk,
            identity,
            files,
            fences,
            durable_dirs: Mutex::default(),
            strangers: listing.strangers,
            counters: Counters::default(),
            frames: BufPool::new(limits::FRAMES_BYTES),
            config,
        });
        let store = DiskStore { writer: spawn_writer(&inner), inner };
        let found = store.list_files();
        Ok((store, found))
    }

    /// Whose disk this is.
    pub fn identity(&self) -> &DiskIdentity {
        &self.inner.identity
    }

    /// The disk's id.
    pub fn id(&self) -> DiskId {
        self.inner.identity.disk
    }

    /// All group files, by group and generation.
    pub fn list_files(&self) -> Vec<FoundFile> {
        let found = |(group, generation)| FoundFile { group, generation, fence: self.inner.fences.durable(group) };
        self.inner.files.list().into_iter().map(found).collect()
    }

    /// Names below `extents/` that are not ours, as found at the start. They are left alone.
    pub fn strangers(&self) -> &[String] {
        &self.inner.strangers
    }

    /// The group's newest durable fence on this disk.
    pub fn fence_of(&self, group: GroupId) -> Option<Fence> {
        self.inner.fences.durable(group)
    }

    /// Free and total bytes. Blocks for a system call.
    pub fn space(&self) -> io::Result<Space> {
        self.inner.disk.space()
    }

    /// Asks the host to drop what it has cached of the whole disk, for measurements. Blocks.
    pub fn drop_cached(&self) -> io::Result<()> {
        self.inner.disk.drop_cached()
    }

    /// Counters since the start.
    pub fn health(&self) -> DiskHealth {
        self.inner.counters.snapshot()
    }

    /// Files kept open for reading, at most as many as configured.
    pub fn open_handles(&self) -> usize {
        self.inner.files.open_handles()
    }

    /// Appends and fences waiting for the writer.
    pub fn queued(&self) -> usize {
        self.writer.queued()
    }

    /// Appends a frame to the file its address names, and acknowledges once it *and everything before it in the file* is
    /// durable.
    ///
    /// Handed to the writer by this call, not by the first poll: a caller that calls in offset order (under the lock
    /// under which it took the offset) appends in offset order, which is required. A dropped future changes nothing: the
    /// frame may still become durable. Any error but `Busy` and `OutOfOrder` is final for the file: fence and seal the group,
    /// go on in another.
    pub fn append(&self, frame: Frame) -> impl Future<Output = Result<(), AppendError>> + Send + 'static {
        let (reply, result) = oneshot::channel();
        let submitted = self.writer.submit(Command::Append { frame, reply });
        async move {
            match submitted {
                Ok(()) => result.await.unwrap_or(Err(AppendError::Closed)),
                Err(SubmitError::Full(_)) => Err(AppendError::Busy),
                Err(SubmitError::Closed(_)) => Err(AppendError::Closed),
            }
        }
    }

    /// Handles what is queued and ends the writer; later appends are answered `Closed`. Blocks.
    pub fn close(&self) {
        // A panic of the writer was logged when it happened.
        let _ = self.writer.join();
    }

    /// Sends the writer a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, FenceError> {
        let (reply, answer) = oneshot::channel();
        self.writer.submit_async(command(reply)).await.map_err(|_| FenceError::Closed)?;
        answer.await.map_err(|_| FenceError::Closed)
    }

    /// Runs blocking work on the shared state.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Arc<Inner>) -> T + Send + 'static) -> T {
        let inner = self.inner.clone();
        self.inner.tasks.run(move || work(&inner)).await
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("identity", &self.inner.identity).finish_non_exhaustive()
    }
}

fn spawn_writer(inner: &Arc<Inner>) -> Worker<Command> {
    let mut writer = Writer::new(inner.clone());
    let name = format!("disk-{}", inner.identity.disk);
    let (queue, batch) = (inner.config.queue, inner.config.batch);
    Worker::spawn(&inner.tasks, &name, queue, batch, move |commands| writer.handle(commands))
}

/// What lies below `extents/`.
struct Listing {
    files: Vec<paths::FileKey>,
    strangers: Vec<String>,
}

impl Listing {
    fn of(disk: &dyn Disk) -> io::Result<Listing> {
        let mut listing = Listing { files: Vec::new(), strangers: Vec::new() };
        for dir in disk.list(EXTENTS)? {
            match disk.list(&format!("{EXTENTS}/{dir}")) {
                Ok(names) => listing.add(disk, &dir, &names)?,
                // Not a directory.
                Err(_) => listing.strangers.push(format!("{EXTENTS}/{dir}")),
            }
        }
        for stranger in &listing.strangers {
            tracing::warn!(path = stranger, "not a group file; left alone");
        }
        Ok(listing)
    }

    fn add(&mut self, disk: &dyn Disk, dir: &str, names: &[String]) -> io::Result<()> {
        for name in names {
            let unfinished = name.strip_suffix(UNFINISHED).and_then(|name| paths::parse_group_file(dir, name));
            if unfinished.is_some() {
                disk.remove(&format!("{EXTENTS}/{dir}/{name}"))?;
                continue;
            }
            match paths::parse_group_file(dir, name) {
                Some(key) => self.files.push(key),
                None => self.strangers.push(format!("{EXTENTS}/{dir}/{name}")),
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Makes a group's directory, its own name durable.
    fn ensure_dir(&self, group: GroupId) -> io::Result<String> {
        let dir = paths::group_dir(group);
        let mut durable = self.durable_dirs.lock();
        if !durable.contains(&dir) {
            self.disk.create_dir_all(&dir)?;
            self.disk.sync_dir(EXTENTS)?;
            durable.insert(dir.clone());
        }
        Ok(dir)
    }

    /// Counts a failed write or reservation.
    fn count_write_error(&self, error: &io::Error) {
        if crate::error::is_no_space(error) {
            self.counters.no_space_errors.add(1);
        } else if !is_transient(error) {
            self.counters.write_errors.add(1);
            self.counters.suspect();
        }
    }
}

type Fences = BTreeMap<GroupId, fence::FenceState>;
