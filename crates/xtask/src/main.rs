//! `cargo xtask`: everything that is done to the project rather than by it.
//!
//! Promises: each command exits with success only if all it says was done; it installs what it needs, under the target
//! folder or as Debian packages. Refuses to know: any other crate of the workspace; it runs their binaries.
#![allow(clippy::print_stdout)] // A command line tool talks to its terminal.

mod bench;
mod blackbox;
mod check;
mod clients;
mod process;
mod provision;
mod s3;
mod server;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// What went wrong, for the person at the terminal.
type Outcome = Result<(), String>;

/// The project's automation.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, lints and tidy.
    Check,
    /// What the lints cannot see: crate edges, file sizes, unsafe code, links and paths in documents.
    Tidy,
    /// All tests: cargo's, then the black-box tests on a real server.
    Test(test::TestArgs),
    /// All real clients against a real server.
    Clients(clients::ClientsArgs),
    /// ceph/s3-tests, scored against the list of issue 2.
    S3(s3::S3Args),
    /// Performance: the table of one server; --compare beside peers; --counted as CI judges it.
    Bench(bench::BenchArgs),
}

/// The names of all commands, so that tidy can check the documents.
fn command_names() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// The root of the checkout: two folders above this crate.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

fn main() -> ExitCode {
    let root = root();
    let outcome = match Cli::parse().command {
        Command::Check => check::run(&root),
        Command::Tidy => tidy::run(&root),
        Command::Test(args) => test::run(&root, &args),
        Command::Clients(args) => clients::run(&root, &args),
        Command::S3(args) => s3::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}
