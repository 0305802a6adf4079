//! Whose disk this is (rule R59).
//!
//! Promises: the `identity` file is written whole or not at all, and its incarnation rises at each start; a folder that
//! is foreign, damaged, or holds data without an identity is refused with a message that says what to do.
//! Refuses to know: what the cluster map says of the disk (a rolled-back incarnation is for the map to see).

use std::io;

use env::disk::Disk;
use env::small_file;
use types::{ClusterId, DiskId, NodeId};

use crate::format::{FormatError, IdentityRecord};
use crate::paths::EXTENTS;

const NAME: &str = "identity";

/// A disk that belongs to a cluster and a node, with the incarnation of this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskIdentity {
    /// Cluster.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Disk, minted at its birth.
    pub disk: DiskId,
    /// How often it was started; 1 at birth.
    pub incarnation: u64,
}

/// Why a folder is not taken for this node's disk.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The identity file is not sound.
    #[error("the identity file is damaged ({0}); restore it, or give the folder up and let its data be rebuilt")]
    Damaged(FormatError),
    /// Another cluster's disk.
    #[error("the disk belongs to cluster {found}, not to {expected}")]
    ForeignCluster {
        /// What the file says.
        found: ClusterId,
        /// What was expected.
        expected: ClusterId,
    },
    /// Another node's disk.
    #[error("the disk belongs to node {found}, not to node {expected}")]
    ForeignNode {
        /// What the file says.
        found: NodeId,
        /// What was expected.
        expected: NodeId,
    },
    /// Extents without an identity: whose they are cannot be known.
    #[error("the folder holds extents but no identity file; it is not taken for an empty disk")]
    NotEmpty,
    /// There is an identity already.
    #[error("the folder is already disk {0}")]
    AlreadyBorn(DiskId),
    /// The disk failed.
    #[error("the identity file cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

impl DiskIdentity {
    /// What the folder says it is; `None` for a folder that was never a disk.
    pub fn read(disk: &dyn Disk) -> Result<Option<DiskIdentity>, IdentityError> {
        // One byte more than the record, so that a longer file is seen.
        let Some(bytes) = small_file::read(disk, NAME, IdentityRecord::LEN + 1)? else {
            return if holds_extents(disk)? { Err(IdentityError::NotEmpty) } else { Ok(None) };
        };
        let record = IdentityRecord::decode(&bytes).map_err(IdentityError::Damaged)?;
        Ok(Some(DiskIdentity::from_record(&record)))
    }

    /// Makes an empty folder a disk. Durable when it returns; after a crash within, the folder is as before or born.
    pub fn create(
        disk: &dyn Disk,
        cluster: ClusterId,
        node: NodeId,
        id: DiskId,
    ) -> Result<DiskIdentity, IdentityError> {
        if let Some(found) = DiskIdentity::read(disk)? {
            return Err(IdentityError::AlreadyBorn(found.disk));
        }
        let identity = DiskIdentity { cluster, node, disk: id, incarnation: 1 };
        identity.write(disk)?;
        Ok(identity)
    }

    /// Begins the next incarnation of a disk that must belong to `cluster` and `node`. Durable when it returns.
    pub fn start(disk: &dyn Disk, cluster: ClusterId, node: NodeId) -> Result<Option<DiskIdentity>, IdentityError> {
        let Some(found) = DiskIdentity::read(disk)? else { return Ok(None) };
        if found.cluster != cluster {
            return Err(IdentityError::ForeignCluster { found: found.cluster, expected: cluster });
        }
        if found.node != node {
            return Err(IdentityError::ForeignNode { found: found.node, expected: node });
        }
        let next = DiskIdentity { incarnation: found.incarnation.saturating_add(1), ..found };
        next.write(disk)?;
        Ok(Some(next))
    }

    fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        small_file::replace(disk, NAME, &self.to_record().encode())
    }

    fn to_record(self) -> IdentityRecord {
        IdentityRecord { cluster: self.cluster, node: self.node, disk: self.disk, incarnation: self.incarnation }
    }

    fn from_record(record: &IdentityRecord) -> DiskIdentity {
        DiskIdentity { cluster: record.cluster, node: record.node, disk: record.disk, incarnation: record.incarnation }
    }
}

fn holds_extents(disk: &dyn Disk) -> io::Result<bool> {
    match disk.list(EXTENTS) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
