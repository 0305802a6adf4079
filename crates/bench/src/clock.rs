//! The two questions this crate asks of time, answered by `env`'s system clock.
//!
//! Promises: durations come from the monotonic clock. Refuses to know: simulated time; a benchmark measures the real one.

use std::time::Duration;

use env::clock::{Clock, SystemClock};

/// Time since some fixed moment; only differences mean anything.
pub(crate) fn monotonic() -> Duration {
    SystemClock.monotonic()
}

/// Milliseconds since the Unix epoch, for signatures and default seeds.
pub(crate) fn wall_ms() -> u64 {
    SystemClock.wall_ms()
}
