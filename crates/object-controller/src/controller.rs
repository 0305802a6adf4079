//! The controller: what the stories share, how it starts and ends.
//!
//! Promises: one session per start, former ones fenced in every shard before anything is written; half-done changes of buckets
//! are completed before the first request. Refuses to know: what the stories do.

use crate::abandon::Unabandoned;
use crate::api::{Credential, Durability, StoreError};
use crate::background::Background;
use crate::findings::Findings;
use crate::groups::seal::{self, Contents};
use crate::groups::{GroupConfig, Groups, Requirement};
use crate::limits;
use crate::nodes::{Ended, Nodes, Served};
use crate::pins::Pins;
use crate::proposer::{Failed, Proposer};
use crate::read::Extents;
use crate::snapshots::Snapshots;
use env::Env;
use env::buf::BufPool;
use metadata::command::{Command, Outcome, Refusal, RootCommand, ShardCommand};
use metadata::directory::Directory;
use metadata::node::Metadata;
use metadata::rows::GroupRecord;
use metadata::shard::{ROOT, ShardId};
use metadata::tree::Snapshot;
use parking_lot::Mutex;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use types::{AttemptId, BucketId, ClusterId, GroupId, NodeId};

/// What a controller is made of.
pub struct ControllerConfig {
    /// Clock, randomness, tasks.
    pub env: Env,
    /// The node's metadata.
    pub metadata: Metadata,
    /// Buckets and accounts, kept by the metadata's state machine.
    pub directory: Arc<Directory>,
    /// The disks: the node's own, and those of others once they are known.
    pub disks: Replicas,
    /// Goes into every frame.
    pub cluster: ClusterId,
    /// Replicas of each extent of a bucket that does not say, on distinct disks, and nodes once there are several.
    pub rf: Copies,
    /// Budget of uploads' buffers; at least [`ControllerConfig::MIN_WRITE_BYTES`].
    pub write_buffers: BufPool,
    /// The very budget the disks read into.
    pub read_buffers: BufPool,
    /// Bodies up to this many bytes ride in the metadata.
    pub inline_bytes: usize,
    /// Length at which an extent group is full.
    pub group_bytes: u64,
    /// Bytes reserved in a new group's file.
    pub preallocate_bytes: u64,
    /// The account that may do everything.
    pub root: Credential,
    /// The other nodes of the cluster; `None`: there are none and never will be while this controller lives.
    pub nodes: Option<Served>,
}

/// How many replicas a bucket has that does not say; more when the cluster grows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Copies(Arc<AtomicU8>);

impl From<u8> for Copies {
    fn from(count: u8) -> Copies {
        Copies(Arc::new(AtomicU8::new(count)))
    }
}

impl Copies {
    /// Now.
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// From now on, for uploads that begin; those that run go on in groups of their kind.
    pub fn set(&self, count: u8) {
        self.0.store(count, Ordering::Relaxed);
    }
}

impl ControllerConfig {
    /// Fewest bytes of buffers for uploads: room for a few extents, so that physical copies cannot block each other.
    pub const MIN_WRITE_BYTES: usize =
        ((limits::PHYSICAL_COPIES + 2) * limits::FRAME_MAX_BYTES * 5 / 4).next_multiple_of(types::limits::BLOCK_BYTES);
}

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Controller {
    inner: Arc<Inner>,
}

struct Inner {
    config: ControllerConfig,
    nodes: Nodes,
    proposer: Proposer,
    snapshots: Snapshots,
    groups: Arc<Groups>,
    extents: Extents,
    pins: Pins,
    findings: Findings,
    background: Background,
    root: Arc<Credential>,
    physical_copies: Semaphore,
    /// One change of buckets at a time.
    bucket_turns: Semaphore,
    unabandoned: Mutex<Vec<Unabandoned>>,
    /// Changes of buckets that are half done, and since when.
    half_done: Mutex<BTreeMap<(BucketId, u64), Duration>>,
}

impl Controller {
    /// Takes a new session, which ends and fences the node's former ones, and completes what they left half done.
    pub async fn open(config: ControllerConfig) -> Result<Controller, StoreError> {
        assert!(
            config.write_buffers.budget_bytes() >= ControllerConfig::MIN_WRITE_BYTES,
            "buffers for uploads below {} bytes",
            ControllerConfig::MIN_WRITE_BYTES
        );
        let alone = || Served::new(config.metadata.clone(), &config.env, None, config.root.clone());
        let Served { nodes, pins, .. } = config.nodes.clone().unwrap_or_else(alone);
        let proposer = Proposer::new(config.metadata.clone(), nodes.clone());
        let writer = begin_session(&config, &nodes, &proposer).await?;
        let snapshots = Snapshots::new(config.metadata.clone(), nodes.clone());
        let findings = Findings::default();
        let background = Background::start(&config.env.tasks);
        let group_config = GroupConfig {
            cluster: config.cluster,
            group_bytes: config.group_bytes,
            preallocate_bytes: config.preallocate_bytes.min(config.group_bytes),
            metadata_reserve_bytes: config.metadata.reserve_bytes(),
            writer,
        };
        let groups = Groups::new(
            group_config,
            proposer.clone(),
            config.disks.clone(),
            background.clone(),
            findings.clone(),
            config.env.clone(),
        );
        let reads = config.read_buffers.clone();
        let extents = Extents::new(
            config.disks.clone(),
            snapshots.clone(),
            findings.clone(),
            reads,
            config.env.clone(),
            config.cluster,
        );
        let root = Arc::new(config.root.clone());
        let physical_copies = Semaphore::new(limits::PHYSICAL_COPIES);
        let inner = Inner {
            config,
            nodes,
            proposer,
            snapshots,
            groups,
            extents,
            pins,
            findings,
            background,
            root,
            physical_copies,
            bucket_turns: Semaphore::new(1),
            unabandoned: Mutex::default(),
            half_done: Mutex::default(),
        };
        let controller = Controller { inner: Arc::new(inner) };
        if controller.nodes().is_alone() {
            controller.complete_bucket_changes(Duration::ZERO).await?;
        }
        Ok(controller)
    }

    /// Ends well: stories in the background are finished, open groups sealed with what is known of them. Uploads still running
    /// fail. What is not sealed here (a crash) is sealed by the curator of the next start.
    pub async fn close(&self) {
        self.inner.groups.open_no_more();
        self.inner.background.idle().await;
        self.inner.groups.seal_all().await;
        self.inner.background.idle().await;
    }

    /// To be called every few seconds: abandons, seals and completes again what could not be when it was due.
    pub async fn tend(&self) {
        self.inner.config.disks.tend().await;
        self.abandon_again().await;
        let patience = if self.nodes().is_alone() { Duration::ZERO } else { limits::BUCKET_CHANGE_MAX };
        if self.is_caretaker()
            && let Err(error) = self.complete_bucket_changes(patience).await
        {
            tracing::warn!(%error, "changes of buckets are still half done");
        }
        self.leave_places();
        self.inner.groups.seal_stuck().await;
    }

    /// Open groups follow the cluster map and the policies.
    fn leave_places(&self) {
        let (groups, default_rf) = (&self.inner.groups, self.rf());
        let default = Requirement::of(&Durability::default(), default_rf);
        let mut wanted = BTreeSet::from([default]);
        if groups.requirements().iter().any(|open| *open != default) {
            let of_all = self.directory().buckets();
            wanted.extend(of_all.iter().map(|bucket| Requirement::of(&bucket.durability, default_rf)));
        }
        groups.leave_places(self.directory().map().as_deref(), &wanted);
    }

    /// Seals a group of a former session, or goes on with a seal that was begun. *Committed*. For the curator.
    pub async fn seal_group(
        &self,
        group: GroupId,
        generation: u32,
        contents: Contents,
    ) -> Result<GroupRecord, StoreError> {
        let (proposer, config) = (&self.inner.proposer, &self.inner.config);
        seal::seal_group(proposer, (&config.disks, &config.env.timers), group, generation, contents).await
    }

    /// This node goes on in other groups than this one, for a disk of it is down: it is sealed when its uploads have ended, or, asked for
    /// a second time, at once. False: this node has no such group open. For the curator.
    pub fn leave_group(&self, group: GroupId) -> bool {
        self.inner.groups.leave(group)
    }

    /// The node's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.config.metadata
    }

    /// The cluster whose disks these are.
    pub fn cluster(&self) -> ClusterId {
        self.inner.config.cluster
    }

    /// Bytes at which a group is full.
    pub fn group_bytes(&self) -> u64 {
        self.inner.config.group_bytes
    }

    /// The disks, of this node and of others.
    pub fn disks(&self) -> &Replicas {
        &self.inner.config.disks
    }

    /// What open reads hold on to.
    pub fn pins(&self) -> &Pins {
        &self.inner.pins
    }

    /// Whether this node looks after the cluster's groups and contents now: the one that leads root, as far as it knows. What it
    /// does is decided by entries, so that a second one that does not know yet does no harm.
    pub fn is_caretaker(&self) -> bool {
        let metadata = self.metadata();
        self.inner.nodes.is_alone() || metadata.leader(ROOT) == Some(metadata.node())
    }

    /// A position that sees everything answered before, in all shards. For the curator.
    pub async fn position(&self) -> Result<Arc<Snapshot>, StoreError> {
        Ok(self.inner.snapshots.of_all().await?.into_tree())
    }

    /// Proposes to a shard, wherever it is led, under a new attempt. *Committed* when it answers; a refusal is an answer. For the
    /// curator.
    pub async fn decide(&self, shard: ShardId, command: Command) -> Result<Result<Outcome, Refusal>, StoreError> {
        match self.inner.proposer.propose(shard, self.inner.proposer.attempt(), command).await {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(Failed::Refused(refusal)) => Ok(Err(refusal)),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Ends the present epoch of pins on every node. For whoever reclaims.
    pub async fn end_epoch(&self) -> Result<Ended, StoreError> {
        self.inner.nodes.end_epoch(&self.inner.pins).await
    }

    /// Whether every read that began before, on any node, is over.
    pub async fn is_released(&self, ended: &Ended) -> bool {
        self.inner.nodes.is_released(&self.inner.pins, ended).await
    }

    /// Keeps buckets and accounts in memory as of now; to be called every half second or so while there are other nodes.
    pub async fn keep_fresh(&self) {
        if let Err(error) = self.inner.nodes.refresh().await {
            tracing::debug!(%error, "buckets and accounts may be out of date");
        }
    }

    /// Whether some disk is so full that space should come back soon: condemned contents are then reclaimed without delay.
    pub fn is_short_of_space(&self) -> bool {
        self.inner.groups.is_short_of_space()
    }

    /// To be asked before anything that grows the store; what shrinks it always goes on.
    pub(crate) fn check_room(&self) -> Result<(), StoreError> {
        if self.metadata().has_room() { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Stories in the background that panicked since the start; each is a bug.
    pub fn panicked_stories(&self) -> usize {
        self.inner.background.panicked()
    }

    /// What reads and writes saw wrong.
    pub fn findings(&self) -> &Findings {
        &self.inner.findings
    }

    /// Node and session of this start: its groups are written by it.
    pub fn session(&self) -> (NodeId, u32) {
        self.inner.groups.writer()
    }

    /// Replicas of each extent of a bucket that does not say.
    pub fn rf(&self) -> u8 {
        self.inner.config.rf.get()
    }

    pub(crate) fn config(&self) -> &ControllerConfig {
        &self.inner.config
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.config.env
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.inner.nodes
    }

    pub(crate) fn proposer(&self) -> &Proposer {
        &self.inner.proposer
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.inner.snapshots
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.inner.config.directory
    }

    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.inner.groups
    }

    pub(crate) fn extents(&self) -> &Extents {
        &self.inner.extents
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    pub(crate) fn unabandoned(&self) -> &Mutex<Vec<Unabandoned>> {
        &self.inner.unabandoned
    }

    pub(crate) fn write_buffers(&self) -> &BufPool {
        &self.inner.config.write_buffers
    }

    pub(crate) fn root_credential(&self) -> &Arc<Credential> {
        &self.inner.root
    }

    pub(crate) fn half_done(&self) -> &Mutex<BTreeMap<(BucketId, u64), Duration>> {
        &self.inner.half_done
    }

    /// The right to change buckets.
    pub(crate) async fn bucket_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.inner.bucket_turns.acquire().await.ok()
    }

    /// One of the few places for copies of bytes. They hold a buffer for reading while they wait for one for writing; so few
    /// of them cannot take all of either.
    pub(crate) async fn physical_copy(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.inner.physical_copies.acquire().await.ok()
    }
}

/// Ends the node's former sessions in root and fences them in every shard: what they had proposed and is not applied by now
/// never will be (protocols.md 4).
async fn begin_session(
    config: &ControllerConfig,
    nodes: &Nodes,
    proposer: &Proposer,
) -> Result<(NodeId, u32), StoreError> {
    let (metadata, node) = (&config.metadata, config.metadata.node());
    let session = if nodes.is_alone() {
        metadata.start_session().await.map_err(Failed::from)?
    } else {
        nodes.until_answered(|| new_session(config, proposer)).await?
    };
    metadata.adopt_session(session);
    for shard in proposer.data_shards() {
        let fence = || async move {
            let command = ShardCommand::Fence { node, lowest_session: session };
            proposer.shard(shard, proposer.attempt(), command).await.map(drop)
        };
        nodes.until_answered(fence).await?;
    }
    Ok((node, session))
}

async fn new_session(config: &ControllerConfig, proposer: &Proposer) -> Result<u32, Failed> {
    let node = config.metadata.node();
    // Not of any session: unique by chance of 2^-64.
    let attempt = AttemptId { node, session: 0, sequence: config.env.random.next_u64() };
    match proposer.propose(ROOT, attempt, Command::Root(RootCommand::NewSession { node })).await? {
        Outcome::Session(number) => Ok(number),
        other => Err(Failed::Unknown(format!("a new session was answered {other:?}"))),
    }
}
