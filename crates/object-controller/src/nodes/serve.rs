//! Answers what other nodes ask: proposals and read indices for the shards led here, barriers, epochs of pins.
//!
//! Promises: a question that is answered with an error was not acted on. Refuses to know: who may ask (rpc knows the nodes).

use super::wire::{self, Answer, Ask, NotProposed};
use super::{Link, Nodes};
use crate::limits;
use crate::pins::Pins;
use env::Env;
use metadata::command::Entry;
use metadata::node::{Metadata, ProposeError};
use metadata::read::root;
use metadata::shard::ShardId;
use rpc::{Boxed, Handler, Message};
use std::sync::Arc;
use types::NodeId;
use types::account::Credential;

/// What a node answers to others, and what its controller asks them: the handler of service 2. It is there before the controller, for
/// no node can become ready before those that lead answer. Cheap to clone.
#[derive(Clone)]
pub struct Served {
    pub(crate) nodes: Nodes,
    pub(crate) pins: Pins,
    root: Arc<Credential>,
}

impl Served {
    /// Of this metadata; without a link there are no other nodes and never will be.
    pub fn new(metadata: Metadata, env: &Env, link: Option<Link>, root: Credential) -> Served {
        let pins = Pins::new(env.clock.clone());
        Served { nodes: Nodes::new(metadata, env.clone(), link), pins, root: Arc::new(root) }
    }
}

impl Served {
    async fn answer(&self, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Propose { shard, entry } => Ok(self.propose(shard, *entry).await),
            Ask::ReadIndex { shard } => {
                let index = self.nodes.inner.metadata.read_index(shard).await;
                Ok(index.map_or_else(|e| Answer::NotProposed(e.into()), Answer::Index))
            }
            Ask::Refresh => self.nodes.refresh().await.map(|()| Answer::Fresh).map_err(|e| e.to_string()),
            Ask::EndEpoch => Ok(self.epoch(self.pins.advance())),
            Ask::LowestPin => Ok(self.epoch(self.pins.lowest_pin())),
            Ask::Map => map_of(&self.nodes.inner.metadata),
            Ask::Root => Ok(Answer::Root(Box::new(Credential::clone(&self.root)))),
        }
    }

    fn epoch(&self, epoch: u64) -> Answer {
        Answer::Epoch { session: self.nodes.inner.metadata.session(), epoch }
    }

    async fn propose(&self, shard: ShardId, entry: Entry) -> Answer {
        let Entry { attempt, deadline_ms, command, .. } = entry;
        let proposed = self.nodes.inner.metadata.propose(shard, attempt, deadline_ms, command);
        let late = || Err(ProposeError::Failed("no majority of the nodes answered in time".to_owned()));
        let result = self.nodes.inner.env.timers.timeout(limits::PROPOSE_TIMEOUT, proposed).await.unwrap_or_else(late);
        match result {
            Ok(outcome) => Answer::Outcome(Box::new(outcome)),
            Err(error) => Answer::NotProposed(NotProposed::from(error)),
        }
    }
}

fn map_of(metadata: &Metadata) -> Result<Answer, String> {
    let map = root::map(&metadata.snapshot()).map_err(|e| e.to_string())?;
    Ok(Answer::Map(map.map(Box::new)))
}

/// What a node answers before it may take part in anything: the map that it has applied.
pub struct MapOnly(pub Metadata);

impl Handler for MapOnly {
    fn call(&self, _: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let answer = match wire::decode(&message.head) {
            Some(Ask::Map) => map_of(&self.0).map(|answer| wire::encode(&answer)),
            _ => Err("the node is starting".to_owned()),
        };
        Box::pin(std::future::ready(answer))
    }

    fn receive(&self, _: NodeId, _: Message) {}
}

impl Handler for Served {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let served = self.clone();
        Box::pin(async move {
            let ask = wire::decode(&message.head).ok_or_else(|| format!("node {from} sent no question of ours"))?;
            served.answer(ask).await.map(|answer| wire::encode(&answer))
        })
    }

    fn receive(&self, from: NodeId, _: Message) {
        tracing::debug!(from, "a message that no one asked for");
    }
}
