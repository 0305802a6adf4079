//! `cargo xtask bench`: the table of docs/performance.md, measured now.
//!
//! Promises: release build, a fresh store, the machine's floor in the same run. Refuses to know: what is measured; that is
//! `ashlar bench table`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::Outcome;
use crate::process::{self, empty_folder, release_binary, step};
use crate::server::{ACCESS_KEY, SECRET_KEY, Server};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Show what changed since a former run: a file written by --save.
    #[arg(long)]
    compare: Option<PathBuf>,
    /// Also write the figures to this file.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Interleaved rounds; the median is shown.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Seconds of each step.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Keys of the listing.
    #[arg(long, default_value_t = 100_000)]
    list_keys: u64,
}

/// Measures and prints.
pub fn run(root: &Path, args: &BenchArgs) -> Outcome {
    let binary = step("release build", || release_binary(root))?;
    let folder = empty_folder(root, "bench")?;
    let server = Server::start(&binary, &folder, &[])?;
    let mut command = Command::new(&binary);
    command
        .args([
            "bench",
            "table",
            "--endpoint",
            &format!("http://{}", server.address),
            "--pid",
            &server.pid().to_string(),
        ])
        .args(["--rounds", &args.rounds.to_string(), "--seconds", &args.seconds.to_string()])
        .args(["--list-keys", &args.list_keys.to_string(), "--folder"])
        .arg(&folder)
        .env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY)
        .env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY);
    if let Some(disk) = device_of(&folder) {
        command.args(["--disk", &disk]);
    }
    if args.compare.is_none() && args.save.is_none() {
        return process::run(&mut command);
    }
    let (text, succeeded) = process::output(command.arg("--json"))?;
    let table: Value = serde_json::from_str(&text).map_err(|error| format!("the table is not JSON: {error}"))?;
    if let Some(path) = &args.save {
        fs::write(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let before = match &args.compare {
        Some(path) => {
            serde_json::from_str(&fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)
                .map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => Value::Null,
    };
    print_rows(&table, &before);
    if succeeded { Ok(()) } else { Err("some requests failed; the figures are not a result".into()) }
}

fn print_rows(table: &Value, before: &Value) {
    println!("machine: {}\nfloor: {}", table["machine"].as_str().unwrap_or("?"), table["floor"]);
    println!("| figure | unit | now | before | target |\n|---|---|---|---|---|");
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let former = before["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in rows {
        let old = former.iter().find(|old| old["name"] == row["name"]).map_or(&Value::Null, |old| &old["value"]);
        let number = |value: &Value| value.as_f64().map_or("-".into(), |value| format!("{value:.3}"));
        let text = |name: &str| row[name].as_str().unwrap_or("?").to_owned();
        println!(
            "| {} | {} | {} | {} | {} |",
            text("name"),
            text("unit"),
            number(&row["value"]),
            number(old),
            number(&row["target"])
        );
    }
}

/// The block device a folder lies on, as `/sys/class/block` names it; `None` for file systems without one.
fn device_of(folder: &Path) -> Option<String> {
    let output = Command::new("df").arg("--output=source").arg(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = text.lines().nth(1)?.trim().strip_prefix("/dev/")?.to_owned();
    Path::new("/sys/class/block").join(&name).exists().then_some(name)
}
