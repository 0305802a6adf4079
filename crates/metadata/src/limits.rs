//! Limits of the log, the tree and the driver, with their arithmetic.

use std::time::Duration;

/// Proposals accepted and not answered. At 1 KiB each, 4 MiB; at 16 KiB of inline body, what `IN_FLIGHT_BYTES` allows.
pub const IN_FLIGHT_PROPOSALS: usize = 4096;
/// Bytes of encoded entries accepted and not answered.
pub const IN_FLIGHT_BYTES: usize = 32 << 20;
/// Messages that are neither proposals nor from other nodes (flushes done, marks, closing) find room in the driver's queue even if
/// those fill it.
pub const DRIVER_QUEUE: usize = IN_FLIGHT_PROPOSALS + READS_IN_FLIGHT + RECEIVED_BATCHES + 64;
/// Reads that wait for their proof.
pub const READS_IN_FLIGHT: usize = 4096;
/// Reads that wait for this node to have applied what they need.
pub(crate) const APPLIED_WAITING: usize = 8192;
/// Batches of other nodes that wait for the driver; more are dropped, as a network may.
pub const RECEIVED_BATCHES: usize = 256;
/// What the owner of a clustered node calls [`crate::node::Metadata::tick`] in.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks without a leader after which a node asks to lead: at least so many,
pub const ELECTION_TICKS: usize = 10;
/// and less than so many, drawn anew for each election.
pub const ELECTION_TICKS_MAX: usize = 20;
/// Messages with entries under way to a member and not answered.
pub(crate) const IN_FLIGHT_MESSAGES: usize = 1024;
/// Bytes of entries in one message, about, if a segment of the log has room for four of them.
pub(crate) const MESSAGE_BYTES: u64 = 1 << 20;
/// Bytes of entries that are kept in memory after they were handed to apply, for members that are a moment behind, a shard.
pub(crate) const TAIL_BYTES: usize = 4 << 20;
/// Bytes of entries that one round of the driver reads back from the log for members that are further behind; they ask again.
pub(crate) const CATCH_UP_BYTES: u64 = 4 << 20;
/// Rounds of reads under way at once; who comes meanwhile waits for the next and shares it.
pub(crate) const READ_ROUNDS: usize = 4;
/// Entries that a learner may lack and become a voter all the same.
pub(crate) const CAUGHT_UP_ENTRIES: u64 = 1024;
/// Batches of entries that may wait for apply before entries of other nodes are dropped, to be sent again.
pub(crate) const APPLY_BEHIND: usize = 1024;
/// Groups that messages for unknown shards may bring about.
pub(crate) const GROUPS_MAX: usize = 4096;
/// Snapshots that a leader keeps open at once.
pub(crate) const SNAPSHOTS_SERVED: usize = 8;
/// Ticks after which a snapshot of which nothing is fetched is given up,
pub(crate) const SNAPSHOT_IDLE_TICKS: u32 = 50;
/// and after which it is whatever happens: an hour. It holds old rows in the tree.
pub(crate) const SNAPSHOT_TICKS: u32 = 36_000;
/// Bytes of rows in a chunk of a snapshot, about.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;
/// Chunks that may wait for apply before the next is fetched.
pub(crate) const CHUNKS_WAITING: usize = 16;
/// Ticks for which a chunk that could not be had is asked for again.
pub(crate) const CHUNK_TRIES: u32 = 30;
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
