//! The disks of one node.
//!
//! Promises: all are of one cluster and one node, none twice. Refuses to know: which disk a group belongs on.

use std::collections::BTreeMap;

use types::{ClusterId, DiskId, NodeId};

use crate::store::DiskStore;

/// The open disks of a node by id. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoreSet {
    disks: BTreeMap<DiskId, DiskStore>,
}

/// Why disks do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The same disk in two folders: one is a copy of the other.
    #[error("disk {0} is there twice: one folder is a copy of the other; start with one of them")]
    Duplicate(DiskId),
    /// Disks of two clusters.
    #[error("disk {disk} belongs to cluster {found}, the others to {expected}")]
    MixedClusters {
        /// The odd one.
        disk: DiskId,
        /// Its cluster.
        found: ClusterId,
        /// The others'.
        expected: ClusterId,
    },
    /// Disks of two nodes.
    #[error("disk {disk} belongs to node {found}, the others to {expected}")]
    MixedNodes {
        /// The odd one.
        disk: DiskId,
        /// Its node.
        found: NodeId,
        /// The others'.
        expected: NodeId,
    },
}

impl StoreSet {
    /// Puts disks together.
    pub fn new(stores: impl IntoIterator<Item = DiskStore>) -> Result<StoreSet, SetError> {
        let mut set = StoreSet::default();
        for store in stores {
            set.add(store)?;
        }
        Ok(set)
    }

    fn add(&mut self, store: DiskStore) -> Result<(), SetError> {
        let new = *store.identity();
        if self.disks.contains_key(&new.disk) {
            return Err(SetError::Duplicate(new.disk));
        }
        if let Some(first) = self.disks.values().next().map(DiskStore::identity) {
            if first.cluster != new.cluster {
                let (found, expected) = (new.cluster, first.cluster);
                return Err(SetError::MixedClusters { disk: new.disk, found, expected });
            }
            if first.node != new.node {
                return Err(SetError::MixedNodes { disk: new.disk, found: new.node, expected: first.node });
            }
        }
        self.disks.insert(new.disk, store);
        Ok(())
    }

    /// The disk of that id.
    pub fn get(&self, disk: DiskId) -> Option<&DiskStore> {
        self.disks.get(&disk)
    }

    /// All disks, by id.
    pub fn iter(&self) -> impl Iterator<Item = &DiskStore> {
        self.disks.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.disks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }
}
