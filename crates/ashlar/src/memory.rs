//! How `--memory` is divided.
//!
//! The parts, in 32nds: caches of the metadata 8, of which five eighths are blocks and three
//! eighths whole objects as they were read; rows not yet flushed 6 (three tables of 2: one filling, one waiting, one
//! being written); upload buffers 9; read buffers 4; half of one for bytes whose MD5 is to be computed together with that of others;
//! the rest is for connections and requests in flight. `--metadata-cache` sets the first part; the others share what it leaves.

/// Bytes of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Block cache of the metadata tree.
    pub block_cache_bytes: u64,
    /// Cache of current objects.
    pub object_cache_bytes: u64,
    /// One table of rows in memory.
    pub memtable_bytes: u64,
    /// Buffers of uploads.
    pub write_bytes: usize,
    /// Buffers of reads.
    pub read_bytes: usize,
    /// Bytes held back for hashing.
    pub md5_backlog_bytes: usize,
    /// Requests worked on at once.
    pub requests: usize,
}

/// Least that a server runs with.
pub const MIN_MEMORY_BYTES: u64 = 64 << 20;
/// What all but the metadata's caches needs at least: its share of the least memory.
const LEAST_OTHERS_BYTES: u64 = MIN_MEMORY_BYTES / 4 * 3;
/// What one request in flight may take besides pooled buffers: its head, its connection's buffers, a chunk of its body.
const REQUEST_BYTES: u64 = 256 << 10;

impl Budget {
    /// Divides `memory` bytes. Caches of metadata of another size than their share makes the other parts larger or smaller.
    pub fn of(memory: u64, metadata_cache: Option<u64>) -> Result<Budget, String> {
        let memory = memory.max(MIN_MEMORY_BYTES);
        let cache_bytes = metadata_cache.unwrap_or(memory / 4);
        let most = memory - LEAST_OTHERS_BYTES;
        if cache_bytes > most {
            return Err(format!("--metadata-cache must be at most {most} bytes with this --memory"));
        }
        let part = (memory - cache_bytes) / 24;
        Ok(Budget {
            block_cache_bytes: cache_bytes / 8 * 5,
            object_cache_bytes: cache_bytes / 8 * 3,
            memtable_bytes: 2 * part,
            write_bytes: 9 * part as usize,
            read_bytes: 4 * part as usize,
            md5_backlog_bytes: part as usize / 2,
            requests: ((5 * part - part / 2) / REQUEST_BYTES).clamp(64, 4096) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_in_the_whole() {
        let caches = [None, Some(1 << 20), Some(16 << 20)];
        for (memory, cache) in [64 << 20, 128 << 20, 1 << 30, 16 << 30].into_iter().flat_map(|m| caches.map(|c| (m, c)))
        {
            let b = Budget::of(memory, cache).expect("a cache that leaves enough");
            let sum = b.block_cache_bytes
                + b.object_cache_bytes
                + 3 * b.memtable_bytes
                + b.write_bytes as u64
                + b.read_bytes as u64;
            let sum = sum + b.md5_backlog_bytes as u64;
            assert!(sum <= memory, "{sum} of {memory}");
            assert!(b.write_bytes >= object_controller::ControllerConfig::MIN_WRITE_BYTES, "{memory}");
        }
    }

    #[test]
    fn a_cache_of_metadata_takes_from_the_others_and_never_all() {
        let (usual, large) = (Budget::of(1 << 30, None), Budget::of(1 << 30, Some(640 << 20)));
        let (usual, large) = (usual.expect("the usual"), large.expect("640 of 1024 MiB"));
        assert_eq!((usual.block_cache_bytes, usual.object_cache_bytes), (160 << 20, 96 << 20));
        assert_eq!(large.block_cache_bytes + large.object_cache_bytes, 640 << 20);
        assert_eq!(large.write_bytes, usual.write_bytes / 2);
        assert!(Budget::of(1 << 30, Some(1 << 30)).is_err());
        assert!(Budget::of(64 << 20, Some(16 << 20)).is_ok());
    }
}
