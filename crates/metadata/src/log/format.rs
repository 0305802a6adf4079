//! The log's bytes on disk. All numbers are little-endian.
//!
//! A *segment* is a file of fixed length: two copies of its header, one block each, then *frames*. A frame starts on a block
//! boundary, is padded with zeros to the next one, and no block of a segment is written twice under one segment number.
//!
//! ```text
//! header   0 magic "ASHLWAL1"   8 format u32     12 segment bytes u32   16 log id u64        24 segment u64
//!         32 oldest u64        40 previous end: segment u64, offset u32   52 zero u32        56 CRC-64 of bytes 0..56
//! frame    0 magic "AFRM"       4 payload bytes u32   8 items u32       12 offset u32        16 segment u64
//!         24 previous.segment  32 synced.segment u64 40 previous.offset 44 synced.offset u32 48 log id u64
//!         56 CRC-64 of bytes 0..56 and of the payload   64 payload: items
//! item     kind u8, then
//!          1 entry       shard u32, index u64, term u64, type u8, length u32, data
//!          2 hard state  shard u32, term u64, vote u64, commit u64
//!          3 truncated   shard u32, index u64, term u64
//!          4 oldest      segment u64
//!          5 local       shard u32, after index u64, length u32, data
//!          6 log set     version u64, count u32, folder u64 each
//!          7 end         next segment u64
//! ```
//!
//! Promises: decoding never panics and accepts only what encoding makes; a frame that was written at another place, under
//! another segment number or by another log is not accepted. Refuses to know: files, when to sync.

use crate::shard::ShardId;
use bytes::{Buf, BufMut, Bytes};
use crc_fast::{CrcAlgorithm, Digest};

/// Unit of writing; what O_DIRECT asks for.
pub const BLOCK_BYTES: usize = 4096;
/// Where the first frame of a segment starts.
pub const FIRST_FRAME: u32 = 2 * BLOCK_BYTES as u32;
/// Version of this format.
pub const FORMAT: u32 = 1;
/// Bytes before a frame's payload.
pub const FRAME_HEADER_BYTES: usize = 64;
/// Bytes of an entry beside its data.
pub const ENTRY_OVERHEAD_BYTES: usize = 26;

const SEGMENT_MAGIC: &[u8; 8] = b"ASHLWAL1";
const FRAME_MAGIC: &[u8; 4] = b"AFRM";

/// A place in the log. Segments are numbered in the order of use, so positions are ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// Segment number, never used twice.
    pub segment: u64,
    /// Byte in the segment.
    pub offset: u32,
}

/// First and second block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Length of the file.
    pub segment_bytes: u32,
    /// Which log (metadata folder) it belongs to.
    pub log: u64,
    /// Its number; 0: not in use yet.
    pub segment: u64,
    /// The oldest segment that was needed when this one was begun.
    pub oldest: u64,
    /// Where the log ended when this one was begun.
    pub previous_end: Position,
}

/// What precedes a frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Where it is.
    pub at: Position,
    /// The frame before it.
    pub previous: Position,
    /// Everything before this was durable when the frame was written.
    pub synced: Position,
    /// Which log it belongs to.
    pub log: u64,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Items in the payload.
    pub items: u32,
}

/// A Raft entry as the log keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Group.
    pub shard: ShardId,
    /// Index.
    pub index: u64,
    /// Term.
    pub term: u64,
    /// Raft's entry type.
    pub kind: u8,
    /// Content.
    pub data: Bytes,
}

/// What Raft wants to be kept beside the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// Term.
    pub term: u64,
    /// Voted for, in that term.
    pub vote: u64,
    /// Known committed.
    pub commit: u64,
}

/// The folders whose logs all have to hold an entry for it to count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSetRecord {
    /// Raised by each change.
    pub version: u64,
    /// Ids of the folders' logs.
    pub members: Vec<u64>,
}

/// One thing in a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A Raft entry; replaces an earlier one of its index and removes those above it.
    Entry(LogEntry),
    /// Replaces the earlier one of the shard.
    HardState(ShardId, HardState),
    /// The shard's log begins after this index (of that term).
    Truncated(ShardId, u64, u64),
    /// Segments below are not needed any more.
    Oldest(u64),
    /// Something that happened on this node after that entry of the shard was applied.
    Local(ShardId, u64, Bytes),
    /// Replaces the earlier one.
    LogSet(LogSetRecord),
    /// The log goes on in this segment, whose header is durable.
    End(u64),
}

impl SegmentHeader {
    /// The block.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        out.put_slice(SEGMENT_MAGIC);
        out.put_u32_le(FORMAT);
        out.put_u32_le(self.segment_bytes);
        out.put_u64_le(self.log);
        out.put_u64_le(self.segment);
        out.put_u64_le(self.oldest);
        out.put_u64_le(self.previous_end.segment);
        out.put_u32_le(self.previous_end.offset);
        out.put_u32_le(0);
        let crc = crc(&[&out]);
        out.put_u64_le(crc);
        out.resize(BLOCK_BYTES, 0);
        out
    }

    /// `None`: not a whole header of this format.
    pub fn decode(block: &[u8]) -> Option<SegmentHeader> {
        let (content, mut rest) = block.split_at_checked(56)?;
        let mut fields = content.strip_prefix(SEGMENT_MAGIC)?;
        if rest.try_get_u64_le().ok()? != crc(&[content]) || fields.get_u32_le() != FORMAT {
            return None;
        }
        Some(SegmentHeader {
            segment_bytes: fields.get_u32_le(),
            log: fields.get_u64_le(),
            segment: fields.get_u64_le(),
            oldest: fields.get_u64_le(),
            previous_end: Position { segment: fields.get_u64_le(), offset: fields.get_u32_le() },
        })
    }

    /// The version of a header that is whole but of another format.
    pub fn foreign_format(block: &[u8]) -> Option<u32> {
        let (content, mut rest) = block.split_at_checked(56)?;
        let mut fields = content.strip_prefix(SEGMENT_MAGIC)?;
        let whole = rest.try_get_u64_le().ok()? == crc(&[content]);
        Some(fields.get_u32_le()).filter(|format| whole && *format != FORMAT)
    }
}

impl FrameHeader {
    /// Bytes of the frame with its padding.
    pub fn frame_bytes(&self) -> usize {
        frame_bytes(self.payload_bytes as usize)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_slice(FRAME_MAGIC);
        out.put_u32_le(self.payload_bytes);
        out.put_u32_le(self.items);
        out.put_u32_le(self.at.offset);
        out.put_u64_le(self.at.segment);
        out.put_u64_le(self.previous.segment);
        out.put_u64_le(self.synced.segment);
        out.put_u32_le(self.previous.offset);
        out.put_u32_le(self.synced.offset);
        out.put_u64_le(self.log);
    }

    /// The bytes that precede this payload.
    pub fn encode(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES);
        self.put(&mut out);
        let crc = crc(&[&out, payload]);
        out.put_u64_le(crc);
        out
    }

    /// Reads the fields, not yet proved by [`FrameHeader::proves`].
    pub fn peek(block: &[u8]) -> Option<FrameHeader> {
        let mut fields = block.get(..FRAME_HEADER_BYTES)?.strip_prefix(FRAME_MAGIC)?;
        let (payload_bytes, items) = (fields.get_u32_le(), fields.get_u32_le());
        let (offset, segment) = (fields.get_u32_le(), fields.get_u64_le());
        let (previous_segment, synced_segment) = (fields.get_u64_le(), fields.get_u64_le());
        let previous = Position { segment: previous_segment, offset: fields.get_u32_le() };
        let synced = Position { segment: synced_segment, offset: fields.get_u32_le() };
        let at = Position { segment, offset };
        Some(FrameHeader { at, previous, synced, log: fields.get_u64_le(), payload_bytes, items })
    }

    /// Whether `frame` is whole: header as peeked, payload, checksum.
    pub fn proves(&self, frame: &[u8]) -> bool {
        let end = FRAME_HEADER_BYTES + self.payload_bytes as usize;
        let (Some(mut stored), Some(payload)) = (frame.get(56..64), frame.get(FRAME_HEADER_BYTES..end)) else {
            return false;
        };
        stored.get_u64_le() == crc(&[&frame[..56], payload])
    }
}

/// Bytes of a frame with its padding.
pub fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(BLOCK_BYTES)
}

impl Item {
    /// Appends the item to `out`.
    pub fn encode(&self, out: &mut impl BufMut) {
        match self {
            Item::Entry(entry) => {
                out.put_u8(1);
                out.put_u32_le(entry.shard.0);
                out.put_u64_le(entry.index);
                out.put_u64_le(entry.term);
                out.put_u8(entry.kind);
                out.put_u32_le(entry.data.len() as u32);
                out.put_slice(&entry.data);
            }
            Item::HardState(shard, state) => {
                out.put_u8(2);
                out.put_u32_le(shard.0);
                [state.term, state.vote, state.commit].into_iter().for_each(|n| out.put_u64_le(n));
            }
            Item::Truncated(shard, index, term) => {
                out.put_u8(3);
                out.put_u32_le(shard.0);
                [*index, *term].into_iter().for_each(|n| out.put_u64_le(n));
            }
            Item::Oldest(segment) => {
                out.put_u8(4);
                out.put_u64_le(*segment);
            }
            Item::Local(shard, after, data) => {
                out.put_u8(5);
                out.put_u32_le(shard.0);
                out.put_u64_le(*after);
                out.put_u32_le(data.len() as u32);
                out.put_slice(data);
            }
            Item::LogSet(set) => {
                out.put_u8(6);
                out.put_u64_le(set.version);
                out.put_u32_le(set.members.len() as u32);
                set.members.iter().for_each(|id| out.put_u64_le(*id));
            }
            Item::End(next) => {
                out.put_u8(7);
                out.put_u64_le(*next);
            }
        }
    }

    /// Bytes of the encoded form.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Item::Entry(entry) => ENTRY_OVERHEAD_BYTES + entry.data.len(),
            Item::HardState(..) => 29,
            Item::Truncated(..) => 21,
            Item::Oldest(_) | Item::End(_) => 9,
            Item::Local(_, _, data) => 17 + data.len(),
            Item::LogSet(set) => 13 + 8 * set.members.len(),
        }
    }

    /// All items of a payload; `None`: not what [`Item::encode`] makes. Data is a slice of `payload`.
    pub fn decode_all(mut payload: Bytes, count: u32) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(Item::decode(&mut payload)?);
        }
        payload.is_empty().then_some(items)
    }

    fn decode(from: &mut Bytes) -> Option<Item> {
        Some(match from.try_get_u8().ok()? {
            1 => {
                let (shard, index) = (shard(from)?, from.try_get_u64_le().ok()?);
                let (term, kind) = (from.try_get_u64_le().ok()?, from.try_get_u8().ok()?);
                Item::Entry(LogEntry { shard, index, term, kind, data: data(from)? })
            }
            2 => {
                let shard = shard(from)?;
                let (term, vote) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
                Item::HardState(shard, HardState { term, vote, commit: from.try_get_u64_le().ok()? })
            }
            3 => Item::Truncated(shard(from)?, from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?),
            4 => Item::Oldest(from.try_get_u64_le().ok()?),
            5 => Item::Local(shard(from)?, from.try_get_u64_le().ok()?, data(from)?),
            6 => {
                let (version, count) = (from.try_get_u64_le().ok()?, from.try_get_u32_le().ok()?);
                let members = (0..count).map(|_| from.try_get_u64_le().ok()).collect::<Option<Vec<_>>>()?;
                Item::LogSet(LogSetRecord { version, members })
            }
            7 => Item::End(from.try_get_u64_le().ok()?),
            _ => return None,
        })
    }
}

fn shard(from: &mut Bytes) -> Option<ShardId> {
    from.try_get_u32_le().ok().map(ShardId)
}

fn data(from: &mut Bytes) -> Option<Bytes> {
    let len = from.try_get_u32_le().ok()? as usize;
    (len <= from.len()).then(|| from.split_to(len))
}

/// CRC-64/NVME.
fn crc(parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
