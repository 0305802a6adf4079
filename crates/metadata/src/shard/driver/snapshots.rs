//! Snapshots as the driver sees them: offered to members whose entries are gone from the log, fetched when one is offered.
//!
//! Promises: Raft hears of a snapshot only when all its rows are in this node's tree, flushed; until then it goes on by what it has. Only
//! what advances the group is installed, and while it is, nothing of that group moves. A snapshot that nobody fetches is given
//! up after a bounded time, and the member is offered another. Refuses to know: how rows get into the tree (`install`).

use super::{Driver, ToDriver};
use crate::limits::{CHUNK_TRIES, CHUNKS_WAITING, SNAPSHOT_IDLE_TICKS, SNAPSHOT_TICKS, SNAPSHOTS_SERVED};
use crate::node::Boxed;
use crate::shard::ShardId;
use crate::shard::applier::ToApply;
use crate::shard::flusher::Slot;
use crate::shard::install::Install;
use crate::shard::members::{Members, read_members};
use crate::shard::rows::read_shard;
use crate::shard::snapshot::{Offer, Request, Serving, decode};
use crate::tree::{Snapshot, TreeError};
use bytes::Bytes;
use raft::eraftpb::Message;
use raft::{ProgressState, SnapshotStatus, StateRole};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use types::NodeId;

/// What the driver knows of snapshots.
pub(super) struct Snapshots {
    /// Where a fetch that has an answer sends word.
    itself: Option<Arc<Slot<ToDriver>>>,
    next_id: u64,
    /// Offered by this node: shard, member, ticks since.
    offered: BTreeMap<u64, (ShardId, NodeId, u32)>,
    /// The entries these show, by shard: none above the lowest may leave the log.
    lowest: BTreeMap<ShardId, u64>,
    fetching: BTreeMap<ShardId, Fetch>,
}

/// A snapshot that is being fetched.
struct Fetch {
    offer: Offer,
    from: NodeId,
    /// The message that offered it, for Raft when the rows are there.
    message: Message,
    /// Last key received.
    after: Option<Vec<u8>>,
    /// Chunks received.
    chunks: u32,
    /// `None`: the next chunk is to be asked for; or all are there.
    under_way: Option<Boxed<Result<Bytes, String>>>,
    /// Ticks since the last chunk that failed or was late.
    tries: u32,
    /// All chunks are with apply.
    complete: bool,
}

impl Snapshots {
    pub(super) fn new(seed: u64) -> Snapshots {
        Snapshots {
            itself: None,
            next_id: seed,
            offered: BTreeMap::new(),
            lowest: BTreeMap::new(),
            fetching: BTreeMap::new(),
        }
    }

    pub(super) fn connect(&mut self, itself: Arc<Slot<ToDriver>>) {
        self.itself = Some(itself);
    }

    /// The highest entry of the shard that may leave the log as far as open snapshots go.
    pub(super) fn needed(&self, shard: ShardId) -> u64 {
        self.lowest.get(&shard).copied().unwrap_or(u64::MAX)
    }
}

/// Wakes a fetch by a message to the driver, which polls it.
struct Word {
    slot: Arc<Slot<ToDriver>>,
    shard: ShardId,
}

impl Wake for Word {
    fn wake(self: Arc<Self>) {
        self.slot.send(ToDriver::Poll(self.shard));
    }
}

impl Driver {
    /// Opens a snapshot for a member that needs one.
    pub(super) fn offer(&mut self, shard: ShardId, to: u64) {
        let Ok(member) = NodeId::try_from(to) else { return };
        let open = self.snapshots.offered.values().any(|(of, other, _)| (*of, *other) == (shard, member));
        if open || self.snapshots.offered.len() >= SNAPSHOTS_SERVED {
            return;
        }
        if let Err(error) = self.open_snapshot(shard, member) {
            tracing::error!(shard = shard.0, member, %error, "a snapshot could not be opened");
        }
    }

    fn open_snapshot(&mut self, shard: ShardId, member: NodeId) -> Result<(), TreeError> {
        let rows = Snapshot::published(&self.shared.tree());
        let Some((row, (index, term))) = read_shard(&rows, shard)? else { return Ok(()) };
        let members = read_members(&rows, shard)?.unwrap_or_else(|| Members::single(self.config.node));
        let Some(group) = self.groups.get_mut(&shard) else { return Ok(()) };
        // The entries behind it must be in the log still, or it would be of no use.
        if index == 0 || index < group.raw.store().before() {
            return Ok(());
        }
        self.snapshots.next_id = self.snapshots.next_id.wrapping_add(1);
        let id = self.snapshots.next_id;
        let mut snapshot = raft::eraftpb::Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.set_conf_state(members.to_raft());
        snapshot.data = Offer { id, shard: row.clone() }.encode().into();
        let serving = Serving { shard: row, to: member, index, rows: Arc::new(rows), idle: 0.into() };
        self.shared.serving.lock().insert(id, Arc::new(serving));
        self.snapshots.offered.insert(id, (shard, member, 0));
        group.raw.mut_store().set_offer(Some((u64::from(member), snapshot)));
        if group.leads() && group.raw.raft.prs().get(u64::from(member)).is_some() {
            group.raw.raft.send_append(u64::from(member));
        }
        self.note_lowest();
        Ok(())
    }

    fn note_lowest(&mut self) {
        self.snapshots.lowest.clear();
        for serving in self.shared.serving.lock().values() {
            let lowest = self.snapshots.lowest.entry(serving.shard.id).or_insert(u64::MAX);
            *lowest = (*lowest).min(serving.index);
        }
    }

    pub(super) fn tick_snapshots(&mut self) {
        let mut over = Vec::new();
        for (id, (shard, member, age)) in &mut self.snapshots.offered {
            *age += 1;
            let idle = self.shared.serving.lock().get(id).map_or(u32::MAX, |s| s.idle.fetch_add(1, Ordering::AcqRel));
            let group = self.groups.get(shard).filter(|group| group.leads());
            let progress = group.and_then(|group| group.raw.raft.prs().get(u64::from(*member)));
            let fed = progress.is_some_and(|progress| progress.state == ProgressState::Snapshot);
            let done = group.is_some() && !fed && *age > 1;
            if done || idle > SNAPSHOT_IDLE_TICKS || *age > SNAPSHOT_TICKS {
                over.push((*id, *shard, *member, fed));
            }
        }
        for (id, shard, member, fed) in over {
            self.snapshots.offered.remove(&id);
            self.shared.serving.lock().remove(&id);
            let Some(group) = self.groups.get_mut(&shard) else { continue };
            group.raw.mut_store().set_offer(None);
            if fed {
                group.raw.report_snapshot(u64::from(member), SnapshotStatus::Failure);
            }
            self.note_lowest();
        }
        let fetching: Vec<ShardId> = self.snapshots.fetching.keys().copied().collect();
        for shard in fetching {
            if let Some(fetch) = self.snapshots.fetching.get_mut(&shard) {
                fetch.tries += 1;
            }
            self.poll_fetch(shard);
        }
    }

    /// A leader offers a snapshot of a shard.
    pub(super) fn offered(&mut self, shard: ShardId, from: NodeId, message: Message) {
        let Some(group) = self.groups.get_mut(&shard) else { return };
        let metadata = message.get_snapshot().get_metadata();
        let (index, term) = (metadata.index, metadata.term);
        let members = Members::from_raft(metadata.get_conf_state());
        let raft = &group.raw.raft;
        let offer = Offer::decode(&message.get_snapshot().data).filter(|offer| offer.shard.id == shard);
        let (Some(members), Some(offer)) = (members, offer) else { return };
        if group.installing || message.term < raft.term || index == 0 || !members.contains(self.config.node) {
            return;
        }
        if index <= raft.raft_log.committed || raft.raft_log.match_term(index, term) {
            // Nothing that is not in the log already: Raft says so to the leader.
            if let Err(reason) = group.step(message) {
                self.fail(reason);
            }
            return;
        }
        if self.snapshots.fetching.get(&shard).is_some_and(|fetch| fetch.offer.id == offer.id) {
            return;
        }
        tracing::info!(shard = shard.0, from, index, "fetching a snapshot");
        let fetch = Fetch { offer, from, message, after: None, chunks: 0, under_way: None, tries: 0, complete: false };
        self.snapshots.fetching.insert(shard, fetch);
        self.poll_fetch(shard);
    }

    /// Goes on with a fetch as far as it goes without waiting.
    pub(super) fn poll_fetch(&mut self, shard: ShardId) {
        let (Some(peers), Some(apply), Some(slot)) = (&self.peers, &self.apply, &self.snapshots.itself) else { return };
        let Some(fetch) = self.snapshots.fetching.get_mut(&shard) else { return };
        let waker = Waker::from(Arc::new(Word { slot: slot.clone(), shard }));
        let mut context = Context::from_waker(&waker);
        while !fetch.complete {
            if fetch.tries > CHUNK_TRIES {
                tracing::warn!(
                    shard = shard.0,
                    from = fetch.from,
                    "the chunks of a snapshot cannot be had; it is given up"
                );
                self.snapshots.fetching.remove(&shard);
                return;
            }
            // Asked again by the next tick.
            if fetch.under_way.is_none() && apply.queued() > CHUNKS_WAITING {
                return;
            }
            let request = Request { id: fetch.offer.id, shard, after: fetch.after.clone() };
            let under_way = fetch.under_way.get_or_insert_with(|| peers.fetch(fetch.from, request.encode()));
            let Poll::Ready(answer) = under_way.as_mut().poll(&mut context) else { return };
            fetch.under_way = None;
            let chunk = answer.ok().and_then(|bytes| decode(&bytes).map(|(rows, last)| (bytes, rows, last)));
            // Lost, refused or damaged: asked again by the next tick.
            let Some((bytes, rows, last)) = chunk else { return };
            fetch.after = rows.last().map(|(key, _)| key.to_vec()).or(fetch.after.take());
            fetch.tries = 0;
            let stage = ToApply::Stage { shard, id: fetch.offer.id, number: fetch.chunks, chunk: bytes };
            fetch.chunks += 1;
            fetch.complete = last;
            if apply.submit(stage).is_err() {
                return self.fail("apply has ended".to_owned());
            }
        }
        self.install(shard);
    }

    /// All rows are with apply: they shall become the shard's.
    fn install(&mut self, shard: ShardId) {
        let (Some(fetch), Some(group)) = (self.snapshots.fetching.get(&shard), self.groups.get_mut(&shard)) else {
            return;
        };
        if group.installing {
            return;
        }
        let metadata = fetch.message.get_snapshot().get_metadata();
        let log = &group.raw.raft.raft_log;
        let needless = metadata.index <= log.committed || log.match_term(metadata.index, metadata.term);
        let members = Members::from_raft(metadata.get_conf_state());
        let (Some(members), false, false) = (members, needless, group.leads()) else {
            self.snapshots.fetching.remove(&shard);
            return;
        };
        let install = Install {
            id: fetch.offer.id,
            shard: fetch.offer.shard.clone(),
            at: (metadata.index, metadata.term),
            members,
            chunks: fetch.chunks,
        };
        group.installing = true;
        let submitted = self.apply.as_ref().map(|apply| apply.submit(ToApply::Install(Box::new(install))));
        if !matches!(submitted, Some(Ok(()))) {
            self.fail("apply has ended".to_owned());
        }
    }

    /// Its rows are in the tree, flushed: Raft takes it over, and the log with the next append.
    pub(super) fn installed(&mut self, shard: ShardId, id: u64, result: Result<(), String>) {
        let fetch = self.snapshots.fetching.remove(&shard).filter(|fetch| fetch.offer.id == id);
        let (Some(group), Some(fetch)) = (self.groups.get_mut(&shard), fetch) else { return };
        group.installing = false;
        if let Err(reason) = result {
            tracing::error!(shard = shard.0, reason, "a snapshot was not installed");
            return;
        }
        let mut message = fetch.message;
        message.mut_snapshot().data = Bytes::new();
        let raft = &mut group.raw.raft;
        let index = message.get_snapshot().get_metadata().index;
        if raft.term == message.term {
            // Answers the leader as well. An error would be one of `step`, which a snapshot's message does not give.
            let _ = group.raw.step(message);
        } else {
            // Somebody else leads meanwhile. What was committed stays committed.
            if raft.state != StateRole::Follower {
                raft.become_follower(raft.term.max(message.term), 0);
            }
            raft.restore(message.take_snapshot());
        }
        if group.raw.raft.raft_log.committed != index {
            self.fail(format!("shard {}: the snapshot of entry {index} is in the tree, and Raft refused it", shard.0));
        }
    }
}
