//! How `--memory` is divided.
//!
//! The parts, in 32nds: block cache of the metadata 8; rows not yet flushed 6 (three tables of 2: one filling, one waiting, one
//! being written); upload buffers 9; read buffers 4; half of one for bytes whose MD5 is to be computed together with that of others;
//! the rest is for connections and requests in flight.

/// Bytes of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Block cache of the metadata tree.
    pub cache_bytes: u64,
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
/// What one request in flight may take besides pooled buffers: its head, its connection's buffers, a chunk of its body.
const REQUEST_BYTES: u64 = 256 << 10;

impl Budget {
    /// Divides `memory` bytes.
    pub fn of(memory: u64) -> Budget {
        let part = memory.max(MIN_MEMORY_BYTES) / 32;
        Budget {
            cache_bytes: 8 * part,
            memtable_bytes: 2 * part,
            write_bytes: 9 * part as usize,
            read_bytes: 4 * part as usize,
            md5_backlog_bytes: part as usize / 2,
            requests: ((5 * part - part / 2) / REQUEST_BYTES).clamp(64, 4096) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_in_the_whole() {
        for memory in [64 << 20, 128 << 20, 1 << 30, 16 << 30] {
            let b = Budget::of(memory);
            let sum = b.cache_bytes + 3 * b.memtable_bytes + b.write_bytes as u64 + b.read_bytes as u64;
            let sum = sum + b.md5_backlog_bytes as u64;
            assert!(sum <= memory, "{sum} of {memory}");
            assert!(b.write_bytes >= object_controller::ControllerConfig::MIN_WRITE_BYTES, "{memory}");
        }
    }
}
