//! Time to first byte, uncached and cached, beside what the disk itself takes.
//!
//! Promises: an uncached read is of a key that was not read since the caches were emptied, whose rows lie in blocks of the tree that no
//! other key of the same batch lies in; the server's own counters say how many reads each request cost; the disk is measured around
//! the page cache in between, batch by batch. Refuses to know: where the server keeps anything.
//!
//! A batch takes every n-th key, n being the number of batches (64, unless told otherwise), so neighbours in the tree are never in one
//! batch: a block of 4 KiB has some 40 rows. Each 512th key, and those near it, are measured by none: before a batch they are asked
//! for, so that indexes and filters of the tree are in memory, as they are in any server that has run for a minute.

use std::path::PathBuf;
use std::time::Duration;

use super::admin::{Admin, Counters};
use super::direct::{DirectFile, LARGE_BYTES, SMALL_BYTES, shuffle};
use super::{Check, Findings, Line, Subject, ratio};
use crate::client::{Client, ClientError, Expected, Response};
use crate::content::{Content, Dice};
use crate::histogram::Histogram;
use crate::{BenchError, Config, Operation};

/// Keys of a batch; with it, batches are as many as `objects` has of it.
const BATCH_KEYS: u64 = 64;
/// A batch must have keys that are not neighbours.
const LEAST_OBJECTS: u64 = 8;
/// One key in so many is asked for before each batch: a block of the tree's index names some 60 blocks of 40 rows.
const PRIMER_SPACING: u64 = 512;
/// Keys that may lie in the same block as such a key, on each side.
const PRIMER_REACH: u64 = 48;
/// Connections that put the objects.
const PUT_CONCURRENCY: u32 = 16;
/// What a GET may take above two large reads of the disk, and a HEAD above two small ones, in milliseconds.
const GET_EXTRA_MS: f64 = 0.2;
const HEAD_EXTRA_MS: f64 = 0.1;
/// Filters of the tree are wrong once in 120, so a look-up may read a block in vain.
const METADATA_READS_MAX: f64 = 1.05;
/// The server's work in the background reads a block now and then.
const CACHED_WAITS_MAX: f64 = 0.02;
/// Keys of the cached part at most: they must fit in any cache.
const CACHED_KEYS: u64 = 256;

/// A run.
#[derive(Clone, Debug)]
pub struct TtfbConfig {
    /// The server.
    pub subject: Subject,
    /// A folder on the disk that the server uses.
    pub folder: PathBuf,
    /// Bucket of the objects.
    pub bucket: String,
    /// Keys begin so.
    pub prefix: String,
    /// Objects, rounded up to whole batches.
    pub objects: u64,
    /// Bytes of an object.
    pub size_bytes: u64,
    /// Decides contents and order.
    pub seed: u64,
    /// Put the objects first.
    pub prepare: bool,
    /// Show progress on standard error.
    pub progress: bool,
}

/// What was timed and counted.
#[derive(Default)]
struct Tally {
    get: Histogram,
    head: Histogram,
    large: Histogram,
    small: Histogram,
    get_counters: Counters,
    head_counters: Counters,
    cached_get: Histogram,
    cached_head: Histogram,
    cached_counters: Counters,
}

struct Probe<'a> {
    config: &'a TtfbConfig,
    keys: Config,
    batches: u64,
    client: Client,
    admin: Admin,
    dice: Dice,
    tally: Tally,
}

/// Measures.
pub async fn run(config: &TtfbConfig) -> Result<Findings, BenchError> {
    if config.objects < LEAST_OBJECTS || config.size_bytes == 0 {
        return Err(BenchError::Usage(format!("it takes at least {LEAST_OBJECTS} objects of a byte")));
    }
    let per_batch = BATCH_KEYS.min(config.objects.div_ceil(4));
    let batches = config.objects.div_ceil(per_batch);
    let objects = batches * per_batch;
    let mut keys = Config::new(config.subject.target.clone(), &config.bucket, Operation::Put);
    keys.prefix.clone_from(&config.prefix);
    keys.size_bytes = config.size_bytes;
    keys.seed = config.seed;
    keys.concurrency = PUT_CONCURRENCY;
    keys.count = Some(objects);
    keys.objects = objects;
    keys.progress = config.progress;
    if config.prepare {
        put_all(&keys).await?;
    }
    let mut probe = Probe {
        config,
        keys,
        batches,
        client: Client::new(&config.subject.target),
        admin: Admin::new(&config.subject),
        dice: Dice::new(config.seed),
        tally: Tally::default(),
    };
    let mut direct = DirectFile::create(&config.folder, objects * config.size_bytes, config.seed)?;
    for batch in 0..batches {
        probe.uncached_batch(batch, per_batch, &mut direct).await?;
    }
    drop(direct);
    probe.cached(objects).await?;
    Ok(findings(config, &probe.tally))
}

/// Whether a key with this number may share a block with one that is asked for before each batch.
fn is_near_primer(index: u64) -> bool {
    (index % PRIMER_SPACING).abs_diff(PRIMER_SPACING / 2) < PRIMER_REACH
}

async fn put_all(keys: &Config) -> Result<(), BenchError> {
    let report = crate::run(keys.clone()).await?;
    match report.error_samples.first() {
        None => Ok(()),
        Some(text) => Err(BenchError::Server(format!("putting the objects failed: {text}"))),
    }
}

impl Probe<'_> {
    /// Keys of this batch in random order.
    fn batch_keys(&mut self, batch: u64, per_batch: u64) -> Vec<String> {
        let indexes = (0..per_batch).map(|n| batch + n * self.batches).filter(|index| !is_near_primer(*index));
        let mut keys: Vec<String> = indexes.map(|index| self.keys.key(index)).collect();
        shuffle(&mut keys, &mut self.dice);
        keys
    }

    /// Keys that make indexes and filters resident.
    fn primers(&self) -> Vec<String> {
        let indexes = (0..self.keys.objects).filter(|index| index % PRIMER_SPACING == PRIMER_SPACING / 2);
        indexes.map(|index| self.keys.key(index)).collect()
    }

    async fn uncached_batch(&mut self, batch: u64, per_batch: u64, direct: &mut DirectFile) -> Result<(), BenchError> {
        let (keys, primers) = (self.batch_keys(batch, per_batch), self.primers());
        self.empty_and_prime(&primers, false).await?;
        let before = self.admin.counters().await?;
        for key in &keys {
            let answer = self.head(key).await?;
            self.tally.head.record(answer.ttfb);
        }
        let heads = self.admin.counters().await?.since(before);
        self.tally.head_counters = self.tally.head_counters.plus(heads);
        self.empty_and_prime(&primers, true).await?;
        let before = self.admin.counters().await?;
        for key in &keys {
            let answer = self.get(key).await?;
            self.tally.get.record(answer.ttfb);
        }
        let gets = self.admin.counters().await?.since(before);
        self.tally.get_counters = self.tally.get_counters.plus(gets);
        for _ in 0..per_batch / 2 {
            for (bytes, times) in [(LARGE_BYTES, &mut self.tally.large), (SMALL_BYTES, &mut self.tally.small)] {
                if let Some(took) = direct.read(bytes)? {
                    times.record(took);
                }
            }
        }
        Ok(())
    }

    async fn empty_and_prime(&mut self, primers: &[String], whole: bool) -> Result<(), BenchError> {
        self.admin.flush_caches().await?;
        for key in primers {
            if whole {
                self.get(key).await?;
            } else {
                self.head(key).await?;
            }
        }
        Ok(())
    }

    /// Few keys, read once before anything is timed.
    async fn cached(&mut self, objects: u64) -> Result<(), BenchError> {
        let keys: Vec<String> = (0..objects.min(CACHED_KEYS)).map(|index| self.keys.key(index)).collect();
        for key in &keys {
            self.get(key).await?;
        }
        let before = self.admin.counters().await?;
        for _ in 0..objects {
            let key = &keys[self.dice.below(keys.len() as u64) as usize];
            let (head, get) = (self.head(key).await?.ttfb, self.get(key).await?.ttfb);
            self.tally.cached_head.record(head);
            self.tally.cached_get.record(get);
        }
        self.tally.cached_counters = self.admin.counters().await?.since(before);
        Ok(())
    }

    async fn head(&mut self, key: &str) -> Result<Response, BenchError> {
        let expected = self.config.size_bytes;
        let answer = self.client.head(&self.keys.path(key)).await.and_then(|answer| match answer.content_length {
            Some(length) if length == expected => Ok(answer),
            found => Err(ClientError::WrongLength { expected, found: found.unwrap_or(0) }),
        });
        answer.map_err(BenchError::request(format!("HEAD of {key}")))
    }

    async fn get(&mut self, key: &str) -> Result<Response, BenchError> {
        let expected = Expected::range(Content::of_key(self.config.seed, key), 0, self.config.size_bytes);
        let answer = self.client.get(&self.keys.path(key), &expected).await;
        answer.map_err(BenchError::request(format!("GET of {key}")))
    }
}

fn findings(config: &TtfbConfig, tally: &Tally) -> Findings {
    let mut findings = Findings::new("ttfb");
    let (gets, heads) = (tally.get.count() as f64, tally.head.count() as f64);
    findings.lines = vec![
        Line::times(format!("GET of {} bytes, uncached", config.size_bytes), &tally.get),
        Line::times("HEAD, uncached", &tally.head),
        Line::times("O_DIRECT read of 64 KiB", &tally.large),
        Line::times("O_DIRECT read of 4 KiB", &tally.small),
        Line::times("GET, cached", &tally.cached_get),
        Line::times("HEAD, cached", &tally.cached_head),
        counted("per uncached GET", tally.get_counters, gets),
        counted("per uncached HEAD", tally.head_counters, heads),
        counted("per cached GET and HEAD", tally.cached_counters, tally.cached_get.count() as f64),
    ];
    let reads = ratio(tally.get_counters.data_misses + tally.get_counters.data_hits, gets);
    let blocks = ratio(tally.head_counters.metadata_misses, heads);
    let (head_reads, cached) = (tally.head_counters, tally.cached_counters);
    let waits = ratio(cached.data_misses + cached.metadata_misses, tally.cached_get.count() as f64);
    findings.checks = vec![
        Check::count("reads of extents, per uncached GET", reads, 1.0),
        Check::count_at_least("reads of extents, per uncached GET", reads, 1.0),
        Check::count("blocks of the tree read, per uncached HEAD", blocks, METADATA_READS_MAX),
        Check::count("reads of extents, of all HEADs", head_reads.data_misses + head_reads.data_hits, 0.0),
        Check::count("reads that waited for a disk, per cached GET and HEAD", waits, CACHED_WAITS_MAX),
    ];
    if config.subject.pid.is_some() {
        // A read may be done before the kernel looks whether it must wait: the counter calls that cached, the device does not.
        let from_device = ratio(tally.get_counters.device_bytes, gets);
        let least = config.size_bytes as f64;
        findings.checks.push(Check::count_at_least("bytes read from the device, per uncached GET", from_device, least));
    }
    let p = |histogram: &Histogram, quantile| ms(histogram.quantile(quantile));
    for (name, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        let get = 2.0 * p(&tally.large, quantile) + GET_EXTRA_MS;
        let head = 2.0 * p(&tally.small, quantile) + HEAD_EXTRA_MS;
        findings.checks.push(Check::time(
            format!("uncached GET {name}, ms (two 64 KiB reads + 0.2)"),
            p(&tally.get, quantile),
            get,
        ));
        findings.checks.push(Check::time(
            format!("uncached HEAD {name}, ms (two 4 KiB reads + 0.1)"),
            p(&tally.head, quantile),
            head,
        ));
    }
    findings
}

/// What the server counted, for one request.
fn counted(name: &str, counters: Counters, requests: f64) -> Line {
    Line::new(
        name,
        &[
            ("waiting_reads_of_extents", ratio(counters.data_misses, requests)),
            ("other_reads_of_extents", ratio(counters.data_hits, requests)),
            ("tree_blocks_read", ratio(counters.metadata_misses, requests)),
            ("tree_blocks_cached", ratio(counters.metadata_hits, requests)),
            ("device_bytes", ratio(counters.device_bytes, requests)),
        ],
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
