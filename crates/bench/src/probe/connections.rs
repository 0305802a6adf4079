//! Whether a crowd of connections, slow readers and slow writers among them, is felt by the others; and what a full queue answers.
//!
//! Promises: alone and in the crowd are measured in turns, several pairs, medians of them shown; every body is compared. Refuses to
//! know: how a server shares its threads.

use std::time::Duration;

use super::crowd::{Crowd, Habit, Place, refusal};
use super::{Check, Findings, Line, Subject, median, ratio};
use crate::client::Client;
use crate::content::Content;
use crate::{BenchError, Config, Operation, Report, clock};

/// Of a crowd, so many of each kind in turn: a quarter reads, a quarter writes, half waits.
const CROWD: [Habit; 4] = [Habit::Reads, Habit::Waits, Habit::Writes, Habit::Waits];
/// The object of slow readers: more than socket buffers hold.
const LARGE_BYTES: usize = 8 << 20;
const LARGE_KEY: &str = "large";
/// How much slower the others may become.
const SLOWER_MAX: f64 = 1.5;
/// Slow writers added between two looks at the queue.
const QUEUE_STEP: usize = 32;
/// A server whose queue has emptied must answer within this time.
const RECOVERY: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A run.
#[derive(Clone, Debug)]
pub struct ConnectionsConfig {
    /// The server.
    pub subject: Subject,
    /// Bucket of everything.
    pub bucket: String,
    /// Connections of the crowd.
    pub crowd: usize,
    /// Connections that are measured, each with one request in flight.
    pub concurrency: u32,
    /// Bytes of an object that is measured.
    pub size_bytes: u64,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Pairs of measurements.
    pub pairs: u32,
    /// Slow writers at most, to fill the queue of requests; 0 leaves that part out.
    pub fill_queue: usize,
}

/// One operation, alone or in the crowd, over all pairs.
#[derive(Default)]
struct Side {
    p50: Vec<f64>,
    p99: Vec<f64>,
    errors: u64,
}

impl Side {
    fn add(&mut self, report: &Report) {
        self.p50.push(report.latency.p50_ms);
        self.p99.push(report.latency.p99_ms);
        self.errors += report.errors;
    }

    fn line(&self, name: String) -> Line {
        Line::new(name, &[("p50_ms", median(self.p50.clone())), ("p99_ms", median(self.p99.clone()))])
    }
}

/// Measures.
pub async fn run(config: &ConnectionsConfig) -> Result<Findings, BenchError> {
    if config.crowd == 0 || config.pairs == 0 || config.concurrency == 0 || config.seconds <= 0.0 {
        return Err(BenchError::Usage("crowd, pairs, concurrency and seconds must be above 0".into()));
    }
    env::process::raise_open_files().map_err(BenchError::local("raise the limit of open files"))?;
    let place = prepare(config).await?;
    let mut findings = Findings::new("connections");
    let operations = [(Operation::Get, "GET"), (Operation::Put, "PUT")];
    let mut alone = [Side::default(), Side::default()];
    let mut among = [Side::default(), Side::default()];
    let mut ended = 0;
    for pair in 0..config.pairs {
        for (side, (operation, _)) in alone.iter_mut().zip(operations) {
            side.add(&measure(config, operation, &format!("alone-{pair}")).await?);
        }
        let mut crowd = Crowd::new(place.clone());
        crowd.add(config.crowd, &CROWD).await?;
        for (side, (operation, _)) in among.iter_mut().zip(operations) {
            side.add(&measure(config, operation, &format!("among-{pair}")).await?);
        }
        ended += crowd.ended();
        crowd.disperse().await;
    }
    for ((alone, among), (_, name)) in alone.iter().zip(&among).zip(operations) {
        judge(config, name, alone, among, &mut findings);
    }
    findings
        .lines
        .push(Line::new("crowd", &[("connections", config.crowd as f64), ("ended_by_the_server", ended as f64)]));
    findings.checks.push(Check::count("connections of the crowd that the server ended", ended as f64, 0.0));
    if config.fill_queue > 0 {
        fill_queue(config, place, &mut findings).await?;
    }
    Ok(findings)
}

async fn prepare(config: &ConnectionsConfig) -> Result<Place, BenchError> {
    let mut client = Client::new(&config.subject.target);
    client.create_bucket(&config.bucket).await.map_err(BenchError::request("create the bucket"))?;
    let path = format!("/{}/{LARGE_KEY}", config.bucket);
    let body = Content::new(1).bytes(LARGE_BYTES);
    client.put(&path, &body).await.map_err(BenchError::request("put the large object"))?;
    Place::new(&config.subject.target, &config.bucket, LARGE_KEY).await
}

async fn measure(config: &ConnectionsConfig, operation: Operation, run: &str) -> Result<Report, BenchError> {
    let mut load = Config::new(config.subject.target.clone(), &config.bucket, operation);
    load.size_bytes = config.size_bytes;
    load.concurrency = config.concurrency;
    load.duration = Some(Duration::from_secs_f64(config.seconds));
    load.prefix = match operation {
        Operation::Put => format!("put-{run}-{}/", clock::wall_ms()),
        _ => "get/".to_owned(),
    };
    crate::run(load).await
}

fn judge(config: &ConnectionsConfig, name: &str, alone: &Side, among: &Side, findings: &mut Findings) {
    let slower = ratio(median(among.p99.clone()), median(alone.p99.clone()));
    findings.lines.push(alone.line(format!("{name} of {} bytes, alone", config.size_bytes)));
    findings.lines.push(among.line(format!("{name}, among {} connections", config.crowd)));
    let p50 = ratio(median(among.p50.clone()), median(alone.p50.clone()));
    findings
        .lines
        .push(Line::new(format!("{name}, among the crowd of alone"), &[("p50_ratio", p50), ("p99_ratio", slower)]));
    findings.checks.push(Check::time(format!("p99 of {name} among the crowd, of alone"), slower, SLOWER_MAX));
    let errors = (alone.errors + among.errors) as f64;
    findings.checks.push(Check::count(format!("{name}s that failed"), errors, 0.0));
}

/// Slow writers until somebody is refused: how, and whether all is well when they are gone.
async fn fill_queue(config: &ConnectionsConfig, place: Place, findings: &mut Findings) -> Result<(), BenchError> {
    let mut crowd = Crowd::new(place.clone());
    let mut answer = None;
    while answer.is_none() && crowd.len() < config.fill_queue {
        crowd.add(QUEUE_STEP.min(config.fill_queue - crowd.len()), &[Habit::Writes]).await?;
        answer = refusal(&place).await;
    }
    let text = answer.unwrap_or_default().to_ascii_lowercase();
    let is_right = text.starts_with("http/1.1 503") && text.contains("slowdown") && text.contains("\r\nretry-after:");
    findings.lines.push(Line::new("full queue", &[("slow_writers", crowd.len() as f64)]));
    findings.checks.push(Check::count_at_least(
        "a full queue answers 503 SlowDown with Retry-After",
        f64::from(u8::from(is_right)),
        1.0,
    ));
    crowd.disperse().await;
    let deadline = clock::monotonic() + RECOVERY;
    let mut refused = refusal(&place).await;
    while refused.is_some() && clock::monotonic() < deadline {
        tokio::time::sleep(LOOK_AGAIN).await;
        refused = refusal(&place).await;
    }
    let serves = f64::from(u8::from(refused.is_none()));
    findings.checks.push(Check::count_at_least("it serves again when they are gone", serves, 1.0));
    Ok(())
}
