//! What an operator may ask and want of the cluster: its state, join tokens, and what becomes of nodes and disks.
//!
//! Promises: a wish is judged on one map and proposed for that map alone; it is refused with everything it would break, or, by force,
//! done with everything it breaks named. Refuses to know: HTTP, where replicas are (the caller counts them).

use crate::detector::Health;
use crate::limits::TOKEN_VALID;
use crate::map::{default_copies_of, next_voters};
use crate::placement::precheck::{Breaks, Situation, drain_disk, drain_node, maintain_node, remove_node};
use crate::root::{ChangeError, Root, change};
use crate::token::JoinToken;
use env::Env;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;
use types::cluster::command::{ClusterCommand, MapChange};
use types::cluster::{DiskState, NodeState};
use types::{DiskId, NodeId};

/// What is wanted of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeWish {
    /// In full service (again).
    Activate,
    /// Its data moves away.
    Drain,
    /// It will be away for a short while.
    Maintain,
    /// Out, for good.
    Remove,
}

/// What is wanted of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskWish {
    /// In service again.
    Activate,
    /// Its data moves away.
    Drain,
    /// Out, empty.
    Remove,
    /// It is gone with all it held.
    Lose,
}

/// No such wish.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is none of: {1}")]
pub struct NoSuchWish(String, &'static str);

impl FromStr for NodeWish {
    type Err = NoSuchWish;

    fn from_str(text: &str) -> Result<Self, NoSuchWish> {
        match text {
            "activate" => Ok(NodeWish::Activate),
            "drain" => Ok(NodeWish::Drain),
            "maintain" => Ok(NodeWish::Maintain),
            "remove" => Ok(NodeWish::Remove),
            _ => Err(NoSuchWish(text.to_owned(), "activate, drain, maintain, remove")),
        }
    }
}

impl FromStr for DiskWish {
    type Err = NoSuchWish;

    fn from_str(text: &str) -> Result<Self, NoSuchWish> {
        match text {
            "activate" => Ok(DiskWish::Activate),
            "drain" => Ok(DiskWish::Drain),
            "remove" => Ok(DiskWish::Remove),
            "lose" => Ok(DiskWish::Lose),
            _ => Err(NoSuchWish(text.to_owned(), "activate, drain, remove, lose")),
        }
    }
}

/// A wish was not fulfilled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WishError {
    /// It would break this; nothing was done.
    #[error("refused: {}", sentences(.0))]
    Breaks(Vec<Breaks>),
    /// Root.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// There is no cluster yet.
    #[error("there is no cluster map yet")]
    NotBorn,
}

fn sentences(breaks: &[Breaks]) -> String {
    breaks.iter().map(Breaks::to_string).collect::<Vec<_>>().join("; ")
}

/// A wish that was fulfilled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fulfilled {
    /// Epoch of the map now.
    pub epoch: u64,
    /// What it broke, by force.
    pub broke: Vec<Breaks>,
}

/// Changes what a node is. `replicas` still count on its disks.
pub async fn change_node(
    root: &dyn Root,
    env: &Env,
    situation: &Situation<'_>,
    (node, wish): (NodeId, NodeWish),
    replicas: u64,
    force: bool,
) -> Result<Fulfilled, WishError> {
    let (state, breaks) = match wish {
        NodeWish::Activate => (NodeState::Active, Vec::new()),
        NodeWish::Drain => (NodeState::Draining, drain_node(situation, node)),
        NodeWish::Maintain => (NodeState::Maintenance, maintain_node(situation, node)),
        NodeWish::Remove => (NodeState::Removed, remove_node(situation, node, replicas)),
    };
    let at_epoch = Some(situation.map.epoch);
    fulfil(root, env, ClusterCommand::SetNodeState { node, state, at_epoch }, breaks, force).await
}

/// Changes what a disk is. `replicas` still count on it; for the loss of a disk, those that are the only one of their group.
pub async fn change_disk(
    root: &dyn Root,
    env: &Env,
    situation: &Situation<'_>,
    (disk, wish): (DiskId, DiskWish),
    replicas: u64,
    force: bool,
) -> Result<Fulfilled, WishError> {
    let held = || if replicas > 0 { vec![Breaks::Replicas(replicas)] } else { Vec::new() };
    let (state, breaks) = match wish {
        DiskWish::Activate => (DiskState::Active, Vec::new()),
        DiskWish::Drain => (DiskState::Draining, drain_disk(situation, disk)),
        DiskWish::Remove => (DiskState::Removed, held()),
        // What has another copy is made again from it.
        DiskWish::Lose if replicas > 0 => (DiskState::Lost, vec![Breaks::LastCopies(replicas)]),
        DiskWish::Lose => (DiskState::Lost, Vec::new()),
    };
    let at_epoch = Some(situation.map.epoch);
    fulfil(root, env, ClusterCommand::SetDiskState { disk, state, at_epoch }, breaks, force).await
}

async fn fulfil(
    root: &dyn Root,
    env: &Env,
    command: ClusterCommand,
    broke: Vec<Breaks>,
    force: bool,
) -> Result<Fulfilled, WishError> {
    if !broke.is_empty() && !force {
        return Err(WishError::Breaks(broke));
    }
    let MapChange { epoch, .. } = change(root, env, command).await?;
    Ok(Fulfilled { epoch, broke })
}

/// Makes a join token, valid for so long (`TOKEN_VALID` if nobody says). It admits one node; its text is told once and kept nowhere.
pub async fn make_token(root: &dyn Root, env: &Env, valid: Option<Duration>) -> Result<JoinToken, WishError> {
    let map = root.map().ok_or(WishError::NotBorn)?;
    let token = JoinToken::mint(&map, &*env.random).ok_or(WishError::NotBorn)?;
    let valid_ms = u64::try_from(valid.unwrap_or(TOKEN_VALID).as_millis()).unwrap_or(u64::MAX);
    let expires_ms = root.now_ms().saturating_add(valid_ms);
    let command = ClusterCommand::CreateToken { token: token.id, secret_sha256: token.secret.sha256(), expires_ms };
    change(root, env, command).await?;
    Ok(token)
}

/// The cluster as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// Which cluster.
    pub cluster: String,
    /// Epoch of the map.
    pub epoch: u64,
    /// What all nodes speak.
    pub version: u32,
    /// Copies that a bucket without a policy of its own has.
    pub default_copies: u8,
    /// Nodes that may be lost at once, with all that is on them, without loss of data or service: of voters and default copies, now.
    pub survives_nodes: usize,
    /// By id.
    pub nodes: Vec<NodeStatus>,
}

/// One node of [`Status`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NodeStatus {
    /// Id.
    pub node: NodeId,
    /// What it is to the cluster.
    pub state: String,
    /// What the nodes think of it.
    pub health: String,
    /// It is slow.
    pub slow: bool,
    /// It votes.
    pub voter: bool,
    /// It should vote, and does not yet, or the reverse.
    pub voter_is_changing: bool,
    /// Addresses.
    pub rpc: String,
    /// Endpoint.
    pub s3: String,
    /// Endpoint.
    pub admin: String,
    /// Rack.
    pub rack: Option<String>,
    /// Starts.
    pub incarnation: u64,
    /// Newest version its program speaks.
    pub version: u32,
    /// Its disks, by id.
    pub disks: Vec<DiskStatus>,
}

/// One disk of [`NodeStatus`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DiskStatus {
    /// Id.
    pub disk: String,
    /// What it is to the cluster.
    pub state: String,
    /// Starts.
    pub incarnation: u64,
    /// Size.
    pub total_bytes: u64,
    /// Free, as last heard.
    pub free_bytes: Option<u64>,
}

/// The cluster as this node sees it; `health` gives what is thought of a node, and whether it is slow.
pub fn status(situation: &Situation<'_>, health: impl Fn(NodeId) -> (Health, bool)) -> Status {
    let map = situation.map;
    let wanted = next_voters(map, situation.voters);
    let describe_disk = |disk: &types::cluster::Disk| DiskStatus {
        disk: disk.id.to_string(),
        state: word(&disk.state),
        incarnation: disk.incarnation,
        total_bytes: disk.total_bytes,
        free_bytes: situation.loads.get(&disk.id).map(|load| load.free_bytes),
    };
    let describe = |node: &types::cluster::Node| {
        let (thought, slow) = health(node.id);
        let addresses = &node.start.addresses;
        let voter = situation.voters.contains(&node.id);
        NodeStatus {
            node: node.id,
            state: word(&node.state),
            health: if node.state == NodeState::Removed { "-".to_owned() } else { word(&thought) },
            slow,
            voter,
            voter_is_changing: voter != wanted.contains(&node.id),
            rpc: addresses.rpc.clone(),
            s3: addresses.s3.clone(),
            admin: addresses.admin.clone(),
            rack: node.start.rack.clone(),
            incarnation: node.start.incarnation,
            version: node.start.version,
            disks: map.disks.values().filter(|disk| disk.node == node.id).map(describe_disk).collect(),
        }
    };
    Status {
        cluster: map.cluster.to_string(),
        epoch: map.epoch,
        version: map.version,
        default_copies: default_copies_of(map),
        survives_nodes: survives(situation),
        nodes: map.nodes.values().map(describe).collect(),
    }
}

/// How many more nodes may go: of the voters that are up, those beyond a majority; of the default copies, all but one.
fn survives(situation: &Situation<'_>) -> usize {
    if situation.map.members().count() <= 1 {
        return 0;
    }
    let up = situation.voters.intersection(situation.up).count();
    let spare_voters = up.saturating_sub(situation.voters.len() / 2 + 1);
    spare_voters.min(usize::from(default_copies_of(situation.map)).saturating_sub(1))
}

fn word(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}
