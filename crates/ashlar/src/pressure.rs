//! Whether clients wait for the disks: syncs of data and log take much longer than they usually do.
//!
//! Every acknowledged write waits for syncs, and what else is done on the disks makes them slow; how long they take does not depend on
//! how large the objects are that clients write just now.
//!
//! Promises: two additions a sync. Refuses to know: who made them slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Below, nobody notices.
const LEAST_US: u64 = 5_000;
/// So many times the usual time is much.
const MUCH: u64 = 3;

/// Times of syncs.
#[derive(Default)]
pub struct Pressure {
    us: AtomicU64,
    syncs: AtomicU64,
    usual_us: AtomicU64,
}

impl Pressure {
    /// One sync took so long.
    pub fn synced(&self, took: Duration) {
        self.us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether those since it was last asked took much longer than usual. For one asker.
    pub fn is_high(&self) -> bool {
        let (us, syncs) = (self.us.swap(0, Ordering::Relaxed), self.syncs.swap(0, Ordering::Relaxed));
        let Some(mean) = us.checked_div(syncs) else { return false };
        let usual = match self.usual_us.load(Ordering::Relaxed) {
            0 => mean,
            usual => usual,
        };
        let high = mean > LEAST_US.max(usual * MUCH);
        // What stays slow becomes usual within some minutes.
        let drift = if high { usual / 128 + 1 } else { mean.saturating_sub(usual) / 32 };
        let less = usual.saturating_sub(mean) / 32;
        self.usual_us.store((usual + drift).saturating_sub(less).max(1), Ordering::Relaxed);
        high
    }
}

#[cfg(test)]
mod tests {
    use super::Pressure;
    use std::time::Duration;

    #[test]
    fn syncs_that_take_much_longer_than_usual_are_seen_and_become_usual_if_they_stay() {
        let pressure = Pressure::default();
        let second = |ms: u64| {
            (0..10).for_each(|_| pressure.synced(Duration::from_millis(ms)));
            pressure.is_high()
        };
        assert!(!(0..100).any(|_| second(2)));
        assert!(!second(4) && second(20), "twice is not much, ten times is");
        assert!(!pressure.is_high(), "without syncs nobody waits");
        let seconds = (0..1000).take_while(|_| second(20)).count();
        assert!((60..900).contains(&seconds), "{seconds}");
    }
}
