//! The curators of all nodes, as the one that is asked sees them (service 5): JSON over the authenticated messages between nodes.
//!
//! Promises: every node of the map is asked at once, and none is waited for longer than [`PATIENCE`]; one that does not answer is named.
//! Refuses to know: what the answers mean.

use admin::CuratorAsk;
use curator::{Curator, Overview, RedundancyStatus, tasks_of};
use futures_util::future::join_all;
use object_controller::nodes::Link;
use rpc::{Boxed, Handler, Message, Service};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

/// The number of this service.
pub const SERVICE: Service = Service(5);
/// A scan reads all records: seconds, of a very large store.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one node asks another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    Status,
    Scan { full: bool },
    Boost { seconds: u64 },
}

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Curators {
    node: NodeId,
    own: Arc<Curator>,
    link: Link,
}

type Answers = Vec<(NodeId, Result<RedundancyStatus, String>)>;

impl Curators {
    /// This node's, and the way to the others.
    pub fn new(node: NodeId, own: Curator, link: Link) -> Curators {
        Curators { node, own: Arc::new(own), link }
    }

    /// That of this node.
    pub fn own(&self) -> Arc<Curator> {
        self.own.clone()
    }

    /// For the admin API.
    pub async fn answer(&self, ask: CuratorAsk) -> Result<Value, String> {
        match ask {
            CuratorAsk::Status => self.overview(Ask::Status).await,
            CuratorAsk::Tasks => Ok(json!({ "tasks": tasks_of(self.ask_all(Ask::Status).await) })),
            CuratorAsk::Scan { full } => self.overview(Ask::Scan { full }).await,
            CuratorAsk::Boost { seconds } => self.overview(Ask::Boost { seconds }).await,
        }
    }

    async fn overview(&self, ask: Ask) -> Result<Value, String> {
        let answers = self.ask_all(ask).await;
        let own = answers.iter().find(|(node, _)| *node == self.node).map(|(_, answer)| answer.clone());
        let own = own.ok_or("this node does not answer itself")??;
        serde_json::to_value(Overview::of(&own, answers)).map_err(|e| e.to_string())
    }

    /// Itself first.
    async fn ask_all(&self, ask: Ask) -> Answers {
        let others =
            join_all((self.link.others)().into_iter().map(|node| async move { (node, self.there(node, ask).await) }));
        let (own, others) = tokio::join!(self.here(ask), others);
        [(self.node, own)].into_iter().chain(others).collect()
    }

    async fn here(&self, ask: Ask) -> Result<RedundancyStatus, String> {
        match ask {
            Ask::Status => Ok(self.own.redundancy().status()),
            Ask::Scan { full } => self.own.scan(full).await.map_err(|e| e.to_string()),
            Ask::Boost { seconds } => {
                self.own.redundancy().boost(Duration::from_secs(seconds));
                Ok(self.own.redundancy().status())
            }
        }
    }

    async fn there(&self, node: NodeId, ask: Ask) -> Result<RedundancyStatus, String> {
        let head = serde_json::to_vec(&ask).map_err(|e| e.to_string())?.into();
        let message = Message { head, ..Message::default() };
        let answer = self.link.transport.call(node, SERVICE, message, PATIENCE).await.map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.body).map_err(|e| format!("node {node} answers what is not understood: {e}"))
    }

    /// For `/metrics`: how redundancy stands as this node counts, and what this node does about it.
    pub fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let status = self.own.redundancy().status();
        let census = &status.census;
        let waiting: u64 = status.waiting.iter().map(|amount| amount.groups).sum();
        vec![
            ("groups_sealed", "Extent groups that are sealed", census.sealed.groups as f64),
            ("groups_short", "Groups with fewer copies than required", census.short.groups as f64),
            ("short_bytes", "Bytes of groups with fewer copies than required", census.short.bytes as f64),
            (
                "groups_at_risk",
                "Groups that one place alone has, though more are required",
                census.at_risk.groups as f64,
            ),
            ("at_risk_bytes", "Bytes of groups that one place alone has", census.at_risk.bytes as f64),
            ("groups_unreadable", "Groups that no node that answers has", census.unreadable.groups as f64),
            (
                "groups_unsealed_hurt",
                "Open groups with a replica that cannot be asked",
                census.unsealed_hurt_groups as f64,
            ),
            ("groups_surplus", "Groups with more copies than required", census.surplus.groups as f64),
            ("groups_leaving", "Groups with copies on disks that drain", census.leaving.groups as f64),
            ("missing_copy_bytes", "Bytes to be written until nothing is short", census.missing_bytes as f64),
            ("curator_tasks_running", "Tasks of this node under way", status.running as f64),
            ("curator_tasks_waiting", "Tasks of this node that wait", waiting as f64),
            ("curator_copied_bytes_total", "Bytes copied and verified by this node", status.copied_bytes as f64),
            ("curator_pace_percent", "Pace of background work, of what is usual", status.pace_percent as f64),
            (
                "curator_boosted",
                "1 while an operator has lifted the limits",
                f64::from(u8::from(status.boost_ms.is_some())),
            ),
        ]
    }
}

impl Handler for Curators {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let curators = self.clone();
        Box::pin(async move {
            let ask: Ask =
                serde_json::from_slice(&message.head).map_err(|e| format!("node {from} asks nothing: {e}"))?;
            let status = curators.here(ask).await?;
            let body = serde_json::to_vec(&status).map_err(|e| e.to_string())?.into();
            Ok(Message { body, ..Message::default() })
        })
    }

    fn receive(&self, from: NodeId, _: Message) {
        tracing::debug!(from, "a message that no one asked for");
    }
}
