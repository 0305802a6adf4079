//! The metadata of one node as a handle: propose, read, flush, close.
//!
//! Promises: `Ok` of [`Metadata::propose`] means applied and durable in the log of every folder of the log set; a snapshot taken
//! after that sees it. An error but [`ProposeError::Failed`] means that it did not and will not happen through this call.
//! Refuses to know: what commands mean; buckets, objects, HTTP.

mod cluster;
mod history;
mod open;
mod refill;
mod space;

pub use open::StartError;

use crate::cache::{CacheStats, CurrentObject};
use crate::command::{Command, Entry, Outcome, RootCommand};
use crate::limits::CATCH_UP_FLUSHES;
use crate::log::LogStats;
use crate::read::ReadError;
use crate::rows::Home;
use crate::shard::applier::ToApply;
use crate::shard::driver::{Proposal, ToDriver};
use crate::shard::flusher::{Flusher, Slots};
use crate::shard::group::Waiting;
use crate::shard::shared::Shared;
use crate::shard::{AppendObserver, ROOT, Shard, ShardId, Spans, StateMachine, envelope};
use crate::tree::{Snapshot, TreeStats};
use bytes::Bytes;
use env::Env;
use env::disk::Disk;
use env::tasks::Worker;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use types::limits::{DEADLINE_MS, ENTRY_MAX_BYTES};
use types::{AttemptId, BucketId, NodeId, ObjectKey};

/// One metadata folder.
#[derive(Clone, Debug)]
pub struct FolderConfig {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Directory on it that is the metadata's alone.
    pub dir: String,
}

/// A future on the heap.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to the other nodes' metadata.
pub trait Peers: Send + Sync {
    /// Takes a batch for that node's [`Metadata::receive`]; in order as far as nothing is lost. Must not block.
    fn send(&self, to: NodeId, batch: Bytes);
    /// The answer of that node's [`Metadata::serve`]. The future is polled by the thread of the log, outside of any runtime, and has
    /// to end by itself: what it needs of one it has others do.
    fn fetch(&self, from: NodeId, request: Bytes) -> Boxed<Result<Bytes, String>>;
}

/// What an empty store is made into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// The first node of a cluster: all shards, with this node as the only voter.
    First,
    /// A further node: nothing, until leaders add it to their groups.
    Joining,
}

/// How a node keeps its metadata.
#[derive(Clone)]
pub struct MetadataConfig {
    /// Clock, randomness, workers.
    pub env: Env,
    /// This node.
    pub node: NodeId,
    /// One folder, or several on distinct disks (`--rf`).
    pub folders: Vec<FolderConfig>,
    /// Whether an empty store may be made: only at the birth of the node, for an empty folder may also be a lost disk.
    pub create: bool,
    /// What it is made into then.
    pub birth: Birth,
    /// The other nodes. `None`: there are none and never will be in this run.
    pub peers: Option<Arc<dyn Peers>>,
    /// Folders that the operator says are lost for good, with their disks: a start does not wait for so many.
    pub lost: usize,
    /// Bytes of a log segment.
    pub segment_bytes: u32,
    /// Bytes of rows in memory at which they are flushed.
    pub memtable_bytes: u64,
    /// Bytes of the log at which a flush is forced so that it can be truncated; at least 3 segments.
    pub log_bytes: u64,
    /// Bytes of the tree's block cache.
    pub cache_bytes: u64,
    /// Bytes of the cache of current objects; 0: none.
    pub object_cache_bytes: u64,
    /// Whether the tree compresses what is older.
    pub compress: bool,
    /// Where data shards are split at birth; empty: one shard of all keys. For tests.
    pub splits: Vec<Home>,
    /// Told how long each append to the log took.
    pub observer: Option<AppendObserver>,
}

impl MetadataConfig {
    /// The sizes of a server.
    pub fn new(env: Env, node: NodeId, folders: Vec<FolderConfig>) -> MetadataConfig {
        MetadataConfig {
            env,
            node,
            folders,
            create: false,
            birth: Birth::First,
            peers: None,
            lost: 0,
            segment_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            log_bytes: 256 << 20,
            cache_bytes: 256 << 20,
            object_cache_bytes: 96 << 20,
            compress: false,
            splits: Vec::new(),
            observer: None,
        }
    }

    /// The sizes of a small machine (protocols.md 14).
    pub fn small(env: Env, node: NodeId, folders: Vec<FolderConfig>) -> MetadataConfig {
        let new = MetadataConfig::new(env, node, folders);
        MetadataConfig {
            segment_bytes: 4 << 20,
            memtable_bytes: 8 << 20,
            log_bytes: 24 << 20,
            cache_bytes: 16 << 20,
            object_cache_bytes: 4 << 20,
            ..new
        }
    }
}

/// A proposal was not answered by apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Too much is in flight, or the trees or the log are behind. It did not happen.
    #[error("the metadata is busy")]
    Busy,
    /// The log has no space. It did not happen.
    #[error("no space for metadata")]
    NoSpace,
    /// Larger than an entry may be. It did not happen.
    #[error("the entry is too large")]
    TooLarge,
    /// Past its deadline before it was appended. It did not happen through this call.
    #[error("past the deadline")]
    TooLate,
    /// There is no such shard here. It did not happen.
    #[error("no such shard")]
    NoSuchShard,
    /// The metadata failed before or is closed. It did not happen.
    #[error("the metadata is read-only: {0}")]
    ReadOnly(String),
    /// Another node leads the shard, or nobody does as far as is known. It did not happen.
    #[error("another node leads the shard: {0:?}")]
    NotLeader(Option<NodeId>),
    /// Such a change of members is not made. It did not happen.
    #[error("the members stay: {0}")]
    Refused(String),
    /// The log or the tree failed or the lead was lost meanwhile: whether it happened or will happen is not known.
    #[error("the metadata failed: {0}")]
    Failed(String),
}

/// Numbers of one node's metadata since its start.
#[derive(Clone, Debug, Default)]
pub struct MetadataStats {
    /// Why nothing is acknowledged any more.
    pub failure: Option<String>,
    /// Folders in the log set, and their logs.
    pub logs: BTreeMap<usize, LogStats>,
    /// The tree that is read.
    pub tree: TreeStats,
    /// The cache of current objects above it.
    pub objects: CacheStats,
    /// Appends to the log.
    pub appends: u64,
    /// Entries and Raft states in them.
    pub entries: u64,
    /// Completed flushes, all folders together.
    pub flushes: u64,
    /// Compactions, all folders together.
    pub compactions: u64,
    /// Rounds of messages that proved this node's lead to readers; one serves all that waited.
    pub read_rounds: u64,
}

/// A handle. Cheap to clone. When the last one is dropped the workers end by themselves; [`Metadata::close`] waits for them.
#[derive(Clone)]
pub struct Metadata {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    node: NodeId,
    spans: Spans,
    shared: Arc<Shared>,
    driver: Worker<ToDriver>,
    apply: Worker<ToApply>,
    flushers: Vec<Flusher>,
    slots: Slots,
    session: Mutex<Session>,
    closed: Mutex<bool>,
    space: space::Space,
}

#[derive(Default)]
struct Session {
    number: u32,
    next: u64,
}

impl Metadata {
    /// Opens the store, replays the log, leads its shards. Blocks.
    pub fn open(config: MetadataConfig, machine: Box<dyn StateMachine>) -> Result<Metadata, StartError> {
        open::open(config, machine).map(|inner| Metadata { inner: Arc::new(inner) })
    }

    /// Proposes a command to a shard and waits until it is applied. Dropping the future does not take it back.
    pub async fn propose(
        &self,
        shard: ShardId,
        attempt: AttemptId,
        deadline_ms: u64,
        command: Command,
    ) -> Result<Outcome, ProposeError> {
        let entry = Box::new(Entry { attempt, deadline_ms, stamp_ms: 0, command });
        let answer = self.submit(shard, entry)?;
        answer.await.unwrap_or_else(|_| Err(ProposeError::Failed("the metadata ended".to_owned())))
    }

    fn submit(&self, shard: ShardId, entry: Box<Entry>) -> Result<Answer, ProposeError> {
        let inner = &*self.inner;
        if let Some(reason) = inner.shared.failure() {
            return Err(ProposeError::ReadOnly(reason));
        }
        if !inner.shared.shards.load().contains_key(&shard) {
            return Err(ProposeError::NoSuchShard);
        }
        if inner.shared.behind() {
            // Flushes that waited for space are tried again. One such message at a time, whoever is turned away: the queue has
            // room for what was accepted and a few more, and what does not fit there ends the node.
            if !inner.shared.look_asked.swap(true, Ordering::AcqRel) {
                // Refused only if it is closed.
                let _ = inner.apply.submit(ToApply::Look);
            }
            return Err(ProposeError::Busy);
        }
        let data = envelope::encode(&entry);
        if data.len() > ENTRY_MAX_BYTES {
            return Err(ProposeError::TooLarge);
        }
        let in_flight = inner.shared.admit(data.len()).ok_or(ProposeError::Busy)?;
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { reply, _in_flight: in_flight };
        let refused = inner.driver.submit(ToDriver::Propose(Proposal { shard, entry, data, waiting }));
        match refused {
            Ok(()) => Ok(answer),
            Err(refused) if refused.is_full() => Err(ProposeError::Busy),
            Err(_) => Err(ProposeError::ReadOnly("it is closed".to_owned())),
        }
    }

    /// A reader at the newest applied position.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.shared.snapshot()
    }

    /// The live current version of a key, `with_body` with its body row if it has one: as a new snapshot would find it, out of
    /// memory if it was read before. `None`: the key has none. A reader of extents holds its pin when it asks.
    pub fn current(
        &self,
        bucket: BucketId,
        key: &ObjectKey,
        with_body: bool,
    ) -> Result<Option<Arc<CurrentObject>>, ReadError> {
        self.inner.shared.objects.current(|| self.snapshot(), bucket, key, with_body)
    }

    /// The same, only out of memory and only if it can be answered whole without a pin: `None` says nothing of the key.
    pub fn current_in_memory(&self, bucket: BucketId, key: &ObjectKey, with_body: bool) -> Option<Arc<CurrentObject>> {
        self.inner.shared.objects.look_unpinned(bucket, key, with_body)
    }

    /// The shard that holds this key.
    pub fn shard_of(&self, home: &Home) -> ShardId {
        let holds = |shard: &&Shard| shard.id != ROOT && shard.range.contains(home.bucket, &home.key);
        self.inner.shared.shards.load().values().find(holds).map_or(ROOT, |shard| shard.id)
    }

    /// All shards of this node by id; root is 0. A node that joins has none at first.
    pub fn shards(&self) -> impl Iterator<Item = Shard> {
        self.inner.shared.shards.load_full().values().cloned().collect::<Vec<_>>().into_iter()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.inner.node
    }

    /// Cluster time (protocols.md 11): the wall clock, but never before the newest stamp of any entry. Deadlines are made from
    /// it, so that a wall clock that goes back, or once was ahead, stops no writes.
    pub fn now_ms(&self) -> u64 {
        self.inner.shared.time_ms(self.inner.env.clock.wall_ms())
    }

    /// Takes a new session: root ends the former ones of this node. Must be called before the first [`Metadata::next_attempt`].
    pub async fn start_session(&self) -> Result<u32, ProposeError> {
        self.catch_up().await;
        let node = self.inner.node;
        // Not of any session: unique by chance of 2^-64.
        let attempt = AttemptId { node, session: 0, sequence: self.inner.env.random.next_u64() };
        let deadline_ms = self.now_ms().saturating_add(DEADLINE_MS);
        let command = Command::Root(RootCommand::NewSession { node });
        match self.propose(ROOT, attempt, deadline_ms, command).await? {
            Outcome::Session(number) => {
                self.adopt_session(number);
                Ok(number)
            }
            other => Err(ProposeError::Failed(format!("a new session was answered {other:?}"))),
        }
    }

    /// Attempts are minted in this session from now on: a number that root allotted to this node.
    pub fn adopt_session(&self, number: u32) {
        *self.inner.session.lock() = Session { number, next: 1 };
    }

    /// Does what the last run left undone as far as it turns proposals away: flushes, so that the log becomes short.
    async fn catch_up(&self) {
        for _ in 0..CATCH_UP_FLUSHES {
            if !self.inner.shared.behind() {
                return;
            }
            if let Err(error) = self.flush().await {
                return tracing::warn!(error, "what the last run left to be flushed could not be");
            }
            // Handled after what the flush told the driver, and the driver looks at the length of the log then.
            self.mark().await;
        }
    }

    /// Whether proposals are turned away for now, as flushes or compactions are behind.
    pub fn is_behind(&self) -> bool {
        self.inner.shared.behind()
    }

    /// Mints the id of an attempt in the newest session.
    pub fn next_attempt(&self) -> AttemptId {
        let mut session = self.inner.session.lock();
        let sequence = session.next;
        session.next += 1;
        AttemptId { node: self.inner.node, session: session.number, sequence }
    }

    /// The newest session of this node; 0 before the first.
    pub fn session(&self) -> u32 {
        self.inner.session.lock().number
    }

    /// Makes everything applied so far durable in the trees of all folders.
    pub async fn flush(&self) -> Result<(), String> {
        let (reply, done) = oneshot::channel();
        self.inner.apply.submit(ToApply::Flush(reply)).map_err(|e| e.to_string())?;
        done.await.unwrap_or_else(|_| Err("the metadata ended".to_owned()))
    }

    /// Flushes, and empties the block cache and that of current objects, for measurements: the next read of any row asks the host
    /// for its block.
    pub async fn empty_cache(&self) -> Result<(), String> {
        self.flush().await?;
        let (reply, done) = oneshot::channel();
        self.inner.apply.submit(ToApply::Renew(reply)).map_err(|e| e.to_string())?;
        done.await.map_err(|_| "the metadata ended".to_owned())?;
        self.inner.shared.tree().empty_cache();
        self.inner.shared.objects.clear();
        Ok(())
    }

    /// Writes down how far the log is durable; to be called now and then while idle, so that damage can be told from a torn tail.
    pub async fn mark(&self) {
        let (reply, done) = oneshot::channel();
        if self.inner.driver.submit(ToDriver::Mark(reply)).is_ok() {
            // Dropped only if the driver ended, and then there is nothing to mark.
            let _ = done.await;
        }
    }

    /// Bytes that must stay free on each metadata disk so that flushes, compactions and the log never want for space. What
    /// grows the store asks [`Metadata::has_room`] first; what shrinks it may use the reserve.
    pub fn reserve_bytes(&self) -> u64 {
        self.inner.space.reserve_bytes()
    }

    /// Whether each metadata disk has more than the reserve. One `statvfs` a disk at most, of disks far from full ten a second.
    pub fn has_room(&self) -> bool {
        self.inner.space.has_room()
    }

    /// Why nothing is acknowledged any more (rule R3): the process should stop.
    pub fn failure(&self) -> Option<String> {
        self.inner.shared.failure()
    }

    /// Numbers.
    pub fn stats(&self) -> MetadataStats {
        let shared = &self.inner.shared;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        MetadataStats {
            failure: shared.failure(),
            logs: shared.log_stats.lock().clone(),
            tree: shared.tree().stats(),
            objects: shared.objects.stats(),
            appends: count(&shared.counters.appends),
            entries: count(&shared.counters.entries),
            flushes: count(&shared.counters.flushes),
            compactions: count(&shared.counters.compactions),
            read_rounds: count(&shared.counters.read_rounds),
        }
    }

    /// Answers what was accepted, writes the log's mark, waits for the workers. Blocks; not to be called on an async thread.
    pub fn close(&self) {
        let mut closed = self.inner.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return;
        }
        let (reply, _done) = oneshot::channel();
        // Refused only if the driver ended already.
        let _ = self.inner.driver.submit(ToDriver::Mark(reply));
        let ended = self.inner.driver.join().and(self.inner.apply.join());
        self.inner.flushers.iter().for_each(Flusher::join);
        self.inner.slots.clear();
        if let Err(e) = ended {
            tracing::error!(error = %e, "the metadata ended badly");
        }
    }
}

type Answer = oneshot::Receiver<Result<Outcome, ProposeError>>;

impl Drop for Inner {
    fn drop(&mut self) {
        // The workers hold each other through these.
        self.slots.clear();
    }
}
