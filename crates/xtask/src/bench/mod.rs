//! `cargo xtask bench`: what the project's performance is, measured now or counted.
//!
//! Promises: three forms, each a module: [`plain`] (the table of one server), [`compare`] (beside peers), [`counted`] (what CI
//! runs). Refuses to know: how anything is measured.

mod compare;
mod counted;
mod machine;
mod plain;
mod spread;

use std::path::{Path, PathBuf};

use clap::Args;

use crate::Outcome;
use crate::process::{release_binary, step};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Compare with peers, run as separate programs on this machine: three interleaved rounds in under 20 minutes. Writes
    /// bench/compare.md, .json and .svg under cargo's target folder.
    #[arg(long, conflicts_with = "counted")]
    compare: bool,
    /// What CI runs, in about a minute: counts syncs, bytes, blocks and instructions, and fails when one is above its bound in
    /// crates/xtask/counted-bounds.txt. Never judges time.
    #[arg(long)]
    counted: bool,
    /// Use this ashlar binary; nothing of the project is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Seconds of each step; 5 if left out, 2 with --compare.
    #[arg(long, value_name = "S", conflicts_with = "counted")]
    seconds: Option<f64>,
    /// Interleaved rounds, of which the median is shown; 1 if left out, 3 with --compare.
    #[arg(long, value_name = "N", conflicts_with = "counted")]
    rounds: Option<u32>,
    /// Keys of the listing.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    list_keys: u64,
    /// Also write the plain table's figures to this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "counted"])]
    save: Option<PathBuf>,
    /// Show what changed in the plain table since a former run: a file written by --save.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "counted"])]
    against: Option<PathBuf>,
    /// Where the peers' programs are (garage/bin/garage, s3s-fs/bin/s3s-fs); installed there if missing. target/peers if left out.
    #[arg(long, value_name = "DIR", requires = "compare")]
    peers: Option<PathBuf>,
    /// The source of the load generator of the comparison, relative to the project.
    #[arg(long, value_name = "DIR", default_value = "../shared/tools/loadgen")]
    loadgen: PathBuf,
    /// Also copy the comparison's table and plot to docs/bench.
    #[arg(long, requires = "compare")]
    docs: bool,
    /// Also append the comparison's key figures to docs/bench/history.tsv.
    #[arg(long, requires = "compare")]
    record: bool,
}

/// Runs the form that was asked for.
pub fn run(root: &Path, args: &BenchArgs) -> Outcome {
    if args.rounds == Some(0) || args.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3600.0)) {
        return Err("--rounds must be at least 1, --seconds above 0 and at most 3600".into());
    }
    let binary = binary(root, args)?;
    if args.compare {
        compare::run(root, &binary, args)
    } else if args.counted {
        counted::run(root, &binary)
    } else {
        plain::run(root, &binary, args)
    }
}

fn binary(root: &Path, args: &BenchArgs) -> Result<PathBuf, String> {
    match &args.binary {
        Some(binary) => binary.canonicalize().map_err(|error| format!("{}: {error}", binary.display())),
        None => step("release build", || release_binary(root)),
    }
}
