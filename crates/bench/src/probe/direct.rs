//! Random reads of the disk itself, around the page cache: the floor of an uncached read.
//!
//! Promises: every place is read once at most, so that a cache below the disk is not asked twice for the same. The file is removed at
//! the end. Refuses to know: servers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::content::{Content, Dice};
use crate::{BenchError, clock};

/// Bytes of a large read; places are this far apart.
pub(super) const LARGE_BYTES: usize = 64 << 10;
/// Bytes of a small read.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Bytes of a write while the file is made.
const WRITE_BYTES: usize = 1 << 20;

/// A file of its own on the disk that is measured.
pub(super) struct DirectFile {
    file: File,
    path: PathBuf,
    room: Vec<u8>,
    places: Vec<u64>,
}

impl DirectFile {
    /// Makes a file of at least so many bytes in `folder`, all of them written and synced.
    pub(super) fn create(folder: &Path, bytes: u64, seed: u64) -> Result<DirectFile, BenchError> {
        let path = folder.join(format!("ashlar-direct-{}", std::process::id()));
        let what = format!("make a file for direct reads in {}", folder.display());
        let writes = bytes.div_ceil(WRITE_BYTES as u64).max(1);
        let file = write_file(&path, writes, seed).map_err(BenchError::local(what))?;
        let mut places: Vec<u64> = (0..writes * (WRITE_BYTES / LARGE_BYTES) as u64).collect();
        shuffle(&mut places, &mut Dice::new(seed));
        Ok(DirectFile { file, path, room: vec![0; LARGE_BYTES + SMALL_BYTES], places })
    }

    /// Times one read of so many bytes at a place that was not read before; `None` when all were.
    pub(super) fn read(&mut self, bytes: usize) -> Result<Option<Duration>, BenchError> {
        let Some(place) = self.places.pop() else { return Ok(None) };
        let start = self.room.as_ptr().align_offset(SMALL_BYTES);
        let buffer = &mut self.room[start..start + bytes];
        let began = clock::monotonic();
        let read = self.file.read_exact_at(buffer, place * LARGE_BYTES as u64);
        let took = clock::monotonic() - began;
        read.map_err(BenchError::local("read around the page cache"))?;
        Ok(Some(took))
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // Whatever happened, the file is ours to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_file(path: &Path, writes: u64, seed: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut room = vec![0; WRITE_BYTES + SMALL_BYTES];
    let start = room.as_ptr().align_offset(SMALL_BYTES);
    let content = Content::new(seed);
    for index in 0..writes {
        let block = &mut room[start..start + WRITE_BYTES];
        content.fill(index * WRITE_BYTES as u64, block);
        file.write_all_at(block, index * WRITE_BYTES as u64)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// Fisher and Yates.
pub(super) fn shuffle<T>(list: &mut [T], dice: &mut Dice) {
    for last in (1..list.len()).rev() {
        list.swap(last, dice.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::{DirectFile, LARGE_BYTES, SMALL_BYTES, shuffle};
    use crate::content::Dice;

    #[test]
    fn each_place_is_read_once_and_the_file_goes_away() {
        let dir = tempfile::tempdir().expect("a folder");
        // Some file systems, such as those of containers in memory, know no direct reads.
        let Ok(mut file) = DirectFile::create(dir.path(), 1, 1) else { return };
        assert!((0..16).all(|n| {
            let bytes = if n % 2 == 0 { LARGE_BYTES } else { SMALL_BYTES };
            file.read(bytes).expect("read").is_some()
        }));
        assert!(file.read(SMALL_BYTES).expect("no error").is_none());
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_shuffled_list_has_the_same_members() {
        let mut list: Vec<u32> = (0..100).collect();
        shuffle(&mut list, &mut Dice::new(1));
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }
}
