//! What the kernel counts about a server process and a block device.
//!
//! Promises: differences of two readings are what happened between them, by whomever on that device. A missing process or
//! device reads as an error, never as zero. Refuses to know: which process is a server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::BenchError;

/// Clock ticks a second in `/proc/PID/stat`: fixed at 100 on every Linux architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;
/// `/sys/block/*/stat` counts sectors of 512 bytes, whatever the device's own sector size.
const SECTOR_BYTES: u64 = 512;

/// Processor time and memory of one process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProcessReading {
    /// User and system time since the process began.
    pub cpu_seconds: f64,
    /// Memory in use now.
    pub resident_bytes: u64,
    /// The most memory it ever used.
    pub peak_bytes: u64,
}

/// Writes and flushes of one block device.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DiskReading {
    /// Completed write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Completed flush requests.
    pub flushes: u64,
}

/// Reads `/proc/PID`.
pub fn process(pid: u32) -> Result<ProcessReading, BenchError> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let status = read(&format!("/proc/{pid}/status"))?;
    Ok(ProcessReading {
        cpu_seconds: cpu_ticks(&stat).ok_or_else(|| unreadable("process stat"))? as f64 / TICKS_PER_SECOND,
        resident_bytes: status_kib(&status, "VmRSS:").unwrap_or(0) << 10,
        peak_bytes: status_kib(&status, "VmHWM:").unwrap_or(0) << 10,
    })
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&path).map_err(BenchError::local(path.as_str()))?.count() as u64)
}

/// Bytes that a process caused to be read from block devices: what the page cache had is not in it.
pub fn read_bytes(pid: u32) -> Result<u64, BenchError> {
    let io = read(&format!("/proc/{pid}/io"))?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| unreadable("process io"))
}

/// Files below a folder, and the bytes they occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderReading {
    /// Regular files.
    pub files: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
}

/// Walks a folder; what goes away meanwhile is not counted.
pub fn folder(path: &Path) -> FolderReading {
    let mut sum = FolderReading::default();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => {
                let below = folder(&entry.path());
                sum = FolderReading { files: sum.files + below.files, bytes: sum.bytes + below.bytes };
            }
            Ok(data) => sum = FolderReading { files: sum.files + 1, bytes: sum.bytes + data.blocks() * SECTOR_BYTES },
            Err(_) => {}
        }
    }
    sum
}

/// Reads `/sys/block/NAME/stat`, or that of a partition in `/sys/class/block`.
pub fn disk(name: &str) -> Result<DiskReading, BenchError> {
    let stat = read(&format!("/sys/class/block/{name}/stat"))?;
    parse_disk(&stat).ok_or_else(|| unreadable("disk stat"))
}

fn read(path: &str) -> Result<String, BenchError> {
    fs::read_to_string(path).map_err(BenchError::local(path))
}

fn unreadable(what: &str) -> BenchError {
    BenchError::Usage(format!("the kernel's {what} has a form this program does not know"))
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The command name stands in parentheses and may contain anything, also spaces and parentheses.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn status_kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse_disk(stat: &str) -> Option<DiskReading> {
    let fields: Vec<u64> = stat.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(DiskReading {
        writes: *fields.get(4)?,
        written_bytes: fields.get(6)? * SECTOR_BYTES,
        // Kernels before 5.5 do not count flushes.
        flushes: fields.get(15).copied().unwrap_or(0),
    })
}

impl DiskReading {
    /// What happened since `earlier`.
    pub fn since(self, earlier: DiskReading) -> DiskReading {
        DiskReading {
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

/// The first line of `/proc/cpuinfo` that names the processor, and the number of processors.
pub fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} x {}, Linux {}", model.unwrap_or("unknown processor"), kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::{cpu_ticks, descriptors, folder, parse_disk, process, read_bytes};

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(300));
    }

    #[test]
    fn the_sixteenth_field_of_a_disk_counts_flushes() {
        let reading = parse_disk("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").expect("a full line");
        assert_eq!((reading.writes, reading.written_bytes, reading.flushes), (5, 7 * 512, 16));
        assert!(parse_disk("1 2 x").is_none());
    }

    #[test]
    fn files_of_inner_folders_count_with_their_blocks() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("x")).expect("made");
        for name in ["a", "x/b"] {
            std::fs::write(dir.path().join(name), [1; 5000]).expect("written");
        }
        let found = folder(dir.path());
        assert_eq!((found.files, found.bytes >= 10_000), (2, true), "{found:?}");
        assert_eq!(folder(&dir.path().join("none")).files, 0);
    }

    #[test]
    fn this_process_has_open_descriptors_and_has_read() {
        let pid = std::process::id();
        assert!(descriptors(pid).expect("our own process") >= 3);
        read_bytes(pid).expect("our own process");
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(process(std::process::id()).expect("our own process").resident_bytes > 0);
    }
}
