//! The limits of the controller by name, with their arithmetic. Those of S3 itself are in `types::limits`.

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
/// Space that stays free on a disk beside what a new group may take, for the log, deletes and repair (rule R67).
pub(crate) const DISK_RESERVE_BYTES: u64 = 64 << 20;
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
