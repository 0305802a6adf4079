//! The binary: reads the command line, wires the crates together, holds no logic of its own.

mod admin_client;
mod admin_curator;
mod allocator;
mod balancer;
mod banner;
mod birth;
mod cli;
mod cluster;
mod credentials;
mod dev;
mod disks;
mod inspect;
mod manage;
mod memory;
mod node;
mod pressure;
mod server;
mod signals;
mod sizes;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logs(match &cli.command {
        Command::Server(args) => args.json,
        Command::Balancer(args) => args.json,
        Command::Dev(args) => args.cluster.json,
        Command::Admin(_) | Command::Inspect(_) | Command::Bench(_) => false,
    });
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if let Command::Server(cli::ServerArgs { workers: Some(workers), .. }) = &cli.command {
        threads.worker_threads(usize::from(*workers));
    }
    let runtime = match threads.enable_all().thread_name("ashlar").build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&format!("cannot start threads: {e}")),
    };
    let result = match cli.command {
        Command::Server(args) => runtime.block_on(server::run(args)).map(|()| ExitCode::SUCCESS),
        Command::Admin(args) => {
            let now_ms = env::Env::system(1).clock.wall_ms();
            runtime.block_on(admin_client::run(args, now_ms))
        }
        Command::Inspect(args) => inspect::run(args),
        Command::Balancer(args) => runtime.block_on(balancer::run(args)).map(|()| ExitCode::SUCCESS),
        Command::Dev(args) => runtime.block_on(dev::run(args)).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::cli::execute(&args).map(exit_code).map_err(Into::into),
    };
    match result {
        Ok(code) => code,
        Err(e) => fail(&e.to_string()),
    }
}

/// Success, or 1 when the work was done and its verdict is bad.
fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(message: &str) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "ashlar: {message}");
    ExitCode::FAILURE
}

/// Logs go to standard error; `ASHLAR_LOG` filters them as `RUST_LOG` does elsewhere.
fn start_logs(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ASHLAR_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new("info,lsm_tree=warn,pingora_core=off,pingora_proxy=off")
    });
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        logs.json().init();
    } else {
        logs.with_target(false).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
}
