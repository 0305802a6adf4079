//! Limits of the log, the tree and the driver, with their arithmetic.

use std::time::Duration;

/// Proposals accepted and not answered. At 1 KiB each, 4 MiB; at 16 KiB of inline body, what `IN_FLIGHT_BYTES` allows.
pub const IN_FLIGHT_PROPOSALS: usize = 4096;
/// Bytes of encoded entries accepted and not answered.
pub const IN_FLIGHT_BYTES: usize = 32 << 20;
/// Messages that are not proposals (flushes done, marks, closing) find room in the driver's queue even if those fill it.
pub const DRIVER_QUEUE: usize = IN_FLIGHT_PROPOSALS + 64;
/// Proposals gathered into one append.
pub const BATCH_PROPOSALS: usize = 1024;
/// Bytes of entries gathered into one append, above which the rest waits for the next: 2 MiB are about 1 ms of device time.
pub const BATCH_BYTES: usize = 2 << 20;
/// Writers up to which the log never waits for more of them: among so few a wait costs more than the sync it saves.
pub const GATHER_FEW: usize = 16;
/// How long the log waits for the rest of a crowd of writers: a few syncs. Of 64 writers on two cores about 9 come in a
/// millisecond, and this makes 13 of the 9 that one append would take.
pub const GATHER_AT_MOST: Duration = Duration::from_micros(500);
/// Bytes an entry may take in the log beside the encoded command: stamp, Raft's fields.
pub const ENTRY_ENVELOPE_BYTES: usize = 64;
/// A tree that holds this many times its memtable limit in memory makes proposals be answered "busy".
pub const UNFLUSHED_MEMTABLES: u64 = 3;
/// Runs in level 0 at which proposals are answered "busy" until a compaction has caught up.
pub const YOUNG_RUNS_MAX: usize = 20;
/// A log that holds this many times the size at which a flush is forced makes proposals be answered "busy".
pub const LOG_OVERRUN: u64 = 2;
/// Segments that a log may at least have before a flush is forced: a flush frees all but the one or two being written.
pub const LOG_SEGMENTS_MIN: u64 = 3;
/// Rows that apply keeps in memory: of each shard its state, its fences and the buckets in use; 1,024 of 100 bytes are 100 KiB.
pub(crate) const KEPT_ROWS: usize = 1024;
/// Free bytes that a flush wants beside twice what it writes; with less it waits, for a flush that fails ends the tree.
pub const FLUSH_SPARE_BYTES: u64 = 1 << 20;
/// How far the wall clock may be behind the newest stamp before it is said.
pub(crate) const CLOCK_BEHIND_MS: u64 = 60_000;
/// Bytes that a metadata disk keeps free from what grows, in memtables: twice all that may be unflushed, and the input of a
/// compaction of level 0 (four runs) with level 1 (four tables).
pub const RESERVE_MEMTABLES: u64 = 2 * UNFLUSHED_MEMTABLES + 8;
/// And in segments of the log: those of an overrun while a flush is under way, and two spares.
pub const RESERVE_SEGMENTS: u64 = 6;
/// Free bytes beyond the reserve with which a metadata disk is far from full.
pub(crate) const SPACE_FAR_BYTES: u64 = 1 << 30;
/// For so long such a disk is not asked again: who would write those bytes meanwhile would have to write 10 GB a second, and more
/// than the reserve's slack is never in flight (`IN_FLIGHT_BYTES`).
pub(crate) const SPACE_FAR_FOR: Duration = Duration::from_millis(100);
/// Flushes that a start waits for while the log is too long: one does it, unless it waited for another that was under way.
pub(crate) const CATCH_UP_FLUSHES: usize = 4;
