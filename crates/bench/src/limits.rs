//! Named limits with their arithmetic.
//!
//! Promises: every bound of this crate stands here. Refuses to know: the server's limits.

use std::time::Duration;

/// Bytes of a response head we accept: S3 answers stay below 8 KiB, user metadata is at most 2 KiB of it.
pub const RESPONSE_HEAD_MAX_BYTES: usize = 64 << 10;

/// Read buffer of a connection: two extent slices, so that a large body costs few system calls.
pub const READ_BUFFER_BYTES: usize = 256 << 10;

/// Bytes of an error body kept for the report.
pub const ERROR_BODY_KEPT_BYTES: usize = 4 << 10;

/// A request without an answer for so long has failed: above the server's own 60 s deadline.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(75);

/// A run with so many errors stops: the figures mean nothing any more.
pub const ERRORS_BEFORE_STOP: u64 = 50;

/// Error texts kept for the report.
pub const ERROR_SAMPLES: usize = 5;

/// A spawned server must be ready within this time: recovery after kill -9 is promised "in seconds".
pub const SERVER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The audit may first have to settle and reclaim what a crash left; it is asked again until this time has passed.
pub const AUDIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Body kept by the bare server: the small object of the comparison, with room.
pub const FLOOR_BODY_BYTES: usize = 64 << 10;
