//! A node among others: messages, leaders, proved reads, members.
//!
//! Promises: an index of [`Metadata::read_index`] covers every proposal that was answered, by any node, before the call; a snapshot taken
//! after [`Metadata::applied`] answered for it sees them all. Refuses to know: how messages travel, when members change.

use super::{Boxed, Metadata, ProposeError};
use crate::limits::RECEIVED_BATCHES;
use crate::shard::driver::ToDriver;
use crate::shard::snapshot::{Request, chunk};
use crate::shard::{GroupReport, MemberChange, Members, ShardId};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use types::NodeId;

impl Metadata {
    /// Takes what the other node's `send` sent. If too much waits it is dropped, as a network may.
    pub fn receive(&self, from: NodeId, batch: Bytes) {
        let shared = &self.inner.shared;
        if shared.received.fetch_add(1, Ordering::AcqRel) >= RECEIVED_BATCHES
            || self.inner.driver.submit(ToDriver::Receive(from, batch)).is_err()
        {
            shared.received.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Answers what another node fetches: a chunk of a snapshot that was offered to it.
    pub fn serve(&self, from: NodeId, request: Bytes) -> Boxed<Result<Bytes, String>> {
        let request = Request::decode(&request);
        let serving = request.as_ref().and_then(|request| self.inner.shared.serving.lock().get(&request.id).cloned());
        let known =
            request.zip(serving).filter(|(request, serving)| (serving.to, serving.shard.id) == (from, request.shard));
        let Some((request, serving)) = known else {
            return Box::pin(std::future::ready(Err("there is no such snapshot (any more)".to_owned())));
        };
        serving.idle.store(0, Ordering::Release);
        let spans = (self.inner.spans)(&serving.shard);
        let read = move || chunk(&*serving.rows, &spans, request.after.as_deref()).map_err(|e| e.to_string());
        Box::pin(self.inner.env.tasks.run(read))
    }

    /// To be called every [`crate::limits::TICK`]. A tick that comes while the one before was not seen is none: a node that is slow does
    /// not take its own slowness for the others'.
    pub fn tick(&self) {
        let shared = &self.inner.shared;
        if !shared.tick_asked.swap(true, Ordering::AcqRel) && self.inner.driver.submit(ToDriver::Tick).is_err() {
            shared.tick_asked.store(false, Ordering::Release);
        }
    }

    /// The node that leads the shard, as this one believes.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.inner.shared.status(shard)?.leader
    }

    /// Whether this node alone decides, in every shard, and holds them all: then what is applied here is all that was answered, by
    /// anybody.
    pub fn decides_alone(&self) -> bool {
        self.inner.shared.decides_alone()
    }

    /// The members of the shard's group, as this node knows them; none if it knows no such shard.
    pub fn members(&self, shard: ShardId) -> Members {
        self.inner.shared.status(shard).map(|status| status.members).unwrap_or_default()
    }

    /// Numbers of the shard's group; `None`: this node knows no such shard, or its metadata has ended.
    pub async fn report(&self, shard: ShardId) -> Option<GroupReport> {
        let (reply, answer) = oneshot::channel();
        self.inner.driver.submit(ToDriver::Report(shard, reply)).ok()?;
        answer.await.ok()?
    }

    /// Asked of the leader: the entry up to which a node has to have applied the shard to see everything that was answered before this
    /// call. Proved by a round among the voters, which all that wait share; at once where one voter decides.
    pub async fn read_index(&self, shard: ShardId) -> Result<u64, ProposeError> {
        let shared = &self.inner.shared;
        if !shared.is_clustered() {
            // What was answered was readable before.
            return if shared.shards.load().contains_key(&shard) { Ok(0) } else { Err(ProposeError::NoSuchShard) };
        }
        let status = shared.status(shard).ok_or(ProposeError::NoSuchShard)?;
        let node = self.inner.node;
        if status.leader == Some(node) && status.members.decides(node) {
            // Nobody else can have committed anything: the driver tells of other voters before it lets them.
            return Ok(shared.reached_index(shard));
        }
        let _slot = shared.admit_read().ok_or(ProposeError::Busy)?;
        self.ask(|reply| ToDriver::Read(shard, reply)).await
    }

    /// Waits until this node has applied the shard that far. As long as that takes: who asks sets the limit.
    pub async fn applied(&self, shard: ShardId, index: u64) -> Result<(), ProposeError> {
        if !self.inner.shared.is_clustered() {
            return Ok(());
        }
        match self.inner.shared.wait_for(shard, index)? {
            None => Ok(()),
            Some(answer) => answer.await.unwrap_or_else(|_| Err(ended())),
        }
    }

    /// Asked of the leader: changes the members, and waits until that is applied and nothing joint is left. `Busy`: another change or a
    /// snapshot for a voter is under way, or a new voter has not caught up; to be asked again.
    pub async fn change_members(&self, shard: ShardId, change: MemberChange) -> Result<(), ProposeError> {
        self.ask(|reply| ToDriver::Change(shard, change, reply)).await
    }

    /// Asked of the leader: hands the lead to another voter; `Ok` when this node does not lead any more.
    pub async fn transfer_leader(&self, shard: ShardId, to: NodeId) -> Result<(), ProposeError> {
        self.ask(|reply| ToDriver::Transfer(shard, to, reply)).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, ProposeError>>) -> ToDriver,
    ) -> Result<T, ProposeError> {
        let (reply, answer) = oneshot::channel();
        match self.inner.driver.submit(question(reply)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(ended())),
            Err(refused) if refused.is_full() => Err(ProposeError::Busy),
            Err(_) => Err(ProposeError::ReadOnly("it is closed".to_owned())),
        }
    }
}

fn ended() -> ProposeError {
    ProposeError::Failed("the metadata ended".to_owned())
}
