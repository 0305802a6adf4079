//! The block in front of each extent.
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic "ASHLARFR"
//!      8      4  version (1)
//!     12      4  file generation
//!     16      8  cluster id
//!     24      8  group id
//!     32      8  offset of this block in the file
//!     40     16  content id: node (4), session (4), sequence (8)
//!     56      4  index of the extent in its content
//!     60      4  payload bytes, 1 to 1,048,576
//!     64      8  home: bucket id
//!     72      2  home: key bytes, 1 to 1,024
//!     74      2  slices, payload bytes / 65,536 rounded up
//!     76      4  zero
//!     80     64  CRC-32C of each slice, 4 bytes each; zero for slices that do not exist
//!    144   1024  home: key, UTF-8, zero-padded
//!   1168   2924  zero
//!   4092      4  CRC-32C of bytes 0 to 4091
//! ```
//!
//! The disk is not named, so that all replicas of a frame are the same bytes, built once.

use std::ops::Range;

use types::limits::{EXTENT_BYTES, KEY_MAX_BYTES, SLICE_BYTES, SLICES_PER_EXTENT};
use types::{AttemptId, BucketId, ClusterId, ContentId, GroupId, ObjectKey};

use super::field::{check, close, put, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::{FormatError, crc32c, frame_bytes};
use crate::limits::HEADER_BYTES;

const MAGIC: &[u8; 8] = b"ASHLARFR";
const VERSION: u32 = 1;
const AT_CRCS: usize = 80;
const AT_KEY: usize = 144;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameAddress {
    /// Group.
    pub group: GroupId,
    /// Generation of the file.
    pub generation: u32,
    /// Offset of the frame's header in the file; a multiple of 4,096, at least 4,096.
    pub offset: u64,
}

/// What a frame holds: which bytes of whose content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameOrigin {
    /// The content.
    pub content: ContentId,
    /// Which of its extents, from 0.
    pub index: u32,
    /// The bucket of the key that wrote it.
    pub bucket: BucketId,
    /// The key that wrote it.
    pub key: ObjectKey,
}

/// CRC-32C of each 64 KiB slice of one payload. Computed once, then part of every replica's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceCrcs {
    crcs: [u32; SLICES_PER_EXTENT],
    payload_bytes: u32,
}

impl SliceCrcs {
    /// Of `payload`, which must be 1 to [`EXTENT_BYTES`] long.
    pub fn of(payload: &[u8]) -> SliceCrcs {
        assert!((1..=EXTENT_BYTES).contains(&payload.len()), "an extent holds 1 byte to 1 MiB, not {}", payload.len());
        let mut crcs = [0; SLICES_PER_EXTENT];
        for (crc, slice) in crcs.iter_mut().zip(payload.chunks(SLICE_BYTES)) {
            *crc = crc32c(slice);
        }
        SliceCrcs { crcs, payload_bytes: payload.len() as u32 }
    }

    /// One for each slice.
    pub fn as_slice(&self) -> &[u32] {
        &self.crcs[..slices(self.payload_bytes)]
    }

    /// Bytes of the payload they were computed over.
    pub fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }
}

/// A frame header whose checksum and fields were found sound. Borrows its block.
#[derive(Clone, Copy)]
pub struct HeaderView<'a> {
    block: &'a [u8],
    key: &'a str,
}

impl<'a> HeaderView<'a> {
    /// Checks the first [`HEADER_BYTES`] of `bytes`. All zeros is [`FormatError::Hole`].
    pub fn parse(bytes: &'a [u8]) -> Result<HeaderView<'a>, FormatError> {
        let block = bytes.get(..HEADER_BYTES).ok_or(FormatError::Short)?;
        check(block, MAGIC, VERSION)?;
        let payload_bytes = u32_at(block, 60);
        if payload_bytes == 0 || payload_bytes as usize > EXTENT_BYTES {
            return Err(FormatError::Field("payload length"));
        }
        if usize::from(u16_at(block, 74)) != slices(payload_bytes) {
            return Err(FormatError::Field("number of slices"));
        }
        let key_bytes = usize::from(u16_at(block, 72));
        if key_bytes == 0 || key_bytes > KEY_MAX_BYTES {
            return Err(FormatError::Field("key length"));
        }
        let key = std::str::from_utf8(&block[AT_KEY..AT_KEY + key_bytes]).map_err(|_| FormatError::Field("key"))?;
        if key.contains('\0') {
            return Err(FormatError::Field("key"));
        }
        Ok(HeaderView { block, key })
    }

    /// Cluster.
    pub fn cluster(&self) -> ClusterId {
        ClusterId(u64_at(self.block, 16))
    }

    /// Where it says it is.
    pub fn address(&self) -> FrameAddress {
        FrameAddress {
            group: GroupId(u64_at(self.block, 24)),
            generation: u32_at(self.block, 12),
            offset: u64_at(self.block, 32),
        }
    }

    /// The content.
    pub fn content(&self) -> ContentId {
        AttemptId { node: u32_at(self.block, 40), session: u32_at(self.block, 44), sequence: u64_at(self.block, 48) }
    }

    /// Which of the content's extents.
    pub fn index(&self) -> u32 {
        u32_at(self.block, 56)
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> u32 {
        u32_at(self.block, 60)
    }

    /// Bytes of the frame, padding included.
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes())
    }

    /// CRC of slice `index`, which must exist.
    pub fn slice_crc(&self, index: usize) -> u32 {
        assert!(index < slices(self.payload_bytes()), "slice {index} does not exist");
        u32_at(self.block, AT_CRCS + 4 * index)
    }

    /// The first slice whose bytes are not those its CRC was computed over. `bytes` begins at slice `first` and ends at the
    /// end of a slice (or of the payload).
    pub fn first_bad_slice(&self, first: usize, bytes: &[u8]) -> Option<usize> {
        let check = |(i, slice): (usize, &[u8])| (crc32c(slice) != self.slice_crc(first + i)).then_some(first + i);
        bytes.chunks(SLICE_BYTES).enumerate().find_map(check)
    }

    /// All of it, owned.
    pub fn to_header(&self) -> Result<FrameHeader, FormatError> {
        let mut crcs = [0; SLICES_PER_EXTENT];
        for (index, crc) in crcs.iter_mut().enumerate() {
            *crc = u32_at(self.block, AT_CRCS + 4 * index);
        }
        Ok(FrameHeader {
            cluster: self.cluster(),
            address: self.address(),
            origin: FrameOrigin {
                content: self.content(),
                index: self.index(),
                bucket: BucketId(u64_at(self.block, 64)),
                key: ObjectKey::new(self.key).map_err(|_| FormatError::Field("key"))?,
            },
            crcs: SliceCrcs { crcs, payload_bytes: self.payload_bytes() },
        })
    }
}

/// A frame header as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Cluster.
    pub cluster: ClusterId,
    /// Where it is.
    pub address: FrameAddress,
    /// What it holds.
    pub origin: FrameOrigin,
    /// Checksums and length of the payload.
    pub crcs: SliceCrcs,
}

impl FrameHeader {
    /// Fills `block`, which must be [`HEADER_BYTES`] long.
    pub fn encode(&self, block: &mut [u8]) {
        encode(block, self.cluster, &self.address, &self.origin, &self.crcs);
    }

    /// Reads the first [`HEADER_BYTES`] of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FormatError> {
        HeaderView::parse(bytes)?.to_header()
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> u32 {
        self.crcs.payload_bytes
    }

    /// Bytes of the frame, padding included.
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes())
    }
}

/// Fills `block` from the parts of a header.
pub(crate) fn encode(
    block: &mut [u8],
    cluster: ClusterId,
    address: &FrameAddress,
    origin: &FrameOrigin,
    crcs: &SliceCrcs,
) {
    assert_eq!(block.len(), HEADER_BYTES, "a header is one block");
    let key = origin.key.as_str().as_bytes();
    block.fill(0);
    put(block, 0, MAGIC);
    put_u32(block, 8, VERSION);
    put_u32(block, 12, address.generation);
    put_u64(block, 16, cluster.0);
    put_u64(block, 24, address.group.0);
    put_u64(block, 32, address.offset);
    put_u32(block, 40, origin.content.node);
    put_u32(block, 44, origin.content.session);
    put_u64(block, 48, origin.content.sequence);
    put_u32(block, 56, origin.index);
    put_u32(block, 60, crcs.payload_bytes);
    put_u64(block, 64, origin.bucket.0);
    put_u16(block, 72, key.len() as u16);
    put_u16(block, 74, slices(crcs.payload_bytes) as u16);
    for (index, crc) in crcs.as_slice().iter().enumerate() {
        put_u32(block, AT_CRCS + 4 * index, *crc);
    }
    put(block, AT_KEY, key);
    close(block);
}

/// Slices of a payload.
pub(crate) fn slices(payload_bytes: u32) -> usize {
    (payload_bytes as usize).div_ceil(SLICE_BYTES)
}

/// The slices that cover `range` of a payload, as bytes of the payload.
pub(crate) fn covering(range: &Range<u32>, payload_bytes: u32) -> Range<u32> {
    let slice = SLICE_BYTES as u32;
    let start = range.start / slice * slice;
    start..range.end.next_multiple_of(slice).min(payload_bytes)
}
