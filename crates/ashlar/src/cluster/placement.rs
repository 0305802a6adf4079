//! What the map says of disks and copies, for the controller.
//!
//! Promises: disks that the map or the operator gave up count as lost and no others. Refuses to know: which disk a group goes to.

use cluster::map::default_copies_of;
use object_controller::Copies;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use types::cluster::Map;
use types::{DiskId, NodeId};

/// Follows the map.
pub struct Placement {
    node: NodeId,
    replicas: Replicas,
    /// Of this node, given up by its operator.
    missing: BTreeSet<DiskId>,
    copies: Copies,
    /// Copies that were asked for at the start.
    at_least: u8,
}

impl Placement {
    /// Knows nothing of others yet.
    pub fn new(node: NodeId, replicas: Replicas, missing: BTreeSet<DiskId>, copies: Copies) -> Placement {
        let at_least = copies.get();
        Placement { node, replicas, missing, copies, at_least }
    }

    /// Takes a map up; without one there is one node.
    pub fn follow(&self, map: Option<&Map>) {
        let Some(map) = map else { return self.replicas.set_remote(&BTreeMap::new(), self.missing.clone()) };
        let here = map.disks.values().filter(|disk| disk.state.is_here() && disk.node != self.node);
        let remote = here.map(|disk| (disk.id, disk.node)).collect();
        let gone = map.disks.values().filter(|disk| !disk.state.is_here()).map(|disk| disk.id);
        self.replicas.set_remote(&remote, gone.chain(self.missing.iter().copied()).collect());
        self.copies.set(self.at_least.max(default_copies_of(map)));
    }
}
