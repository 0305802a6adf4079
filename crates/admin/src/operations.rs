//! What the admin API can ask of a node.

use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use tokio::sync::mpsc;

/// One step of long work, sent as a line to whoever asked for it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all, as far as known.
    pub total: u64,
    /// What a unit is: `bytes`, `groups`, `contents`.
    pub unit: String,
}

/// A boxed future of the answer's JSON.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;

/// A node that can be asked. Long work reports progress and stops when the receiver is gone.
pub trait Operations: Send + Sync + 'static {
    /// Answers requests with right bytes.
    fn ready(&self) -> bool;
    /// Version, disks, space, buckets, work in progress.
    fn info(&self) -> Value;
    /// Proves that referenced extents are the stored extents. The answer's `ok` says whether.
    fn audit(&self, progress: mpsc::Sender<Progress>) -> Answer<'_>;
    /// Reads and verifies every replica. The answer's `ok` says whether no damage is left.
    fn scrub(&self, progress: mpsc::Sender<Progress>) -> Answer<'_>;
    /// Drops what is cached of metadata and data, for measurements.
    fn flush_caches(&self) -> Answer<'_>;
    /// The nodes and disks of the cluster, and what is thought of them.
    fn cluster(&self) -> Value;
    /// A token that admits one node within so many seconds: `{"token": TEXT, "expires_in_seconds": N}`.
    fn join_token(&self, valid_seconds: u64) -> Answer<'_>;
    /// Gauges, and counters (names in `_total`), that are read when metrics are asked for: name, help, value.
    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)>;
}
