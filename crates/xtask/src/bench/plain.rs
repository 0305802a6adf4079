//! The plain table: one server, measured now.
//!
//! Promises: a fresh store, the machine's floor in the same run. Refuses to know: what is measured; that is
//! `ashlar bench table`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{BenchArgs, machine};
use crate::Outcome;
use crate::process::{self, empty_folder};
use crate::server::{ACCESS_KEY, SECRET_KEY, Server};

/// Measures and prints.
pub(super) fn run(root: &Path, binary: &Path, args: &BenchArgs) -> Outcome {
    let folder = empty_folder(root, "bench")?;
    let server = Server::start(binary, &folder, &[])?;
    let mut command = Command::new(binary);
    command
        .args([
            "bench",
            "table",
            "--endpoint",
            &format!("http://{}", server.address),
            "--pid",
            &server.pid().to_string(),
        ])
        .args(["--rounds", &args.rounds.unwrap_or(1).to_string()])
        .args(["--seconds", &args.seconds.unwrap_or(5.0).to_string()])
        .args(["--list-keys", &args.list_keys.to_string(), "--folder"])
        .arg(&folder)
        .env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY)
        .env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY);
    if let Some(disk) = machine::device_of(&folder) {
        command.args(["--disk", &disk]);
    }
    if args.against.is_none() && args.save.is_none() {
        return process::run(&mut command);
    }
    let (text, succeeded) = process::output(command.arg("--json"))?;
    let table: Value = serde_json::from_str(&text).map_err(|error| format!("the table is not JSON: {error}"))?;
    if let Some(path) = &args.save {
        fs::write(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let before = match &args.against {
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
