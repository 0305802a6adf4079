//! Latencies in bounded memory.
//!
//! Promises: a quantile is within 1/64 of the true value; a histogram takes the same memory for ten and for a billion
//! values. Refuses to know: what was timed.

use std::time::Duration;

use serde::Serialize;

/// Linear steps in each power of two: the relative error is at most 1/64.
const STEPS: u64 = 64;
/// Powers of two of nanoseconds above the first `STEPS` values; 2^42 ns is more than an hour.
const POWERS: u64 = 36;

/// Counts of durations by logarithmic bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; ((POWERS + 1) * STEPS) as usize], total: 0, max_ns: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2()) - u64::from(STEPS.ilog2());
    let step = (ns >> power) - STEPS;
    (((power + 1).min(POWERS)) * STEPS + step) as usize
}

/// The largest value of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { ((STEPS + step + 1) << (power - 1)) - 1 }
}

impl Histogram {
    /// Adds one value.
    pub fn record(&mut self, value: Duration) {
        let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns.min(1 << 41))] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many values were added.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The value that `quantile` (0 to 1) of all values do not exceed; zero when empty.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = ((self.total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return Duration::from_nanos(upper_ns(index).min(self.max_ns));
            }
        }
        Duration::ZERO
    }

    /// The usual five numbers.
    pub fn summary(&self) -> Quantiles {
        let ms = |q| self.quantile(q).as_secs_f64() * 1e3;
        Quantiles {
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p95_ms: ms(0.95),
            p99_ms: ms(0.99),
            max_ms: self.max_ns as f64 / 1e6,
        }
    }
}

/// Quantiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Half of all values are at most this.
    pub p50_ms: f64,
    /// Nine in ten.
    pub p90_ms: f64,
    /// Nineteen in twenty.
    pub p95_ms: f64,
    /// Ninety-nine in a hundred.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::{Histogram, bucket, upper_ns};
    use std::time::Duration;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_at_most_one_64th_wide() {
        for ns in (0..200).chain([1_000, 65_535, 65_536, 1_000_003, 1 << 40]) {
            let upper = upper_ns(bucket(ns));
            assert!(upper >= ns && upper - ns <= ns / 64, "{ns} in a bucket up to {upper}");
        }
    }

    #[test]
    fn quantiles_of_one_to_a_thousand_are_near_their_rank() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let p99 = histogram.quantile(0.99).as_secs_f64() * 1e6;
        assert!((990.0..=1006.0).contains(&p99), "{p99}");
        assert_eq!(histogram.summary().max_ms, 1.0);
    }

    #[test]
    fn merging_adds_the_counts() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(Duration::from_millis(1));
        b.record(Duration::from_millis(9));
        a.merge(&b);
        assert_eq!((a.count(), a.summary().max_ms), (2, 9.0));
    }
}
