//! The way to the shards: here, or at the node that leads them.
//!
//! Every node holds every shard, so reads are local. What makes them linearizable is a *barrier*: the shard's leader proves by a
//! round that it still leads and names an index; this node waits until it has applied that far (rule R18). Proposals go by a call
//! to the leader, whose own driver appends them (protocols.md 10).
//!
//! Promises: an error but "unknown" says that a proposal did not happen and will not; a barrier that answers `Ok` is followed by
//! reads that see everything answered before it began; neither waits longer than `limits` say. A node that is alone asks nobody.
//! Refuses to know: what commands mean; how messages travel.

mod epochs;
mod lease;
mod rounds;
mod serve;
mod wire;

pub use epochs::Ended;
pub use serve::{MapOnly, Served};

use crate::api::StoreError;
use crate::limits;
use crate::proposer::Failed;
use env::Env;
use epochs::Heard;
use lease::Lease;
use metadata::command::{Command, Entry, Outcome};
use metadata::node::{Metadata, ProposeError};
use metadata::shard::ShardId;
use rounds::Rounds;
use rpc::{CallError, Service, Transport};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use types::account::Credential;
use types::cluster::Map;
use types::{AttemptId, NodeId};
use wire::{Answer, Ask};

/// The number of the service that answers [`Ask`]s.
pub const SERVICE: Service = Service(2);

/// The other nodes.
#[derive(Clone)]
pub struct Link {
    /// The way to them.
    pub transport: Arc<dyn Transport>,
    /// All nodes of the map but this one.
    pub others: Arc<dyn Fn() -> Vec<NodeId> + Send + Sync>,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Nodes {
    inner: Arc<Inner>,
}

struct Inner {
    metadata: Metadata,
    env: Env,
    link: Option<Link>,
    rounds: Rounds,
    lease: Lease,
    heard: Heard,
}

/// Where a shard is led.
enum Leader<'a> {
    Here,
    There(&'a Link, NodeId),
    Unknown,
}

impl Nodes {
    pub(crate) fn new(metadata: Metadata, env: Env, link: Option<Link>) -> Nodes {
        let (rounds, lease, heard) = (Rounds::default(), Lease::default(), Heard::default());
        Nodes { inner: Arc::new(Inner { metadata, env, link, rounds, lease, heard }) }
    }

    /// Whether nobody else can have a say: then what is applied here is all there is.
    pub(crate) fn is_alone(&self) -> bool {
        self.inner.link.is_none() || self.inner.metadata.decides_alone()
    }

    /// Proposes to the shard's leader, wherever it is, again as long as it is certain that nothing happened.
    pub(crate) async fn propose(
        &self,
        shard: ShardId,
        attempt: AttemptId,
        deadline_ms: u64,
        command: Command,
    ) -> Result<Outcome, ProposeError> {
        let metadata = &self.inner.metadata;
        if self.is_alone() {
            return metadata.propose(shard, attempt, deadline_ms, command).await;
        }
        let timers = &self.inner.env.timers;
        let give_up = self.inner.env.clock.monotonic() + limits::LEADER_WAIT;
        loop {
            let result = match self.leader(shard) {
                Leader::Here => {
                    let proposed = metadata.propose(shard, attempt, deadline_ms, command.clone());
                    let late = || Err(ProposeError::Failed("no majority of the nodes answered in time".to_owned()));
                    timers.timeout(limits::PROPOSE_TIMEOUT, proposed).await.unwrap_or_else(late)
                }
                Leader::There(link, node) => {
                    let entry = Entry { attempt, deadline_ms, stamp_ms: 0, command: command.clone() };
                    propose_there(link, node, shard, entry).await
                }
                Leader::Unknown => Err(ProposeError::NotLeader(None)),
            };
            let Err(ProposeError::NotLeader(_)) = result else { return result };
            if self.inner.env.clock.monotonic() >= give_up {
                return Err(ProposeError::NotLeader(None));
            }
            timers.sleep(limits::LEADER_POLL).await;
        }
    }

    /// Reads that begin after it see everything of the shard that was answered before it began.
    pub(crate) async fn barrier(&self, shard: ShardId) -> Result<(), StoreError> {
        if self.is_alone() {
            return Ok(());
        }
        let passed = self.inner.env.timers.timeout(limits::BARRIER_TIMEOUT, self.pass(shard));
        passed.await.unwrap_or_else(|| Err(no_leader()))
    }

    async fn pass(&self, shard: ShardId) -> Result<(), StoreError> {
        loop {
            let index = match self.leader(shard) {
                Leader::Here => self.inner.metadata.read_index(shard).await.ok(),
                Leader::There(link, node) => self.inner.rounds.ask(&self.inner.env.tasks, link, shard, node).await,
                Leader::Unknown => None,
            };
            match index {
                Some(index) => return self.inner.metadata.applied(shard, index).await.map_err(unreadable),
                None => self.inner.env.timers.sleep(limits::LEADER_POLL).await,
            }
        }
    }

    /// Asks again, for as long as it takes, what may be asked twice: a start waits for a majority.
    pub(crate) async fn until_answered<T, F>(&self, ask: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failed>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Refused(refusal)) => return Err(Failed::Refused(refusal).into()),
                Err(failed) if self.is_alone() => return Err(failed.into()),
                Err(failed) => tracing::info!(?failed, "waiting for a majority of the nodes"),
            }
            self.inner.env.timers.sleep(limits::LEADER_POLL).await;
        }
    }

    fn leader(&self, shard: ShardId) -> Leader<'_> {
        let Some(link) = &self.inner.link else { return Leader::Here };
        match self.inner.metadata.leader(shard) {
            Some(node) if node == self.inner.metadata.node() => Leader::Here,
            Some(node) => Leader::There(link, node),
            None => Leader::Unknown,
        }
    }

    /// Asks every other node; answers beside each what it said.
    async fn ask_all(&self, ask: &Ask, timeout: Duration) -> Vec<(NodeId, Result<Answer, CallError>)> {
        let Some(link) = &self.inner.link else { return Vec::new() };
        let calls = (link.others)().into_iter().map(|node| {
            let answer = wire::call(link, node, ask, timeout);
            async move { (node, answer.await) }
        });
        futures_util::future::join_all(calls).await
    }
}

/// The root account, as any other node has it.
pub async fn ask_for_root(link: &Link) -> Option<Credential> {
    for node in (link.others)() {
        if let Ok(Answer::Root(root)) = wire::call(link, node, &Ask::Root, limits::CALL_TIMEOUT).await {
            return Some(*root);
        }
    }
    None
}

/// The newest map that any other node has.
pub async fn ask_for_map(link: &Link) -> Option<Map> {
    let maps = ask_for_maps(link).await.into_iter().filter_map(|(_, map)| map);
    maps.max_by_key(|map| map.epoch)
}

/// The maps of the other nodes that answer.
pub async fn ask_for_maps(link: &Link) -> Vec<(NodeId, Option<Map>)> {
    let calls = (link.others)().into_iter().map(|node| async move {
        match wire::call(link, node, &Ask::Map, limits::CALL_TIMEOUT).await {
            Ok(Answer::Map(map)) => Some((node, map.map(|map| *map))),
            _ => None,
        }
    });
    futures_util::future::join_all(calls).await.into_iter().flatten().collect()
}

async fn propose_there(link: &Link, node: NodeId, shard: ShardId, entry: Entry) -> Result<Outcome, ProposeError> {
    let ask = Ask::Propose { shard, entry: Box::new(entry) };
    // The other side gives up first: then its answer says more than our own impatience.
    match wire::call(link, node, &ask, limits::PROPOSE_TIMEOUT + limits::CALL_MARGIN).await {
        Ok(Answer::Outcome(outcome)) => Ok(*outcome),
        Ok(Answer::NotProposed(why)) => Err(why.into()),
        // Nothing was done there: it is down, or starting.
        Err(CallError::Unreachable(_) | CallError::Refused(..)) => Err(ProposeError::NotLeader(None)),
        Err(CallError::Lost(node)) => Err(ProposeError::Failed(format!("node {node} did not answer"))),
        Ok(other) => Err(ProposeError::Failed(format!("an unexpected answer: {other:?}"))),
    }
}

fn no_leader() -> StoreError {
    StoreError::Unavailable("no majority of the nodes answers".into())
}

fn unreadable(error: ProposeError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
