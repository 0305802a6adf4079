//! What a load run shall do.
//!
//! Promises: a `Config` that passed [`Config::check`] can be run. Refuses to know: how it was written down (see `cli`).

use std::time::Duration;

use serde::Serialize;

use crate::BenchError;
use crate::client::Target;

/// What each connection does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// PutObject of new keys.
    Put,
    /// GetObject of random keys.
    Get,
    /// GetObject of a random range, 4 KiB aligned, of random keys.
    Ranged,
    /// HeadObject of random keys.
    Head,
    /// DeleteObject of keys in order.
    Delete,
    /// Pages of ListObjectsV2 over the whole prefix.
    List,
    /// CopyObject of the first key to new keys.
    Copy,
    /// Whole multipart uploads: create, parts in parallel, complete.
    Multipart,
    /// 50 % GET, 25 % PUT, 15 % HEAD, 5 % PUT and DELETE of one key, 5 % one page of LIST.
    Mixed,
}

/// What a load run shall do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where and as whom.
    pub target: Target,
    /// Bucket of all keys.
    pub bucket: String,
    /// What to do.
    pub operation: Operation,
    /// Length of an object, of a part, or for [`Operation::Ranged`] of a range.
    pub size_bytes: u64,
    /// Length of the objects that ranges are read of.
    pub object_bytes: u64,
    /// Connections with one request in flight each.
    pub concurrency: u32,
    /// End after so many operations.
    pub count: Option<u64>,
    /// End after so much time.
    pub duration: Option<Duration>,
    /// Do this long before anything is measured.
    pub warmup: Duration,
    /// How many keys there are to read.
    pub objects: u64,
    /// All keys begin with this.
    pub prefix: String,
    /// With n > 0, keys are spread over n sub-prefixes `pNNN/`.
    pub fanout: u64,
    /// Decides all contents.
    pub seed: u64,
    /// Create the bucket and put the keys to be read first, unmeasured.
    pub prepare: bool,
    /// Entries of a page.
    pub page_keys: u32,
    /// Group listings by it.
    pub delimiter: Option<String>,
    /// Parts of an upload.
    pub parts: u32,
    /// Parts of one upload sent at the same time.
    pub parallel_parts: u32,
    /// Read this process's processor time and memory.
    pub pid: Option<u32>,
    /// Read this block device's writes and flushes.
    pub disk: Option<String>,
    /// Show a progress bar on standard error.
    pub progress: bool,
}

impl Config {
    /// A run of one operation with the usual values for everything else.
    pub fn new(target: Target, bucket: &str, operation: Operation) -> Config {
        Config {
            target,
            bucket: bucket.to_owned(),
            operation,
            size_bytes: 4096,
            object_bytes: 8 << 20,
            concurrency: 16,
            count: None,
            duration: None,
            warmup: Duration::ZERO,
            objects: 1000,
            prefix: "bench/".to_owned(),
            fanout: 0,
            seed: 1,
            prepare: true,
            page_keys: 1000,
            delimiter: None,
            parts: 8,
            parallel_parts: 8,
            pid: None,
            disk: None,
            progress: false,
        }
    }

    /// Refuses what cannot be run; the text names the option.
    pub fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if self.concurrency == 0
            || self.objects == 0
            || self.parts == 0
            || self.parallel_parts == 0
            || self.page_keys == 0
        {
            return wrong("concurrency, objects, parts, parallel parts and page keys must be at least 1");
        }
        if self.count.is_none() && self.duration.is_none() {
            return wrong("a run needs a count or a duration");
        }
        if self.operation == Operation::Ranged && (self.size_bytes == 0 || self.object_bytes < self.size_bytes) {
            return wrong("a range must have a byte and fit into its object");
        }
        if self.operation == Operation::Delete && self.count.is_none() {
            return wrong("delete needs a count: it must know how many keys to put first");
        }
        Ok(())
    }

    /// The key with this number.
    pub fn key(&self, index: u64) -> String {
        match self.fanout {
            0 => format!("{}{index:08}", self.prefix),
            fanout => format!("{}p{:03}/k{index:08}", self.prefix, index % fanout),
        }
    }

    /// `/bucket/key`.
    pub fn path(&self, key: &str) -> String {
        format!("/{}/{key}", self.bucket)
    }
}
