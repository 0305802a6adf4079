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

/// What an operator looks at or wants changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Manage {
    /// All buckets and how they are kept.
    Buckets,
    /// One bucket by name.
    Bucket(String),
    /// How a bucket is to be kept.
    SetDurability(String, BucketWish),
    /// The nodes, and how much lies on them.
    Nodes,
    /// Changes what a node is to the cluster: by `n1` or 1.
    Node(String, ChangeWish),
    /// The disks, and how much lies on them.
    Disks,
    /// Changes what a disk is to the cluster.
    Disk(String, ChangeWish),
    /// Where an object lies.
    Object(ObjectWish),
}

/// How a bucket is to be kept; what is left out stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketWish {
    /// First back to what the cluster does.
    #[serde(default)]
    pub default: bool,
    /// Replicas.
    pub rf: Option<u8>,
    /// `none`, or data and parity members as `4+2`.
    pub ec: Option<String>,
    /// Milliseconds from the sealing of a group to its encoding.
    pub ec_after_ms: Option<u64>,
}

/// What is to become of a node or disk.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeWish {
    /// Of a node: activate, drain, maintain, remove. Of a disk: activate, drain, remove, lose.
    pub wish: String,
    /// Whatever it breaks.
    #[serde(default)]
    pub force: bool,
}

/// A version of an object.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectWish {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// As S3 shows it; the current one if left out.
    pub version_id: Option<String>,
}

/// Why nothing was done, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such thing.
    Unknown(String),
    /// The wish makes no sense.
    Wrong(String),
    /// It makes sense and would break something.
    Breaks(String),
    /// Not now.
    Unavailable(String),
}

/// A boxed future of what came of it.
pub type Managed<'a> = Pin<Box<dyn Future<Output = Result<Value, Refused>> + Send + 'a>>;

/// A boxed future of the answer's JSON.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;

/// What is asked of the curators of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuratorAsk {
    /// How redundancy stands.
    Status,
    /// The tasks, the most urgent first.
    Tasks,
    /// Plan anew; if `full`, compare all files with the records.
    Scan {
        /// See above.
        full: bool,
    },
    /// Lift the limits of background work.
    Boost {
        /// For so long.
        seconds: u64,
    },
}

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
    /// Looks at or changes buckets, nodes, disks; says where an object lies.
    fn manage(&self, wanted: Manage) -> Managed<'_>;
    /// What the curator does, or shall do, about copies: on all nodes.
    fn curator(&self, ask: CuratorAsk) -> Answer<'_>;
    /// Gauges, and counters (names in `_total`), that are read when metrics are asked for: name, help, value.
    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)>;
}
