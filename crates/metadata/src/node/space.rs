//! Space that the metadata keeps for itself.
//!
//! Promises: as long as what grows the store is refused below the reserve, flushes and compactions find room, and deletes
//! with them. Refuses to know: what grows the store.

use super::MetadataConfig;
use crate::limits::{FLUSH_SPARE_BYTES, RESERVE_MEMTABLES, RESERVE_SEGMENTS, SPACE_FAR_BYTES, SPACE_FAR_FOR};
use env::clock::Clock;
use env::disk::Disk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The disks and what has to stay free on each.
pub(super) struct Space {
    disks: Vec<Arc<dyn Disk>>,
    reserve_bytes: u64,
    clock: Arc<dyn Clock>,
    /// Until when the disks need not be asked, for they were far from full.
    far_until_ms: AtomicU64,
}

impl Space {
    pub(super) fn new(config: &MetadataConfig) -> Space {
        let memtables = RESERVE_MEMTABLES * config.memtable_bytes;
        let segments = RESERVE_SEGMENTS * u64::from(config.segment_bytes);
        let disks = config.folders.iter().map(|folder| folder.disk.clone()).collect();
        let reserve_bytes = memtables.saturating_add(segments).saturating_add(FLUSH_SPARE_BYTES);
        Space { disks, reserve_bytes, clock: config.env.clock.clone(), far_until_ms: AtomicU64::new(0) }
    }

    pub(super) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// As the disks say now; or as they said a moment ago, if that was so much more than the reserve that nothing could have
    /// written it since.
    pub(super) fn has_room(&self) -> bool {
        let now = self.clock.monotonic();
        if now.as_millis() < u128::from(self.far_until_ms.load(Ordering::Relaxed)) {
            return true;
        }
        // A disk that cannot tell shows in its log what is wrong with it.
        let free = self.disks.iter().filter_map(|disk| disk.space().ok()).map(|space| space.free_bytes).min();
        if free.is_some_and(|free| free >= self.reserve_bytes.saturating_add(SPACE_FAR_BYTES)) {
            let until = (now + SPACE_FAR_FOR).as_millis();
            self.far_until_ms.store(u64::try_from(until).unwrap_or(0), Ordering::Relaxed);
        }
        free.is_none_or(|free| free >= self.reserve_bytes)
    }
}
