//! Small files that are read and replaced as a whole.
//!
//! Promises: after a crash the file is the old one or the new one, never a mixture; what was written is durable on return.
//! Refuses to know: what is in them, how damage shows.

use crate::disk::{Caching, Disk, Open};
use std::io;

/// The file's bytes, the first `most` of them; `None` if there is no such file.
pub fn read(disk: &dyn Disk, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(name, Open::Read, Caching::Buffered) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let len = usize::try_from(file.len()?).map_or(most, |len| len.min(most));
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Replaces the file, which lies in the disk's root, by way of one with `.new` behind its name.
pub fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = format!("{name}.new");
    match disk.remove(&unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&unfinished, Open::CreateNew, Caching::Buffered)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&unfinished, name)?;
    disk.sync_dir("")
}

#[cfg(test)]
mod tests {
    use super::{read, replace};
    use crate::sim_disk::{CrashPolicy, SimDisk};

    #[test]
    fn a_power_cut_at_every_write_leaves_the_old_file_or_the_new_one() {
        let born = SimDisk::new(1, 1 << 20);
        assert_eq!(read(&born, "f", 10).expect("reads"), None);
        replace(&born, "f", b"old").expect("replaces");
        let mut seen = [false; 2];
        for cut in 0.. {
            let disk = born.fork();
            disk.crash_after(disk.mutations() + cut);
            let done = replace(&disk, "f", b"newer").is_ok();
            for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomWithGarbage(cut)] {
                let disk = disk.crash(policy);
                let found = read(&disk, "f", 10).expect("reads").expect("there");
                assert!(found == b"newer" || (!done && found == b"old"), "cut {cut}: {found:?}");
                seen[usize::from(found == b"newer")] = true;
                replace(&disk, "f", b"again").expect("what a crash left is no hindrance");
            }
            if done {
                break;
            }
        }
        assert_eq!(seen, [true; 2]);
        assert_eq!(read(&born, "f", 2).expect("reads").expect("there"), b"ol");
    }
}
