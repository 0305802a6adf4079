//! The limits of shared hashing by name, with their arithmetic.

/// Lanes of the widest kernel: sixteen 32-bit words are one AVX-512 register or two of AVX2.
pub const LANES: usize = 16;
/// Up to so many bytes a stream hashes by itself: 75 µs, and most small objects never touch a lock.
pub const ALONE_BYTES: u64 = 64 << 10;
/// A stream with fewer bytes than this waits for more rather than start a batch: 16 KiB are 256 blocks, beside which taking
/// and giving back sixteen states (about 2 µs) does not count.
pub const EAGER_BYTES: usize = 16 << 10;
/// Bytes of each lane in one batch: sixteen lanes of 256 KiB keep a thread for about 0.7 ms, then it looks at its other tasks.
pub const BATCH_BYTES: usize = 256 << 10;
/// Bytes one stream may leave unhashed: what it finds to do at its end if no other stream did it on the way, 1.2 ms.
pub const BACKLOG_MAX_BYTES: usize = 1 << 20;
