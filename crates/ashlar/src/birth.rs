//! The data folders of a node: opened, locked, identified; born at the first start; all of them or none later.
//!
//! Promises: a folder gets its identity only after the metadata was made, so a crash during the very first start leaves folders
//! that are simply born again. Once a store is born, no folder becomes part of it and none is missing without a word of the
//! operator: a disk that is not mounted must not be taken for a new one. Refuses to know: what is in them.

use crate::disks::{self, DiskList, KnownDisk};
use env::Env;
use env::disk::Disk;
use env::real_disk::RealDisk;
use env::ring::Ring;
use extent_store::DiskIdentity;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{ClusterId, DiskId, NodeId};

/// The first node of a cluster.
pub const FIRST_NODE: NodeId = 1;

/// What the operator wants opened.
pub struct Wanted<'a> {
    /// The data folders.
    pub paths: &'a [PathBuf],
    /// Copies.
    pub rf: u8,
    /// Disks that are gone for good.
    pub lost: &'a [DiskId],
    /// Folders without an identity are new disks.
    pub add: bool,
    /// What begins reads of data files; without it threads do.
    pub ring: Option<&'a Ring>,
}

/// A node's place in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its id there.
    pub node: NodeId,
}

/// The node's folders before anything in them is opened.
pub struct Folders {
    /// Cluster: found, minted now, or joined.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// No folder ever had an identity.
    pub newborn: bool,
    /// All of them.
    pub folders: Vec<Folder>,
    /// Disks as they were listed at the last start.
    known: DiskList,
    /// Disks that are not here, for which the operator said now that they are gone.
    lost_now: BTreeSet<DiskId>,
}

/// One data folder.
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// The disk.
    pub disk: Arc<RealDisk>,
    /// What it says it is.
    pub found: Option<DiskIdentity>,
    /// What it is or will be.
    id: DiskId,
    /// Its copy of the list of disks.
    copy: Option<disks::Copy>,
    /// It has one that cannot be read.
    copy_damaged: bool,
}

/// Opens and locks every folder.
pub fn open(wanted: &Wanted<'_>, env: &Env) -> Result<Folders, String> {
    let mut folders = Vec::new();
    let mut absent = Vec::new();
    for path in wanted.paths {
        match open_one(path, false, wanted.ring, env)? {
            Some(folder) => folders.push(folder),
            None => absent.push(path.as_path()),
        }
    }
    let Some(Place { cluster, node }) = place(&folders)? else { return born(wanted, folders, &absent, env) };
    if let Some(path) = absent.first() {
        return Err(format!(
            "data folder {0} is not there, and this store is not new. Is its disk mounted? For a new disk, make the folder \
             (mkdir {0}) and start once with --add-disk",
            path.display()
        ));
    }
    let known = known_disks(&folders, cluster)?;
    refuse_old(&folders, &known)?;
    name_new(&mut folders, cluster, &known, wanted.add)?;
    let lost_now = judge_absent(&folders, &known, wanted)?;
    Ok(Folders { cluster, node, newborn: false, folders, known, lost_now })
}

/// A folder; `None` if the directory is not there and may not be made.
fn open_one(path: &Path, create: bool, ring: Option<&Ring>, env: &Env) -> Result<Option<Folder>, String> {
    let failed = |e: &dyn std::fmt::Display| {
        format!(
            "data folder {}: {e}. If its disk is gone for good, leave it out and see what the next start says",
            path.display()
        )
    };
    let disk = match RealDisk::open(path, create) {
        Ok(disk) => disk.with_ring(ring.cloned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
        Err(e) => return Err(failed(&e)),
    };
    disk.lock().map_err(|e| {
        if e.kind() == io::ErrorKind::ResourceBusy {
            format!(
                "data folder {}: in use by another process; stop that server first, or name another folder",
                path.display()
            )
        } else {
            failed(&e)
        }
    })?;
    let found = DiskIdentity::read(&disk).map_err(|e| failed(&e))?;
    let (copy, copy_damaged) = match disks::read(&disk) {
        Ok(copy) => (copy, false),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(folder = %path.display(), error = %e, "the list of disks is taken from the other folders");
            (None, true)
        }
        Err(e) => return Err(failed(&e)),
    };
    let id = found.map_or_else(|| DiskId(env.random.next_u64()), |identity| identity.disk);
    Ok(Some(Folder { path: path.to_owned(), disk: Arc::new(disk), found, id, copy, copy_damaged }))
}

/// Cluster and node of the folders that have an identity.
fn place(folders: &[Folder]) -> Result<Option<Place>, String> {
    let of = |f: &Folder| f.found.map(|found| Place { cluster: found.cluster, node: found.node });
    let mut places = folders.iter().filter_map(|f| Some((of(f)?, f.path.as_path())));
    let Some((first, _)) = places.next() else { return Ok(None) };
    match places.find(|(place, _)| *place != first) {
        Some((other, path)) if other.cluster != first.cluster => Err(format!(
            "{} belongs to cluster {}, the other folders to {}: name only folders of one cluster",
            path.display(),
            other.cluster,
            first.cluster
        )),
        Some((other, path)) => Err(format!(
            "{} belongs to node {}, the other folders to node {}: name only folders of one node",
            path.display(),
            other.node,
            first.node
        )),
        None => Ok(Some(first)),
    }
}

/// The very first start.
fn born(wanted: &Wanted<'_>, mut folders: Vec<Folder>, absent: &[&Path], env: &Env) -> Result<Folders, String> {
    too_few(wanted, 0)?;
    for path in absent {
        folders.extend(open_one(path, true, wanted.ring, env)?);
    }
    // As they are on the command line, whichever had to be made.
    folders.sort_by_key(|folder| wanted.paths.iter().position(|path| *path == folder.path));
    let cluster = ClusterId(env.random.next_u64());
    Ok(Folders {
        cluster,
        node: FIRST_NODE,
        newborn: true,
        folders,
        known: DiskList::default(),
        lost_now: BTreeSet::new(),
    })
}

fn too_few(wanted: &Wanted<'_>, lost: usize) -> Result<(), String> {
    let (rf, given) = (usize::from(wanted.rf), wanted.paths.len());
    if rf > given + lost {
        return Err(format!("--rf {rf} needs {rf} data folders on distinct disks; {given} given: repeat --data-dir"));
    }
    Ok(())
}

/// The newest list of disks. Stores that never had one are taken as they are.
fn known_disks(folders: &[Folder], cluster: ClusterId) -> Result<DiskList, String> {
    let copies = folders.iter().filter(|f| f.found.is_some()).filter_map(|f| f.copy.as_ref());
    let newest = copies.filter(|copy| copy.cluster == cluster).max_by_key(|copy| copy.list.version);
    match (newest, folders.iter().find(|f| f.copy_damaged)) {
        (Some(copy), _) => Ok(copy.list.clone()),
        (None, None) => Ok(DiskList::default()),
        (None, Some(folder)) => Err(format!(
            "the list of the store's disks is damaged in all folders given: name all data folders of the store, then remove {}",
            folder.path.join("disks").display()
        )),
    }
}

/// A disk that was set back to an earlier state of itself has forgotten what was written since, and says so of nothing.
fn refuse_old(folders: &[Folder], known: &DiskList) -> Result<(), String> {
    for folder in folders {
        let Some(found) = &folder.found else { continue };
        let seen = known.disks.get(&found.disk).map_or(0, |disk| disk.incarnation);
        if seen > found.incarnation {
            return Err(format!(
                "data folder {}: an old image of disk {}: it knows of {} starts, the other folders of {seen}. Mount the disk \
                 as it was last. Only if that is gone for good, leave this folder out and start once with --lost-disk {1}: \
                 what has no copy on another disk is then lost",
                folder.path.display(),
                found.disk,
                found.incarnation,
            ));
        }
    }
    Ok(())
}

/// Folders without an identity: their birth was cut off, or they are new and announced.
fn name_new(folders: &mut [Folder], cluster: ClusterId, known: &DiskList, add: bool) -> Result<(), String> {
    let taken: BTreeSet<DiskId> = folders.iter().filter_map(|f| Some(f.found?.disk)).collect();
    for folder in folders.iter_mut().filter(|folder| folder.found.is_none()) {
        let promised = folder.copy.as_ref().filter(|copy| copy.cluster == cluster).map(|copy| copy.this);
        match promised.filter(|id| known.disks.contains_key(id) && !taken.contains(id)) {
            Some(id) => folder.id = id,
            None if add => tracing::warn!(folder = %folder.path.display(), disk = %folder.id, "a new disk is added"),
            None => {
                return Err(format!(
                    "data folder {} is no disk of this store, and the store is not new. Is its disk mounted? If it is a new \
                     disk, start once with --add-disk",
                    folder.path.display()
                ));
            }
        }
    }
    Ok(())
}

/// Every known disk is here or the operator knows. Gives the disks that are said to be lost by this start.
fn judge_absent(folders: &[Folder], known: &DiskList, wanted: &Wanted<'_>) -> Result<BTreeSet<DiskId>, String> {
    let here: BTreeSet<DiskId> = folders.iter().map(|folder| folder.id).collect();
    if let Some(folder) = folders.iter().find(|folder| wanted.lost.contains(&folder.id)) {
        return Err(format!(
            "disk {} is here, at {}: leave out --lost-disk, or its --data-dir if it shall not be used any more",
            folder.id,
            folder.path.display()
        ));
    }
    let absent = || known.disks.iter().filter(|(id, _)| !here.contains(id));
    let unexplained = absent().filter(|(id, disk)| !disk.lost && !wanted.lost.contains(id));
    refuse_missing(unexplained.map(|(id, disk)| (*id, disk.path.as_str())))?;
    too_few(wanted, absent().count())?;
    Ok(wanted.lost.iter().copied().collect())
}

/// An error that names the disks, if there are any.
fn refuse_missing<'a>(missing: impl Iterator<Item = (DiskId, &'a str)>) -> Result<(), String> {
    let (mut which, mut flags) = (Vec::new(), String::new());
    for (id, path) in missing {
        which.push(if path.is_empty() { format!("disk {id}") } else { format!("disk {id} (last at {path})") });
        flags.push_str(&format!(" --lost-disk {id}"));
    }
    if which.is_empty() {
        return Ok(());
    }
    Err(format!(
        "not here: {}. Mount what is missing and name its folder with --data-dir. Only if it is gone for good, start once \
         with{flags}: what has no copy on another disk is then lost",
        which.join(", ")
    ))
}

impl Folders {
    /// Whose they are, or will be.
    pub fn place(&self) -> Place {
        Place { cluster: self.cluster, node: self.node }
    }

    /// Their disks, in order.
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.folders.iter().map(|folder| folder.disk.clone() as Arc<dyn Disk>).collect()
    }

    /// Ids of the disks and the bytes of their file systems.
    pub fn sizes(&self) -> Vec<(DiskId, u64)> {
        let bytes = |f: &Folder| f.disk.space().map_or(0, |space| space.total_bytes);
        self.folders.iter().map(|folder| (folder.id, bytes(folder))).collect()
    }

    /// New folders are for this node; others were somebody's before.
    pub fn settle(&mut self, place: Place) -> Result<(), String> {
        if self.place() == place {
            return Ok(());
        }
        if !self.newborn {
            return Err(format!(
                "the data folders belong to node {} of cluster {}, and the file `node` in them is that of node {} of cluster {}",
                self.node, self.cluster, place.node, place.cluster
            ));
        }
        (self.cluster, self.node) = (place.cluster, place.node);
        Ok(())
    }

    fn keeps_metadata(folder: &Folder) -> bool {
        folder.disk.list("log").is_ok_and(|names| !names.is_empty())
    }

    /// The folders that keep the metadata: those that already do, and others up to `rf` in all.
    pub fn metadata_disks(&self, rf: u8) -> Result<Vec<Arc<dyn Disk>>, String> {
        let (mut kept, others): (Vec<&Folder>, Vec<&Folder>) =
            self.folders.iter().partition(|f| Self::keeps_metadata(f));
        if kept.is_empty() && !self.newborn {
            return Err("none of the data folders holds the store's metadata: name all of its folders".to_owned());
        }
        // All of those that do, for which of them are in the log set only their logs know.
        let more = usize::from(rf).saturating_sub(kept.len());
        kept.extend(others.into_iter().take(more));
        Ok(kept.into_iter().map(|f| f.disk.clone() as Arc<dyn Disk>).collect())
    }

    /// With copies: each pair of folders that lie on one device, as sentences. They die together.
    pub fn shared_devices(&self, rf: u8) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut first_of: BTreeMap<u64, &Path> = BTreeMap::new();
        for folder in self.folders.iter().filter(|_| rf > 1) {
            // A folder that is open and cannot be asked for its device says so elsewhere.
            let Ok(about) = std::fs::metadata(&folder.path) else { continue };
            match first_of.entry(about.dev()) {
                Entry::Vacant(new) => {
                    new.insert(&folder.path);
                }
                Entry::Occupied(first) => warnings.push(format!(
                    "data folders {} and {} lie on one device: copies on both are lost together; put each on a disk of its own",
                    first.get().display(),
                    folder.path.display()
                )),
            }
        }
        warnings
    }

    /// Disks with metadata that the operator now says are gone.
    pub fn lost_metadata(&self) -> usize {
        if self.known.disks.is_empty() {
            // A store older than the list.
            return self.lost_now.len();
        }
        let lost = self.lost_now.iter().filter_map(|id| self.known.disks.get(id));
        lost.filter(|disk| disk.metadata && !disk.lost).count()
    }

    /// Compares with the disks on which the metadata says that there are extents. Gives the lost ones among them.
    pub fn judge_named(&self, named: &BTreeSet<DiskId>) -> Result<Vec<DiskId>, String> {
        let here: BTreeSet<DiskId> = self.folders.iter().map(|folder| folder.id).collect();
        let absent = || named.difference(&here).copied();
        let known_lost = |id: &DiskId| self.known.disks.get(id).is_some_and(|disk| disk.lost);
        refuse_missing(absent().filter(|id| !known_lost(id) && !self.lost_now.contains(id)).map(|id| (id, "")))?;
        Ok(absent().collect())
    }

    /// Writes down which disks there are, where it is not so written yet. `missing` are the lost ones that still matter.
    pub fn write_list(&self, missing: &[DiskId]) -> Result<DiskList, String> {
        let known_starts = |id: &DiskId| self.known.disks.get(id).map_or(0, |disk| disk.incarnation);
        let here = self.folders.iter().map(|folder| {
            let path = std::path::absolute(&folder.path).unwrap_or_else(|_| folder.path.clone());
            let metadata = Self::keeps_metadata(folder);
            (
                folder.id,
                KnownDisk {
                    path: path.to_string_lossy().into_owned(),
                    metadata,
                    lost: false,
                    incarnation: known_starts(&folder.id),
                },
            )
        });
        let lost = missing.iter().map(|id| {
            let known = self.known.disks.get(id).cloned();
            let path = known.map_or_else(String::new, |disk| disk.path);
            (*id, KnownDisk { path, metadata: false, lost: true, incarnation: known_starts(id) })
        });
        let mut list = DiskList { version: self.known.version, disks: here.chain(lost).collect() };
        if list.disks != self.known.disks {
            list.version += 1;
        }
        self.write_copies(&list)?;
        Ok(list)
    }

    /// Adds this start to the list that [`Folders::write_list`] gave. Only now, for a list must never know of more starts than
    /// the disk itself.
    pub fn write_starts(&self, mut list: DiskList, started: &[DiskIdentity]) -> Result<(), String> {
        for identity in started {
            if let Some(disk) = list.disks.get_mut(&identity.disk) {
                disk.incarnation = identity.incarnation;
            }
        }
        list.version += 1;
        self.write_copies(&list)
    }

    fn write_copies(&self, list: &DiskList) -> Result<(), String> {
        for folder in &self.folders {
            let copy = disks::Copy { cluster: self.cluster, this: folder.id, list: list.clone() };
            if folder.copy.as_ref() != Some(&copy) {
                disks::write(&*folder.disk, &copy)
                    .map_err(|e| format!("data folder {}: {e}", folder.path.display()))?;
            }
        }
        Ok(())
    }

    /// Begins this start on every disk; gives new ones their identity.
    pub fn identify(&self) -> Result<Vec<DiskIdentity>, String> {
        let identify = |f: &Folder| match &f.found {
            Some(_) => DiskIdentity::start(&*f.disk, self.cluster, self.node).map(|started| started.or(f.found)),
            None => DiskIdentity::create(&*f.disk, self.cluster, self.node, f.id).map(Some),
        };
        self.folders
            .iter()
            .map(|f| {
                let identity = identify(f).map_err(|e| format!("data folder {}: {e}", f.path.display()))?;
                identity.ok_or_else(|| format!("data folder {}: its identity went away", f.path.display()))
            })
            .collect()
    }
}
