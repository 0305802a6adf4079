//! `cargo xtask test`: every test there is.
//!
//! Promises: all parts run even if one fails; each black-box part ends with its own closing line, and the command succeeds
//! only if none failed. Refuses to know: what the parts test.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::blackbox::{self, Tally};
use crate::clients::{self, python_command};
use crate::process::{self, cargo, empty_folder, step, test_binary};
use crate::{Outcome, provision};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct TestArgs {
    /// 500 kills instead of 20.
    #[arg(long)]
    long: bool,
    /// Only these parts: cargo, clients, crash, cluster, fulldisk, bitrot, security.
    parts: Vec<String>,
}

/// Kills in CI and in the long test.
const ROUNDS: (u32, u32) = (20, 500);

/// The black-box parts written in Python, as (part, script).
const SCRIPTS: [(&str, &str); 3] =
    [("fulldisk", "full_disk.py"), ("bitrot", "bit_rot.py"), ("security", "security.py")];

/// Runs all tests, or the named parts.
pub fn run(root: &Path, args: &TestArgs) -> Outcome {
    let wanted = |part: &str| args.parts.is_empty() || args.parts.iter().any(|name| name == part);
    if let Some(unknown) = args.parts.iter().find(|name| !known_part(name)) {
        return Err(format!("there is no part {unknown}"));
    }
    let mut failed = Vec::new();
    if wanted("cargo")
        && let Err(error) = step("cargo test", || cargo_tests(root))
    {
        failed.push(error);
    }
    let binary = step("build of the server under test", || test_binary(root))?;
    let mut tallies = Vec::new();
    if wanted("clients") {
        tallies.push(step("clients", || {
            Ok(clients::run_quick(root, &binary).unwrap_or_else(|error| could_not_begin("clients", &error)))
        })?);
    }
    if wanted("crash") {
        tallies.push(step("crash", || crash_rounds(root, &binary, if args.long { ROUNDS.1 } else { ROUNDS.0 }))?);
    }
    if wanted("cluster") {
        tallies.push(step("cluster", || cluster_faults(root, &binary, args.long))?);
    }
    for (part, script) in SCRIPTS.into_iter().filter(|(part, _)| wanted(part)) {
        tallies.push(step(part, || {
            Ok(script_part(root, &binary, part, script).unwrap_or_else(|error| could_not_begin(part, &error)))
        })?);
    }
    failed.extend(tallies.iter().filter(|tally| tally.failed > 0).map(Tally::line));
    for tally in &tallies {
        println!("{}", tally.line());
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("; "))) }
}

fn known_part(name: &str) -> bool {
    ["cargo", "clients", "crash", "cluster"].contains(&name) || SCRIPTS.iter().any(|(part, _)| *part == name)
}

fn could_not_begin(name: &'static str, error: &str) -> Tally {
    println!("FAIL {name}: {error}");
    Tally::broken(name)
}

fn cargo_tests(root: &Path) -> Outcome {
    process::run(cargo(root).args(["test", "--workspace", "--locked", "--no-fail-fast"]))
}

/// A bucket with versions, on two disks.
const VERSIONED: [&str; 3] = ["--versioned", "--disks", "2"];
const TWO_COPIES: [&str; 2] = ["--rf", "2"];

fn crash_rounds(root: &Path, binary: &Path, rounds: u32) -> Result<Tally, String> {
    let mut sum = Tally { name: "crash", passed: 0, failed: 0, skipped: 0 };
    // The second kind is the rarer one and costs more a round.
    for (rounds, kind, options) in [(rounds, &[][..], &[][..]), (rounds / 3, &VERSIONED[..], &TWO_COPIES[..])] {
        let folder = empty_folder(root, "crash")?;
        let mut command = Command::new(binary);
        command.args(["bench", "crash", "--rounds", &rounds.to_string(), "--folder"]).arg(&folder).args(kind);
        // Without the margin against our own mistakes, so that the audit sees reclaimed space in each round.
        command.args(["--", "--reclaim-delay", "0s"]).args(options);
        sum.add(&blackbox::run("crash", &mut command));
    }
    Ok(sum)
}

/// Faults on three nodes in CI, and those that take longer.
const FAULTS: [&str; 5] = ["kill-node", "kill-leader", "pause-leader", "kill-all", "restart-each"];
const MORE_FAULTS: [&str; 3] = ["none", "pause-node", "pause-all"];

/// Faults of the network between three nodes, in CI and those that take longer.
const CUTS: [&str; 2] = ["cut-leader", "deaf-leader"];
const MORE_CUTS: [&str; 3] = ["mute-leader", "part-leader", "cut-follower"];

/// Real processes under a load whose every answer is judged at the end.
fn cluster_faults(root: &Path, binary: &Path, long: bool) -> Result<Tally, String> {
    let (more_faults, more_cuts) = if long { (&MORE_FAULTS[..], &MORE_CUTS[..]) } else { (&[][..], &[][..]) };
    let mut sum = chaos(root, binary, FAULTS.iter().chain(more_faults), long)?;
    let cuts = CUTS.iter().chain(more_cuts);
    if may_make_networks() {
        sum.add(&chaos(root, binary, cuts, long)?);
    } else {
        println!("SKIP faults of the network: they need root, unshare (util-linux) and ip (iproute2)");
        sum.skipped += cuts.count() as u32;
    }
    Ok(sum)
}

fn chaos<'a>(
    root: &Path,
    binary: &Path,
    faults: impl Iterator<Item = &'a &'a str>,
    long: bool,
) -> Result<Tally, String> {
    let folder = empty_folder(root, "cluster")?;
    let mut command = Command::new(binary);
    command.args(["bench", "chaos", "--nodes", "3", "--seconds", if long { "20" } else { "5" }]);
    for fault in faults {
        command.args(["--fault", fault]);
    }
    Ok(blackbox::run("chaos", command.arg("--folder").arg(&folder)))
}

const TRY_NETWORKS: &str = "mount -t tmpfs tmpfs /run && ip link add name ashlar-b type bridge \
     && ip link add name ashlar-v type veth peer name ashlar-w";

/// Whether this process may make network namespaces, bridges among them.
fn may_make_networks() -> bool {
    let mut try_it = Command::new("unshare");
    try_it.args(["--net", "--mount", "--", "sh", "-c", TRY_NETWORKS]);
    try_it.output().is_ok_and(|output| output.status.success())
}

fn script_part(root: &Path, binary: &Path, part: &'static str, script: &str) -> Result<Tally, String> {
    let programs = provision::python(root, "quick")?;
    let folder = empty_folder(root, part)?;
    let mut command = python_command(&programs, &root.join("tests-clients").join(script));
    Ok(blackbox::run(part, command.env("ASHLAR", binary).env("WORK", &folder)))
}
