//! Which group files the disk has, and the handles kept open for reading them.
//!
//! Promises: a key stands for one file or for one that is being made, never two; at most so many handles are kept, the
//! least recently used goes first; a handle of a removed file is never handed out again. Refuses to know: what is in the files.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use env::disk::DiskFile;
use parking_lot::Mutex;

use crate::paths::FileKey;

pub(super) struct FileTable {
    state: Mutex<State>,
    max_handles: usize,
}

struct State {
    files: BTreeMap<FileKey, Presence>,
    handles: BTreeMap<FileKey, Handle>,
    /// Handles by the moment of their last use.
    by_use: BTreeMap<u64, FileKey>,
    uses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Reserved,
    Present,
}

struct Handle {
    file: Arc<dyn DiskFile>,
    last_use: u64,
}

impl FileTable {
    pub(super) fn new(found: impl IntoIterator<Item = FileKey>, max_handles: usize) -> FileTable {
        let files = found.into_iter().map(|key| (key, Presence::Present)).collect();
        let state = State { files, handles: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 };
        FileTable { state: Mutex::new(state), max_handles: max_handles.max(1) }
    }

    pub(super) fn contains(&self, key: FileKey) -> bool {
        self.state.lock().files.get(&key) == Some(&Presence::Present)
    }

    pub(super) fn list(&self) -> Vec<FileKey> {
        let present = |(key, presence): (&FileKey, &Presence)| (*presence == Presence::Present).then_some(*key);
        self.state.lock().files.iter().filter_map(present).collect()
    }

    /// The group's files, the oldest generation first.
    pub(super) fn of(&self, group: types::GroupId) -> Vec<FileKey> {
        let state = self.state.lock();
        let of_group = state.files.range((group, 0)..=(group, u32::MAX));
        of_group.filter(|(_, presence)| **presence == Presence::Present).map(|(key, _)| *key).collect()
    }

    /// Keeps the name for a file to be made; `false` if it is taken.
    pub(super) fn reserve(&self, key: FileKey) -> bool {
        let mut state = self.state.lock();
        let free = !state.files.contains_key(&key);
        if free {
            state.files.insert(key, Presence::Reserved);
        }
        free
    }

    /// The reserved file is there.
    pub(super) fn arrived(&self, key: FileKey) {
        self.state.lock().files.insert(key, Presence::Present);
    }

    /// Forgets a reservation or a file, and its handle. Readers that hold the handle go on. `false` if it was not present.
    pub(super) fn forget(&self, key: FileKey) -> bool {
        let mut state = self.state.lock();
        let was = state.files.remove(&key);
        // Closed outside the lock: the last close of an unlinked file may take long.
        let handle = state.remove_handle(key);
        drop(state);
        drop(handle);
        was == Some(Presence::Present)
    }

    pub(super) fn handle(&self, key: FileKey) -> Option<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let now = state.tick();
        let handle = state.handles.get_mut(&key)?;
        let before = std::mem::replace(&mut handle.last_use, now);
        let file = handle.file.clone();
        state.by_use.remove(&before);
        state.by_use.insert(now, key);
        Some(file)
    }

    pub(super) fn keep_handle(&self, key: FileKey, file: Arc<dyn DiskFile>) {
        let mut state = self.state.lock();
        // It may have been removed while it was being opened, or opened by two readers at once.
        if state.files.get(&key) != Some(&Presence::Present) || state.handles.contains_key(&key) {
            return;
        }
        let last_use = state.tick();
        state.handles.insert(key, Handle { file, last_use });
        state.by_use.insert(last_use, key);
        let evicted = match state.handles.len() > self.max_handles {
            true => state.by_use.first_key_value().map(|(_, key)| *key).and_then(|key| state.remove_handle(key)),
            false => None,
        };
        drop(state);
        drop(evicted);
    }

    pub(super) fn open_handles(&self) -> usize {
        self.state.lock().handles.len()
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn remove_handle(&mut self, key: FileKey) -> Option<Arc<dyn DiskFile>> {
        let handle = self.handles.remove(&key)?;
        self.by_use.remove(&handle.last_use);
        Some(handle.file)
    }
}

impl fmt::Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTable").field("max_handles", &self.max_handles).finish_non_exhaustive()
    }
}
