//! Fixed-position little-endian fields of a block.
//!
//! Promises: positions are compile-time constants of the callers, whose blocks are of fixed length; a field outside the
//! block is our own mistake and asserted. Refuses to know: what the fields mean.

use super::{FormatError, crc32c};

pub(super) fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(super) fn put_u16(block: &mut [u8], at: usize, value: u16) {
    put(block, at, &value.to_le_bytes());
}

pub(super) fn put_u32(block: &mut [u8], at: usize, value: u32) {
    put(block, at, &value.to_le_bytes());
}

pub(super) fn put_u64(block: &mut [u8], at: usize, value: u64) {
    put(block, at, &value.to_le_bytes());
}

fn array<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&block[at..at + N]);
    field
}

pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(block, at))
}

pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(block, at))
}

pub(super) fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(block, at))
}

/// Writes the CRC of everything before it into the last four bytes.
pub(super) fn close(block: &mut [u8]) {
    let end = block.len() - 4;
    let crc = crc32c(&block[..end]);
    put_u32(block, end, crc);
}

/// Checks magic, version and CRC of a block that [`close`] closed, in the order that gives the clearest message.
pub(super) fn check(block: &[u8], magic: &[u8; 8], version: u32) -> Result<(), FormatError> {
    if &block[..8] != magic {
        return Err(if super::is_zero(block) { FormatError::Hole } else { FormatError::Magic });
    }
    let end = block.len() - 4;
    if crc32c(&block[..end]) != u32_at(block, end) {
        return Err(FormatError::Checksum);
    }
    match u32_at(block, 8) {
        found if found == version => Ok(()),
        found => Err(FormatError::Version(found)),
    }
}
