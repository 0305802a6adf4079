//! The load generator of the comparison: `loadgen`, from the tools beside the project.
//!
//! Promises: it is copied and built outside of the checkout; every line it prints is read whole or refused; a run that does not
//! end is ended. Refuses to know: which server it loads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{self, cargo, step, target_folder};

/// Seconds that a run may take beyond what was asked for: a slow server prepares 100,000 keys.
const GRACE_SECONDS: f64 = 600.0;

/// The built program.
pub struct Loadgen {
    program: PathBuf,
    /// Block device whose writes and flushes are counted.
    disk: Option<String>,
}

/// What one run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Operations that were answered and checked.
    pub operations: f64,
    /// Operations that were not.
    pub errors: f64,
    /// Operations a second.
    pub per_second: f64,
    /// Bytes of an object.
    pub size_bytes: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// Median time to the first byte.
    pub first_byte_p50_ms: f64,
    /// Processor time of the server.
    pub cpu_seconds: f64,
    /// Bytes written to the device, by whomever.
    pub written_bytes: f64,
    /// Flushes of the device.
    pub flushes: f64,
    /// The number after the last key that was put.
    pub next: u64,
    /// The last error.
    pub error: String,
}

impl Loadgen {
    /// Copies the source below the target folder and builds it there.
    pub fn provide(root: &Path, source: &Path, disk: Option<String>) -> Result<Loadgen, String> {
        let source = root.join(source);
        if !source.join("Cargo.toml").is_file() {
            return Err(format!(
                "there is no load generator at {}; name the folder of its source with --loadgen",
                source.display()
            ));
        }
        let folder = target_folder(root).join("loadgen");
        copy(&source, &folder)?;
        step("build of the load generator", || {
            process::run(
                cargo(&folder).args(["build", "--release", "--quiet"]).env("CARGO_TARGET_DIR", folder.join("target")),
            )
        })?;
        Ok(Loadgen { program: folder.join("target/release/loadgen"), disk })
    }

    /// Runs it. `seconds` bounds only how long it may take; what it does is in `arguments`.
    pub fn run(&self, arguments: &[String], pids: &[u32], seconds: f64) -> Result<Sample, String> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("timeout");
        command.arg(format!("{:.0}", seconds + GRACE_SECONDS)).arg(&self.program).args(arguments);
        command.args(["--pids", &pids.join(",")]);
        if let Some(disk) = &self.disk {
            command.args(["--disk", disk]);
        }
        // It ends with failure if a request failed; the line says how many.
        let (text, _) = process::output(&mut command)?;
        parse(&text).ok_or_else(|| format!("loadgen {} printed no result", arguments.join(" ")))
    }
}

/// Copies what has changed, so that cargo sees what has not. It is a workspace of its own below ours.
fn copy(source: &Path, folder: &Path) -> Result<(), String> {
    let manifest = fs::read_to_string(source.join("Cargo.toml")).map_err(|error| error.to_string())?;
    write_if_new(&folder.join("Cargo.toml"), &format!("{manifest}\n[workspace]\n"))?;
    let sources = fs::read_dir(source.join("src")).map_err(|error| format!("{}: {error}", source.display()))?;
    for entry in sources.flatten() {
        let text = fs::read_to_string(entry.path()).map_err(|error| format!("{}: {error}", entry.path().display()))?;
        write_if_new(&folder.join("src").join(entry.file_name()), &text)?;
    }
    Ok(())
}

fn write_if_new(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The last line is one JSON object.
fn parse(text: &str) -> Option<Sample> {
    let value: Value = serde_json::from_str(text.lines().last()?).ok()?;
    let number = |name: &str| value[name].as_f64();
    Some(Sample {
        operations: number("ops")?,
        errors: number("errors")?,
        per_second: number("ops_s")?,
        size_bytes: number("size")?,
        p50_ms: number("p50")?,
        first_byte_p50_ms: number("ttfb50")?,
        cpu_seconds: number("srv_cpu")?,
        written_bytes: number("wr_bytes")?,
        flushes: number("flushes")?,
        next: value["next"].as_u64()?,
        error: value["err"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Sample, parse};

    #[test]
    fn a_line_of_the_load_generator_is_read_and_half_a_line_is_refused() {
        let line = r#"{"label":"","op":"put","size":4096,"conc":16,"payload":"unsigned","secs":2.003,"ops":13402,"errors":1,"ops_s":6690.9,"mb_s":27.41,"entries":0,"entries_s":0,"p50":2.301,"p90":3.1,"p99":5.2,"max":9.1,"ttfb50":2.2,"ttfb99":5.1,"srv_cpu":1.75,"cpu_10k":1.31,"cli_cpu":0.9,"rss":80,"hwm":95,"wr_ios":7000,"wr_bytes":131072000,"flushes":4200,"next":13403,"err":"status 503"}"#;
        let sample = parse(&format!("noise\n{line}\n")).expect("a whole line");
        let expected = Sample {
            operations: 13402.0,
            errors: 1.0,
            per_second: 6690.9,
            size_bytes: 4096.0,
            p50_ms: 2.301,
            first_byte_p50_ms: 2.2,
            cpu_seconds: 1.75,
            written_bytes: 131_072_000.0,
            flushes: 4200.0,
            next: 13403,
            error: "status 503".into(),
        };
        assert_eq!(sample, expected);
        assert_eq!(parse(&line[..200]), None);
        assert_eq!(parse(""), None);
    }
}
