//! One extent from one of its replicas.
//!
//! Promises: tries the replicas known when the bytes were written, then those the group's record names now; each replica that
//! the record lists and that fails is a finding, one that cannot be reached is none. In a cluster the nearest is asked first, and
//! another as well when it is late, for a few of a hundred reads (rule R71). Refuses to know: what the extent is part of.

use super::Stretch;
use crate::api::StoreError;
use crate::findings::{Finding, Findings, Trouble};
use crate::limits;
use crate::runs::Address;
use crate::snapshots::{Snapshot, Snapshots, read_failed};
use crate::strips::{self, Images, Members, NoImage};
use bytes::Bytes;
use env::Env;
use env::buf::BufPool;
use env::disk::is_transient;
use extent_store::{Frame, FrameAddress, FrameHeader, ReadError, ReadRequest};
use metadata::read::root;
use metadata::rows::{GroupRecord, ReplicaState};
use metadata::strip::StripState;
use parking_lot::Mutex;
use replicas::{Hedge, Replicas, Whereabouts, is_away};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::Semaphore;
use types::{ClusterId, DiskId, GroupId};

/// Generation of the files a group is opened with; a later one is learnt from the record.
const FIRST_GENERATION: u32 = 1;

/// Stands for the other members of a strip in what failed: no disk has this id.
const NO_DISK: DiskId = DiskId(0);
/// Extents that are decoded at once: each reads k pieces of 1 MiB and the frames they are in, and computes m more: about 16 MiB at 4+2.
const DECODING: usize = 4;

/// Where extents are read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Extents {
    inner: Arc<Inner>,
}

struct Inner {
    disks: Replicas,
    snapshots: Snapshots,
    findings: Findings,
    /// The budget the disks read into.
    buffers: BufPool,
    env: Env,
    cluster: ClusterId,
    decoding: Semaphore,
    /// Latencies of reads from disks of this node and of others, in a cluster.
    hedges: [Mutex<Hedge>; 2],
}

/// A copy that was tried and did not give the bytes.
type Failed = (DiskId, u32, Why);

/// Why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The copy is not as it should be.
    Bad(Trouble),
    /// For want of descriptors or memory, which says nothing of the copy.
    Short,
    /// It could not be asked, which says nothing of it either.
    Away,
}

impl Extents {
    pub(crate) fn new(
        disks: Replicas,
        snapshots: Snapshots,
        findings: Findings,
        buffers: BufPool,
        env: Env,
        cluster: ClusterId,
    ) -> Extents {
        let hedges = [Mutex::default(), Mutex::default()];
        Extents {
            inner: Arc::new(Inner {
                disks,
                snapshots,
                findings,
                buffers,
                env,
                cluster,
                decoding: Semaphore::new(DECODING),
                hedges,
            }),
        }
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
        let turns = hinted[first..].iter().chain(&hinted[..first]);
        if !self.inner.disks.is_alone() {
            return self.read_nearest(&stretch, index, address, range, turns.copied().collect()).await;
        }
        for disk in turns {
            match self.read_replica(&stretch, index, address, &range, (*disk, FIRST_GENERATION)).await {
                Ok(bytes) => {
                    if !failed.is_empty() {
                        let record = self.inner.snapshots.group(address.group).await?;
                        self.report(record.as_ref(), address, &failed);
                    }
                    return Ok(bytes);
                }
                Err(why) => failed.push((*disk, FIRST_GENERATION, why)),
            }
        }
        self.read_by_record(&stretch, index, address, range, failed).await
    }

    /// The same in a cluster: of this node first, then of others, those that were silent last; each that is late is raced by the
    /// next one, within the budget.
    async fn read_nearest(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: Range<u32>,
        mut disks: Vec<DiskId>,
    ) -> Result<Bytes, StoreError> {
        disks.sort_by_key(|disk| self.distance(*disk));
        let mut failed: Vec<Failed> = Vec::new();
        let mut left = disks.iter().copied().peekable();
        let mut decoded = false;
        while let Some(disk) = left.next() {
            if self.distance(disk) == SILENT && !std::mem::replace(&mut decoded, true) {
                // Others of its strip, if it is in one, are faster than a node that does not answer.
                let answer = self.read_decoded(stretch, index, address, &range, &mut Vec::new()).await?;
                if let Some(bytes) = answer {
                    return Ok(bytes);
                }
            }
            let read = |disk| Box::pin(self.read_measured(stretch, index, address, &range, disk));
            let mut first = read(disk);
            let hedge = &self.inner.hedges[usize::from(self.distance(disk) > 0)];
            let delay = hedge.lock().delay();
            let in_time = self.inner.env.timers.timeout(delay, first.as_mut()).await;
            let rival = left.peek().copied().filter(|rival| self.distance(*rival) < SILENT);
            let (by, answer) = match (in_time, rival) {
                (Some(answer), _) => (disk, answer),
                (None, Some(rival)) if hedge.lock().take() => {
                    left.next();
                    let mut second = read(rival);
                    let (of_second, answer) = either(first.as_mut(), second.as_mut()).await;
                    match answer {
                        Err(why) => {
                            // The other one is still being asked.
                            failed.push((if of_second { rival } else { disk }, FIRST_GENERATION, why));
                            if of_second { (disk, first.await) } else { (rival, second.await) }
                        }
                        answer => (if of_second { rival } else { disk }, answer),
                    }
                }
                (None, _) => (disk, first.await),
            };
            match answer {
                Err(why) => failed.push((by, FIRST_GENERATION, why)),
                Ok(bytes) => {
                    if failed.iter().any(|(.., why)| matches!(why, Why::Bad(_))) {
                        let record = self.inner.snapshots.group(address.group).await?;
                        self.report(record.as_ref(), address, &failed);
                    }
                    return Ok(bytes);
                }
            }
        }
        self.read_by_record(stretch, index, address, range, failed).await
    }

    /// How far a disk is: here, on a node that answers, elsewhere.
    fn distance(&self, disk: DiskId) -> u8 {
        match self.inner.disks.get(disk) {
            Some(disk) if disk.is_local() => 0,
            Some(disk) if !disk.is_silent() => 1,
            _ => SILENT,
        }
    }

    async fn read_measured(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: &Range<u32>,
        disk: DiskId,
    ) -> Result<Bytes, Why> {
        let began = self.inner.env.clock.monotonic();
        let answer = self.read_replica(stretch, index, address, range, (disk, FIRST_GENERATION)).await;
        if answer.is_ok() {
            let took = self.inner.env.clock.monotonic().saturating_sub(began);
            self.inner.hedges[usize::from(self.distance(disk) > 0)].lock().record(took);
        }
        answer
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
        while answer.is_none() {
            let is_coded = record.as_ref().is_some_and(|record| record.strip.is_some());
            if let Some((disk, generation)) = record.as_ref().and_then(|r| untried(r, address, &failed)) {
                if is_coded && self.distance(disk) == SILENT {
                    answer = self.read_decoded(stretch, index, address, &range, &mut Vec::new()).await?;
                    if answer.is_some() {
                        break;
                    }
                }
                match self.read_replica(stretch, index, address, &range, (disk, generation)).await {
                    Ok(bytes) => answer = Some(bytes),
                    Err(why) => {
                        failed.push((disk, generation, why));
                        record = self.inner.snapshots.group(address.group).await?;
                    }
                }
                continue;
            }
            if is_coded {
                answer = self.read_decoded(stretch, index, address, &range, &mut failed).await?;
            }
            if answer.is_some() || !is_coded {
                break;
            }
            // Its strip may have been dissolved, or this member of it made anew, meanwhile. Each turn tries a replica that was not tried.
            record = self.inner.snapshots.group(address.group).await?;
            if record.as_ref().and_then(|r| untried(r, address, &failed)).is_none() {
                break;
            }
        }
        self.report(record.as_ref(), address, &failed);
        answer.ok_or_else(|| {
            if failed.iter().any(|(.., why)| *why == Why::Short) {
                return StoreError::Busy("file descriptors or memory");
            }
            if failed.iter().any(|(.., why)| *why == Why::Away) {
                return StoreError::Unavailable(format!(
                    "no node with a sound copy of group {} answers",
                    address.group
                ));
            }
            let content = stretch.content;
            StoreError::Damaged(format!("extent {index} of content {content} in group {}", address.group))
        })
    }

    /// The extent computed from the other members of its group's strip, if it is in one. Few at a time: each holds several MiB. What
    /// stands in its way is added to what failed.
    async fn read_decoded(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: &Range<u32>,
        failed: &mut Vec<Failed>,
    ) -> Result<Option<Bytes>, StoreError> {
        let Ok(_turn) = self.inner.decoding.acquire().await else { return Ok(None) };
        // A member may be moved while it is read; then its record says where it is now.
        for _ in 0..2 {
            let snapshot = self.inner.snapshots.of_root().await?;
            let record = root::group(snapshot.read(), address.group).map_err(read_failed)?;
            let Some(place) = record.and_then(|record| record.strip) else { return Ok(None) };
            let Some(members) = Members::read(snapshot.read(), place.strip).map_err(read_failed)? else {
                return Ok(None);
            };
            if members.strip.state != StripState::Encoded {
                return Ok(None);
            }
            let (place, bytes) = (usize::from(place.place), Frame::bytes_for(address.payload_bytes));
            let extent = address.offset..address.offset + bytes;
            let mut images = Images::new(&self.inner.disks, &members);
            let decoded = images.decoded(place, extent).await;
            // Of the other members; nobody else may read them for long.
            images.bad().into_iter().for_each(|finding| self.inner.findings.report(finding));
            let why = match decoded {
                Ok(canonical) => {
                    let frame = strips::frame_at(canonical, address.group, address.offset, self.inner.cluster);
                    let sound = frame.filter(|frame| {
                        let FrameHeader { origin, crcs, .. } = frame.header();
                        let is = (origin.content, origin.index, crcs.payload_bytes());
                        is == (stretch.content, index, address.payload_bytes)
                    });
                    match sound {
                        Some(frame) => {
                            let payload = frame.payload();
                            return Ok(Some(payload.slice(range.start as usize..range.end as usize)));
                        }
                        None => Why::Bad(Trouble::Damaged),
                    }
                }
                Err(NoImage::Away(_)) => Why::Away,
                Err(NoImage::Short(_)) => Why::Short,
                Err(NoImage::Bad(what)) => {
                    tracing::warn!(group = %address.group, offset = address.offset, what, "not decoded");
                    Why::Bad(Trouble::Damaged)
                }
            };
            failed.push((NO_DISK, FIRST_GENERATION, why));
        }
        Ok(None)
    }

    async fn read_replica(
        &self,
        stretch: &Stretch,
        index: u32,
        address: Address,
        range: &Range<u32>,
        (disk, generation): (DiskId, u32),
    ) -> Result<Bytes, Why> {
        let request = ReadRequest {
            address: FrameAddress { group: address.group, generation, offset: address.offset },
            content: stretch.content,
            index,
            payload_bytes: address.payload_bytes,
            range: range.clone(),
        };
        // A disk of this node without a clone of its handle.
        let answer = match self.inner.disks.here(disk) {
            Some(here) => here.read(request).await,
            None => match self.inner.disks.get(disk) {
                Some(there) => there.read(request).await,
                None if self.inner.disks.whereabouts(disk) == Whereabouts::Lost => {
                    return Err(Why::Bad(Trouble::Missing));
                }
                None => return Err(Why::Away),
            },
        };
        answer.map_err(|error| match error {
            ReadError::Missing => Why::Bad(Trouble::Missing),
            ReadError::Damaged(_) | ReadError::Invalid => Why::Bad(Trouble::Damaged),
            ReadError::Io(error) if is_transient(&error) => Why::Short,
            ReadError::Io(error) if is_away(&error) => Why::Away,
            ReadError::Io(_) => Why::Bad(Trouble::Unreadable),
        })
    }

    /// What failed although the record lists it.
    fn report(&self, record: Option<&GroupRecord>, address: Address, failed: &[Failed]) {
        let listed: Vec<_> = record.iter().flat_map(|r| replicas_with(r, address)).collect();
        for (disk, generation, why) in failed {
            if let Why::Bad(trouble) = *why
                && listed.contains(&(*disk, *generation))
            {
                let (group, offset) = (address.group, address.offset);
                self.inner.findings.report(Finding { disk: *disk, group, offset, trouble });
            }
        }
    }
}

/// The distance of a disk that is asked only when no other is left.
const SILENT: u8 = 2;

/// The first of two answers, and whether it is the second's.
async fn either<T>(
    mut first: Pin<&mut (impl Future<Output = T> + Send)>,
    mut second: Pin<&mut (impl Future<Output = T> + Send)>,
) -> (bool, T) {
    poll_fn(|context| {
        if let Poll::Ready(answer) = first.as_mut().poll(context) {
            return Poll::Ready((false, answer));
        }
        second.as_mut().poll(context).map(|answer| (true, answer))
    })
    .await
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
