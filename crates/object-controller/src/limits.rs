//! The limits of the controller by name, with their arithmetic. Those of S3 itself are in `types::limits`.

use std::time::Duration;

/// Extents of one upload on their way to the disks at once. Four of 1 MiB keep two disks busy while one is being filled.
pub(crate) const UPLOAD_WINDOW_EXTENTS: usize = 4;
/// Extents one reader has asked for ahead of what it sends.
pub(crate) const READ_AHEAD_EXTENTS: usize = 2;
/// Bytes of the first read of a body: one slice is verified and sent while the rest is still being read.
pub(crate) const FIRST_READ_BYTES: u64 = types::limits::SLICE_BYTES as u64;
/// How often one extent is written anew before its upload is refused: each time at least one group, hence one disk, failed.
pub(crate) const EXTENT_ATTEMPTS: usize = 6;
/// How often a copy begins again because its source was reclaimed under it.
pub(crate) const COPY_ATTEMPTS: usize = 8;
/// How often a proposal is repeated with what the directory says now ("refetch", "moved").
pub(crate) const REFETCH_ATTEMPTS: usize = 4;
/// A group with more bytes than this not yet durable asks for company: the next extent opens another group.
pub(crate) const GROUP_BUSY_BYTES: u64 = 8 << 20;
/// Space that stays free on a disk beside the metadata's reserve, for repair, fences and the steps in which open groups grow
/// (rule R67): a 64th of the disk within these bounds.
pub(crate) const DISK_RESERVE_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=64 << 20;
/// A new group asks for so many steps of growth above the reserve, so that a full disk does not get a trail of tiny groups.
pub(crate) const GROUP_ROOM_STEPS: u64 = 2;
/// Below so many steps above the reserve, or a tenth of the disk, condemned contents are reclaimed without delay.
pub(crate) const SHORT_OF_SPACE_STEPS: u64 = 4;
/// Shortest copied range that is taken by reference; below it the bytes are copied (protocols.md 3).
pub(crate) const COPY_RANGE_MIN_BYTES: u64 = types::limits::PART_MIN_BYTES;
/// Encoded bytes of a copy's entry above which the bytes are copied instead: half of an entry's limit.
pub(crate) const COPY_ENTRY_MAX_BYTES: usize = types::limits::ENTRY_MAX_BYTES / 2;
/// Findings kept for the curator; more are counted and dropped, as scrub finds them again.
pub(crate) const FINDINGS_MAX: usize = 4096;
/// Background stories (abandons, seals, opens) queued to be polled at once. One of each per upload and group, hence far fewer.
pub(crate) const BACKGROUND_QUEUE: usize = 1 << 16;
/// Uploads ended by one entry while a bucket is being deleted.
pub(crate) const ABORT_UPLOADS_BATCH: u32 = 64;
/// Largest single buffer: one extent and its frame's header block.
pub(crate) const FRAME_MAX_BYTES: usize = types::limits::EXTENT_BYTES + types::limits::BLOCK_BYTES;
/// Copies of bytes at once; each holds at most one buffer of the readers' budget while it waits for one of the writers'.
pub(crate) const PHYSICAL_COPIES: usize = 4;
/// A replica is slow when it answers so many times later than the first replica usually does, and later than it by
/// [`SLOW_REPLICA`] (protocols.md 1).
pub(crate) const SLOW_FACTOR: u32 = 10;
/// Bounds of that wait: a hiccup of a disk is shorter, a client's patience longer.
pub(crate) const SLOW_REPLICA: std::ops::RangeInclusive<std::time::Duration> =
    std::time::Duration::from_millis(250)..=std::time::Duration::from_secs(1);
/// A slow disk gets no new groups for so long, if there are others.
pub(crate) const SLOW_AVOIDED: std::time::Duration = std::time::Duration::from_secs(30);
/// A replica that does not answer the fence for so long is not waited for by the seal (protocols.md 1).
pub(crate) const FENCE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// A read older than this does not keep contents from being reclaimed: 5 TiB at 250 MB/s take as long.
pub(crate) const PIN_MAX_AGE: Duration = Duration::from_secs(6 * 3600);
/// How long a proposal looks for the shard's leader: an election takes one to two seconds, and writes shall resume within 3 s.
pub(crate) const LEADER_WAIT: Duration = Duration::from_millis(2500);
/// How often it looks.
pub(crate) const LEADER_POLL: Duration = Duration::from_millis(25);
/// How long a leader waits for a majority before the outcome is called unknown: a side without one answers within 2 s (P6).
pub(crate) const PROPOSE_TIMEOUT: Duration = Duration::from_millis(1800);
/// How much longer the asking node waits than the answering one.
pub(crate) const CALL_MARGIN: Duration = Duration::from_millis(200);
/// How long a barrier may take, leaders that change included (P6).
pub(crate) const BARRIER_TIMEOUT: Duration = Duration::from_millis(1900);
/// How long a question that a healthy node answers at once may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_millis(1000);
/// How long buckets and accounts are answered from memory after a barrier; a background task takes it anew well before.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// A change of a bucket that another node began takes no longer than this, unless that node is gone.
pub(crate) const BUCKET_CHANGE_MAX: Duration = Duration::from_secs(15);
/// How much one monotonic clock may be slower than another over a lease.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// A gateway whose first question without an answer is so long ago is not waited for any more by whoever reclaims (protocols.md 5).
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);
/// And that left so many unanswered, one after the other: a single lost message says nothing.
pub(crate) const SILENCE_QUESTIONS: u32 = 3;
