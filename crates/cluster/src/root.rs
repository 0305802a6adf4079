//! What membership asks of root, and what a node tells root at its start.
//!
//! Promises: every change may be proposed again, as apply makes a repeated one no change; so what is not known to have happened is
//! proposed again until it is, within `ROOT_TRIES`. Refuses to know: where root's leader is, what an entry is.

use crate::identity::file::NodeFile;
use crate::join::JoinAnswer;
use crate::limits::{ROOT_TRIES, ROOT_WAIT};
use env::Env;
use rpc::Boxed;
use std::sync::Arc;
use types::cluster::command::{ClusterCommand, MapChange, NewDisk};
use types::cluster::{ClusterRefusal, Map, NewNode, NodeStart};
use types::{ClusterId, DiskId, NodeId};

/// A change of the map has no outcome to go on with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeError {
    /// Apply refused: final.
    #[error(transparent)]
    Refused(#[from] ClusterRefusal),
    /// No leader, no majority, a deadline: it may have happened, may still, or never will. Proposing it again is safe.
    #[error("the cluster's metadata did not answer: {0}")]
    Unknown(String),
}

/// Root, as this node reaches it.
pub trait Root: Send + Sync + 'static {
    /// The map as this node has applied it; `None` before its birth.
    fn map(&self) -> Option<Arc<Map>>;
    /// Proposes a change where root's leader is, and answers when its entry is applied *on this node*, so that [`Root::map`] knows it.
    fn change(&self, command: ClusterCommand) -> Boxed<Result<MapChange, ChangeError>>;
    /// Root's time, in which tokens expire.
    fn now_ms(&self) -> u64;
}

/// Proposes until the outcome is known.
pub async fn change(root: &dyn Root, env: &Env, command: ClusterCommand) -> Result<MapChange, ChangeError> {
    let mut tries = 0;
    loop {
        match root.change(command.clone()).await {
            Err(ChangeError::Unknown(why)) if tries + 1 < ROOT_TRIES => {
                tracing::debug!(why, "a change of the cluster map is proposed again");
                tries += 1;
                env.timers.sleep(ROOT_WAIT).await;
            }
            outcome => return outcome,
        }
    }
}

/// A disk that this node has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartedDisk {
    /// The disk.
    pub disk: NewDisk,
    /// Its starts, this one included.
    pub incarnation: u64,
}

/// A start of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Started {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its id.
    pub node: NodeId,
    /// Key and number of this start, durable.
    pub file: NodeFile,
    /// What it says of itself; the incarnation is taken from the file.
    pub start: NodeStart,
    /// Its disks.
    pub disks: Vec<StartedDisk>,
}

/// What root said to a start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// Epoch of the map that knows of it.
    pub epoch: u64,
    /// Disks that must not be used: old images, given up, another node's.
    pub refused: Vec<(DiskId, ClusterRefusal)>,
}

/// Tells root of a start. The first node of a cluster that has no map yet (a new one, or a store of before there were maps) brings it
/// to the world. An error says that this node must not serve: it is an old image, or was removed, or its key is another's.
pub async fn announce(root: &dyn Root, env: &Env, started: &Started) -> Result<Announced, ChangeError> {
    let start = NodeStart { incarnation: started.file.incarnation, ..started.start.clone() };
    if started.node == FIRST_NODE {
        let node = NewNode { key: started.file.key.hash(), start: start.clone() };
        let disks = started.disks.iter().map(|started| started.disk).collect();
        change(root, env, ClusterCommand::Init { cluster: started.cluster, node, disks }).await?;
    }
    let update = ClusterCommand::UpdateNode { node: started.node, start };
    let mut epoch = change(root, env, update).await?.epoch;
    let known = root.map().and_then(|map| map.nodes.get(&started.node).map(|node| node.key));
    if known != Some(started.file.key.hash()) {
        let what =
            format!("the map has another key for node {}: its file `node` is not the one it joined with", started.node);
        return Err(ClusterRefusal::Invalid(what).into());
    }
    let mut refused = Vec::new();
    for StartedDisk { disk, incarnation } in started.disks.iter().copied() {
        let node_incarnation = started.file.incarnation;
        let report = ClusterCommand::ReportDisk { node: started.node, node_incarnation, incarnation, disk };
        match change(root, env, report).await {
            Ok(change) => epoch = change.epoch,
            Err(ChangeError::Refused(refusal)) => refused.push((disk.id, refusal)),
            Err(error) => return Err(error),
        }
    }
    Ok(Announced { epoch, refused })
}

/// The node that a cluster is born with.
pub const FIRST_NODE: NodeId = 1;

/// Puts a judged request to join before root, and answers as its door.
pub async fn admit(root: Arc<dyn Root>, command: ClusterCommand) -> JoinAnswer {
    match root.change(command).await {
        Ok(change) => match (change.node, root.map()) {
            (Some(node), Some(map)) => JoinAnswer::Admitted { node, map: Map::clone(&map) },
            _ => JoinAnswer::NotNow("the map is not here yet".to_owned()),
        },
        Err(ChangeError::Refused(refusal)) => JoinAnswer::Refused(refusal),
        Err(ChangeError::Unknown(why)) => JoinAnswer::NotNow(why),
    }
}
