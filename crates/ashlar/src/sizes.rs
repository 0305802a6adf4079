//! Sizes that follow the machine: log and memtables from the smallest metadata disk, connections from the files that may be open.
//!
//! Promises: a disk of 192 MiB can be served, and what the metadata keeps free of it leaves room for data.
//! Refuses to know: why each size is what it is.

use metadata::node::MetadataConfig;

/// Smallest segment and memtable: a few of the largest entries.
const LEAST_BYTES: u64 = 4 << 20;
/// Largest segment: beyond it a roll is rare enough.
const SEGMENT_MAX_BYTES: u64 = 64 << 20;
/// The log's floor of five segments takes 8 % of the disk.
const SEGMENTS_PER_DISK: u64 = 64;
/// The reserve of 14 memtables takes 5 % of the disk.
const MEMTABLES_PER_DISK: u64 = 256;
/// A forced flush is due at so many segments.
const LOG_SEGMENTS: u64 = 4;
/// Descriptors for everything but connections: logs, tables, group files.
const FILES: u64 = 1024;

/// Makes log and memtables no larger than the disks carry.
pub fn fit(config: &mut MetadataConfig) {
    let totals = config.folders.iter().filter_map(|folder| folder.disk.space().ok()).map(|space| space.total_bytes);
    let Some(total) = totals.min() else { return };
    let segment = (total / SEGMENTS_PER_DISK).clamp(LEAST_BYTES, SEGMENT_MAX_BYTES) >> 20 << 20;
    config.segment_bytes = segment as u32;
    config.log_bytes = LOG_SEGMENTS * segment;
    config.memtable_bytes = config.memtable_bytes.min((total / MEMTABLES_PER_DISK).max(LEAST_BYTES));
}

/// Raises the limit of open files and says how many connections it carries, at most `wanted`.
pub fn connections(wanted: usize) -> usize {
    match env::process::raise_open_files() {
        Ok(files) => {
            let carried = files.saturating_sub(FILES).max(files / 2);
            wanted.min(usize::try_from(carried).unwrap_or(usize::MAX))
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of open files is not known");
            wanted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Env;
    use env::sim_disk::SimDisk;
    use metadata::node::FolderConfig;
    use std::sync::Arc;

    fn fitted(total: u64) -> MetadataConfig {
        let folder = FolderConfig { disk: Arc::new(SimDisk::new(1, total)), dir: String::new() };
        let mut config = MetadataConfig::new(Env::simulated(1).env, 1, vec![folder]);
        fit(&mut config);
        config
    }

    #[test]
    fn small_disks_get_small_logs_and_large_ones_the_usual() {
        let small = fitted(192 << 20);
        assert_eq!((small.segment_bytes, small.memtable_bytes), (4 << 20, 4 << 20));
        let large = fitted(1 << 40);
        assert_eq!((large.segment_bytes, large.log_bytes, large.memtable_bytes), (64 << 20, 256 << 20, 64 << 20));
        assert_eq!(fitted(1 << 30).segment_bytes, 16 << 20);
    }
}
