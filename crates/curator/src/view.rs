//! The disks of the cluster as the curator sees them just now: where they are, whether they answer, what they are for, how full they
//! are.
//!
//! Promises: a value, as of one moment; a disk that it does not name is one of which nothing may be concluded. Refuses to know: how
//! health is judged, who changes the map.

use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, NodeId};

/// All disks by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Those of the cluster map that were not taken out of it.
    pub disks: BTreeMap<DiskId, DiskView>,
    /// Copies of whatever has no policy of its own.
    pub default_rf: u8,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskView {
    /// Whose it is.
    pub node: NodeId,
    /// The rack of its node, if racks are configured.
    pub rack: Option<String>,
    /// Whether its node answers.
    pub health: Health,
    /// What it is to the cluster.
    pub state: DiskState,
    /// Its node is away by announcement, and its time for that is not over.
    pub awaited: bool,
    /// Free bytes, as last heard; 0 if that is not known.
    pub free_bytes: u64,
    /// Size of its file system.
    pub total_bytes: u64,
}

/// What the cluster thinks of a disk's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Heard.
    Up,
    /// Not heard for a moment: nothing new goes there.
    Suspect,
    /// Not heard for so long that its copies must be made anew.
    Down,
}

/// What a disk is to the cluster; the state of its node and its own, whichever is the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskState {
    /// In service.
    Active,
    /// Its data moves away.
    Draining,
    /// Its node is, or is about to be, away by announcement.
    Maintenance,
    /// Gone with all it held.
    Lost,
}

/// What must not hold two copies of a group: a node, or, while there is one node, a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// Of several nodes.
    Node(NodeId),
    /// Of one node.
    Disk(DiskId),
}

impl View {
    /// A disk, unless it is gone for good.
    pub fn disk(&self, disk: DiskId) -> Option<&DiskView> {
        self.disks.get(&disk).filter(|view| view.state != DiskState::Lost)
    }

    /// Whether it is known that all the disk held is gone. A disk that is not known is not lost.
    pub fn is_lost(&self, disk: DiskId) -> bool {
        self.disks.get(&disk).is_some_and(|view| view.state == DiskState::Lost)
    }

    /// Whether there are nodes for copies to lie on. Membership decides, not health: when one of two nodes is away, two disks of the
    /// other are no substitute.
    pub fn has_several_nodes(&self) -> bool {
        let mut here = self.disks.values().filter(|disk| disk.state != DiskState::Lost).map(|disk| disk.node);
        here.next().is_some_and(|first| here.any(|node| node != first))
    }

    /// Whether nothing of that node can be asked, nor will be soon. One that is not known is not down.
    pub fn is_down(&self, node: NodeId) -> bool {
        let mut own = self.disks.values().filter(|disk| disk.node == node).peekable();
        own.peek().is_some() && own.all(|disk| disk.health == Health::Down || disk.state == DiskState::Lost)
    }

    /// The domain of a disk that is there.
    pub fn domain(&self, disk: DiskId) -> Option<Domain> {
        let view = self.disk(disk)?;
        Some(if self.has_several_nodes() { Domain::Node(view.node) } else { Domain::Disk(disk) })
    }

    /// Nodes that are down.
    pub fn down(&self) -> BTreeSet<NodeId> {
        self.disks.values().filter(|disk| disk.health == Health::Down).map(|disk| disk.node).collect()
    }
}

impl DiskView {
    /// Whether a copy on it can be read.
    pub fn is_readable(&self) -> bool {
        self.health != Health::Down && self.state != DiskState::Lost
    }

    /// Whether something new may be put on it.
    pub fn takes_copies(&self) -> bool {
        self.health == Health::Up && self.state == DiskState::Active
    }

    /// Of a hundred bytes, how many are taken; 100 if its size is not known.
    pub fn used_percent(&self) -> u64 {
        let used = u128::from(self.total_bytes.saturating_sub(self.free_bytes)) * 100;
        u64::try_from(used.checked_div(u128::from(self.total_bytes)).unwrap_or(100)).unwrap_or(100)
    }
}
