//! What follows from a cluster map: voters, default copies, failure domains. The values are in `types::cluster`.
//!
//! Promises: pure; every node that has the same map comes to the same answer.

use std::collections::{BTreeMap, BTreeSet};
use types::cluster::{Map, Node, NodeState};
use types::{DiskId, NodeId};

/// How many voters a cluster of so many members has: an odd number it can keep, never 2 (protocols.md 12).
pub const fn voter_count(members: usize) -> usize {
    match members {
        0 => 0,
        1 | 2 => 1,
        3 | 4 => 3,
        _ => 5,
    }
}

/// Copies that a bucket without a policy of its own has in a cluster of so many members (protocols.md 12).
pub const fn default_copies(members: usize) -> u8 {
    match members {
        0 | 1 => 1,
        2..=4 => 2,
        _ => 3,
    }
}

/// The default copies of this cluster.
pub fn default_copies_of(map: &Map) -> u8 {
    default_copies(map.members().count())
}

/// The voters of a cluster that has none yet: the first nodes in service, over as many racks as can be.
pub fn voters(map: &Map) -> BTreeSet<NodeId> {
    next_voters(map, &BTreeSet::new())
}

/// The voters as they should be, given those there are: who votes goes on voting, so that a node which comes and goes costs no more
/// changes than it must. Nodes that drain vote only if there are not enough others; a node that is away announced keeps its vote.
pub fn next_voters(map: &Map, current: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let wanted = voter_count(map.members().count());
    let rank = |node: &&Node| (node.state == NodeState::Draining, !current.contains(&node.id), node.id);
    let mut candidates: Vec<&Node> = map.members().collect();
    candidates.sort_by_key(rank);
    let mut racks = BTreeSet::new();
    let mut chosen = BTreeSet::new();
    while chosen.len() < wanted {
        let left = || candidates.iter().filter(|node| !chosen.contains(&node.id));
        // A present voter is never given up for the rack's sake.
        let kept = left().find(|node| node.state != NodeState::Draining && current.contains(&node.id));
        let spread = left().find(|node| node.state != NodeState::Draining && !racks.contains(&rack_of(node)));
        let Some(node) = kept.or(spread).or_else(|| left().next()) else { break };
        racks.insert(rack_of(node));
        chosen.insert(node.id);
    }
    chosen
}

/// What fails together with something.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Domain {
    /// One disk: while the cluster is one node.
    Disk(DiskId),
    /// One node with its disks.
    Node(NodeId),
    /// One rack with its nodes.
    Rack(String),
}

/// A node without a rack is one by itself.
pub fn rack_of(node: &Node) -> Domain {
    match &node.start.rack {
        Some(rack) => Domain::Rack(rack.clone()),
        None => Domain::Node(node.id),
    }
}

/// Which domain each disk is in that copies must not share. Membership decides, not health: when one of two nodes is away, two disks
/// of the other are no substitute.
pub fn domains(map: &Map) -> BTreeMap<DiskId, Domain> {
    let one_node = map.members().count() <= 1;
    let of = |disk: &types::cluster::Disk| if one_node { Domain::Disk(disk.id) } else { Domain::Node(disk.node) };
    map.disks.values().map(|disk| (disk.id, of(disk))).collect()
}

/// The nodes that say they are at this address.
pub fn nodes_at<'a>(map: &'a Map, rpc: &'a str) -> impl Iterator<Item = &'a Node> {
    map.trusted().filter(move |node| node.start.addresses.rpc == rpc)
}
