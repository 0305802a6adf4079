//! One open group: its tail, and which contents it cannot vouch for yet.
//!
//! Promises: offsets are allotted and handed to the disks in one order; after the first failure nothing more is allotted.
//! Refuses to know: how many groups there are; when it is sealed.

use super::{GroupConfig, Requirement, Source};
use crate::ledger::Ledger;
use crate::runs::Address;
use env::buf::PooledBuf;
use extent_store::{Frame, FrameAddress, FrameOrigin};
use metadata::rows::Home;
use parking_lot::Mutex;
use replicas::{Acknowledged, Replica};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{BucketId, ContentId, DiskId, GroupId};

/// A group this controller may append to.
pub(crate) struct OpenGroup {
    id: GroupId,
    generation: u32,
    requirement: Requirement,
    replicas: Vec<Replica>,
    tail: Mutex<Tail>,
    in_flight_bytes: AtomicU64,
}

struct Tail {
    state: TailState,
    next: u64,
    /// Contents with bytes here that are neither committed nor condemned yet.
    unresolved: BTreeMap<ContentId, Home>,
    /// Contents that wrote an extent here which does not count: for ever in the account.
    unvouched: BTreeMap<ContentId, Home>,
    buckets: BTreeSet<BucketId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TailState {
    Accepting,
    /// Takes nothing more; sealed when its uploads have ended.
    Full,
    /// Its seal has begun.
    Ended,
}

/// An extent handed to all disks of a group.
pub(super) struct Reserved {
    pub(crate) address: Address,
    /// The frame as it was first built, for writing it again elsewhere.
    pub(crate) original: Frame,
    answers: Vec<(DiskId, Acknowledged)>,
}

impl Reserved {
    /// The answers to wait for, by disk.
    pub(crate) fn take_answers(&mut self) -> Vec<(DiskId, Acknowledged)> {
        std::mem::take(&mut self.answers)
    }
}

impl OpenGroup {
    /// A group whose files were just created.
    pub(crate) fn new(
        id: GroupId,
        generation: u32,
        requirement: Requirement,
        replicas: Vec<Replica>,
    ) -> Arc<OpenGroup> {
        let tail = Tail {
            state: TailState::Accepting,
            next: extent_store::limits::FIRST_FRAME_OFFSET,
            unresolved: BTreeMap::new(),
            unvouched: BTreeMap::new(),
            buckets: BTreeSet::new(),
        };
        let (tail, in_flight_bytes) = (Mutex::new(tail), AtomicU64::new(0));
        Arc::new(OpenGroup { id, generation, requirement, replicas, tail, in_flight_bytes })
    }

    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// What it was opened for.
    pub(crate) fn requirement(&self) -> Requirement {
        self.requirement
    }

    pub(crate) fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Whether its seal has begun.
    pub(crate) fn has_ended(&self) -> bool {
        self.tail.lock().state == TailState::Ended
    }

    pub(crate) fn disk_ids(&self) -> Vec<DiskId> {
        self.replicas.iter().map(Replica::id).collect()
    }

    /// Whether a replica is on another node.
    pub(crate) fn is_spread(&self) -> bool {
        self.replicas.iter().any(|replica| !replica.is_local())
    }

    /// Bytes handed to the disks and not yet acknowledged.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Bytes it can still take; 0 once it takes nothing more.
    pub(crate) fn room_bytes(&self, config: &GroupConfig) -> u64 {
        let tail = self.tail.lock();
        if tail.state == TailState::Accepting { config.group_bytes.saturating_sub(tail.next) } else { 0 }
    }

    /// Allots the next offset and hands the frame to every disk, in one step. Gives the source back if there is no room.
    pub(super) fn reserve(
        self: &Arc<Self>,
        config: &GroupConfig,
        ledger: &Ledger,
        index: u32,
        source: Source,
        rescue: Option<PooledBuf>,
    ) -> Result<Reserved, Source> {
        let payload_bytes = source.payload_bytes();
        let frame_bytes = Frame::bytes_for(payload_bytes);
        let mut tail = self.tail.lock();
        if tail.state != TailState::Accepting || tail.next + frame_bytes > config.group_bytes {
            return Err(source);
        }
        let address = Address { group: self.id, offset: tail.next, payload_bytes };
        let at = FrameAddress { group: self.id, generation: self.generation, offset: tail.next };
        let (frame, original) = source.framed(config, ledger, index, at, rescue);
        tail.next += frame_bytes;
        tail.unresolved.insert(ledger.content(), ledger.home().clone());
        tail.buckets.insert(ledger.home().bucket);
        ledger.note(address, self);
        let answers = self.replicas.iter().map(|disk| (disk.id(), disk.append(frame.clone()))).collect();
        Ok(Reserved { address, original, answers })
    }

    /// Counts bytes as in flight while the answer lives.
    pub(crate) fn count_in_flight(self: &Arc<Self>, bytes: u64) -> InFlight {
        self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        InFlight { group: self.clone(), bytes }
    }

    /// An extent of this content does not count, though its bytes may be on some disk.
    pub(crate) fn cannot_vouch_for(&self, content: ContentId, home: &Home) {
        self.tail.lock().unvouched.insert(content, home.clone());
    }

    /// The content is committed or condemned. True if that was the last thing a full group waited for.
    pub(crate) fn resolved(&self, content: ContentId) -> bool {
        let mut tail = self.tail.lock();
        tail.unresolved.remove(&content);
        tail.begin_end_if_done()
    }

    /// Takes nothing more. True if it can be sealed at once.
    pub(crate) fn close(&self) -> bool {
        let mut tail = self.tail.lock();
        if tail.state == TailState::Accepting {
            tail.state = TailState::Full;
        }
        tail.begin_end_if_done()
    }

    /// Takes nothing more and is to be sealed now, whatever is in it. True for the first who says so.
    pub(crate) fn end(&self) -> bool {
        let mut tail = self.tail.lock();
        std::mem::replace(&mut tail.state, TailState::Ended) != TailState::Ended
    }

    /// The buckets with bytes in it, and the contents it cannot vouch for.
    pub(crate) fn contents(&self) -> (Vec<BucketId>, Vec<(Home, ContentId)>) {
        let tail = self.tail.lock();
        let mut account: BTreeSet<(Home, ContentId)> = BTreeSet::new();
        for (content, home) in tail.unresolved.iter().chain(&tail.unvouched) {
            account.insert((home.clone(), *content));
        }
        (tail.buckets.iter().copied().collect(), account.into_iter().collect())
    }
}

impl Tail {
    fn begin_end_if_done(&mut self) -> bool {
        let done = self.state == TailState::Full && self.unresolved.is_empty();
        if done {
            self.state = TailState::Ended;
        }
        done
    }
}

impl Source {
    fn payload_bytes(&self) -> u32 {
        match self {
            Source::Fresh(_, crcs) => crcs.payload_bytes(),
            Source::Again(frame, payload_bytes) => {
                debug_assert_eq!(Frame::bytes_for(*payload_bytes), frame.bytes().len() as u64);
                *payload_bytes
            }
        }
    }

    /// The frame for that address, and the one to keep until it is durable.
    fn framed(
        self,
        config: &GroupConfig,
        ledger: &Ledger,
        index: u32,
        at: FrameAddress,
        rescue: Option<PooledBuf>,
    ) -> (Frame, Frame) {
        match (self, rescue) {
            (Source::Fresh(buf, crcs), _) => {
                let origin = FrameOrigin {
                    content: ledger.content(),
                    index,
                    bucket: ledger.home().bucket,
                    key: ledger.home().key.clone(),
                };
                let frame = Frame::build(buf, config.cluster, at, &origin, &crcs);
                (frame.clone(), frame)
            }
            (Source::Again(original, _), Some(buf)) => (original.readdressed(buf, at), original),
            (Source::Again(..), None) => unreachable!("a buffer is taken for every extent that is written again"),
        }
    }
}

/// Bytes on their way to the disks of a group.
pub(crate) struct InFlight {
    group: Arc<OpenGroup>,
    bytes: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.group.in_flight_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
