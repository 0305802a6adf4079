//! How a link of the simulated network behaves.
//!
//! Promises: plain numbers. Refuses to know: which link it is.

use std::time::Duration;

/// One direction between two nodes. Chances are in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// A message takes at least so long,
    pub least_delay: Duration,
    /// and mostly no longer than this,
    pub most_delay: Duration,
    /// except for some, that take up to `slow_delay`.
    pub slow_ppm: u32,
    /// See `slow_ppm`.
    pub slow_delay: Duration,
    /// Messages, calls and answers that are lost.
    pub lost_ppm: u32,
    /// Messages without answer that arrive twice.
    pub doubled_ppm: u32,
    /// Messages without answer that those behind them may overtake.
    pub overtaken_ppm: u32,
}

impl Faults {
    /// A quiet network in one room: short delays, nothing else.
    pub const NONE: Faults = Faults {
        least_delay: Duration::from_micros(50),
        most_delay: Duration::from_micros(500),
        slow_ppm: 0,
        slow_delay: Duration::ZERO,
        lost_ppm: 0,
        doubled_ppm: 0,
        overtaken_ppm: 0,
    };

    /// A bad day: one in a hundred is lost, one in twenty doubled or overtaken, some are slower than any timer is patient.
    pub const ROUGH: Faults = Faults {
        least_delay: Duration::from_micros(50),
        most_delay: Duration::from_millis(5),
        slow_ppm: 10_000,
        slow_delay: Duration::from_secs(3),
        lost_ppm: 10_000,
        doubled_ppm: 50_000,
        overtaken_ppm: 50_000,
    };
}
