//! The tree on disk: `lsm-tree`, which has no journal and flushes when it is told to.
//!
//! Promises: those of [`Tree`]. The engine's sequence numbers are ours: a batch has one, readers stay at or below the published
//! one, and as memtables are sealed only between batches every set of flushed tables is a prefix of the batches. A failed flush
//! or compaction is final: the engine may have replaced its manifest without knowing, so it is not touched again.
//! Refuses to know: rows, logs.
//!
//! How the engine keeps old positions readable: a reader at position P uses the newest list of tables and memtables that is
//! older than P, and the watermark keeps that list alive. Hence a compaction may drop what is older than the newest version of
//! a key although a pinned position still needs it: the pinned reader does not look into the compacted tables.

use super::{Direction, Pins, Row, Rows, Sequence, Tree, TreeError, TreeStats, WriteBatch};
use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{AbstractTree, AnyTree, Cache, CompressionType, Config, Guard, SeqNo, SequenceNumberCounter};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Runs in level 0 at which they are merged into level 1.
const YOUNG_RUNS: u8 = 4;
/// Tables that a compaction below level 0 takes, about.
const DEEP_TABLES: u64 = 8;

/// How the tree on disk is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsmConfig {
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Bytes of one table.
    pub table_bytes: u64,
    /// Whether blocks below level 0 are compressed (lz4).
    pub compress: bool,
}

/// The tree on disk.
pub struct LsmTree {
    tree: lsm_tree::Tree,
    cache: Arc<Cache>,
    config: LsmConfig,
    /// Shared with the engine, which numbers its own changes from it.
    next: SequenceNumberCounter,
    pins: Pins,
    failed: OnceLock<TreeError>,
    unsealed: AtomicU64,
    sealed: AtomicU64,
}

impl LsmTree {
    /// Opens or creates the tree in the directory `path` of the host.
    pub fn open(path: &Path, config: LsmConfig) -> Result<LsmTree, TreeError> {
        let next = SequenceNumberCounter::default();
        let cache = Arc::new(Cache::with_capacity_bytes(config.cache_bytes));
        let compression = match config.compress {
            true => CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]),
            false => CompressionPolicy::disabled(),
        };
        // What the engine thinks visible is of no concern: it would show a batch that is being written.
        let opened = Config::new(path, next.clone(), SequenceNumberCounter::default())
            .use_cache(cache.clone())
            .data_block_compression_policy(compression)
            .open()
            .map_err(error)?;
        let AnyTree::Standard(tree) = opened else {
            return Err(TreeError("the tree on disk is of another kind".to_owned()));
        };
        // The engine reads *below* a number; with 1 the empty tree can be read.
        next.set(tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1));
        let pins = Pins::new(next.get() - 1);
        let (unsealed, sealed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(LsmTree { tree, cache, config, next, pins, failed: OnceLock::new(), unsealed, sealed })
    }

    fn check(&self) -> Result<(), TreeError> {
        self.failed.get().map_or(Ok(()), |failed| Err(failed.clone()))
    }

    /// Remembers a failure for good.
    fn fail<T>(&self, result: lsm_tree::Result<T>) -> Result<T, TreeError> {
        result.map_err(|e| self.failed.get_or_init(|| error(e)).clone())
    }

    fn engine_watermark(&self) -> SeqNo {
        self.pins.watermark() + 1
    }
}

impl Tree for LsmTree {
    fn get_at(&self, key: &[u8], at: Sequence) -> Result<Option<Bytes>, TreeError> {
        Ok(self.tree.get(key, at + 1).map_err(error)?.map(Bytes::from))
    }

    fn range_at(&self, from: &[u8], to: &[u8], at: Sequence, direction: Direction) -> Rows<'static> {
        let rows = self.tree.range(from..to, at + 1, None);
        match direction {
            Direction::Up => Box::new(rows.map(row)),
            Direction::Down => Box::new(rows.rev().map(row)),
        }
    }

    fn write(&self, batch: WriteBatch) -> Result<Sequence, TreeError> {
        self.check()?;
        let at = self.next.next();
        let mut bytes = 0;
        for (key, value) in batch.rows {
            let (item, _) = match value {
                Some(value) => self.tree.insert(key, value, at),
                None => self.tree.remove(key, at),
            };
            bytes += item;
        }
        self.unsealed.fetch_add(bytes, Ordering::Relaxed);
        Ok(at)
    }

    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn unsealed_bytes(&self) -> u64 {
        self.unsealed.load(Ordering::Relaxed)
    }

    fn seal(&self) {
        if self.tree.rotate_memtable().is_some() {
            self.sealed.fetch_add(self.unsealed.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn flush(&self) -> Result<(), TreeError> {
        self.check()?;
        let lock = self.tree.get_flush_lock();
        let sealed = self.sealed.load(Ordering::Relaxed);
        self.fail(self.tree.flush(&lock, self.engine_watermark()))?;
        self.sealed.fetch_sub(sealed, Ordering::Relaxed);
        Ok(())
    }

    fn flush_bytes(&self) -> u64 {
        self.unsealed_bytes() + self.sealed.load(Ordering::Relaxed)
    }

    fn compact(&self) -> Result<bool, TreeError> {
        self.check()?;
        let before = self.tree.current_version().id();
        let strategy = Leveled::default().with_l0_threshold(YOUNG_RUNS).with_table_target_size(self.config.table_bytes);
        match self.tree.compact(Arc::new(strategy), self.engine_watermark()) {
            // Nothing was replaced: the engine swaps tables in one step, the last. Tried again when there is room.
            Err(lsm_tree::Error::Io(e)) if e.kind() == io::ErrorKind::StorageFull => {
                tracing::warn!(error = %e, "a compaction found no space");
                return Ok(false);
            }
            result => drop(self.fail(result)?),
        }
        Ok(self.tree.current_version().id() != before)
    }

    fn compact_bytes(&self) -> u64 {
        let version = self.tree.current_version();
        let young: u64 = version.iter_levels().take(2).map(|level| level.size()).sum();
        // Deeper down a compaction takes a table of one level and those it overlaps of the next.
        young.max(DEEP_TABLES * self.config.table_bytes).min(self.tree.disk_space())
    }

    fn empty_cache(&self) {
        super::evict::empty(&self.cache);
    }

    fn failure(&self) -> Option<TreeError> {
        self.failed.get().cloned()
    }

    fn stats(&self) -> TreeStats {
        let blocks = self.tree.metrics();
        TreeStats {
            cache_hits: blocks.block_load_cached_count() as u64,
            cache_misses: blocks.block_load_io_count() as u64,
            unflushed_bytes: self.flush_bytes(),
            young_runs: self.tree.l0_run_count(),
            disk_bytes: self.tree.disk_space(),
            cache_bytes: self.cache.size(),
        }
    }
}

fn row(item: impl Guard) -> Result<Row, TreeError> {
    let (key, value) = item.into_inner().map_err(error)?;
    Ok((key.into(), value.into()))
}

fn error(e: lsm_tree::Error) -> TreeError {
    TreeError(format!("{e:?}"))
}
