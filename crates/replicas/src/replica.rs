//! A disk of this node or of another: the same operations, the same errors.
//!
//! Promises: a disk that is here costs a branch and nothing else. Refuses to know: which disks there are.

use crate::remote::{RemoteCopy, RemoteDisk};
use crate::wire::Status;
use bytes::Bytes;
use env::disk::Space;
use extent_store::{
    AppendError, CopyError, CopyWriter, CreateError, Depth, DiskStore, FenceError, FileError, FoundFile, Frame,
    FrameAddress, PunchError, Quarantined, ReadError, ReadRequest, ScanPage,
};
use std::future::Future;
use std::pin::Pin;
use types::{DiskId, GroupId, NodeId};

/// Where a group may have a copy. Cheap to clone.
#[derive(Clone)]
pub enum Replica {
    /// Of this node.
    Local(DiskStore),
    /// Of another node.
    Remote(RemoteDisk),
}

/// The answer to one append.
pub type Acknowledged = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send>>;

impl Replica {
    /// The disk's id.
    pub fn id(&self) -> DiskId {
        match self {
            Replica::Local(disk) => disk.id(),
            Replica::Remote(disk) => disk.id(),
        }
    }

    /// The node that has it.
    pub fn node(&self) -> NodeId {
        match self {
            Replica::Local(disk) => disk.identity().node,
            Replica::Remote(disk) => disk.node(),
        }
    }

    /// Whether it is this node's.
    pub fn is_local(&self) -> bool {
        matches!(self, Replica::Local(_))
    }

    /// Whether its node was silent when last asked.
    pub fn is_silent(&self) -> bool {
        match self {
            Replica::Local(_) => false,
            Replica::Remote(disk) => disk.is_silent(),
        }
    }

    /// Whether a write or sync failed there, as far as this node knows.
    pub fn is_suspect(&self) -> bool {
        match self {
            Replica::Local(disk) => disk.health().suspect,
            Replica::Remote(disk) => disk.known().is_some_and(|status| status.suspect),
        }
    }

    /// [`DiskStore::create`].
    pub async fn create(&self, group: GroupId, generation: u32, preallocate_bytes: u64) -> Result<(), CreateError> {
        match self {
            Replica::Local(disk) => disk.create(group, generation, preallocate_bytes).await,
            Replica::Remote(disk) => disk.create(group, generation, preallocate_bytes).await,
        }
    }

    /// [`DiskStore::append`]: handed over by this very call.
    pub fn append(&self, frame: Frame) -> Acknowledged {
        match self {
            Replica::Local(disk) => Box::pin(disk.append(frame)),
            Replica::Remote(disk) => Box::pin(disk.append(frame)),
        }
    }

    /// [`DiskStore::fence`].
    pub async fn fence(&self, group: GroupId, generation: u32) -> Result<u64, FenceError> {
        match self {
            Replica::Local(disk) => disk.fence(group, generation).await,
            Replica::Remote(disk) => disk.fence(group, generation).await,
        }
    }

    /// [`DiskStore::read`]: verified on this node in both cases.
    pub async fn read(&self, wanted: ReadRequest) -> Result<Bytes, ReadError> {
        match self {
            Replica::Local(disk) => disk.read(wanted).await,
            Replica::Remote(disk) => disk.read(wanted).await,
        }
    }

    /// [`DiskStore::read_frame`]: verified on this node in both cases.
    pub async fn read_frame(&self, address: FrameAddress) -> Result<Frame, ReadError> {
        match self {
            Replica::Local(disk) => disk.read_frame(address).await,
            Replica::Remote(disk) => disk.read_frame(address).await,
        }
    }

    /// [`DiskStore::scan_page`].
    pub async fn scan_page(
        &self,
        group: GroupId,
        generation: u32,
        depth: Depth,
        from: u64,
    ) -> Result<ScanPage, ReadError> {
        match self {
            Replica::Local(disk) => disk.scan_page(group, generation, depth, from).await,
            Replica::Remote(disk) => disk.scan_page(group, generation, depth, from).await,
        }
    }

    /// Free and total bytes as this node knows them now; blocks for a system call if the disk is here.
    pub fn known_space(&self) -> Option<Space> {
        match self {
            Replica::Local(disk) => disk.space().ok(),
            Replica::Remote(disk) => disk.known().map(space_of),
        }
    }

    /// Files on the disk.
    pub async fn list_files(&self) -> Result<Vec<FoundFile>, FileError> {
        match self {
            Replica::Local(disk) => Ok(disk.list_files()),
            Replica::Remote(disk) => disk.list_files().await,
        }
    }

    /// Files found at the disk's start that are not ours, as far as this node knows.
    pub fn strangers(&self) -> u64 {
        match self {
            Replica::Local(disk) => disk.strangers().len() as u64,
            Replica::Remote(disk) => disk.known().map_or(0, |status| status.strangers),
        }
    }

    /// [`DiskStore::quarantined`].
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, FileError> {
        match self {
            Replica::Local(disk) => disk.quarantined().await,
            Replica::Remote(disk) => disk.quarantined().await,
        }
    }

    /// [`DiskStore::punch`].
    pub async fn punch(&self, group: GroupId, generation: u32, ranges: &[(u64, u64)]) -> Result<(), PunchError> {
        match self {
            Replica::Local(disk) => disk.punch(group, generation, ranges).await,
            Replica::Remote(disk) => disk.punch(group, generation, ranges).await,
        }
    }

    /// [`DiskStore::drop_file`].
    pub async fn drop_file(&self, group: GroupId, generation: u32) -> Result<(), FileError> {
        match self {
            Replica::Local(disk) => disk.drop_file(group, generation).await,
            Replica::Remote(disk) => disk.drop_file(group, generation).await,
        }
    }

    /// [`DiskStore::forget_fence`].
    pub async fn forget_fence(&self, group: GroupId) -> bool {
        match self {
            Replica::Local(disk) => disk.forget_fence(group).await,
            Replica::Remote(disk) => disk.forget_fence(group).await,
        }
    }

    /// [`DiskStore::quarantine`].
    pub async fn quarantine(&self, group: GroupId, generation: u32, reason: &str) -> Result<String, FileError> {
        match self {
            Replica::Local(disk) => disk.quarantine(group, generation, reason).await,
            Replica::Remote(disk) => disk.quarantine(group, generation, reason).await,
        }
    }

    /// [`DiskStore::begin_copy`].
    pub async fn begin_copy(
        &self,
        group: GroupId,
        generation: u32,
        sealed_length: u64,
    ) -> Result<ReplicaCopy, CopyError> {
        Ok(match self {
            Replica::Local(disk) => ReplicaCopy::Local(disk.begin_copy(group, generation, sealed_length).await?),
            Replica::Remote(disk) => ReplicaCopy::Remote(disk.begin_copy(group, generation, sealed_length).await?),
        })
    }
}

/// Free and total bytes.
pub(crate) fn space_of(status: Status) -> Space {
    Space { total_bytes: status.total_bytes, free_bytes: status.free_bytes }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk {} of node {}", self.id(), self.node())
    }
}

/// A copy that is being written, here or elsewhere.
pub enum ReplicaCopy {
    /// On a disk of this node.
    Local(CopyWriter),
    /// On one of another node.
    Remote(RemoteCopy),
}

impl ReplicaCopy {
    /// [`CopyWriter::put`].
    pub async fn put(&mut self, frame: Frame) -> Result<(), CopyError> {
        match self {
            ReplicaCopy::Local(copy) => copy.put(frame).await,
            ReplicaCopy::Remote(copy) => copy.put(frame).await,
        }
    }

    /// [`CopyWriter::finish`].
    pub async fn finish(self) -> Result<(), CopyError> {
        match self {
            ReplicaCopy::Local(copy) => copy.finish().await,
            ReplicaCopy::Remote(copy) => copy.finish().await,
        }
    }
}
