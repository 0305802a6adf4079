//! The open extent groups that this controller writes, as their single writer (protocols.md 1).
//!
//! Promises: an extent counts only when *all* replicas listed at the group's opening acknowledged it; the group's record is
//! created before its files; a replica that fails ends its group, and the extents not yet acknowledged by all are written
//! again under new addresses; a full group is sealed when the last upload in it has ended, so that its account is empty.
//! Refuses to know: objects, commits; whether a group's contents live on (the curator settles).

mod choose;
mod leave;
mod open;
mod opening;
mod requirement;
mod room;
pub(crate) mod seal;
mod spread;

pub(crate) use open::OpenGroup;
pub(crate) use requirement::Requirement;

use crate::api::StoreError;
use crate::background::Background;
use crate::findings::{Finding, Findings, Trouble};
use crate::ledger::Ledger;
use crate::limits;
use crate::proposer::Proposer;
use crate::runs::Address;
use env::Env;
use env::buf::{BufPool, PooledBuf};
use extent_store::{AppendError, Frame, SliceCrcs};
use open::Reserved;
use parking_lot::Mutex;
use replicas::{Replicas, is_away};
use seal::Contents;
use spread::Usual;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use types::limits::BLOCK_BYTES;
use types::{ClusterId, DiskId, NodeId};

/// How groups are opened.
#[derive(Clone, Debug)]
pub(crate) struct GroupConfig {
    /// Goes into every frame.
    pub(crate) cluster: ClusterId,
    /// Length at which a group is full.
    pub(crate) group_bytes: u64,
    /// Bytes reserved in a new file.
    pub(crate) preallocate_bytes: u64,
    /// What the metadata wants free on its disks; any disk may be one of them.
    pub(crate) metadata_reserve_bytes: u64,
    /// Node and session that write.
    pub(crate) writer: (NodeId, u32),
}

/// One extent to be written: payload behind the header's block.
pub(crate) struct Extent {
    pub(crate) ledger: Arc<Ledger>,
    /// Of the groups it may go into.
    pub(crate) requirement: Requirement,
    pub(crate) index: u32,
    pub(crate) buf: PooledBuf,
}

/// Where an extent is durable, on all of these disks.
pub(crate) struct Placed {
    pub(crate) address: Address,
    pub(crate) disks: Vec<DiskId>,
}

/// All open groups.
pub(crate) struct Groups {
    config: GroupConfig,
    proposer: Proposer,
    disks: Replicas,
    background: Background,
    findings: Findings,
    env: Env,
    /// Keeps the appends of all uploads below what a disk's queue holds.
    in_flight: Semaphore,
    /// Buffers for extents that are written again, so that they never wait for those of other uploads.
    rescue: BufPool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Vec<Arc<OpenGroup>>,
    /// Of each requirement at most one group is being opened; these wait for it.
    opening: BTreeMap<Requirement, Vec<Waiter>>,
    /// Not sealed yet: still waiting for uploads, or no disk answered the fence. Tried again when the store is tended.
    unsealed: Vec<Arc<OpenGroup>>,
    /// Disks where an append failed in this process: no new groups there (rule R3).
    suspect: BTreeSet<DiskId>,
    /// Disks that were much slower than their neighbours, and until when they are avoided.
    slow: BTreeMap<DiskId, Duration>,
    /// Disks from which new groups keep away because they will go: taken only if there is no other.
    leaving: BTreeSet<DiskId>,
    /// Those, and silent ones, when it was last looked.
    left: BTreeSet<DiskId>,
    /// How long all replicas of a group together usually take to acknowledge.
    usual: Usual,
    closed: bool,
}

/// Whoever waits for a group to be opened.
type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// An extent that needs an address.
enum Source {
    /// Not written yet.
    Fresh(PooledBuf, SliceCrcs),
    /// Written where it does not count, with so many payload bytes; kept until a copy elsewhere is durable.
    Again(Frame, u32),
}

impl Groups {
    pub(crate) fn new(
        config: GroupConfig,
        proposer: Proposer,
        disks: Replicas,
        background: Background,
        findings: Findings,
        env: Env,
    ) -> Arc<Groups> {
        Arc::new(Groups {
            config,
            proposer,
            disks,
            background,
            findings,
            env,
            in_flight: Semaphore::new(extent_store::limits::WRITER_QUEUE / 2),
            rescue: BufPool::new(2 * limits::FRAME_MAX_BYTES),
            state: Mutex::default(),
        })
    }

    /// Node and session that write.
    pub(crate) fn writer(&self) -> (NodeId, u32) {
        self.config.writer
    }

    /// The requirements of the groups that are open.
    pub(crate) fn requirements(&self) -> BTreeSet<Requirement> {
        self.state.lock().open.iter().map(|group| group.requirement()).collect()
    }

    /// Writes one extent. *Durable* on all replicas of one group when it answers; not yet owned by anything.
    pub(crate) async fn append(self: Arc<Self>, extent: Extent) -> Result<Placed, StoreError> {
        let Extent { ledger, requirement, index, buf } = extent;
        let crcs = SliceCrcs::of(&buf[BLOCK_BYTES..]);
        let frame_bytes = Frame::bytes_for(crcs.payload_bytes());
        let mut source = Source::Fresh(buf, crcs);
        let mut attempts = 0;
        loop {
            let _permit = self.in_flight.acquire().await.map_err(|_| closing())?;
            self.leave_full_disks();
            let group = self.group_with_room(requirement, frame_bytes).await?;
            let rescue = match &source {
                Source::Fresh(..) => None,
                Source::Again(..) => Some(self.rescue.take(frame_bytes as usize).await),
            };
            let mut reserved = match group.reserve(&self.config, &ledger, index, source, rescue) {
                Ok(reserved) => reserved,
                Err(back) => {
                    source = back;
                    continue;
                }
            };
            match self.acknowledged(&group, &mut reserved, &ledger, frame_bytes).await {
                Ok(()) => return Ok(Placed { address: reserved.address, disks: group.disk_ids() }),
                Err(error) => {
                    attempts += 1;
                    if attempts == limits::EXTENT_ATTEMPTS {
                        return Err(error);
                    }
                    source = Source::Again(reserved.original, reserved.address.payload_bytes);
                }
            }
        }
    }

    /// Waits for every replica; one that fails ends the group.
    async fn acknowledged(
        self: &Arc<Self>,
        group: &Arc<OpenGroup>,
        reserved: &mut Reserved,
        ledger: &Ledger,
        frame_bytes: u64,
    ) -> Result<(), StoreError> {
        let _in_flight = group.count_in_flight(frame_bytes);
        let failed = match group.is_spread() {
            false => self.wait_here(group, reserved).await,
            true => self.wait_spread(group, reserved).await,
        };
        let Some(error) = failed else { return Ok(()) };
        group.cannot_vouch_for(ledger.content(), ledger.home());
        self.give_up(group);
        Err(error)
    }

    /// On disks of this node, which were all handed the frame.
    async fn wait_here(&self, group: &OpenGroup, reserved: &mut Reserved) -> Option<StoreError> {
        let mut failed = None;
        for (disk, answer) in reserved.take_answers() {
            if let Err(error) = answer.await {
                self.replica_failed(group, disk, reserved.address, &error);
                failed.get_or_insert(append_error(&error));
            }
        }
        failed
    }

    fn replica_failed(&self, group: &OpenGroup, disk: DiskId, address: Address, error: &AppendError) {
        tracing::warn!(group = %group.id(), %disk, %error, "an append was not acknowledged; the group is sealed");
        // That its node does not answer says nothing of the disk.
        let away = matches!(error, AppendError::Failed(error) if is_away(error));
        if let AppendError::Failed(_) | AppendError::Closed = error
            && !away
        {
            self.state.lock().suspect.insert(disk);
            let trouble = Trouble::Unwritable;
            self.findings.report(Finding { disk, group: group.id(), offset: address.offset, trouble });
        }
    }

    /// Nothing more goes into this group; it is sealed now.
    fn give_up(self: &Arc<Self>, group: &Arc<OpenGroup>) {
        self.state.lock().open.retain(|g| g.id() != group.id());
        if group.end() {
            self.spawn_seal(group.clone());
        }
    }

    /// The content is committed or condemned: full groups that waited for it are sealed.
    pub(crate) fn resolved(self: &Arc<Self>, ledger: &Ledger) {
        for group in ledger.resolved() {
            self.spawn_seal(group);
        }
    }

    /// A full group leaves the list; it is sealed when its uploads have ended.
    fn close_full(self: &Arc<Self>, group: Arc<OpenGroup>) {
        if group.close() {
            self.spawn_seal(group);
        }
    }

    fn spawn_seal(self: &Arc<Self>, group: Arc<OpenGroup>) {
        let groups = self.clone();
        self.background.spawn(async move { groups.seal(group).await });
    }

    async fn seal(self: &Arc<Self>, group: Arc<OpenGroup>) {
        let (buckets, account) = group.contents();
        let contents = Contents::Known { buckets, account };
        match seal::seal_group(
            &self.proposer,
            (&self.disks, &self.env.timers),
            group.id(),
            group.generation(),
            contents,
        )
        .await
        {
            Ok(_) => self.state.lock().unsealed.retain(|g| g.id() != group.id()),
            Err(error) => tracing::error!(group = %group.id(), %error, "the group is not sealed yet"),
        }
    }

    /// Tries those groups again that could not be sealed. To be called now and then by whoever tends the store.
    pub(crate) async fn seal_stuck(self: &Arc<Self>) {
        let unsealed = self.state.lock().unsealed.clone();
        for group in unsealed.into_iter().filter(|g| g.has_ended()) {
            self.seal(group).await;
        }
    }

    /// From now on no group is opened and none is handed out.
    pub(crate) fn open_no_more(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.open.clear();
    }

    /// Seals every group, whatever is in it.
    pub(crate) async fn seal_all(self: &Arc<Self>) {
        let unsealed = self.state.lock().unsealed.clone();
        for group in unsealed {
            group.end();
            self.seal(group).await;
        }
    }
}

fn append_error(error: &AppendError) -> StoreError {
    match error {
        AppendError::NoSpace => StoreError::NoSpace,
        AppendError::Busy => StoreError::Busy("the disk's queue is full"),
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn closing() -> StoreError {
    StoreError::Unavailable("the store is closing".into())
}
