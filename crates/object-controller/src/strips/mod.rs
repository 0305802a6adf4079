//! The bytes of erasure-coded groups, from their own files or from the other members of their strip.
//!
//! Promises: what is read was verified against the checksums it was written with, frame by frame; what is decoded is computed into new
//! buffers that began as zeros, and becomes a frame only if its header and checksums are sound and it is the frame that belongs there
//! (rules R45, R46); a frame's bytes at one place of a group never change, so it does not matter which file of the group they came from.
//! What was not frozen counts as zeros and is never read. Refuses to know: who asks, what is done about a member that is gone.

mod image;

pub use image::{Images, NoImage};

use bytes::Bytes;
use extent_store::{Frame, FrameAddress, FrameHeader, FrameOrigin, SliceCrcs};
use metadata::read::{ReadError, root};
use metadata::rows::GroupRecord;
use metadata::strip::{FIRST, PARITY_BUCKET, StripRecord, parity_content};
use metadata::tree::Read;
use types::limits::EXTENT_BYTES;
use types::{ClusterId, GroupId, ObjectKey, StripId};

/// Images are read, encoded and decoded in pieces of so many bytes: those of one frame of parity.
pub const ROW_BYTES: u64 = EXTENT_BYTES as u64;

/// From so many nodes on groups are encoded without being asked to (protocols.md 12).
const CODE_NODES: usize = 8;

/// The code of buckets that leave it to the cluster, if so many nodes have one.
pub fn code_of_cluster(nodes: usize) -> Option<(u8, u8)> {
    (nodes >= CODE_NODES).then_some((4, 2))
}

/// The key that frames of parity name as their home.
const PARITY_KEY: &str = "parity";

/// A strip and the records of its groups, at one position.
#[derive(Clone, Debug)]
pub struct Members {
    /// Which strip.
    pub id: StripId,
    /// Its row.
    pub strip: StripRecord,
    /// By place.
    pub groups: Vec<GroupRecord>,
}

impl Members {
    /// `None` if there is no such strip (any more).
    pub fn read(read: &dyn Read, id: StripId) -> Result<Option<Members>, ReadError> {
        let Some(strip) = root::strip(read, id)? else { return Ok(None) };
        let groups = strip.groups().map(|group| root::group(read, group)).collect::<Result<Option<Vec<_>>, _>>()?;
        Ok(groups.map(|groups| Members { id, strip, groups }))
    }

    /// Where the images are cut, in order.
    pub fn rows(&self) -> impl Iterator<Item = std::ops::Range<u64>> + use<> {
        let length = self.strip.length;
        (0..length.saturating_sub(FIRST).div_ceil(ROW_BYTES)).map(move |row| {
            let from = FIRST + row * ROW_BYTES;
            from..(from + ROW_BYTES).min(length)
        })
    }
}

/// The frame that these canonical bytes are, if they are the sound frame of that place.
pub fn frame_at(bytes: Vec<u8>, group: GroupId, offset: u64, cluster: ClusterId) -> Option<Frame> {
    let frame = Frame::verify(Bytes::from(bytes)).ok()?;
    let canonical = FrameAddress { group, generation: 0, offset };
    (frame.address() == canonical && frame.cluster() == cluster).then_some(frame)
}

/// The frame of the `row`-th piece of a parity group, around its payload.
pub fn parity_frame(
    strip: StripId,
    group: GroupId,
    row: u32,
    offset: u64,
    payload: &[u8],
    cluster: ClusterId,
) -> Option<Frame> {
    let origin = FrameOrigin {
        content: parity_content(strip),
        index: row,
        bucket: PARITY_BUCKET,
        key: ObjectKey::new(PARITY_KEY).ok()?,
    };
    let address = FrameAddress { group, generation: 0, offset };
    let header = FrameHeader { cluster, address, origin, crcs: SliceCrcs::of(payload) };
    let mut bytes = vec![0; usize::try_from(header.frame_bytes()).ok()?];
    header.encode(&mut bytes[..FIRST as usize]);
    bytes[FIRST as usize..][..payload.len()].copy_from_slice(payload);
    Frame::verify(Bytes::from(bytes)).ok()
}
