//! Strips: sets of k sealed groups and of m groups of parity over them (protocols.md 5 and 12, rules R44 to R49).
//!
//! The *image* of a data group is its frozen frames at their offsets, each as its canonical bytes (those it has in a file of generation
//! 0), and zeros for everything else, up to the length of the strip. Parity is computed over images from [`FIRST`] on and lies in
//! groups of its own, in frames of 1 MiB.
//!
//! Promises: what a frozen frame is never changes while the strip is; a strip's parity groups belong to it alone, so parity of one
//! attempt is never taken for that of another. Refuses to know: how parity is computed.

use crate::rows::GroupRecord;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use types::limits::{BLOCK_BYTES, EXTENT_BYTES};
use types::{AttemptId, BucketId, ContentId, GroupId, StripId};

/// Where frames, and so images, begin in a file.
pub const FIRST: u64 = BLOCK_BYTES as u64;

/// The content id that frames of parity carry: no session of a node ever mints one like it.
pub fn parity_content(strip: StripId) -> ContentId {
    AttemptId { node: u32::MAX, session: u32::MAX, sequence: strip.0 }
}

/// The bucket that frames of parity name as their home: no bucket has this id.
pub const PARITY_BUCKET: BucketId = BucketId(0);

/// A group's membership in a strip.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripPlace {
    /// Which.
    pub strip: StripId,
    /// From 0; the parity groups come after the data groups.
    pub place: u8,
    /// The live set frozen when encoding began, as sorted disjoint (offset, length): not punched while the group is a member.
    pub live: Vec<(u64, u64)>,
}

/// How far a strip is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StripState {
    /// Its parity is being written or proved; the data groups have all their replicas.
    Encoding,
    /// The data groups have one replica each, and parity stands for the others.
    Encoded,
}

/// Frames of a group, as sorted disjoint (offset, bytes).
pub type Frames = Vec<(u64, u64)>;

/// A data group as it is proposed for a strip.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewMember {
    /// Group.
    pub group: GroupId,
    /// Generation expected.
    pub generation: u32,
    /// Its frames that are not dead; together exactly what its record does not call dead.
    pub frames: Frames,
}

/// A data group of a strip.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripMember {
    /// Group.
    pub group: GroupId,
    /// Its frozen frames.
    pub frames: Frames,
}

/// Family `strips`, in root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripRecord {
    /// How far it is.
    pub state: StripState,
    /// End of the longest image.
    pub length: u64,
    /// By place.
    pub data: Vec<StripMember>,
    /// By place behind the data groups.
    pub parity: Vec<GroupId>,
    /// By place, the CRC-32C over the CRC-32Cs (little-endian) of each MiB of the member's image from [`FIRST`] on, of parity those of
    /// its payloads; empty while encoding. What is built anew must have it (rule R45).
    pub digests: Vec<u32>,
}

impl StripRecord {
    /// Number of data groups.
    pub fn k(&self) -> usize {
        self.data.len()
    }

    /// Number of parity groups.
    pub fn m(&self) -> usize {
        self.parity.len()
    }

    /// The group at a place.
    pub fn group(&self, place: usize) -> Option<GroupId> {
        let data = self.data.get(place).map(|member| member.group);
        data.or_else(|| self.parity.get(place.checked_sub(self.k())?).copied())
    }

    /// All groups in the order of their places.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.data.iter().map(|member| member.group).chain(self.parity.iter().copied())
    }

    /// The frames that stand in the file at a place.
    pub fn frames(&self, place: usize) -> Frames {
        match self.data.get(place) {
            Some(member) => member.frames.clone(),
            None => parity_frames(self.length),
        }
    }
}

/// Bytes of the frame around a payload.
fn frame_bytes(payload_bytes: u64) -> u64 {
    FIRST + payload_bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// The frames of a parity group for images that end at `length`.
pub fn parity_frames(length: u64) -> Frames {
    let payload = EXTENT_BYTES as u64;
    let bytes = length.saturating_sub(FIRST);
    let frame = |index: u64| (FIRST + index * frame_bytes(payload), frame_bytes(payload.min(bytes - index * payload)));
    (0..bytes.div_ceil(payload)).map(frame).collect()
}

/// Length of a file with these frames.
pub fn end_of(frames: &[(u64, u64)]) -> u64 {
    frames.last().map_or(FIRST, |(offset, bytes)| offset + bytes)
}

/// Touching ranges of sorted disjoint ones united; `None` if they are not sorted, disjoint and behind the file's header.
pub fn united(frames: &[(u64, u64)]) -> Option<Vec<(u64, u64)>> {
    let mut united: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in frames {
        let end = offset.checked_add(*bytes)?;
        match united.last_mut() {
            Some(last) if *offset == last.0 + last.1 && *bytes > 0 => last.1 = end - last.0,
            Some(last) if *offset <= last.0 + last.1 => return None,
            _ if *offset < FIRST || *bytes == 0 => return None,
            _ => united.push((*offset, *bytes)),
        }
    }
    Some(united)
}

/// What of `[from, to)` and of sorted disjoint `ranges` is in none of `taken`, sorted and disjoint.
pub fn without(ranges: &[(u64, u64)], taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut next = 0;
    for (offset, bytes) in ranges {
        let (mut at, end) = (*offset, offset.saturating_add(*bytes));
        while let Some((from, length)) = taken.get(next) {
            let to = from.saturating_add(*length);
            if to <= at {
                next += 1;
                continue;
            }
            if *from >= end {
                break;
            }
            if *from > at {
                left.push((at, from - at));
            }
            at = to;
            if to > end {
                break;
            }
            next += 1;
        }
        if at < end {
            left.push((at, end - at));
        }
    }
    left
}

impl GroupRecord {
    /// What may be punched, by this version of the record or any later one: what is dead, but for what its strip has frozen, which the
    /// others are decoded with. Dead sets only grow and nothing dead is ever frozen, so an old version says too little at worst.
    pub fn punchable(&self) -> Cow<'_, [(u64, u64)]> {
        match &self.strip {
            None => Cow::Borrowed(&self.dead),
            Some(place) => Cow::Owned(without(&self.dead, &place.live)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{end_of, parity_frames, united, without};

    #[test]
    fn ranges_are_united_and_subtracted() {
        assert_eq!(united(&[(4096, 8192), (12288, 4096), (20480, 4096)]), Some(vec![(4096, 12288), (20480, 4096)]));
        assert_eq!(united(&[]), Some(vec![]));
        for bad in [&[(0, 4096)][..], &[(4096, 0)], &[(8192, 4096), (4096, 4096)], &[(4096, 8192), (8192, 4096)]] {
            assert_eq!(united(bad), None, "{bad:?}");
        }
        assert_eq!(without(&[(0, 10), (20, 10)], &[(2, 3), (8, 14), (29, 9)]), [(0, 2), (5, 3), (22, 7)]);
        assert_eq!(without(&[(0, 10)], &[]), [(0, 10)]);
        assert_eq!(without(&[(4, 4), (10, 2)], &[(0, 20)]), []);
        assert_eq!(without(&[(0, 4), (4, 4)], &[(2, 4)]), [(0, 2), (6, 2)]);
    }

    #[test]
    fn parity_lies_in_frames_of_a_mebibyte() {
        const MIB: u64 = 1 << 20;
        assert_eq!(parity_frames(4096), []);
        assert_eq!(parity_frames(8192), [(4096, 8192)]);
        assert_eq!(parity_frames(4096 + MIB), [(4096, 4096 + MIB)]);
        let two = parity_frames(4096 + MIB + 12288);
        assert_eq!(two, [(4096, 4096 + MIB), (8192 + MIB, 16384)]);
        assert_eq!(end_of(&two), 8192 + MIB + 16384);
    }
}
