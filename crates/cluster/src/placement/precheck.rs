//! What an operator's wish would break, before it is proposed (rules R61, R62).
//!
//! Promises: an empty answer means that the change keeps a quorum of voters among the nodes that are up, enough nodes for every copy
//! that is promised, and room for what has to move. It holds for the epoch of the map that was judged: the proposal carries it.
//! Refuses to know: where replicas are; the audit counts them.

use super::{Loads, Purpose, room_bytes};
use std::collections::BTreeSet;
use std::fmt;
use types::cluster::{DiskState, Map, NodeState};
use types::{DiskId, NodeId};

/// What is known beside the map.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The map that is judged.
    pub map: &'a Map,
    /// Nodes that are up.
    pub up: &'a BTreeSet<NodeId>,
    /// Nodes that vote now.
    pub voters: &'a BTreeSet<NodeId>,
    /// The disks.
    pub loads: &'a Loads,
    /// Most copies that any bucket asks for.
    pub most_copies: usize,
}

/// One thing that would break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breaks {
    /// No such node, or it is not a member.
    NoSuchNode(NodeId),
    /// No such disk in service.
    NoSuchDisk(DiskId),
    /// Nobody would be left.
    LastNode,
    /// Too few voters would be up.
    Quorum {
        /// Voters up without it.
        up: usize,
        /// Voters needed.
        needed: usize,
    },
    /// Too few nodes in service for the copies that are promised.
    Copies {
        /// Copies.
        wanted: usize,
        /// Nodes (or disks, on one node) left.
        left: usize,
    },
    /// What has to move does not fit.
    Space {
        /// Bytes to move.
        needed_bytes: u64,
        /// Room for them elsewhere.
        room_bytes: u64,
    },
    /// Another node is away, down or draining: one at a time.
    OthersAway(Vec<NodeId>),
    /// Replicas still count on it.
    Replicas(u64),
    /// So many groups have no other copy.
    LastCopies(u64),
    /// It is still in service: drain it first.
    InService,
}

impl fmt::Display for Breaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breaks::NoSuchNode(node) => write!(f, "there is no node {node} in service"),
            Breaks::NoSuchDisk(disk) => write!(f, "there is no disk {disk} in service"),
            Breaks::LastNode => f.write_str("it is the last node in service"),
            Breaks::Quorum { up, needed } => {
                write!(f, "{up} voters would be up and {needed} are needed: metadata would stop")
            }
            Breaks::Copies { wanted, left } => {
                write!(f, "{wanted} copies are promised and {left} places would be left: writes would stop")
            }
            Breaks::Space { needed_bytes, room_bytes } => {
                write!(f, "{needed_bytes} bytes would have to move and there is room for {room_bytes}")
            }
            Breaks::OthersAway(nodes) => write!(f, "other nodes are down, away or draining: {nodes:?}; one at a time"),
            Breaks::Replicas(count) => write!(f, "{count} replicas still count on it: wait until it is drained"),
            Breaks::LastCopies(count) => write!(f, "it has the only copy of {count} groups: they would be lost"),
            Breaks::InService => f.write_str("it is still in service: drain it first"),
        }
    }
}

/// Draining a node: its data moves to the others, and then it may be removed.
pub fn drain_node(situation: &Situation<'_>, node: NodeId) -> Vec<Breaks> {
    let mut breaks = leave(situation, node);
    if matches!(breaks[..], [Breaks::LastNode | Breaks::NoSuchNode(_)]) {
        return breaks;
    }
    let own: Vec<DiskId> = situation.map.disks_of(node).map(|disk| disk.id).collect();
    breaks.extend(space(situation, &own));
    breaks
}

/// Maintenance: the node is away for a while and nothing moves.
pub fn maintain_node(situation: &Situation<'_>, node: NodeId) -> Vec<Breaks> {
    let mut breaks = leave(situation, node);
    if matches!(breaks[..], [Breaks::LastNode | Breaks::NoSuchNode(_)]) {
        return breaks;
    }
    breaks.extend(quorum(situation, node));
    breaks
}

/// Removing a node for good. `replicas` is what the audit counted that still depends on it.
pub fn remove_node(situation: &Situation<'_>, node: NodeId, replicas: u64) -> Vec<Breaks> {
    let Some(found) = situation.map.nodes.get(&node).filter(|node| node.state != NodeState::Removed) else {
        return vec![Breaks::NoSuchNode(node)];
    };
    let mut breaks = Vec::new();
    if !matches!(found.state, NodeState::Draining | NodeState::Joining) {
        breaks.push(Breaks::InService);
    }
    if replicas > 0 {
        breaks.push(Breaks::Replicas(replicas));
    }
    breaks.extend(quorum(situation, node));
    breaks
}

/// Draining one disk of a node that stays.
pub fn drain_disk(situation: &Situation<'_>, disk: DiskId) -> Vec<Breaks> {
    let Some(found) = situation.map.disks.get(&disk).filter(|disk| disk.state == DiskState::Active) else {
        return vec![Breaks::NoSuchDisk(disk)];
    };
    let one_node = situation.map.members().count() <= 1;
    let others =
        situation.map.disks_of(found.node).filter(|other| other.id != disk && other.state == DiskState::Active);
    let others = others.count();
    let left = if one_node { others } else { places(situation, None) - usize::from(others == 0) };
    let mut breaks = Vec::new();
    if left < situation.most_copies {
        breaks.push(Breaks::Copies { wanted: situation.most_copies, left });
    }
    breaks.extend(space(situation, &[disk]));
    breaks
}

/// What both draining and maintenance must not break.
fn leave(situation: &Situation<'_>, node: NodeId) -> Vec<Breaks> {
    let Some(_) = situation.map.nodes.get(&node).filter(|node| node.state.is_member()) else {
        return vec![Breaks::NoSuchNode(node)];
    };
    let mut breaks = Vec::new();
    let active = |id: &NodeId| situation.map.nodes.get(id).is_some_and(|node| node.state == NodeState::Active);
    if !situation.map.nodes.keys().any(|id| *id != node && active(id)) {
        return vec![Breaks::LastNode];
    }
    let away: Vec<NodeId> = situation
        .map
        .members()
        .filter(|other| other.id != node && (other.state != NodeState::Active || !situation.up.contains(&other.id)))
        .map(|other| other.id)
        .collect();
    if !away.is_empty() {
        breaks.push(Breaks::OthersAway(away));
    }
    let left = places(situation, Some(node));
    if left < situation.most_copies {
        breaks.push(Breaks::Copies { wanted: situation.most_copies, left });
    }
    breaks
}

/// Whether the voters that are up without the node are a majority of those there are. A node that drains hands its vote on while it is
/// still there; one that is away keeps it.
fn quorum(situation: &Situation<'_>, node: NodeId) -> Option<Breaks> {
    let needed = situation.voters.len() / 2 + 1;
    let up = situation.voters.iter().filter(|voter| **voter != node && situation.up.contains(voter)).count();
    (situation.voters.contains(&node) && up < needed).then_some(Breaks::Quorum { up, needed })
}

/// Nodes in service and up that have a disk in service (on one node: its disks), without one of them.
fn places(situation: &Situation<'_>, without: Option<NodeId>) -> usize {
    let serves = |node: &&types::cluster::Node| {
        node.state == NodeState::Active && Some(node.id) != without && situation.up.contains(&node.id)
    };
    let active = |node: NodeId| situation.map.disks_of(node).filter(|disk| disk.state == DiskState::Active).count();
    let nodes: Vec<NodeId> = situation.map.members().filter(serves).map(|node| node.id).collect();
    if situation.map.members().count() <= 1 {
        return nodes.into_iter().map(active).sum();
    }
    nodes.into_iter().filter(|node| active(*node) > 0).count()
}

/// Whether what is on these disks fits on the others.
fn space(situation: &Situation<'_>, leaving: &[DiskId]) -> Option<Breaks> {
    let used = |disk: &DiskId| situation.loads.get(disk).map_or(0, |l| l.total_bytes.saturating_sub(l.free_bytes));
    let stays = |disk: &&types::cluster::Disk| {
        let node = situation.map.nodes.get(&disk.node).map(|node| node.state);
        !leaving.contains(&disk.id) && disk.state == DiskState::Active && node == Some(NodeState::Active)
    };
    let needed_bytes = leaving.iter().map(used).fold(0, u64::saturating_add);
    let takes = situation.map.disks.values().filter(stays);
    let loads = takes.filter_map(|disk| situation.loads.get(&disk.id)).filter(|load| load.is_usable);
    let room_bytes = loads.map(|load| room_bytes(load, Purpose::Rebuild)).fold(0, u64::saturating_add);
    (needed_bytes > room_bytes).then_some(Breaks::Space { needed_bytes, room_bytes })
}
