//! A disk that is a directory of the host.
//!
//! Promises: never follows a symbolic link below its root, never truncates, files are made 0600 and directories 0700;
//! a handle that failed to write or to sync never answers success again (rules R3 and R4).
//! Refuses to know: what the files are, whether the host's disk tells the truth.

mod sys;

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::buf::PooledBuf;
use crate::counters::Counters;
use crate::disk::{Caching, DIRECT_ALIGN, Disk, DiskCounters, DiskFile, Open, Reading, Space, assert_direct};
use crate::disk_path::{components, dir_components, parent_and_name};
use crate::ring::{Job, Ring};

/// A directory of the host as a [`Disk`].
#[derive(Debug)]
pub struct RealDisk {
    root: File,
    path: PathBuf,
    counters: Arc<Counters>,
    /// Reads without blocking, where there is one.
    ring: Option<Ring>,
}

impl RealDisk {
    /// Opens the directory `root`; with `create`, makes it (and missing ancestors, mode 0700, durably) if it is not there.
    ///
    /// The root itself may be reached through symbolic links: where the disk is mounted is the operator's choice.
    pub fn open(root: &Path, create: bool) -> io::Result<RealDisk> {
        if create {
            create_root(root)?;
        }
        let file = File::open(root)?;
        if !file.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(RealDisk { root: file, path: root.canonicalize()?, counters: Arc::default(), ring: None })
    }

    /// Lets files opened from now on begin reads by `ring`.
    pub fn with_ring(self, ring: Option<Ring>) -> RealDisk {
        RealDisk { ring, ..self }
    }

    /// Takes the root for this object alone, until it is dropped or the process ends. `ResourceBusy` if another holds it,
    /// in this process or another one.
    pub fn lock(&self) -> io::Result<()> {
        match self.root.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let text = format!("{} is in use by another process", self.path.display());
                Err(io::Error::new(ErrorKind::ResourceBusy, text))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Opens the directory `dir` component by component.
    fn dir(&self, dir: &str) -> io::Result<File> {
        let mut at = sys::open_dir(&self.root, OsStr::new("."))?;
        for name in dir_components(dir)? {
            at = sys::open_dir(&at, OsStr::new(name))?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> io::Result<(File, &'p OsStr)> {
        let (parent, name) = parent_and_name(path)?;
        Ok((self.dir(parent)?, OsStr::new(name)))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &str, how: Open, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        let (parent, name) = self.parent(path)?;
        let file = sys::open_file(&parent, name, how)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("not a regular file: {path:?}")));
        }
        // Set after opening: an open with O_CREAT | O_DIRECT may create the file and then fail.
        let bypasses_cache = caching == Caching::Direct && sys::set_direct(&file)?;
        Ok(Arc::new(RealFile {
            file: Arc::new(file),
            ring: self.ring.clone(),
            caching,
            bypasses_cache,
            writable: how != Open::Read,
            failed: AtomicBool::new(false),
            syncing: Mutex::new(()),
            counters: self.counters.clone(),
        }))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        let mut at = self.dir("")?;
        for name in components(path)? {
            match sys::make_dir(&at, OsStr::new(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => at = sys::open_dir(&at, OsStr::new(name))?,
            }
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = sys::names(self.dir(dir)?)?;
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        sys::rename(&from_dir, from_name, &to_dir, to_name)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        sys::unlink(&parent, name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.counters.dir_sync();
        self.dir(dir)?.sync_all()
    }

    fn drop_cached(&self) -> io::Result<()> {
        drop_cached_below(&self.dir("")?)
    }

    fn space(&self) -> io::Result<Space> {
        sys::space(&self.root)
    }

    fn host_path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn counters(&self) -> DiskCounters {
        self.counters.snapshot()
    }
}

fn drop_cached_below(dir: &File) -> io::Result<()> {
    // Listing takes the descriptor over, so it gets one of its own.
    for name in sys::names(sys::open_dir(dir, OsStr::new("."))?)? {
        let name = OsStr::new(&name);
        match sys::open_file(dir, name, Open::Read) {
            Ok(file) if file.metadata()?.is_dir() => drop_cached_below(&sys::open_dir(dir, name)?)?,
            Ok(file) => sys::drop_cached(&file)?,
            // Removed meanwhile, or no file of ours.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Makes the root and its missing ancestors, and their names durable.
fn create_root(root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = root.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    for made in missing {
        let parent = match made.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// One open file of the host.
#[derive(Debug)]
struct RealFile {
    file: Arc<File>,
    ring: Option<Ring>,
    caching: Caching,
    /// False where the file system refused O_DIRECT; alignment is asserted all the same.
    bypasses_cache: bool,
    writable: bool,
    /// A write or a sync failed: pages may have been dropped, so nothing here may be called durable again.
    failed: AtomicBool,
    /// One sync at a time: the kernel reports a failure to one of the callers that wait, and the others must hear of it too.
    syncing: Mutex<()>,
    counters: Arc<Counters>,
}

impl RealFile {
    fn refuse_if_failed(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(io::Error::other("an earlier write or sync of this file failed")),
            false => Ok(()),
        }
    }

    /// Passes an error of a mutation on and remembers it.
    fn sticky<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    fn read_all(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Direct reads end unaligned only at the end of the file; the next one there would be refused.
            if self.bypasses_cache && !done.is_multiple_of(DIRECT_ALIGN) {
                break;
            }
        }
        Ok(done)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        assert_direct(self.caching, buf, offset);
        let result = self.read_all(buf, offset);
        self.counters.read(&result);
        result
    }

    fn read_at_cached(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        assert_direct(self.caching, buf, offset);
        if self.bypasses_cache {
            return Ok(None);
        }
        let Some(count) = sys::read_cached(&self.file, buf, offset)? else { return Ok(None) };
        // Short of what was asked: the rest is not cached, unless there is no rest.
        if count < buf.len() && offset + (count as u64) < self.len()? {
            return Ok(None);
        }
        self.counters.read(&Ok(count));
        Ok(Some(count))
    }

    fn start_read(self: Arc<Self>, buf: PooledBuf, part: Range<usize>, offset: u64) -> Result<Reading, PooledBuf> {
        assert_direct(self.caching, &buf[part.clone()], offset);
        let Some(ring) = self.ring.as_ref().filter(|_| !part.is_empty()) else { return Err(buf) };
        let (file, counters) = (self.file.clone(), self.counters.clone());
        ring.read(Job { file, direct: self.bypasses_cache, counters, buf, part, offset })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        assert_direct(self.caching, buf, offset);
        self.refuse_if_failed()?;
        // Continues after partial writes and interruptions.
        let result = self.sticky(self.file.write_all_at(buf, offset));
        self.counters.write(buf.len(), &result);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        let _alone = self.syncing.lock();
        self.refuse_if_failed()?;
        self.counters.sync();
        self.sticky(self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.refuse_if_failed()?;
        match sys::allocate(&self.file, offset, len) {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.grow_to(offset + len),
            Err(error) if error.kind() == ErrorKind::StorageFull => Err(error),
            result => self.sticky(result),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.refuse_if_failed()?;
        match sys::punch(&self.file, offset, len) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
            result => self.sticky(result),
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }
}

impl RealFile {
    /// Where space cannot be reserved the length at least is set. Never shortens: one owner writes a file (rule R4).
    fn grow_to(&self, end: u64) -> io::Result<()> {
        if !self.writable {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if self.len()? < end {
            self.sticky(self.file.set_len(end))?;
        }
        Ok(())
    }
}
