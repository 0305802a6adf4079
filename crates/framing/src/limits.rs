//! Every limit of the framing by name.
//!
//! Promises: the machine in front of a parser holds no more than these allow.

/// Bytes of a request head: a presigned URL (2 KiB), 2 KiB of user metadata, cookies of proxies; AWS allows 8 KiB.
pub const HEAD_MAX_BYTES: usize = 32 << 10;
/// Hex digits of a chunk size: 2^64-1 has 16; more (leading zeros) are refused.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// Bytes of all trailers of a body: one checksum (at most 44 bytes) and a signature (64).
pub const TRAILERS_MAX_BYTES: usize = 4 << 10;
/// Empty lines before a request line (RFC 9112 2.2 lets a server skip some).
pub const EMPTY_LINES_MAX: u32 = 4;
