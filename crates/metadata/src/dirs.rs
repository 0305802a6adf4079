//! Directories whose names are durable.

use env::disk::Disk;
use std::io;

/// Makes `dir` and its missing ancestors, and the names of all of them durable. A file in a directory whose own name was lost
/// is lost with it.
pub(crate) fn create_durable(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    let mut child = dir;
    while let Some((parent, _)) = child.rsplit_once('/') {
        disk.sync_dir(parent)?;
        child = parent;
    }
    disk.sync_dir("")
}
