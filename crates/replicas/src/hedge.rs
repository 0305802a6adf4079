//! When a second replica is asked while the first has not answered yet (rule R71): after what 95 of 100 reads took, and never for
//! more than a few of a hundred reads.
//!
//! Promises: a function of what it was told; no clock. Refuses to know: replicas, reads, networks.

use crate::limits;
use std::time::Duration;

/// Buckets of a latency: each is a quarter wider than the one before, from 0.1 ms on; the last begins at about 2 min.
const BUCKETS: usize = 64;
const FIRST_BUCKET_MICROS: f64 = 100.0;
const GROWTH: f64 = 1.25;
/// Counts are halved when there are so many, so that the past fades.
const REMEMBERED: u32 = 1024;

/// Latencies of one source, and the budget of second questions.
#[derive(Clone, Debug)]
pub struct Hedge {
    counts: [u32; BUCKETS],
    total: u32,
    /// In hundredths of a question.
    budget: u32,
}

impl Default for Hedge {
    fn default() -> Hedge {
        Hedge { counts: [0; BUCKETS], total: 0, budget: 100 }
    }
}

impl Hedge {
    /// A read that was asked for once took so long; it earns a part of a second question.
    pub fn record(&mut self, took: Duration) {
        self.counts[bucket(took)] += 1;
        self.total += 1;
        self.budget = (self.budget + limits::HEDGE_PERCENT).min(100 * limits::HEDGE_BURST);
        if self.total >= REMEMBERED {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// How long the first is waited for.
    pub fn delay(&self) -> Duration {
        if self.total < limits::HEDGE_SAMPLES {
            return limits::HEDGE_UNKNOWN;
        }
        let mut above = self.total / 20;
        for (index, count) in self.counts.iter().enumerate().rev() {
            if *count > above {
                return upper_end(index).max(limits::HEDGE_LEAST);
            }
            above -= count;
        }
        limits::HEDGE_UNKNOWN
    }

    /// Takes one second question from the budget, if there is one.
    pub fn take(&mut self) -> bool {
        let has = self.budget >= 100;
        if has {
            self.budget -= 100;
        }
        has
    }
}

fn bucket(took: Duration) -> usize {
    let micros = took.as_secs_f64() * 1e6;
    if micros <= FIRST_BUCKET_MICROS {
        return 0;
    }
    let index = ((micros / FIRST_BUCKET_MICROS).ln() / GROWTH.ln()).ceil();
    (index as usize).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> Duration {
    Duration::from_secs_f64(FIRST_BUCKET_MICROS * GROWTH.powi(bucket as i32) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::Hedge;
    use crate::limits;
    use std::time::Duration;

    #[test]
    fn the_second_question_waits_for_what_ninety_five_of_a_hundred_took() {
        let mut hedge = Hedge::default();
        assert_eq!(hedge.delay(), limits::HEDGE_UNKNOWN);
        for index in 0..1000 {
            hedge.record(Duration::from_millis(if index % 25 == 0 { 400 } else { 10 }));
        }
        let delay = hedge.delay();
        assert!((Duration::from_millis(10)..Duration::from_millis(13)).contains(&delay), "{delay:?}");
        for index in 0..1000 {
            hedge.record(Duration::from_millis(if index % 10 == 0 { 400 } else { 10 }));
        }
        assert!(hedge.delay() > Duration::from_millis(300), "one of ten is within the ninety-five");
    }

    #[test]
    fn at_most_three_of_a_hundred_reads_are_asked_for_twice() {
        let mut hedge = Hedge::default();
        let mut hedged = 0;
        for _ in 0..10_000 {
            hedge.record(Duration::from_millis(1));
            hedged += u32::from(hedge.take());
        }
        assert!((290..=302).contains(&hedged), "{hedged}");
        let burst = (0..100).filter(|_| hedge.take()).count();
        assert!(burst <= limits::HEDGE_BURST as usize, "{burst}");
    }
}
