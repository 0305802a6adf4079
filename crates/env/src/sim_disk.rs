//! A disk that exists in memory and fails on command.
//!
//! Promises: it keeps the [`Disk`] contract to the letter and not an inch beyond: what was not synced may be lost at a crash in
//! any combination, torn at sectors ([`CrashPolicy`]); faults are planned at run time (`flip_bit`, `lose_writes`, ...);
//! same seed and same calls, same bytes and same trace. It is slow and keeps everything in memory: for tests.
//! Refuses to know: which faults the system above promises to survive.
//!
//! To try every crash point of an operation: run it once and read [`SimDisk::mutations`]; then for each number up to it run it
//! on a [`SimDisk::fork`] of the start after [`SimDisk::crash_after`], take [`SimDisk::crash`] with each policy, and recover.

mod crash;
mod faults;
mod file;
mod image;
mod names;
mod state;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

pub use crash::CrashPolicy;

use crate::counters::Counters;
use crate::disk::{Caching, Disk, DiskCounters, DiskFile, Open, Space};
use crate::disk_path::{components, dir_components};
use file::SimFile;
use state::{Power, State};

/// The error of every call after the power was cut; see [`is_crashed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated power is off")
    }
}

impl Error for Crashed {}

impl From<Crashed> for io::Error {
    fn from(crashed: Crashed) -> io::Error {
        io::Error::other(crashed)
    }
}

/// Whether an error says that the simulated power is off (as against a fault of the disk).
pub fn is_crashed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Crashed>())
}

/// One call as the trace keeps it. Files are numbered in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DiskEvent {
    Open { path: String, how: Open },
    Read { file: u64, offset: u64, len: usize },
    Write { file: u64, offset: u64, len: usize, digest: u64 },
    Sync { file: u64 },
    Allocate { file: u64, offset: u64, len: u64 },
    Punch { file: u64, offset: u64, len: u64 },
    CreateDir { path: String },
    Rename { from: String, to: String },
    Remove { path: String },
    SyncDir { path: String },
}

/// A simulated disk. Cheap to clone; clones are the same disk ([`SimDisk::fork`] makes another one).
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    counters: Arc<Counters>,
}

impl SimDisk {
    /// An empty disk of `capacity_bytes` whose chances are drawn from `seed`.
    pub fn new(seed: u64, capacity_bytes: u64) -> SimDisk {
        SimDisk::from_state(State::new(seed, capacity_bytes))
    }

    fn from_state(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)), counters: Arc::default() }
    }

    /// Cuts the power and gives the disk as it is found afterwards. This object and its files answer [`Crashed`] from then on,
    /// but more images, with other policies, may be taken from it.
    pub fn crash(&self, policy: CrashPolicy) -> SimDisk {
        let mut state = self.power_off();
        crash::cut_power(&mut state, policy);
        SimDisk::from_state(state)
    }

    /// Kills the process and gives the disk to its successor: nothing is lost, and what was not synced is still not. This
    /// object and its files answer [`Crashed`] from then on.
    pub fn kill(&self) -> SimDisk {
        SimDisk::from_state(self.power_off())
    }

    /// Another disk in the same state, without open handles, crash point or power cut; this one goes on. For trying
    /// alternatives, and for rolling back to an old image later.
    pub fn fork(&self) -> SimDisk {
        SimDisk::from_state(restarted(&self.state.lock()))
    }

    fn power_off(&self) -> State {
        let mut state = self.state.lock();
        if state.power == Power::On {
            state.power = Power::Off;
        }
        restarted(&state)
    }

    /// Mutating calls so far: writes, syncs of files and directories, reservations, punches, new names, renames, removals.
    pub fn mutations(&self) -> u64 {
        self.state.lock().mutations
    }

    /// Lets mutations up to number `last` (as [`SimDisk::mutations`] counts) happen. The next one finds the power cut: it
    /// answers [`Crashed`], and so does every call after it. That one mutation is in flight: unless it is a sync, it is
    /// among the un-synced operations that [`SimDisk::crash`] may keep.
    pub fn crash_after(&self, last: u64) {
        self.state.lock().crash_after = Some(last);
    }

    /// How many un-synced operations there are, that is, what [`CrashPolicy`] chooses from.
    pub fn unsynced(&self) -> usize {
        self.state.lock().unsynced_seqs().len()
    }

    /// What a power cut would certainly leave of the file: its bytes, if the program sees the file at all.
    pub fn synced_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        self.with_file(path, |state, id| {
            let image = &state.file(id).synced;
            let mut bytes = vec![0; image.len() as usize];
            image.read(&mut bytes, 0);
            bytes
        })
    }

    /// The last calls, oldest first.
    pub fn trace(&self) -> Vec<DiskEvent> {
        self.state.lock().trace.events()
    }

    /// A digest of all calls ever made, with the bytes written: equal for two runs that did the same.
    pub fn digest(&self) -> u64 {
        self.state.lock().trace.digest()
    }

    fn with_file<T>(&self, path: &str, act: impl FnOnce(&mut State, u64) -> T) -> io::Result<T> {
        let mut state = self.state.lock();
        let id = state.names.file(path)?;
        Ok(act(&mut state, id))
    }

    /// Runs a call that changes names.
    fn mutate(&self, event: DiskEvent, call: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.trace.record(event);
        state.mutate(call)
    }
}

/// The state as the next process finds it.
fn restarted(state: &State) -> State {
    let mut state = state.clone();
    if state.power == Power::Off {
        state.power = Power::On;
    }
    state.crash_after = None;
    for file in state.files.values_mut() {
        file.handles = 0;
    }
    state.forget_unreferenced();
    state
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("seed", &self.state.lock().seed).finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, how: Open, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        components(path)?;
        let mut state = self.state.lock();
        state.check_power()?;
        state.trace.record(DiskEvent::Open { path: path.to_owned(), how });
        if state.faults.open_fails() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let id = state.open(path, how)?;
        drop(state);
        let (state, counters) = (self.state.clone(), self.counters.clone());
        Ok(Arc::new(SimFile { state, id, how, caching, failed: AtomicBool::new(false), counters }))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        components(path)?;
        let mut state = self.state.lock();
        state.check_power()?;
        state.trace.record(DiskEvent::CreateDir { path: path.to_owned() });
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            state.create_dir(&path[..end])?;
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        dir_components(dir)?;
        let state = self.state.lock();
        state.check_power()?;
        state.names.list(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        components(from)?;
        components(to)?;
        let event = DiskEvent::Rename { from: from.to_owned(), to: to.to_owned() };
        self.mutate(event, |state| state.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        components(path)?;
        self.mutate(DiskEvent::Remove { path: path.to_owned() }, |state| state.remove(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        dir_components(dir)?;
        self.counters.dir_sync();
        let mut state = self.state.lock();
        state.trace.record(DiskEvent::SyncDir { path: dir.to_owned() });
        state.mutate_durably(|state| state.sync_dir(dir))
    }

    fn space(&self) -> io::Result<Space> {
        let state = self.state.lock();
        state.check_power()?;
        let total_bytes = state.capacity_bytes;
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(state.used_bytes()) })
    }

    fn host_path(&self) -> Option<&Path> {
        None
    }

    fn counters(&self) -> DiskCounters {
        self.counters.snapshot()
    }
}
