//! Time.

use std::time::Duration;

/// A source of time. Wall time serves signatures, logs and stamps; durations are measured on the monotonic clock.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> u64;
    /// Time since some fixed moment; never goes backwards and counts suspension.
    fn monotonic(&self) -> Duration;
}
