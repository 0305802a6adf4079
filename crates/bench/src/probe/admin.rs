//! The few calls of a server's admin API that measurements need: empty the caches, read the counters, scrub.
//!
//! Promises: counters are those the server itself shows at `/metrics`. Refuses to know: what they mean.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Subject;
use crate::BenchError;
use crate::client::signature::PayloadSigning;
use crate::client::{BodySink, Client, Request, Target};

/// Region and service of admin signatures.
const REGION: &str = "us-east-1";
const SERVICE: &str = "ashlar";
/// A scrub of a large disk takes its time.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// What all metrics of a server begin with.
const METRIC_PREFIX: &str = "ashlar_";

/// Counters and gauges of one moment, by name without the common prefix.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Metrics {
        let samples = text.lines().filter_map(|line| line.strip_prefix(METRIC_PREFIX)?.rsplit_once(' '));
        Metrics(samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// The value with this name; an error if the server does not show it.
    pub fn get(&self, name: &str) -> Result<f64, BenchError> {
        let value = self.0.get(name).copied();
        value.ok_or_else(|| BenchError::Server(format!("shows no metric {METRIC_PREFIX}{name}")))
    }
}

/// The counters that the probes compare, of one moment; differences are what happened between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Blocks of the metadata tree that the cache had.
    pub metadata_hits: f64,
    /// Blocks of the metadata tree that had to be read.
    pub metadata_misses: f64,
    /// Reads of extents that the page cache answered.
    pub data_hits: f64,
    /// Reads of extents that waited for a disk.
    pub data_misses: f64,
    /// Bytes that the process caused to be read from block devices; zero without a process id.
    pub device_bytes: f64,
}

impl Counters {
    /// What happened since `earlier`.
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            metadata_hits: self.metadata_hits - earlier.metadata_hits,
            metadata_misses: self.metadata_misses - earlier.metadata_misses,
            data_hits: self.data_hits - earlier.data_hits,
            data_misses: self.data_misses - earlier.data_misses,
            device_bytes: self.device_bytes - earlier.device_bytes,
        }
    }

    /// Both together.
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            metadata_hits: self.metadata_hits + other.metadata_hits,
            metadata_misses: self.metadata_misses + other.metadata_misses,
            data_hits: self.data_hits + other.data_hits,
            data_misses: self.data_misses + other.data_misses,
            device_bytes: self.device_bytes + other.device_bytes,
        }
    }

    /// Share of the blocks that the metadata cache had; 1 if none was asked for.
    pub fn metadata_hit_ratio(self) -> f64 {
        let all = self.metadata_hits + self.metadata_misses;
        if all > 0.0 { self.metadata_hits / all } else { 1.0 }
    }
}

/// The admin API of a server.
pub struct Admin {
    client: Client,
    pid: Option<u32>,
}

impl Admin {
    /// Connects at the first call, as the same account as the S3 client.
    pub fn new(subject: &Subject) -> Admin {
        let target = Target {
            address: subject.admin.clone(),
            region: REGION.to_owned(),
            credentials: subject.target.credentials.clone(),
            payload: PayloadSigning::Sha256,
        };
        Admin { client: Client::of_service(&target, SERVICE, TIMEOUT), pid: subject.pid }
    }

    /// Has rows in memory written, and empties the metadata's block cache and the page cache of all the server's files.
    pub async fn flush_caches(&mut self) -> Result<(), BenchError> {
        self.ask("POST", "/v1/caches/flush").await.map(drop)
    }

    /// Reads and verifies everything; the answer is the server's report.
    pub async fn scrub(&mut self) -> Result<String, BenchError> {
        self.ask("POST", "/v1/scrub").await
    }

    /// All metrics.
    pub async fn metrics(&mut self) -> Result<Metrics, BenchError> {
        Ok(Metrics::parse(&self.ask("GET", "/metrics").await?))
    }

    /// The counters that the probes compare.
    pub async fn counters(&mut self) -> Result<Counters, BenchError> {
        let metrics = self.metrics().await?;
        Ok(Counters {
            metadata_hits: metrics.get("metadata_cache_hits_total")?,
            metadata_misses: metrics.get("metadata_cache_misses_total")?,
            data_hits: metrics.get("data_cache_hits_total")?,
            data_misses: metrics.get("data_cache_misses_total")?,
            device_bytes: self.pid.map(crate::machine::read_bytes).transpose()?.unwrap_or(0) as f64,
        })
    }

    async fn ask(&mut self, method: &str, path: &str) -> Result<String, BenchError> {
        let body: Option<&[u8]> = (method == "POST").then_some(&[]);
        let request = Request { method, path, body, ..Request::default() };
        let answer = self.client.call(&request, 200, BodySink::Keep).await;
        let answer = answer.map_err(BenchError::request(format!("ask the admin API for {path}")))?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Counters, Metrics};

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = "# HELP ashlar_a what\nashlar_a_total 12\nashlar_b{code=\"200\"} 1.5\nother 3\n# EOF\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.get("a_total").expect("there"), 12.0);
        assert_eq!(metrics.get("b{code=\"200\"}").expect("there"), 1.5);
        assert!(metrics.get("other").is_err());
    }

    #[test]
    fn a_hit_ratio_is_of_the_blocks_between_two_readings() {
        let earlier = Counters { metadata_hits: 10.0, metadata_misses: 90.0, ..Counters::default() };
        let later = Counters { metadata_hits: 40.0, metadata_misses: 100.0, ..Counters::default() };
        assert_eq!(later.since(earlier).metadata_hit_ratio(), 0.75);
        assert_eq!(later.since(later).metadata_hit_ratio(), 1.0);
    }
}
