//! Room on the disks: what may grow the store, and when space is short.
//!
//! Promises: below the reserve nothing is appended, so that flushes, the log, deletes and the curator always find space.
//! Refuses to know: how space comes back.

use super::Groups;
use crate::limits;
use env::disk::Space;
use extent_store::DiskStore;
use std::collections::BTreeSet;
use types::DiskId;

impl Groups {
    /// Disks whose reserve is touched: nothing is appended there. One `statvfs` a disk; no device is waited for.
    pub(super) fn full_disks(&self) -> BTreeSet<DiskId> {
        let full = |disk: &&DiskStore| disk.space().is_ok_and(|space| space.free_bytes < self.reserve_bytes(space));
        self.disks.iter().filter(full).map(DiskStore::id).collect()
    }

    /// What stays free on a disk of that size.
    fn reserve_bytes(&self, space: Space) -> u64 {
        let own =
            (space.total_bytes / 64).clamp(*limits::DISK_RESERVE_BYTES.start(), *limits::DISK_RESERVE_BYTES.end());
        self.config.metadata_reserve_bytes + own
    }

    /// Whether a new group may be opened on a disk of that size and fullness.
    pub(super) fn takes_group(&self, space: Space) -> bool {
        space.free_bytes >= self.reserve_bytes(space) + limits::GROUP_ROOM_STEPS * self.config.preallocate_bytes
    }

    /// Whether some disk is so full that space should come back soon.
    pub(crate) fn is_short_of_space(&self) -> bool {
        let short = |space: Space| {
            let steps = limits::SHORT_OF_SPACE_STEPS * self.config.preallocate_bytes;
            space.free_bytes < (self.reserve_bytes(space) + steps).max(space.total_bytes / 10)
        };
        self.disks.iter().filter_map(|disk| disk.space().ok()).any(short)
    }
}
