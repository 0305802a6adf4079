//! The directory tree of a simulated disk: what programs see, what is durable, and the changes in between.
//!
//! Promises: a change of a name is durable once its directory was synced, and not tied to the file's bytes; a rename within
//! one directory is atomic; a rename across two never loses the file, but after a crash it may have both names.
//! Refuses to know: what the files contain.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Dir,
    File(u64),
}

/// One un-synced change of names; its parts are kept or lost together.
#[derive(Clone, Debug)]
struct NameOp {
    seq: u64,
    /// Path and what it names afterwards.
    changes: Vec<(String, Option<Entry>)>,
    /// Not durable before that one: the removal half of a rename across directories.
    after: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    live: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    pending: Vec<NameOp>,
}

impl Names {
    pub(super) fn get(&self, path: &str) -> Option<Entry> {
        self.live.get(path).copied()
    }

    pub(super) fn file(&self, path: &str) -> io::Result<u64> {
        match self.get(path) {
            Some(Entry::File(id)) => Ok(id),
            Some(Entry::Dir) => Err(ErrorKind::IsADirectory.into()),
            None => Err(self.missing(path)),
        }
    }

    pub(super) fn require_dir(&self, dir: &str) -> io::Result<()> {
        match self.get(dir) {
            _ if dir.is_empty() => Ok(()),
            Some(Entry::Dir) => Ok(()),
            Some(Entry::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None => Err(self.missing(dir)),
        }
    }

    /// Why nothing is there: as the host says it, a file on the way is not the same as nothing on the way.
    fn missing(&self, path: &str) -> io::Error {
        let mut ancestors = path.match_indices('/').filter_map(|(end, _)| self.get(&path[..end]));
        match ancestors.any(|entry| entry != Entry::Dir) {
            true => ErrorKind::NotADirectory.into(),
            false => ErrorKind::NotFound.into(),
        }
    }

    /// Names in a directory, sorted.
    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.require_dir(dir)?;
        let mut names: Vec<String> =
            self.live.keys().filter(|path| parent(path) == dir).map(|path| name(path).to_owned()).collect();
        // Full paths sort as their last components do within one directory, but that is not to be relied on.
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn set(&mut self, seq: u64, path: &str, entry: Option<Entry>) {
        self.change(NameOp { seq, changes: vec![(path.to_owned(), entry)], after: None });
    }

    /// Renames a file, taking one or two sequence numbers from `next`.
    pub(super) fn rename(&mut self, from: &str, to: &str, mut next: impl FnMut() -> u64) -> io::Result<()> {
        self.require_dir(parent(from))?;
        self.require_dir(parent(to))?;
        let id = match self.file(from) {
            // Nobody here moves directories; saying so beats simulating it wrongly.
            Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(ErrorKind::Unsupported.into()),
            other => other?,
        };
        if self.get(to) == Some(Entry::Dir) {
            return Err(ErrorKind::IsADirectory.into());
        }
        if from == to {
            return Ok(());
        }
        let appears = (to.to_owned(), Some(Entry::File(id)));
        let vanishes = (from.to_owned(), None);
        if parent(from) == parent(to) {
            self.change(NameOp { seq: next(), changes: vec![appears, vanishes], after: None });
        } else {
            let seq = next();
            self.change(NameOp { seq, changes: vec![appears], after: None });
            self.change(NameOp { seq: next(), changes: vec![vanishes], after: Some(seq) });
        }
        Ok(())
    }

    fn change(&mut self, op: NameOp) {
        for (path, entry) in &op.changes {
            put(&mut self.live, path, *entry);
        }
        self.pending.push(op);
    }

    /// Makes the changes in `dir` durable.
    pub(super) fn sync_dir(&mut self, dir: &str) {
        let here = |op: &&NameOp| op.changes.iter().any(|(path, _)| parent(path) == dir);
        let mut seqs: BTreeSet<u64> = self.pending.iter().filter(here).map(|op| op.seq).collect();
        let needed: Vec<u64> = self.pending.iter().filter(here).filter_map(|op| op.after).collect();
        seqs.extend(needed);
        for op in std::mem::take(&mut self.pending) {
            if !seqs.contains(&op.seq) {
                self.pending.push(op);
                continue;
            }
            for (path, entry) in &op.changes {
                put(&mut self.durable, path, *entry);
                // Older changes of the same name are overtaken and must not come back at a crash.
                for older in &mut self.pending {
                    older.changes.retain(|(other, _)| other != path);
                }
            }
        }
        self.pending.retain(|op| !op.changes.is_empty());
    }

    pub(super) fn pending_seqs(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|op| op.seq)
    }

    /// The power is cut: changes of which `keeps` says so become durable, the others never happened.
    pub(super) fn crash(&mut self, mut keeps: impl FnMut(u64) -> bool) {
        let pending: BTreeSet<u64> = self.pending_seqs().collect();
        let mut kept = BTreeSet::new();
        for op in std::mem::take(&mut self.pending) {
            let possible = op.after.is_none_or(|seq| !pending.contains(&seq) || kept.contains(&seq));
            if keeps(op.seq) && possible {
                kept.insert(op.seq);
                for (path, entry) in &op.changes {
                    put(&mut self.durable, path, *entry);
                }
            }
        }
        let all = self.durable.clone();
        self.durable.retain(|path, _| reachable(&all, path));
        self.live = self.durable.clone();
    }

    /// Whether some name, live, durable or in between, leads to the file.
    pub(super) fn mentions(&self, id: u64) -> bool {
        let is_it = |entry: &Entry| *entry == Entry::File(id);
        self.live.values().any(is_it)
            || self.durable.values().any(is_it)
            || self.pending.iter().any(|op| op.changes.iter().any(|(_, entry)| *entry == Some(Entry::File(id))))
    }

    /// Files that some name leads to.
    pub(super) fn mentioned(&self) -> BTreeSet<u64> {
        let changes = self.pending.iter().flat_map(|op| op.changes.iter().filter_map(|(_, entry)| entry.as_ref()));
        let entries = self.live.values().chain(self.durable.values()).chain(changes);
        entries.filter_map(|entry| if let Entry::File(id) = entry { Some(*id) } else { None }).collect()
    }
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn put(names: &mut BTreeMap<String, Entry>, path: &str, entry: Option<Entry>) {
    match entry {
        Some(entry) => names.insert(path.to_owned(), entry),
        None => names.remove(path),
    };
}

/// Whether all directories above the path are there.
fn reachable(names: &BTreeMap<String, Entry>, path: &str) -> bool {
    let mut dir = parent(path);
    while !dir.is_empty() {
        if names.get(dir) != Some(&Entry::Dir) {
            return false;
        }
        dir = parent(dir);
    }
    true
}
