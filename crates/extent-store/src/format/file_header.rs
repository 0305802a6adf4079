//! The first block of a group file.
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic "ASHLARGF"
//!      8      4  version (1)
//!     12      4  kind: 1 appended to, 2 copy
//!     16      8  cluster id
//!     24      8  disk id
//!     32      8  group id
//!     40      4  file generation
//!     44      4  zero
//!     48      8  sealed length of the group (copies; 0 while appended to)
//!     56   4036  zero
//!   4092      4  CRC-32C of bytes 0 to 4091
//! ```

use types::{ClusterId, DiskId, GroupId};

use super::FormatError;
use super::field::{check, close, put, put_u32, put_u64, u32_at, u64_at};
use crate::limits::HEADER_BYTES;

const MAGIC: &[u8; 8] = b"ASHLARGF";
const VERSION: u32 = 1;

/// How a group file came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// By appends; what it holds is decided by fence and seal.
    Appended,
    /// Written whole from another replica, with holes where nothing lives.
    Copy,
}

/// What a group file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// How it came to be.
    pub kind: FileKind,
    /// Cluster.
    pub cluster: ClusterId,
    /// Disk it was created on.
    pub disk: DiskId,
    /// Group.
    pub group: GroupId,
    /// File generation.
    pub generation: u32,
    /// Sealed length of the group; 0 for an appended file.
    pub sealed_length: u64,
}

impl FileHeader {
    /// Fills `block`, which must be [`HEADER_BYTES`] long.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), HEADER_BYTES, "a header is one block");
        block.fill(0);
        put(block, 0, MAGIC);
        put_u32(block, 8, VERSION);
        put_u32(block, 12, if self.kind == FileKind::Appended { 1 } else { 2 });
        put_u64(block, 16, self.cluster.0);
        put_u64(block, 24, self.disk.0);
        put_u64(block, 32, self.group.0);
        put_u32(block, 40, self.generation);
        put_u64(block, 48, self.sealed_length);
        close(block);
    }

    /// Reads the first [`HEADER_BYTES`] of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, FormatError> {
        let block = bytes.get(..HEADER_BYTES).ok_or(FormatError::Short)?;
        check(block, MAGIC, VERSION)?;
        let kind = match u32_at(block, 12) {
            1 => FileKind::Appended,
            2 => FileKind::Copy,
            _ => return Err(FormatError::Field("kind of file")),
        };
        let header = FileHeader {
            kind,
            cluster: ClusterId(u64_at(block, 16)),
            disk: DiskId(u64_at(block, 24)),
            group: GroupId(u64_at(block, 32)),
            generation: u32_at(block, 40),
            sealed_length: u64_at(block, 48),
        };
        Ok(header)
    }
}
