//! Time.
//!
//! Promises: one trait, the machine's clocks behind [`SystemClock`], a clock that moves only when told behind [`SimClock`].
//! Refuses to know: timers, deadlines, formats of dates.
#![allow(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// A source of time. Wall time serves signatures, logs and stamps; durations are measured on the monotonic clock.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> u64;
    /// Time since some fixed moment; never goes backwards and counts suspension.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        #[allow(clippy::disallowed_methods)] // This is the one door.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a valid timespec that the call only writes to. BOOTTIME, because leases and session ages
        // must count the time a laptop or a virtual machine was suspended.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
        assert_eq!(result, 0, "CLOCK_BOOTTIME exists since Linux 2.6.39");
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct SimClock {
    now: Mutex<SimTime>,
}

#[derive(Clone, Copy, Debug)]
struct SimTime {
    wall_ms: u64,
    monotonic: Duration,
}

impl SimClock {
    /// Wall time `wall_ms`, monotonic time zero.
    pub fn new(wall_ms: u64) -> SimClock {
        SimClock { now: Mutex::new(SimTime { wall_ms, monotonic: Duration::ZERO }) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.monotonic += by;
        // Derived from the monotonic sum's whole milliseconds, so that many small steps add up.
        let before_ms = (now.monotonic - by).as_millis();
        let passed_ms = u64::try_from(now.monotonic.as_millis() - before_ms).unwrap_or(u64::MAX);
        now.wall_ms = now.wall_ms.saturating_add(passed_ms);
    }

    /// Makes wall time jump, forwards or back; the monotonic clock does not move.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.now.lock().wall_ms = wall_ms;
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        self.now.lock().wall_ms
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, SimClock, SystemClock};
    use std::time::Duration;

    #[test]
    fn the_system_clock_is_past_2024_and_monotonic() {
        assert!(SystemClock.wall_ms() > 1_700_000_000_000);
        let first = SystemClock.monotonic();
        assert!(SystemClock.monotonic() >= first && first > Duration::ZERO);
    }

    #[test]
    fn a_simulated_clock_moves_only_when_told() {
        let clock = SimClock::new(1_000);
        for _ in 0..4 {
            clock.advance(Duration::from_micros(500));
        }
        assert_eq!((clock.wall_ms(), clock.monotonic()), (1_002, Duration::from_millis(2)));
        clock.set_wall_ms(5);
        assert_eq!((clock.wall_ms(), clock.monotonic()), (5, Duration::from_millis(2)));
    }
}
