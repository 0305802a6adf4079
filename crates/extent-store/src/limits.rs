//! Every limit of this crate by name, with its arithmetic.

use types::limits::{BLOCK_BYTES, EXTENT_BYTES, GROUP_PREALLOCATE_BYTES};

/// Bytes of the header in front of each payload, and of the header of a file.
pub const HEADER_BYTES: usize = BLOCK_BYTES;
/// Bytes of a full frame: header and 1 MiB.
pub const FRAME_MAX_BYTES: usize = HEADER_BYTES + EXTENT_BYTES;
/// Offset of the first frame of a group file: behind the file's header.
pub const FIRST_FRAME_OFFSET: u64 = HEADER_BYTES as u64;
/// A group file never grows beyond this, whatever an append asks: 64 groups of default size.
pub const FILE_MAX_BYTES: u64 = 4 << 30;
/// Appends and fences waiting for one disk's writer; at 1 MiB a frame the buffers' own budget is met long before.
pub const WRITER_QUEUE: usize = 4096;
/// Messages of one batch of the writer, hence appends that share one `fdatasync`.
pub const WRITER_BATCH: usize = 512;
/// Files kept open for reading on one disk; far below the usual 1,024 to 1 M descriptors of a process with 8 disks.
pub const OPEN_FILES: usize = 96;
/// Bytes reserved ahead of the tail of an open group.
pub const PREALLOCATE_BYTES: u64 = GROUP_PREALLOCATE_BYTES;
/// Bytes of the reason kept beside a quarantined file.
pub const REASON_MAX_BYTES: usize = 1024;
/// Bytes of the window a scan reads at once: two full frames, so that one always fits whole.
pub const SCAN_WINDOW_BYTES: usize = 2 * FRAME_MAX_BYTES;
/// Findings of one page of an asynchronous scan.
pub const SCAN_PAGE_ITEMS: usize = 1024;
/// Bytes one page of an asynchronous scan reads before it returns, so that a scan can be paced.
pub const SCAN_PAGE_BYTES: u64 = 8 << 20;
/// Bytes of whole frames that scrub, repair and moves of one disk hold at once: two, each in a buffer up to a quarter larger.
pub const FRAMES_BYTES: usize = 5 * FRAME_MAX_BYTES / 2;
