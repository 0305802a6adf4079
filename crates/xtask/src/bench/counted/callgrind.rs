//! Instructions, counted by callgrind.
//!
//! Promises: what is counted is all that the process does between begin and end, on all its threads. Refuses to know: time; a
//! program under it is some fifty times slower. The processor that valgrind shows has AVX2 where the real one has it, and never
//! AVX-512 or SHA instructions: SHA-256 is computed in software there, on every machine alike.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::is_installed;
use crate::provision;
use crate::server::Server;

/// Seconds after which a control command that is not answered is given up: valgrind answers between two instructions, but a
/// container may forbid what it needs to be woken.
const CONTROL_SECONDS: &str = "120";

/// The words before the server's own command line. Installs valgrind if it is not there.
pub fn wrapper(folder: &Path) -> Result<Vec<String>, String> {
    if !is_installed("valgrind") {
        provision::debian(&[("valgrind", "valgrind")])
            .map_err(|error| format!("valgrind cannot be installed: {error}"))?;
    }
    let out = out_file(folder);
    let words = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"].map(str::to_owned);
    Ok(words.into_iter().chain([format!("--callgrind-out-file={}", out.display())]).collect())
}

fn out_file(folder: &Path) -> PathBuf {
    folder.join("callgrind.out")
}

/// A count that has begun.
pub struct Instructions {
    pid: String,
    folder: PathBuf,
}

impl Instructions {
    /// From now on.
    pub fn begin(server: &Server, folder: &Path) -> Result<Instructions, String> {
        for dump in dumps(folder) {
            fs::remove_file(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        }
        let begun = Instructions { pid: server.pid().to_string(), folder: folder.to_owned() };
        begun.control(&["--instr=on"])?;
        begun.control(&["--zero"])?;
        Ok(begun)
    }

    /// Until now.
    pub fn end(self) -> Result<f64, String> {
        self.control(&["--dump"])?;
        self.control(&["--instr=off"])?;
        let dump = dumps(&self.folder).pop().ok_or("callgrind wrote no dump")?;
        let text = fs::read_to_string(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        total(&text).ok_or_else(|| format!("{} has no sum", dump.display()))
    }

    fn control(&self, words: &[&str]) -> Result<(), String> {
        control(&self.pid, words)
    }
}

/// Whether a server that runs under callgrind takes commands.
pub fn probe(server: &Server) -> Result<(), String> {
    control(&server.pid().to_string(), &["--instr=off"])
}

fn control(pid: &str, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args([CONTROL_SECONDS, "callgrind_control"]).args(words).arg(pid);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("callgrind_control: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // It exits with success when there was nobody to talk to.
    if output.status.success() && text.contains("OK") {
        Ok(())
    } else {
        Err(format!("callgrind does not take commands here: {}", text.trim()))
    }
}

/// Dumps asked for are numbered: `callgrind.out.1` and so on. In order of their numbers.
fn dumps(folder: &Path) -> Vec<PathBuf> {
    let name = out_file(folder).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = |path: &Path| path.extension().and_then(|number| number.to_str()?.parse::<u32>().ok());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut dumps: Vec<PathBuf> = entries
        .filter(|path| path.file_stem().is_some_and(|stem| stem == name.as_str()) && number(path).is_some())
        .collect();
    dumps.sort_by_key(|path| number(path));
    dumps
}

/// The sum of all instructions in a dump.
fn total(dump: &str) -> Option<f64> {
    let line =
        dump.lines().rev().find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{dumps, total};

    #[test]
    fn the_sum_of_a_dump_is_found() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 5\n\nfn=(1) main\n3 5\n\ntotals: 77000\n"), Some(77000.0));
        assert_eq!(total("events: Ir\nsummary: 5 6\n"), Some(5.0));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_newest_dump_is_the_one_with_the_highest_number() {
        let folder = std::env::temp_dir().join(format!("xtask-callgrind-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["callgrind.out", "callgrind.out.9", "callgrind.out.10", "server.log"] {
            std::fs::write(folder.join(name), "").expect("written");
        }
        let found = dumps(&folder);
        assert!(found.len() == 2 && found[1].ends_with("callgrind.out.10"), "{found:?}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
