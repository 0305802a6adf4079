//! Space that the metadata keeps for itself.
//!
//! Promises: as long as what grows the store is refused below the reserve, flushes and compactions find room, and deletes
//! with them. Refuses to know: what grows the store.

use super::MetadataConfig;
use crate::limits::{FLUSH_SPARE_BYTES, RESERVE_MEMTABLES, RESERVE_SEGMENTS};
use env::disk::Disk;
use std::sync::Arc;

/// The disks and what has to stay free on each.
pub(super) struct Space {
    disks: Vec<Arc<dyn Disk>>,
    reserve_bytes: u64,
}

impl Space {
    pub(super) fn new(config: &MetadataConfig) -> Space {
        let memtables = RESERVE_MEMTABLES * config.memtable_bytes;
        let segments = RESERVE_SEGMENTS * u64::from(config.segment_bytes);
        let disks = config.folders.iter().map(|folder| folder.disk.clone()).collect();
        Space { disks, reserve_bytes: memtables.saturating_add(segments).saturating_add(FLUSH_SPARE_BYTES) }
    }

    pub(super) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    pub(super) fn has_room(&self) -> bool {
        // A disk that cannot tell shows in its log what is wrong with it.
        let free = self.disks.iter().filter_map(|disk| disk.space().ok()).map(|space| space.free_bytes).min();
        free.is_none_or(|free| free >= self.reserve_bytes)
    }
}
