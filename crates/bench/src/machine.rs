//! What the kernel counts about a server process and a block device.
//!
//! Promises: differences of two readings are what happened between them, by whomever on that device. A missing process or
//! device reads as an error, never as zero. Refuses to know: which process is a server.

use std::fs;

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
    use super::{cpu_ticks, parse_disk, process};

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
    fn this_process_has_used_memory() {
        assert!(process(std::process::id()).expect("our own process").resident_bytes > 0);
    }
}
