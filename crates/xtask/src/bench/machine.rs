//! What can be read of this machine and its processes from `/proc` and `/sys`.
//!
//! Promises: what the kernel does not tell is `None`, never zero. Refuses to know: servers.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The whole block device a folder lies on, by the name it has in `/sys/block`; `None` for file systems without one.
pub fn device_of(folder: &Path) -> Option<String> {
    let output = Command::new("df").arg("--output=source").arg(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = text.lines().nth(1)?.trim().strip_prefix("/dev/")?.to_owned();
    let class = Path::new("/sys/class/block").join(&name);
    if class.join("partition").exists() {
        // The link leads to .../block/DISK/PARTITION.
        let real = class.canonicalize().ok()?;
        return Some(real.parent()?.file_name()?.to_string_lossy().into_owned());
    }
    class.exists().then_some(name)
}

/// Bytes that may still be written below a folder.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let output = Command::new("df").args(["--output=avail", "--block-size=1"]).arg(folder).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().nth(1)?.trim().parse().ok()
}

/// Processors and kernel in one line.
pub fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} x {}, Linux {}", model.trim_start_matches([' ', '\t', ':']), kernel.trim())
}

/// Whether the processor has this feature, as `/proc/cpuinfo` names it.
pub fn has_feature(name: &str) -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == name))
}

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(other) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if fields(&stat).get(1).and_then(|parent| parent.parse().ok()) == Some(pid) {
            family.push(other);
        }
    }
    family
}

/// The fields of `/proc/PID/stat` after the name, which may contain spaces and parentheses itself. The first is the state.
fn fields(stat: &str) -> Vec<&str> {
    stat.rfind(')').map(|at| stat[at + 1..].split_ascii_whitespace().collect()).unwrap_or_default()
}

/// Clock ticks of processor time that these processes used since they began.
pub fn ticks(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        fields(&stat).iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
    };
    pids.iter().map(of).sum()
}

/// Memory of these processes in MiB: now, and at their peaks.
pub fn memory_mib(pids: &[u32]) -> Option<(f64, f64)> {
    let mut sum = (0.0, 0.0);
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        sum.0 += kib(&status, "VmRSS:")? / 1024.0;
        sum.1 += kib(&status, "VmHWM:")? / 1024.0;
    }
    Some(sum)
}

fn kib(status: &str, name: &str) -> Option<f64> {
    status.lines().find(|line| line.starts_with(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Bytes that a process caused to be written to block devices, by its own account; whatever other processes do.
pub fn written_bytes(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

/// The output of a program in one line, empty if it cannot be run.
pub fn ask(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{family, fields, memory_mib, ticks};

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        assert_eq!(fields("12 (a) b (c) S 1 2 3"), ["S", "1", "2", "3"]);
    }

    #[test]
    fn this_process_is_found_with_its_memory_and_is_the_child_of_another() {
        let own = std::process::id();
        assert_eq!(family(own)[0], own);
        assert!(family(std::os::unix::process::parent_id()).contains(&own));
        assert!(memory_mib(&[own]).expect("our own memory").0 > 0.0);
        assert!(ticks(&[own]) < u64::MAX);
    }
}
