//! Empties the block cache of `lsm-tree`, which offers no call for that: for measurements.
//!
//! Promises: whatever was cached before the call is out of the cache after it; readers meanwhile are not disturbed. Refuses to
//! know: what is in the blocks.
//!
//! How: the cache keeps a ring of cold and a ring of hot blocks and takes its own word for their weight. Blocks that claim to be
//! large and are nothing push everything out; a real block survives at most as many turns of the hot ring as it has references (two).
//! Then each of them is replaced by one that is too large for the cache, which takes it out again.

use lsm_tree::table::block::BlockType;
use lsm_tree::table::block::Header;
use lsm_tree::table::{Block, BlockOffset};
use lsm_tree::{Cache, Checksum, GlobalTableId, Slice};

/// Ballast blocks in all: those of one turn and of three more, evenly over the cache's shards (four a processor) by their hash.
const BLOCKS: u64 = 16_384;
/// Their claimed weight together, in capacities of the cache: turns of both rings, and room for an uneven spread.
const CAPACITIES: u64 = 16;
/// The tree that they claim to be of; real ones are numbered from 0 in each process.
const NO_TREE: u64 = u64::MAX;

/// Empties `cache`.
pub(super) fn empty(cache: &Cache) {
    let table = GlobalTableId::from((NO_TREE, 0));
    let weight = (cache.capacity().saturating_mul(CAPACITIES) / BLOCKS).clamp(1, u64::from(u32::MAX / 2)) as u32;
    for number in 0..BLOCKS {
        cache.insert_block(table, BlockOffset(number), ballast(weight));
        // Asked for, it counts as wanted: only that moves it to the hot ring, where it takes the place of another.
        let _ = cache.get_block(table, BlockOffset(number));
    }
    // More than a shard holds is refused, and the old one goes; a cache of many gigabytes might hold it, but keeps a mere header.
    let last = if cache.capacity() < u64::from(u32::MAX) { u32::MAX } else { 0 };
    for number in 0..BLOCKS {
        cache.insert_block(table, BlockOffset(number), ballast(last));
    }
}

/// A block that claims so many bytes.
fn ballast(bytes: u32) -> Block {
    let header = Header {
        block_type: BlockType::Data,
        checksum: Checksum::from_raw(0),
        data_length: 0,
        uncompressed_length: bytes,
    };
    Block { header, data: Slice::from([0; 0]) }
}

#[cfg(test)]
mod tests {
    use super::{NO_TREE, ballast, empty};
    use lsm_tree::table::BlockOffset;
    use lsm_tree::{Cache, GlobalTableId};

    #[test]
    fn hot_and_cold_blocks_of_a_full_cache_are_gone_and_no_ballast_stays() {
        for (capacity, blocks) in [(1_u64 << 20, 256_u64), (64 << 20, 40_000), (64 << 20, 10)] {
            let cache = Cache::with_capacity_bytes(capacity);
            let table = GlobalTableId::from((0, 1));
            for round in 0..4 {
                for number in 0..blocks {
                    if round == 0 {
                        cache.insert_block(table, BlockOffset(number), ballast(4096));
                    } else if number % 3 == 0 {
                        let _ = cache.get_block(table, BlockOffset(number));
                    }
                }
            }
            assert!(cache.size() >= (blocks * 4096).min(capacity / 2), "{} of {capacity}", cache.size());
            empty(&cache);
            assert_eq!(cache.size(), 0, "{capacity}");
            assert!((0..blocks).all(|number| cache.get_block(table, BlockOffset(number)).is_none()));
            cache.insert_block(table, BlockOffset(0), ballast(4096));
            assert!(cache.get_block(table, BlockOffset(0)).is_some(), "it goes on caching");
            assert_eq!(GlobalTableId::from((NO_TREE, 0)).tree_id(), NO_TREE);
        }
    }
}
