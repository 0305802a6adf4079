//! The data folders of a node: opened, locked, identified; born at the first start.
//!
//! Promises: a folder gets its identity only after the metadata was made, so a crash during the very first start leaves folders
//! that are simply born again. Refuses to know: what is in them.

use env::Env;
use env::disk::Disk;
use env::real_disk::RealDisk;
use extent_store::DiskIdentity;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{ClusterId, DiskId, NodeId};

/// The first node of a cluster.
pub const FIRST_NODE: NodeId = 1;

/// The node's folders before anything in them is opened.
pub struct Folders {
    /// Cluster: found, or minted now.
    pub cluster: ClusterId,
    /// No folder ever had an identity.
    pub newborn: bool,
    /// All of them.
    pub folders: Vec<Folder>,
}

/// One data folder.
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// The disk.
    pub disk: Arc<RealDisk>,
    /// What it says it is.
    pub found: Option<DiskIdentity>,
}

/// Opens and locks every folder.
pub fn open(paths: &[PathBuf], env: &Env) -> Result<Folders, String> {
    let mut folders = Vec::new();
    for path in paths {
        folders.push(open_one(path)?);
    }
    let clusters: Vec<(ClusterId, &Path)> =
        folders.iter().filter_map(|f| Some((f.found.as_ref()?.cluster, f.path.as_path()))).collect();
    let newborn = clusters.is_empty();
    let cluster = clusters.first().map_or_else(|| ClusterId(env.random.next_u64()), |(id, _)| *id);
    if let Some((other, path)) = clusters.iter().find(|(id, _)| *id != cluster) {
        return Err(format!(
            "{} belongs to cluster {other}, the other folders to {cluster}: name only folders of one cluster",
            path.display()
        ));
    }
    Ok(Folders { cluster, newborn, folders })
}

fn open_one(path: &Path) -> Result<Folder, String> {
    let failed = |e: &dyn std::fmt::Display| format!("data folder {}: {e}", path.display());
    let disk = RealDisk::open(path, true).map_err(|e| failed(&e))?;
    disk.lock().map_err(|e| {
        if e.kind() == std::io::ErrorKind::ResourceBusy {
            failed(&"in use by another process; stop that server first, or name another folder")
        } else {
            failed(&e)
        }
    })?;
    let found = DiskIdentity::read(&disk).map_err(|e| failed(&e))?;
    Ok(Folder { path: path.to_owned(), disk: Arc::new(disk), found })
}

impl Folders {
    /// The folders that keep the metadata: those that already do, then others, `rf` in all.
    pub fn metadata_disks(&self, rf: u8) -> Vec<Arc<dyn Disk>> {
        let keeps = |f: &&Folder| f.disk.list("log").is_ok_and(|names| !names.is_empty());
        let (mut kept, others): (Vec<&Folder>, Vec<&Folder>) = self.folders.iter().partition(keeps);
        kept.extend(others);
        kept.into_iter().take(rf.into()).map(|f| f.disk.clone() as Arc<dyn Disk>).collect()
    }

    /// Begins this start on every disk; gives new ones their identity.
    pub fn identify(&self, env: &Env) -> Result<Vec<DiskIdentity>, String> {
        let identify = |f: &Folder| match &f.found {
            Some(_) => DiskIdentity::start(&*f.disk, self.cluster, FIRST_NODE).map(|started| started.or_else(|| f.found.clone())),
            None => DiskIdentity::create(&*f.disk, self.cluster, FIRST_NODE, DiskId(env.random.next_u64())).map(Some),
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
