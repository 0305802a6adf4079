//! Addresses of extents, gathered into runs and found again by offset.
//!
//! Promises: all extents of a content are full but the last, so the extent of a byte is found by division.
//! Refuses to know: files, disks, what the bytes are.

use metadata::rows::Run;
use types::GroupId;
use types::limits::{BLOCK_BYTES, EXTENT_BYTES};

/// Bytes of the frame of a full extent.
const FULL_FRAME_BYTES: u64 = (BLOCK_BYTES + EXTENT_BYTES) as u64;

/// Where one extent lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// Group.
    pub(crate) group: GroupId,
    /// First byte of its frame.
    pub(crate) offset: u64,
    /// Bytes of its payload.
    pub(crate) payload_bytes: u32,
}

/// Gathers addresses, given in the order of the bytes.
pub(crate) fn gather(addresses: impl IntoIterator<Item = Address>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for address in addresses {
        if let Some(run) = runs.last_mut() {
            let full = run.last_bytes as usize == EXTENT_BYTES;
            let next = run.offset + u64::from(run.extents) * FULL_FRAME_BYTES;
            if full && run.group == address.group && next == address.offset {
                run.extents += 1;
                run.last_bytes = address.payload_bytes;
                continue;
            }
        }
        runs.push(Run { group: address.group, offset: address.offset, extents: 1, last_bytes: address.payload_bytes });
    }
    runs
}

/// Bytes of all its extents.
pub(crate) fn payload_bytes(run: &Run) -> u64 {
    u64::from(run.extents.saturating_sub(1)) * EXTENT_BYTES as u64 + u64::from(run.last_bytes)
}

/// Where its last frame ends in the group's file.
pub(crate) fn end(run: &Run) -> u64 {
    let full = u64::from(run.extents.saturating_sub(1)) * FULL_FRAME_BYTES;
    run.offset + full + extent_store::Frame::bytes_for(run.last_bytes)
}

/// The address of the `index`-th extent of a run.
pub(crate) fn address_in(run: &Run, index: u32) -> Address {
    let last = index + 1 == run.extents;
    Address {
        group: run.group,
        offset: run.offset + u64::from(index) * FULL_FRAME_BYTES,
        payload_bytes: if last { run.last_bytes } else { EXTENT_BYTES as u32 },
    }
}

/// Walks the extents of a content from some byte on.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    run: usize,
    /// Extent within the run.
    extent: u32,
    /// Its place in the content.
    index: u32,
}

impl Walk {
    /// At the extent that holds byte `offset` of the content.
    pub(crate) fn at(runs: &[Run], offset: u64) -> Walk {
        let index = (offset / EXTENT_BYTES as u64) as u32;
        let mut before = 0;
        for (run, r) in runs.iter().enumerate() {
            if index - before < r.extents {
                return Walk { run, extent: index - before, index };
            }
            before += r.extents;
        }
        Walk { run: runs.len(), extent: 0, index }
    }

    /// The extent it stands at and its place in the content; `None` past the last.
    pub(crate) fn address(&self, runs: &[Run]) -> Option<(u32, Address)> {
        runs.get(self.run).map(|run| (self.index, address_in(run, self.extent)))
    }

    /// Goes to the next extent.
    pub(crate) fn advance(&mut self, runs: &[Run]) {
        self.index += 1;
        self.extent += 1;
        if runs.get(self.run).is_some_and(|run| self.extent >= run.extents) {
            self.run += 1;
            self.extent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, FULL_FRAME_BYTES, Walk, gather};
    use types::GroupId;
    use types::limits::EXTENT_BYTES;

    fn address(group: u64, frame: u64, payload_bytes: u32) -> Address {
        Address { group: GroupId(group), offset: 4096 + frame * FULL_FRAME_BYTES, payload_bytes }
    }

    #[test]
    fn neighbours_in_one_group_become_one_run_and_every_byte_is_found_again() {
        let full = EXTENT_BYTES as u32;
        let all =
            [address(1, 0, full), address(1, 1, full), address(2, 5, full), address(1, 2, full), address(1, 3, 9)];
        let runs = gather(all);
        assert_eq!(runs.iter().map(|r| r.extents).collect::<Vec<_>>(), [2, 1, 2]);
        for (index, expected) in all.iter().enumerate() {
            let mut walk = Walk::at(&runs, (index * EXTENT_BYTES) as u64 + 8);
            for (later, expected) in all.iter().enumerate().skip(index) {
                assert_eq!(walk.address(&runs), Some((later as u32, *expected)), "from {index}");
                walk.advance(&runs);
            }
            assert_eq!(walk.address(&runs), None);
            assert!(expected.payload_bytes > 0);
        }
    }

    #[test]
    fn an_extent_after_a_short_one_begins_a_new_run() {
        let runs = gather([address(1, 0, 5), Address { group: GroupId(1), offset: 12288, payload_bytes: 7 }]);
        assert_eq!(runs.len(), 2);
        assert_eq!(extent_store::Frame::bytes_for(EXTENT_BYTES as u32), FULL_FRAME_BYTES);
    }
}
