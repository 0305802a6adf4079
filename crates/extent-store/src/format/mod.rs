//! The bytes on a disk: version 1. All numbers little-endian, all CRCs CRC-32C (Castagnoli), unused bytes zero.
//!
//! ```text
//! a disk            identity                              whose disk this is
//!                   extents/<2 hex>/<group>.<generation>  group files; 16 and 8 hex digits
//!                   fences/<group>.<generation>.<length>  empty files: the name is the fence and its answer (16, 8, 16)
//!                   quarantine/<group>.<generation>.<ms>  set-aside group files, each with a `.reason`
//!                   tmp/                                  what never got its name; emptied at start
//!
//! a group file      4 KiB file header, then frames, each beginning and ending on a 4 KiB boundary
//! a frame           4 KiB frame header, then 1 B to 1 MiB of payload, then zeros up to the boundary
//! ```
//!
//! No block is ever written twice. A block of zeros where a frame header could stand is a hole: never written, or punched.
//! Promises: encoding is a function of the values, decoding never panics and accepts only what encoding gives.
//! Refuses to know: files, disks, what is done with a bad block.

mod field;
mod file_header;
mod frame_header;
mod identity;

pub use file_header::{FileHeader, FileKind};
pub use frame_header::{FrameAddress, FrameHeader, FrameOrigin, HeaderView, SliceCrcs};
pub(crate) use frame_header::{covering, encode as encode_header};
pub use identity::IdentityRecord;

use crate::limits::HEADER_BYTES;

/// Why a block is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Nothing but zeros: a hole, never written or punched.
    #[error("nothing but zeros")]
    Hole,
    /// Fewer bytes than the record has.
    #[error("cut short")]
    Short,
    /// Does not begin with the magic of its kind.
    #[error("foreign magic")]
    Magic,
    /// A version this program does not read.
    #[error("unknown version {0}")]
    Version(u32),
    /// Its CRC does not match its bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// The CRC matches but a field has no meaning.
    #[error("impossible {0}")]
    Field(&'static str),
}

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Bytes of the frame around a payload of `payload_bytes`, padding included.
pub fn frame_bytes(payload_bytes: u32) -> u64 {
    (HEADER_BYTES as u64 + u64::from(payload_bytes)).next_multiple_of(HEADER_BYTES as u64)
}

/// Whether `block` is all zeros.
pub fn is_zero(block: &[u8]) -> bool {
    // By words where the alignment allows: this runs over whole holes when a file is scanned.
    block.chunks(64).all(|chunk| chunk.iter().fold(0, |or, byte| or | byte) == 0)
}
