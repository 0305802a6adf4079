//! The binary: reads the command line, wires the crates together, holds no logic of its own.

mod admin_client;
mod allocator;
mod banner;
mod birth;
mod cli;
mod credentials;
mod disks;
mod inspect;
mod memory;
mod node;
mod server;
mod sizes;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logs(matches!(&cli.command, Command::Server(args) if args.json));
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
    let filter = tracing_subscriber::EnvFilter::try_from_env("ASHLAR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,lsm_tree=warn"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        logs.json().init();
    } else {
        logs.with_target(false).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
}
