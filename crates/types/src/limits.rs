//! Every limit of the product by name, with its arithmetic.

/// Bytes of one extent, the unit of replication and repair (architecture.md 2).
pub const EXTENT_BYTES: usize = 1 << 20;
/// Bytes of one slice, the unit of verified read; 16 slices make an extent.
pub const SLICE_BYTES: usize = 64 << 10;
/// Slices of a full extent.
pub const SLICES_PER_EXTENT: usize = EXTENT_BYTES / SLICE_BYTES;
/// Every frame starts and ends on this boundary; also what O_DIRECT asks for.
pub const BLOCK_BYTES: usize = 4096;
/// Default length of an extent group file.
pub const GROUP_BYTES: u64 = 64 << 20;
/// Bytes of an extent group preallocated ahead of its tail.
pub const GROUP_PREALLOCATE_BYTES: u64 = 8 << 20;
/// Objects up to this size ride in the metadata record: one commit, one sync.
pub const INLINE_BYTES: usize = 16 << 10;
/// A single PUT, a part, a content: 5 GiB, as AWS.
pub const CONTENT_MAX_BYTES: u64 = 5 << 30;
/// Largest source of CopyObject: 5 GiB, as AWS.
pub const COPY_MAX_BYTES: u64 = 5 << 30;
/// Smallest part of a multipart upload but the last: 5 MiB, as AWS.
pub const PART_MIN_BYTES: u64 = 5 << 20;
/// Parts are numbered 1 to 10,000, as AWS.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Bytes of an object key in UTF-8, as AWS.
pub const KEY_MAX_BYTES: usize = 1024;
/// Bytes of all user metadata (names without prefix, and values), as AWS.
pub const USER_METADATA_MAX_BYTES: usize = 2048;
/// Keys of one page of a listing, as AWS.
pub const LIST_MAX_KEYS: u32 = 1000;
/// Keys of one DeleteObjects, as AWS.
pub const DELETE_OBJECTS_MAX: usize = 1000;
/// Tags of one object, as AWS.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Tags of one bucket, as AWS.
pub const BUCKET_TAGS_MAX: usize = 50;
/// Bytes of one `body` or manifest row: 5 GiB are 5,120 extents of at most 40 bytes each, in runs far less.
pub const BODY_ROW_MAX_BYTES: usize = 256 << 10;
/// Bytes of one Raft entry.
pub const ENTRY_MAX_BYTES: usize = 1 << 20;
/// A mutation not applied this long after its request ended never is (promise P5).
pub const DEADLINE_MS: u64 = 60_000;
