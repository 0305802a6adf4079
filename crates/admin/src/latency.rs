//! A histogram of durations that every request of every thread adds to, without a lock.
//!
//! Promises: what was added is in the next scrape; a scrape during additions may have a sum without its count, or the reverse,
//! for a moment. Refuses to know: what took so long.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bound of the first bucket.
const FIRST_US: u64 = 100;
/// Buckets with bounds, each twice the one before: 100 µs to about 13 s.
const BOUNDED: usize = 18;

/// The histogram. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Latency(Arc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    /// The last is unbounded.
    buckets: [AtomicU64; BOUNDED + 1],
    us: AtomicU64,
}

impl Latency {
    /// Something took so many microseconds.
    pub fn observe_us(&self, us: u64) {
        self.0.buckets[bucket(us)].fetch_add(1, Ordering::Relaxed);
        self.0.us.fetch_add(us, Ordering::Relaxed);
    }
}

/// The first bucket whose bound is not below.
fn bucket(us: u64) -> usize {
    // The bounds are FIRST_US times powers of two.
    let firsts = us.div_ceil(FIRST_US).max(1);
    ((u64::BITS - (firsts - 1).leading_zeros()) as usize).min(BOUNDED)
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let seconds = |us: u64| us as f64 / 1e6;
        let mut buckets = [(f64::INFINITY, 0); BOUNDED + 1];
        for (index, (bound, count)) in buckets.iter_mut().enumerate() {
            if index < BOUNDED {
                *bound = seconds(FIRST_US << index);
            }
            *count = self.0.buckets[index].load(Ordering::Relaxed);
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(self.0.us.load(Ordering::Relaxed)), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_whose_bound_is_not_below_it() {
        for us in
            (0..2000).chain([FIRST_US << 10, (FIRST_US << 10) + 1, FIRST_US << 17, (FIRST_US << 17) + 1, u64::MAX])
        {
            let expected = (0..BOUNDED).find(|i| us <= FIRST_US << i).unwrap_or(BOUNDED);
            assert_eq!(bucket(us), expected, "{us}");
        }
    }
}
