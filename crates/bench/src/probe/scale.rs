//! What a small request costs the server with one worker thread and with several.
//!
//! Promises: the servers are started by this program with the same options but one, and are asked in turns, round after round;
//! medians are shown. Refuses to know: what workers share.

use std::path::PathBuf;
use std::time::Duration;

use super::{Check, Findings, Line, median, ratio};
use crate::crash::{Server, ServerConfig};
use crate::{BenchError, Config, Operation, clock};

/// How much dearer a request may be with more workers.
const DEARER_MAX: f64 = 1.1;
/// What is asked for.
const OPERATIONS: [(Operation, &str); 3] =
    [(Operation::Head, "HEAD"), (Operation::Get, "GET"), (Operation::Put, "PUT")];

/// A run.
#[derive(Clone, Debug)]
pub struct ScaleConfig {
    /// The `ashlar` binary.
    pub binary: PathBuf,
    /// Folder for the data of both servers.
    pub folder: PathBuf,
    /// Worker threads of the second server; the first has one.
    pub workers: u32,
    /// Connections with one request in flight each.
    pub concurrency: u32,
    /// Bytes of an object.
    pub size_bytes: u64,
    /// Seconds of each step.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Further options of `ashlar server`.
    pub options: Vec<String>,
}

/// A server and, for each operation, its processor seconds for ten thousand, round by round.
struct Side {
    workers: u32,
    server: Server,
    cpu: [Vec<f64>; OPERATIONS.len()],
}

/// Measures.
pub async fn run(config: &ScaleConfig) -> Result<Findings, BenchError> {
    if config.workers < 2 || config.concurrency == 0 || config.rounds == 0 || config.seconds <= 0.0 {
        return Err(BenchError::Usage("it takes at least two workers, and one connection, round and moment".into()));
    }
    let mut sides = [start(config, 1)?, start(config, config.workers)?];
    let mut errors = 0;
    for _ in 0..config.rounds {
        for (index, (operation, _)) in OPERATIONS.into_iter().enumerate() {
            for side in &mut sides {
                let report = crate::run(load(config, &side.server, operation)).await?;
                errors += report.errors;
                side.cpu[index].extend(report.server.map(|server| server.cpu_seconds_per_10k));
            }
        }
    }
    let mut findings = Findings::new("scale");
    for (index, (_, name)) in OPERATIONS.into_iter().enumerate() {
        let [one, more] = [&sides[0], &sides[1]].map(|side| median(side.cpu[index].clone()));
        let figures = [("one_worker", one), ("more_workers", more), ("ratio", ratio(more, one))];
        findings.lines.push(Line::new(format!("{name}, CPU s per 10k"), &figures));
        findings.checks.push(Check::time(
            format!("CPU of a {name} with {} workers, of one", config.workers),
            ratio(more, one),
            DEARER_MAX,
        ));
    }
    findings.checks.push(Check::count("requests that failed", errors as f64, 0.0));
    for side in sides {
        findings.lines.push(Line::new(format!("{} workers", side.workers), &[("pid", f64::from(side.server.pid()))]));
        side.server.terminate()?;
    }
    Ok(findings)
}

fn start(config: &ScaleConfig, workers: u32) -> Result<Side, BenchError> {
    let folder = config.folder.join(format!("workers-{workers}"));
    std::fs::create_dir_all(&folder).map_err(BenchError::local(folder.display().to_string()))?;
    let mut options = vec!["--workers".to_owned(), workers.to_string()];
    options.extend(config.options.iter().cloned());
    let server = Server::start(&ServerConfig { binary: config.binary.clone(), folder, disks: 1, options })?;
    Ok(Side { workers, server, cpu: Default::default() })
}

fn load(config: &ScaleConfig, server: &Server, operation: Operation) -> Config {
    let mut load = Config::new(server.target(), "scale", operation);
    load.size_bytes = config.size_bytes;
    load.concurrency = config.concurrency;
    load.duration = Some(Duration::from_secs_f64(config.seconds));
    load.pid = Some(server.pid());
    load.prefix = match operation {
        // New keys each time: an overwrite costs something else.
        Operation::Put => format!("put-{}/", clock::wall_ms()),
        _ => "read/".to_owned(),
    };
    load
}
