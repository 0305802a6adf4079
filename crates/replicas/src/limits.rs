//! Every limit of this crate by name, with its arithmetic.

use std::time::Duration;

/// The service of disks.
pub const DISKS: rpc::Service = rpc::Service(3);
/// An append, a fence or a creation without an answer for so long ends the group, or is not waited for by its seal (protocols.md 1).
pub const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// A read without an answer for so long is looked for elsewhere.
pub const READ_PATIENCE: Duration = Duration::from_secs(5);
/// A page of a walk, a copy's end, a punch: up to 64 MiB of a slow disk.
pub const WORK_PATIENCE: Duration = Duration::from_secs(30);
/// How long a node that was last silent is waited for.
pub const SILENT_PATIENCE: Duration = Duration::from_secs(1);
/// What is known of a disk is asked for again after so long.
pub const STATUS_AGE: Duration = Duration::from_secs(5);
/// How long a frame that came too early waits for those before it: less than its sender waits.
pub const EARLY_PATIENCE: Duration = Duration::from_secs(2);
/// Frames of one file that wait for those before them: what a writer has under way at most, 4 uploads of 4 extents each and room.
pub const EARLY_FRAMES: usize = 64;
/// Bytes of frames that came too early, all files of a node together.
pub const EARLY_BYTES: usize = 128 << 20;
/// Files of other nodes' open groups on one node; each is a few hundred bytes here.
pub const OPEN_FILES: usize = 16 << 10;
/// Beyond so many, those whose group was fenced by somebody here are forgotten.
pub const OPEN_FILES_SWEPT: usize = 1024;
/// Appends to one node that are not answered yet: at 1 MiB each, 512 MiB at the most, far above what the writers' buffers allow.
pub const APPENDS_UNDER_WAY: usize = 512;
/// Copies that other nodes are writing here at once.
pub const COPIES: usize = 16;
/// A copy of which nothing was heard for so long is given up.
pub const COPY_IDLE: Duration = Duration::from_secs(60);
/// Ranges of one punch on the wire: 64 KiB.
pub const PUNCH_RANGES: usize = 4096;
/// Bytes of the items of a walk's page on the wire.
pub const LIST_BYTES: usize = 512 << 10;
/// Files of one page on the wire: 100 KiB.
pub const LIST_FILES: usize = 4096;
/// Set-aside files of one page on the wire: at most 150 KiB.
pub const LIST_QUARANTINED: usize = 128;
/// Bytes of the reason beside a set-aside file.
pub const REASON_MAX_BYTES: usize = extent_store::limits::REASON_MAX_BYTES;
/// Bytes of the name of a set-aside file: 16, 8 and up to 20 digits and two dots, and room.
pub const NAME_MAX_BYTES: usize = 64;
/// Bytes of an error's words.
pub const ERROR_TEXT_BYTES: usize = 512;
/// Of 100 reads of other nodes, so many may be asked for twice (rule R71).
pub const HEDGE_PERCENT: u32 = 3;
/// Second questions that may be saved up.
pub const HEDGE_BURST: u32 = 8;
/// No second question earlier than this.
pub const HEDGE_LEAST: Duration = Duration::from_millis(2);
/// Until so many reads were measured, a second question waits for [`HEDGE_UNKNOWN`].
pub const HEDGE_SAMPLES: u32 = 20;
/// How long a first read of unknown speed is waited for.
pub const HEDGE_UNKNOWN: Duration = Duration::from_millis(100);
