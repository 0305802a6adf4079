//! The closed loop: each connection has one request in flight and sends the next when the answer is checked.
//!
//! Promises: what is reported was measured after the warm-up, and every body in it was compared. A run ends at its count or
//! duration, or after [`ERRORS_BEFORE_STOP`] errors. Refuses to know: how one operation is done (`worker`).

mod worker;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::histogram::Histogram;
use crate::limits::{ERROR_SAMPLES, ERRORS_BEFORE_STOP};
use crate::machine::{self, DiskReading, ProcessReading};
use crate::report::{DiskUse, Report, ServerUse};
use crate::{BenchError, Config, Operation, clock};
use worker::Worker;

/// How often the progress bar is drawn anew.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Connections that put the objects to be read.
const PREPARE_CONCURRENCY: u32 = 16;

/// What all connections of a run share.
struct Shared {
    next: AtomicU64,
    count: u64,
    deadline: Option<Duration>,
    measuring: AtomicBool,
    stopped: AtomicBool,
    done: AtomicU64,
    errors: AtomicU64,
    samples: Mutex<Vec<String>>,
}

impl Shared {
    /// The number of the next operation, `None` when the run is over.
    fn next_ticket(&self) -> Option<u64> {
        if self.stopped.load(Ordering::Relaxed) || self.deadline.is_some_and(|at| clock::monotonic() >= at) {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|ticket| *ticket < self.count)
    }

    fn failed(&self, text: String) {
        if self.errors.fetch_add(1, Ordering::Relaxed) + 1 >= ERRORS_BEFORE_STOP {
            self.stopped.store(true, Ordering::Relaxed);
        }
        let mut samples = self.samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if samples.len() < ERROR_SAMPLES {
            samples.push(text);
        }
    }
}

/// What one connection measured.
#[derive(Default)]
struct Tally {
    latency: Histogram,
    ttfb: Histogram,
    bytes: u64,
    entries: u64,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.latency.merge(&other.latency);
        self.ttfb.merge(&other.ttfb);
        self.bytes += other.bytes;
        self.entries += other.entries;
    }
}

/// Runs what `config` says and reports.
pub async fn run(config: Config) -> Result<Report, BenchError> {
    config.check()?;
    if config.prepare {
        prepare(&config).await?;
    }
    measure(config).await
}

/// Creates the bucket and puts the keys that the operation needs to find.
async fn prepare(config: &Config) -> Result<(), BenchError> {
    let mut client = Client::new(&config.target);
    client.create_bucket(&config.bucket).await.map_err(BenchError::request("create the bucket"))?;
    let (keys, size_bytes) = match config.operation {
        Operation::Put | Operation::Multipart => return Ok(()),
        Operation::Ranged => (config.objects, config.object_bytes),
        Operation::Get | Operation::Head | Operation::List | Operation::Mixed => (config.objects, config.size_bytes),
        Operation::Delete => (config.count.unwrap_or(0), config.size_bytes),
        Operation::Copy => (1, config.size_bytes),
    };
    // The last key is put at the end: if it is there, an earlier run has put them all.
    let last = config.path(&config.key(keys.saturating_sub(1)));
    if client.head(&last).await.is_ok_and(|answer| answer.content_length == Some(size_bytes)) {
        return Ok(());
    }
    let mut put = Config::new(config.target.clone(), &config.bucket, Operation::Put);
    put.size_bytes = size_bytes;
    put.concurrency = PREPARE_CONCURRENCY;
    put.count = Some(keys);
    put.prefix.clone_from(&config.prefix);
    put.fanout = config.fanout;
    put.seed = config.seed;
    put.progress = config.progress;
    let report = measure(put).await?;
    match report.error_samples.first() {
        None => Ok(()),
        Some(text) => Err(BenchError::Server(format!("putting the objects to be read failed: {text}"))),
    }
}

async fn measure(config: Config) -> Result<Report, BenchError> {
    let config = Arc::new(config);
    let begin = clock::monotonic() + config.warmup;
    let shared = Arc::new(Shared {
        next: AtomicU64::new(0),
        count: config.count.unwrap_or(u64::MAX),
        deadline: config.duration.map(|duration| begin + duration),
        measuring: AtomicBool::new(config.warmup.is_zero()),
        stopped: AtomicBool::new(false),
        done: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        samples: Mutex::new(Vec::new()),
    });
    let mut before = Readings::take(&config)?;
    let mut workers = JoinSet::new();
    for number in 0..config.concurrency {
        workers.spawn(Worker::new(config.clone(), shared.clone(), number).work());
    }
    if !config.warmup.is_zero() {
        tokio::time::sleep(config.warmup).await;
        before = Readings::take(&config)?;
        shared.measuring.store(true, Ordering::Relaxed);
    }
    let progress = config.progress.then(|| tokio::spawn(show_progress(config.clone(), shared.clone())));
    let mut tally = Tally::default();
    while let Some(part) = workers.join_next().await {
        tally.merge(&part.map_err(|error| BenchError::Server(format!("a connection's task ended badly: {error}")))?);
    }
    let after = Readings::take(&config)?;
    if let Some(task) = progress {
        shared.stopped.store(true, Ordering::Relaxed);
        // The bar's task ends by the flag; its result says nothing.
        let _ = task.await;
    }
    Ok(report(&config, &shared, &tally, &before, &after))
}

/// Everything that is read before and after.
struct Readings {
    at: Duration,
    server: Option<ProcessReading>,
    disk: Option<DiskReading>,
}

impl Readings {
    fn take(config: &Config) -> Result<Readings, BenchError> {
        Ok(Readings {
            server: config.pid.map(machine::process).transpose()?,
            disk: config.disk.as_deref().map(machine::disk).transpose()?,
            at: clock::monotonic(),
        })
    }
}

fn report(config: &Config, shared: &Shared, tally: &Tally, before: &Readings, after: &Readings) -> Report {
    let seconds = (after.at - before.at).as_secs_f64();
    let operations = tally.latency.count();
    let server = before.server.zip(after.server).map(|(old, new)| ServerUse::new(old, new, operations, tally.bytes));
    let disk = before.disk.zip(after.disk).map(|(old, new)| DiskUse::new(new.since(old), operations));
    let samples = shared.samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Report {
        operation: config.operation,
        size_bytes: config.size_bytes,
        concurrency: config.concurrency,
        seconds,
        operations,
        errors: shared.errors.load(Ordering::Relaxed),
        error_samples: samples.clone(),
        bytes: tally.bytes,
        entries: tally.entries,
        operations_per_second: operations as f64 / seconds,
        megabytes_per_second: tally.bytes as f64 / 1e6 / seconds,
        latency: tally.latency.summary(),
        time_to_first_byte: tally.ttfb.summary(),
        server,
        disk,
    }
}

async fn show_progress(config: Arc<Config>, shared: Arc<Shared>) {
    let bar = config.count.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let form = if config.count.is_some() {
        "{bar:40} {pos}/{len} {per_sec} {eta}"
    } else {
        "{spinner} {elapsed} {pos} {per_sec}"
    };
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    while !shared.stopped.load(Ordering::Relaxed) {
        bar.set_position(shared.done.load(Ordering::Relaxed));
        tokio::time::sleep(PROGRESS_INTERVAL).await;
    }
    bar.finish_and_clear();
}
