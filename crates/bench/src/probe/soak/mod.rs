//! Hours of mixed load: whether latency, memory, descriptors, files and space stay what they are.
//!
//! Promises: every body, every length, every absence and every listing that is read is compared with what was acknowledged; the first
//! difference ends the run as a broken promise. At the end all objects are compared once more and the audit must be clean. Refuses to
//! know: what the server does in the background; it is told to reclaim soon, and asked to scrub now and then.

mod samples;
mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use super::admin::Admin;
use super::{Findings, Subject};
use crate::client::Client;
use crate::crash::{Server, ServerConfig};
use crate::histogram::Histogram;
use crate::{BenchError, clock, machine};
use samples::{Sample, Samples};
use worker::Worker;

/// Bucket of everything.
const BUCKET: &str = "soak";
/// Space of what was deleted comes back so soon.
const RECLAIM_DELAY: &str = "5s";

/// A run.
#[derive(Clone, Debug)]
pub struct SoakConfig {
    /// The `ashlar` binary.
    pub binary: PathBuf,
    /// Folder for the server's data.
    pub folder: PathBuf,
    /// Data folders of the server.
    pub disks: u32,
    /// Further options of `ashlar server`.
    pub options: Vec<String>,
    /// What its memory must keep within, and a tenth.
    pub memory_bytes: Option<u64>,
    /// How long the load goes on.
    pub duration: Duration,
    /// Time between samples.
    pub sample: Duration,
    /// Time between scrubs; zero leaves them out.
    pub scrub_every: Duration,
    /// Connections, each with keys of its own.
    pub workers: u32,
    /// Operations a second, all connections together; 0 is as many as there can be.
    pub rate: f64,
    /// Decides the load.
    pub seed: u64,
    /// Also write each sample to this file, as tab-separated values.
    pub tsv: Option<PathBuf>,
    /// Show progress on standard error.
    pub progress: bool,
}

/// What happened since the last sample.
#[derive(Default)]
struct Interval {
    small: Histogram,
    other: Histogram,
}

/// What all workers share.
struct Shared {
    rate: f64,
    began: Duration,
    tickets: AtomicU64,
    stop: AtomicBool,
    interval: Mutex<Interval>,
    live_bytes: AtomicU64,
    live_objects: AtomicU64,
}

impl Shared {
    fn interval(&self) -> MutexGuard<'_, Interval> {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for the moment of the next operation.
    async fn turn(&self) {
        if self.rate > 0.0 {
            let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
            let due = self.began + Duration::from_secs_f64(ticket as f64 / self.rate);
            tokio::time::sleep(due.saturating_sub(clock::monotonic())).await;
        }
    }
}

/// Runs the whole of it.
pub async fn run(config: &SoakConfig) -> Result<Findings, BenchError> {
    if config.workers == 0 || config.sample.is_zero() || config.duration < config.sample * 8 {
        return Err(BenchError::Usage("a soak takes a worker and at least eight samples".into()));
    }
    let mut options = vec!["--reclaim-delay".to_owned(), RECLAIM_DELAY.to_owned()];
    options.extend(config.options.iter().cloned());
    let (binary, folder) = (config.binary.clone(), config.folder.clone());
    let server_config = ServerConfig { binary, folder, disks: config.disks.max(1), options };
    let server = Server::start(&server_config)?;
    let mut client = Client::new(&server.target());
    client.create_bucket(BUCKET).await.map_err(BenchError::request("create the bucket"))?;
    let mut workers: Vec<Worker> =
        (0..config.workers).map(|number| Worker::new(number, config.seed, &server.target())).collect();
    fill(&mut workers).await?;
    let (workers, samples, scrubs) = load(config, &server, workers).await?;
    let compared = compare_all(workers).await?;
    server.audit(&server_config)?;
    server.terminate()?;
    let mut findings = Findings::new("soak");
    samples.judge(config.memory_bytes, &mut findings);
    scrubs.judge(&mut findings);
    findings.lines.push(super::Line::new("compared at the end", &[("objects", compared as f64)]));
    Ok(findings)
}

/// Puts something everywhere, so that the first sample sees what the last one sees.
async fn fill(workers: &mut [Worker]) -> Result<(), BenchError> {
    for worker in workers {
        worker.fill().await?;
    }
    Ok(())
}

/// Compares every object with what it must be.
async fn compare_all(workers: Vec<Worker>) -> Result<u64, BenchError> {
    let mut compared = 0;
    for mut worker in workers {
        compared += worker.compare_all().await?;
    }
    Ok(compared)
}

/// The load itself: workers, samples and scrubs until the time is over or something was wrong.
async fn load(
    config: &SoakConfig,
    server: &Server,
    workers: Vec<Worker>,
) -> Result<(Vec<Worker>, Samples, Scrubs), BenchError> {
    let shared = Arc::new(Shared {
        rate: config.rate,
        began: clock::monotonic(),
        tickets: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        interval: Mutex::default(),
        live_bytes: AtomicU64::new(workers.iter().map(Worker::live_bytes).sum()),
        live_objects: AtomicU64::new(workers.iter().map(Worker::live_objects).sum()),
    });
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(worker.work(shared.clone()));
    }
    let subject = Subject { target: server.target(), admin: server.admin().to_owned(), pid: Some(server.pid()) };
    let mut scrubs = Scrubs::new(config.scrub_every, subject);
    let mut samples = Samples::new(config.tsv.as_deref())?;
    let bar = progress(config);
    let mut cpu = machine::process(server.pid())?.cpu_seconds;
    for number in 1.. {
        let due = shared.began + config.sample * number;
        tokio::time::sleep(due.saturating_sub(clock::monotonic())).await;
        let sample = take(config, server, &shared, &mut cpu)?;
        bar.set_position(sample.second as u64);
        bar.set_message(sample.to_string());
        samples.add(sample)?;
        scrubs.look(clock::monotonic()).await?;
        if let Some(ended) = tasks.try_join_next() {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(match ended {
                Ok(Err(error)) => error,
                Ok(Ok(_)) => BenchError::Server("a worker ended before its time".into()),
                Err(error) => BenchError::Server(format!("a worker's task ended badly: {error}")),
            });
        }
        if clock::monotonic() >= shared.began + config.duration {
            break;
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    bar.finish_and_clear();
    let mut back = Vec::new();
    while let Some(worker) = tasks.join_next().await {
        back.push(worker.map_err(|error| BenchError::Server(format!("a worker's task ended badly: {error}")))??);
    }
    scrubs.finish().await?;
    Ok((back, samples, scrubs))
}

fn progress(config: &SoakConfig) -> ProgressBar {
    let bar = if config.progress { ProgressBar::new(config.duration.as_secs()) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} s {msg}") {
        bar.set_style(style);
    }
    bar
}

fn take(config: &SoakConfig, server: &Server, shared: &Shared, cpu: &mut f64) -> Result<Sample, BenchError> {
    let interval = std::mem::take(&mut *shared.interval());
    let process = machine::process(server.pid())?;
    let mut data = machine::FolderReading::default();
    for disk in 0..config.disks.max(1) {
        let found = machine::folder(&config.folder.join(format!("disk{disk}")));
        (data.files, data.bytes) = (data.files + found.files, data.bytes + found.bytes);
    }
    let used = process.cpu_seconds - *cpu;
    *cpu = process.cpu_seconds;
    Ok(Sample {
        second: (clock::monotonic() - shared.began).as_secs_f64(),
        small: interval.small,
        other: interval.other,
        cpu_seconds: used,
        resident_bytes: process.resident_bytes,
        peak_bytes: process.peak_bytes,
        descriptors: machine::descriptors(server.pid())?,
        files: data.files,
        data_bytes: data.bytes,
        live_bytes: shared.live_bytes.load(Ordering::Relaxed),
        live_objects: shared.live_objects.load(Ordering::Relaxed),
    })
}

/// Scrubs, one at a time, beside the load.
struct Scrubs {
    every: Duration,
    next: Duration,
    subject: Subject,
    running: JoinSet<Result<bool, BenchError>>,
    done: u64,
    clean: u64,
}

impl Scrubs {
    fn new(every: Duration, subject: Subject) -> Scrubs {
        Scrubs { every, next: clock::monotonic() + every, subject, running: JoinSet::new(), done: 0, clean: 0 }
    }

    /// Begins one if it is time and none is running; takes the answer of one that has ended.
    async fn look(&mut self, now: Duration) -> Result<(), BenchError> {
        if let Some(ended) = self.running.try_join_next() {
            self.take(ended)?;
        }
        if !self.every.is_zero() && self.running.is_empty() && now >= self.next {
            self.next = now + self.every;
            let subject = self.subject.clone();
            self.running.spawn(async move { Ok(Admin::new(&subject).scrub().await?.contains("\"ok\":true")) });
        }
        Ok(())
    }

    fn take(&mut self, ended: Result<Result<bool, BenchError>, tokio::task::JoinError>) -> Result<(), BenchError> {
        let clean = ended.map_err(|error| BenchError::Server(format!("a scrub's task ended badly: {error}")))??;
        self.done += 1;
        self.clean += u64::from(clean);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), BenchError> {
        while let Some(ended) = self.running.join_next().await {
            self.take(ended)?;
        }
        Ok(())
    }

    fn judge(&self, findings: &mut Findings) {
        findings.lines.push(super::Line::new("scrubs", &[("done", self.done as f64), ("clean", self.clean as f64)]));
        findings.checks.push(super::Check::count("scrubs that found damage", (self.done - self.clean) as f64, 0.0));
    }
}
