//! How fast background copies go: a budget of bytes a second for the node, that shrinks while clients wait.
//!
//! Promises: the last readable copy of a group is never slowed down (rule R51); nothing is while the limits are lifted; the pace is
//! halved each second in which clients wait, down to a sixteenth, and comes back more slowly than it went. Refuses to know: what is copied.

use crate::limits;
use crate::plan::Task;
use env::Env;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// The budget of a node.
pub(crate) struct Pace {
    env: Env,
    state: Mutex<State>,
}

struct State {
    /// Until when what was taken already lasts.
    spent_until: Duration,
    /// Of [`FULL`].
    factor: u64,
    adjusted: Duration,
    boosted_until: Option<Duration>,
    copied: u64,
    /// Moments and what was copied until then.
    marks: VecDeque<(Duration, u64)>,
}

/// The whole pace.
const FULL: u64 = 1024;

impl Pace {
    pub(crate) fn new(env: Env) -> Pace {
        let (spent_until, adjusted) = (Duration::ZERO, Duration::ZERO);
        let state =
            State { spent_until, factor: FULL, adjusted, boosted_until: None, copied: 0, marks: VecDeque::new() };
        Pace { env, state: Mutex::new(state) }
    }

    fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }

    /// Waits until so many bytes may be read and written for that task.
    pub(crate) async fn take(&self, task_rate: Rate, bytes: u64) {
        let wait = self.reserve(task_rate, bytes);
        if !wait.is_zero() {
            self.env.timers.sleep(wait).await;
        }
    }

    fn reserve(&self, rate: Rate, bytes: u64) -> Duration {
        let now = self.now();
        let mut state = self.state.lock();
        state.copied += bytes;
        let Rate::Bytes(rate) = rate else { return Duration::ZERO };
        if state.boosted_until.is_some_and(|until| now < until) {
            return Duration::ZERO;
        }
        let rate = (rate * state.factor / FULL).max(1);
        state.spent_until = state.spent_until.max(now) + Duration::from_micros(bytes * 1_000_000 / rate);
        state.spent_until.saturating_sub(now + limits::PACE_BURST)
    }

    /// Once a second, whether clients wait.
    pub(crate) fn adjust(&self, pressed: impl FnOnce() -> bool) {
        let now = self.now();
        let mut state = self.state.lock();
        if now.saturating_sub(state.adjusted) < limits::PACE_ADJUST {
            return;
        }
        state.adjusted = now;
        state.factor = if pressed() { (state.factor / 2).max(FULL / 16) } else { (state.factor * 5 / 4 + 1).min(FULL) };
        let copied = state.copied;
        state.marks.push_back((now, copied));
        while state.marks.len() > limits::PACE_MARKS {
            state.marks.pop_front();
        }
    }

    pub(crate) fn boost(&self, time: Duration) {
        let until = self.now().saturating_add(time);
        self.state.lock().boosted_until = (!time.is_zero()).then_some(until);
    }

    pub(crate) fn is_boosted(&self) -> bool {
        self.boost_left().is_some()
    }

    pub(crate) fn boost_left(&self) -> Option<Duration> {
        let now = self.now();
        self.state.lock().boosted_until.filter(|until| now < *until).map(|until| until - now)
    }

    pub(crate) fn percent(&self) -> u64 {
        self.state.lock().factor * 100 / FULL
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        self.state.lock().copied
    }

    /// Over the last seconds.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        let (now, state) = (self.now(), self.state.lock());
        let Some((since, before)) = state.marks.front().copied() else { return 0 };
        let micros = now.saturating_sub(since).as_micros().max(1);
        u64::try_from(u128::from(state.copied - before) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// How many bytes a second a task may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// As many as it can.
    Unlimited,
    /// So many at the full pace.
    Bytes(u64),
}

impl Rate {
    pub(crate) fn of(task: &Task) -> Rate {
        match task.priority {
            _ if task.is_last_copy() => Rate::Unlimited,
            1 => Rate::Bytes(limits::URGENT_BYTES_PER_SECOND),
            2 | 3 => Rate::Bytes(limits::USUAL_BYTES_PER_SECOND),
            _ => Rate::SLOW,
        }
    }

    /// Of what can wait.
    pub(crate) const SLOW: Rate = Rate::Bytes(limits::SLOW_BYTES_PER_SECOND);
}

#[cfg(test)]
mod tests {
    use super::{Pace, Rate};
    use env::{Env, SimEnv};
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    /// How long so many MiB take at 32 MiB/s.
    fn taken(pace: &Pace, rate: Rate, mib: u64) -> Duration {
        (0..mib).map(|_| pace.reserve(rate, MIB)).max().unwrap_or_default()
    }

    #[test]
    fn the_budget_is_kept_and_the_last_copy_knows_none() {
        let SimEnv { env, .. } = Env::simulated(1);
        let rate = Rate::Bytes(32 * MIB);
        assert!(taken(&Pace::new(env.clone()), rate, 64) >= Duration::from_millis(1700));
        assert!(taken(&Pace::new(env.clone()), rate, 64) <= Duration::from_secs(2));
        assert_eq!(taken(&Pace::new(env), Rate::Unlimited, 64), Duration::ZERO);
    }

    #[test]
    fn the_pace_shrinks_while_clients_wait_comes_back_slowly_and_a_boost_lifts_it_for_its_time() {
        let SimEnv { env, clock, .. } = Env::simulated(2);
        let (pace, rate) = (Pace::new(env), Rate::Bytes(32 * MIB));
        let second = |pressed| {
            clock.advance(Duration::from_secs(1));
            pace.adjust(|| pressed);
        };
        second(true);
        assert_eq!(pace.percent(), 50);
        (0..10).for_each(|_| second(true));
        assert_eq!(pace.percent(), 6, "never nothing");
        assert!(taken(&pace, rate, 8) > Duration::from_secs(3));
        pace.boost(Duration::from_secs(5));
        assert_eq!(taken(&pace, rate, 640), Duration::ZERO);
        let mut seconds = 0;
        while pace.percent() < 100 {
            second(false);
            seconds += 1;
        }
        assert!((8..20).contains(&seconds), "{seconds} s");
        assert!(!pace.is_boosted());
    }
}
