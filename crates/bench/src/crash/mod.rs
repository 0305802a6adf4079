//! kill -9 at a random moment under verified load, round after round.
//!
//! Promises: what was acknowledged before the kill is compared byte by byte after the restart; an operation without an
//! answer may have happened or not, but wholly; a listing equals the model; the audit of the store says that nothing leaked.
//! Refuses to know: the store's files. It runs the `ashlar` command and speaks S3.

mod model;
mod server;
mod verify;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

pub use server::{Server, ServerConfig};
pub(crate) use server::{first_line, note_failure};
use writer::{Counters, Writer};

use crate::client::Client;
use crate::content::Dice;
use crate::{BenchError, clock};

/// Bucket of the run.
const BUCKET: &str = "crash";
/// The load runs at least and at most so long before the kill.
const LOAD_MS: (u64, u64) = (150, 2000);
/// Every so many rounds the server is killed once more while it recovers.
const KILL_IN_RECOVERY_EVERY: u32 = 4;
/// A kill during recovery comes within this time after the start.
const RECOVERY_KILL_MS: u64 = 150;

/// A crash run.
#[derive(Clone, Debug)]
pub struct CrashConfig {
    /// How the server is started.
    pub server: ServerConfig,
    /// Kills.
    pub rounds: u32,
    /// Writers, each with keys of its own.
    pub writers: u32,
    /// Decides the load and the moments.
    pub seed: u64,
    /// Whether the bucket keeps versions; then old ones are read and deleted as well.
    pub versioned: bool,
    /// Print a line for each round on standard error.
    pub verbose: bool,
}

/// What a crash run saw. It is only made when nothing was broken.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrashReport {
    /// Kills.
    pub rounds: u32,
    /// The seed of the run.
    pub seed: u64,
    /// Mutations that were acknowledged.
    pub acknowledged: u64,
    /// Mutations without an answer.
    pub unknown: u64,
    /// Of those, how many were found to have happened.
    pub unknown_that_happened: u64,
    /// Objects compared after restarts.
    pub objects_compared: u64,
    /// Bytes compared after restarts.
    pub bytes_compared: u64,
    /// The longest time from start to ready, in milliseconds.
    pub slowest_start_ms: u64,
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} kills, seed {}: {} acknowledged, {} unknown ({} had happened)",
            self.rounds, self.seed, self.acknowledged, self.unknown, self.unknown_that_happened
        )?;
        writeln!(
            f,
            "{} objects and {} MiB compared; slowest start {} ms",
            self.objects_compared,
            self.bytes_compared >> 20,
            self.slowest_start_ms
        )?;
        writeln!(f, "crash: {} passed, 0 failed, 0 skipped", self.rounds)
    }
}

/// Runs all rounds; the first broken promise ends the run as [`BenchError::Broken`].
pub async fn run(config: &CrashConfig) -> Result<CrashReport, BenchError> {
    let mut report = CrashReport { seed: config.seed, ..CrashReport::default() };
    let mut dice = Dice::new(config.seed);
    let mut writers: Vec<Writer> = (0..config.writers).map(|number| Writer::new(number, config.seed)).collect();
    let mut server = Server::start(&config.server)?;
    create_bucket(&server, config.versioned).await?;
    for round in 1..=config.rounds {
        let load = Duration::from_millis(LOAD_MS.0 + dice.below(LOAD_MS.1 - LOAD_MS.0));
        let (back, counters) = load_and_kill(writers, server, load).await?;
        writers = back;
        if round % KILL_IN_RECOVERY_EVERY == 0 {
            Server::start_and_kill(&config.server, Duration::from_millis(dice.below(RECOVERY_KILL_MS)))?;
        }
        let began = clock::monotonic();
        server = Server::start(&config.server)?;
        let start_ms = (clock::monotonic() - began).as_millis() as u64;
        let checked = verify::everything(&mut writers, &server, BUCKET).await?;
        server.audit(&config.server)?;
        report.add(&counters, &checked, start_ms);
        if config.verbose {
            eprintln!(
                "round {round}: {} acknowledged, {} unknown, ready in {start_ms} ms",
                counters.acknowledged, counters.unknown
            );
        }
    }
    clean_stop(config, server, &mut writers).await?;
    Ok(report)
}

/// A stop by SIGTERM loses nothing either.
async fn clean_stop(config: &CrashConfig, server: Server, writers: &mut [Writer]) -> Result<(), BenchError> {
    server.terminate()?;
    let server = Server::start(&config.server)?;
    verify::everything(writers, &server, BUCKET).await?;
    server.terminate()
}

async fn create_bucket(server: &Server, versioned: bool) -> Result<(), BenchError> {
    let mut client = Client::new(&server.target());
    client.create_bucket(BUCKET).await.map_err(BenchError::request("create the bucket"))?;
    if versioned {
        client.keep_versions(BUCKET).await.map_err(BenchError::request("keep versions"))?;
    }
    Ok(())
}

async fn load_and_kill(
    writers: Vec<Writer>,
    server: Server,
    load: Duration,
) -> Result<(Vec<Writer>, Counters), BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for mut writer in writers {
        let (target, stop) = (server.target(), stop.clone());
        tasks.spawn(async move {
            let result = writer.work(&target, BUCKET, &stop).await;
            (writer, result)
        });
    }
    tokio::time::sleep(load).await;
    server.kill()?;
    // Only now: a writer must not stop between two operations because the end was near.
    stop.store(true, Ordering::Relaxed);
    let mut back = Vec::new();
    let mut total = Counters::default();
    while let Some(task) = tasks.join_next().await {
        let (writer, result) =
            task.map_err(|error| BenchError::Server(format!("a writer's task ended badly: {error}")))?;
        total.add(&result?);
        back.push(writer);
    }
    back.sort_by_key(Writer::number);
    Ok((back, total))
}

impl CrashReport {
    fn add(&mut self, counters: &Counters, checked: &verify::Checked, start_ms: u64) {
        self.rounds += 1;
        self.acknowledged += counters.acknowledged;
        self.unknown += counters.unknown;
        self.unknown_that_happened += checked.unknown_that_happened;
        self.objects_compared += checked.objects;
        self.bytes_compared += checked.bytes;
        self.slowest_start_ms = self.slowest_start_ms.max(start_ms);
    }
}
