//! Open groups that should be open no more: somewhere in them a disk is about to go, or nobody's policy asks for their kind.
//!
//! Promises: only sealed groups are healed, moved and encoded (rule R22), so a group does not stay open for ever because nobody
//! happens to write to it; a place that is left is left once, so that a cluster which has no other place goes on writing there and
//! does not open a group a second. Refuses to know: who moves the data.

use super::{Groups, OpenGroup, Requirement};
use replicas::Replica;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::cluster::{DiskState, Map, NodeState};
use types::{DiskId, GroupId};

impl Groups {
    /// To be called every few seconds: groups with a replica on a disk that drains, whose node drains or is in maintenance, or whose
    /// node began to be silent, take nothing more; nor do those whose requirement nobody has.
    pub(crate) fn leave_places(self: &Arc<Self>, map: Option<&Map>, wanted: &BTreeSet<Requirement>) {
        let leaving = map.map(leaving).unwrap_or_default();
        let by_node = self.disks.nodes().len() > 1;
        let silent: BTreeSet<DiskId> =
            self.disks.all().iter().filter(|disk| disk.is_silent()).map(Replica::id).collect();
        let closed: Vec<Arc<OpenGroup>> = {
            let mut state = self.state.lock();
            let left = &leaving | &silent;
            let anew: BTreeSet<DiskId> = &left - &state.left;
            state.left = left;
            state.leaving = leaving;
            let goes = |group: &mut Arc<OpenGroup>| {
                let on_left = group.replicas().iter().any(|replica| anew.contains(&replica.id()));
                on_left || !wanted.contains(&group.requirement()) || (by_node && shares_node(group))
            };
            state.open.extract_if(.., goes).collect()
        };
        for group in closed {
            self.close_full(group);
        }
    }

    /// Nothing more goes into this group of ours; it is sealed when its uploads have ended, or, if it was left before, now. False: it is
    /// none of ours, or on its way to being sealed.
    pub(crate) fn leave(self: &Arc<Self>, id: GroupId) -> bool {
        let open = self.state.lock().open.extract_if(.., |group| group.id() == id).next();
        if let Some(group) = open {
            self.close_full(group);
            return true;
        }
        let waiting = self.state.lock().unsealed.iter().find(|g| g.id() == id && !g.has_ended()).cloned();
        if let Some(group) = &waiting {
            self.give_up(group);
        }
        waiting.is_some()
    }
}

/// Opened while there was one node: two of its replicas are lost with it.
fn shares_node(group: &OpenGroup) -> bool {
    let nodes: BTreeSet<_> = group.replicas().iter().map(Replica::node).collect();
    nodes.len() < group.replicas().len()
}

/// Disks that serve what they hold and should get nothing new.
fn leaving(map: &Map) -> BTreeSet<DiskId> {
    let node_leaves = |disk: &types::cluster::Disk| {
        let node = map.nodes.get(&disk.node);
        node.is_some_and(|node| matches!(node.state, NodeState::Draining | NodeState::Maintenance))
    };
    let leaves = |disk: &&types::cluster::Disk| disk.state == DiskState::Draining || node_leaves(disk);
    map.disks.values().filter(leaves).map(|disk| disk.id).collect()
}
