//! Room on the disks: what may grow the store, and when space is short.
//!
//! Promises: below the reserve nothing is appended, so that flushes, the log, deletes and the curator always find space.
//! Refuses to know: how space comes back.

use super::Groups;
use crate::limits;
use env::disk::Space;
use replicas::Replica;
use std::collections::BTreeSet;
use types::DiskId;

impl Groups {
    /// Disks whose reserve is touched: nothing is appended there. One `statvfs` a disk of this node, and of others what they said
    /// last; no device is waited for.
    pub(super) fn full_disks(&self) -> BTreeSet<DiskId> {
        let is_full = |space: Space| space.free_bytes < self.reserve_bytes(space);
        let here = self.disks.local().iter().filter(|disk| disk.space().is_ok_and(is_full));
        let mut full: BTreeSet<DiskId> = here.map(|disk| disk.id()).collect();
        if !self.disks.is_alone() {
            let others = self.disks.all();
            let others = others.iter().filter(|disk| !disk.is_local());
            full.extend(others.filter(|disk| disk.known_space().is_some_and(is_full)).map(Replica::id));
        }
        full
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
        self.disks.all().iter().filter_map(Replica::known_space).any(short)
    }
}
