//! One extent from one of its replicas.
//!
//! Promises: tries the replicas known when the bytes were written, then those the group's record names now; each replica that
//! the record lists and that fails is a finding. Refuses to know: what the extent is part of.

use super::Stretch;
use crate::api::StoreError;
use crate::findings::{Finding, Findings, Trouble};
use crate::limits;
use crate::runs::Address;
use crate::snapshots::{Snapshot, Snapshots};
use bytes::Bytes;
use env::buf::BufPool;
use env::disk::is_transient;
use extent_store::{FrameAddress, ReadError, ReadRequest, StoreSet};
use metadata::rows::{GroupRecord, ReplicaState};
use std::ops::Range;
use std::sync::Arc;
use types::{DiskId, GroupId};

/// Generation of the files a group is opened with; a later one is learnt from the record.
const FIRST_GENERATION: u32 = 1;

/// Where extents are read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Extents {
    inner: Arc<Inner>,
}

struct Inner {
    disks: StoreSet,
    snapshots: Snapshots,
    findings: Findings,
    /// The budget the disks read into.
    buffers: BufPool,
}

/// A copy that was tried and did not give the bytes; `None`: for want of descriptors or memory, which says nothing of the copy.
type Failed = (DiskId, u32, Option<Trouble>);

impl Extents {
    pub(crate) fn new(disks: StoreSet, snapshots: Snapshots, findings: Findings, buffers: BufPool) -> Extents {
        Extents { inner: Arc::new(Inner { disks, snapshots, findings, buffers }) }
    }

    /// The newest position of the metadata, to be dropped soon.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.inner.snapshots.now()
    }

    /// Whether memory is short: then nothing is read ahead, and slices are read instead of extents. What slow clients hold
    /// in this way fits in the other half of the budget, so that nobody waits for them.
    pub(crate) fn is_pressed(&self) -> bool {
        let half = self.inner.buffers.budget_bytes() / 2;
        self.inner.buffers.in_use_bytes() + limits::FRAME_MAX_BYTES > half
    }

    /// Verified bytes of the `index`-th extent of the stretch's content.
    pub(crate) async fn read(
        self,
        stretch: Arc<Stretch>,
        index: u32,
        address: Address,
        range: Range<u32>,
    ) -> Result<Bytes, StoreError> {
        let mut failed: Vec<Failed> = Vec::new();
        let hinted = stretch.disks_of(address.group);
        // Replicas take turns, so that each disk of a group serves its share.
        let first = (index as usize + stretch.content.sequence as usize) % hinted.len().max(1);
        for disk in hinted[first..].iter().chain(&hinted[..first]) {
            match self.read_replica(&stretch, index, address, &range, (*disk, FIRST_GENERATION)).await {
                Ok(bytes) => {
                    if !failed.is_empty() {
                        let record = self.inner.snapshots.group(address.group).await?;
                        self.report(record.as_ref(), address, &failed);
                    }
                    return Ok(bytes);
                }
                Err(trouble) => failed.push((*disk, FIRST_GENERATION, trouble)),
            }
        }
        self.read_by_record(&stretch, index, address, range, failed).await
    }

    /// Asks the group's record where the replicas are now.
    async fn read_by_record(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: Range<u32>,
        mut failed: Vec<Failed>,
    ) -> Result<Bytes, StoreError> {
        let mut record = self.inner.snapshots.group(address.group).await?;
        let mut answer = None;
        // A replica may be replaced between the look at the record and the look at the disk: then the record names another one.
        while answer.is_none()
            && let Some((disk, generation)) = record.as_ref().and_then(|r| untried(r, address, &failed))
        {
            match self.read_replica(stretch, index, address, &range, (disk, generation)).await {
                Ok(bytes) => answer = Some(bytes),
                Err(trouble) => {
                    failed.push((disk, generation, trouble));
                    record = self.inner.snapshots.group(address.group).await?;
                }
            }
        }
        self.report(record.as_ref(), address, &failed);
        answer.ok_or_else(|| {
            if failed.iter().any(|(.., trouble)| trouble.is_none()) {
                return StoreError::Busy("file descriptors or memory");
            }
            let content = stretch.content;
            StoreError::Damaged(format!("extent {index} of content {content} in group {}", address.group))
        })
    }

    async fn read_replica(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: &Range<u32>,
        (disk, generation): (DiskId, u32),
    ) -> Result<Bytes, Option<Trouble>> {
        let disk = self.inner.disks.get(disk).ok_or(Some(Trouble::Missing))?;
        let request = ReadRequest {
            address: FrameAddress { group: address.group, generation, offset: address.offset },
            content: stretch.content,
            index,
            payload_bytes: address.payload_bytes,
            range: range.clone(),
        };
        disk.read(request).await.map_err(|error| match error {
            ReadError::Missing => Some(Trouble::Missing),
            ReadError::Damaged(_) | ReadError::Invalid => Some(Trouble::Damaged),
            ReadError::Io(error) if is_transient(&error) => None,
            ReadError::Io(_) => Some(Trouble::Unreadable),
        })
    }

    /// What failed although the record lists it.
    fn report(&self, record: Option<&GroupRecord>, address: Address, failed: &[Failed]) {
        let listed: Vec<_> = record.iter().flat_map(|r| replicas_with(r, address)).collect();
        for (disk, generation, trouble) in failed {
            if let Some(trouble) = *trouble
                && listed.contains(&(*disk, *generation))
            {
                let (group, offset) = (address.group, address.offset);
                self.inner.findings.report(Finding { disk: *disk, group, offset, trouble });
            }
        }
    }
}

/// Replicas that should hold this address: disk and generation of the file.
fn replicas_with(record: &GroupRecord, address: Address) -> impl Iterator<Item = (DiskId, u32)> {
    let holds = move |state| match state {
        ReplicaState::Whole | ReplicaState::Open | ReplicaState::NotAnswered => true,
        ReplicaState::Holds(bytes) => address.offset < bytes,
    };
    record.replicas.iter().filter(move |r| holds(r.state)).map(|r| (r.disk, r.file_generation))
}

/// A replica that should hold this address and was not asked yet.
fn untried(record: &GroupRecord, address: Address, failed: &[Failed]) -> Option<(DiskId, u32)> {
    replicas_with(record, address)
        .find(|(disk, generation)| failed.iter().all(|(d, g, _)| (d, g) != (disk, generation)))
}

impl Stretch {
    /// The disks its group was on when the bytes were written.
    fn disks_of(&self, group: GroupId) -> &[DiskId] {
        self.locations.iter().find(|l| l.group == group).map_or(&[], |l| &l.disks)
    }
}
