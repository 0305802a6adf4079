//! Pins of the reclaim epoch: what open reads hold on to (protocols.md 5).
//!
//! Promises: a read that pinned before it read metadata finds every extent that metadata named, until it lets go or is
//! `limits::PIN_MAX_AGE` old: the reclaimer removes a content only when every pin that counts is newer than the content's
//! condemnation. A reader that is older may find nothing where its bytes were, never other bytes.
//! Refuses to know: what is condemned; when to tick (the curator does).

use crate::limits;
use env::clock::Clock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The local reclaim epoch and how many reads hold each of its values. Cheap to clone.
#[derive(Clone)]
pub struct Pins {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    held: BTreeMap<u64, Held>,
}

/// Reads that began in one epoch.
#[derive(Debug, Default)]
struct Held {
    count: usize,
    /// When the epoch ended; all of them are older.
    ended: Option<Duration>,
}

impl Pins {
    /// Epoch 0, nothing pinned.
    pub fn new(clock: Arc<dyn Clock>) -> Pins {
        Pins { state: Arc::default(), clock }
    }

    /// Pins the newest epoch. To be called before metadata is read.
    pub fn pin(&self) -> Pin {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        state.held.entry(epoch).or_default().count += 1;
        Pin { pins: self.clone(), epoch }
    }

    /// The epoch now.
    pub fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Begins the next epoch and answers the one that ended. A content condemned before this call may be reclaimed once
    /// [`Pins::lowest_pin`] is above that answer.
    pub fn advance(&self) -> u64 {
        let mut state = self.state.lock();
        let ended = state.epoch;
        if let Some(held) = state.held.get_mut(&ended) {
            held.ended = Some(self.clock.monotonic());
        }
        state.epoch += 1;
        ended
    }

    /// A lower bound of all present and future pins, but those that are too old to count.
    pub fn lowest_pin(&self) -> u64 {
        let state = self.state.lock();
        let now = self.clock.monotonic();
        let counts = |held: &Held| held.ended.is_none_or(|ended| now < ended + limits::PIN_MAX_AGE);
        state.held.iter().find(|(_, held)| counts(held)).map_or(state.epoch, |(epoch, _)| *epoch)
    }

    fn release(&self, epoch: u64) {
        let mut state = self.state.lock();
        if let Some(held) = state.held.get_mut(&epoch) {
            held.count -= 1;
            if held.count == 0 {
                state.held.remove(&epoch);
            }
        }
    }
}

/// One read's hold on the epoch it began in; let go when dropped.
pub struct Pin {
    pins: Pins,
    epoch: u64,
}

impl Pin {
    /// The epoch it holds.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.release(self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;
    use crate::limits;
    use env::Env;
    use std::time::Duration;

    #[test]
    fn a_read_that_is_too_old_does_not_count() {
        let sim = Env::simulated(1);
        let pins = Pins::new(sim.env.clock.clone());
        let old = pins.pin();
        let ended = pins.advance();
        sim.clock.advance(limits::PIN_MAX_AGE - Duration::from_secs(1));
        let young = pins.pin();
        assert_eq!(pins.lowest_pin(), ended);
        sim.clock.advance(Duration::from_secs(1));
        assert_eq!(pins.lowest_pin(), young.epoch(), "the young one counts, whose epoch goes on");
        drop(old);
        assert_eq!(pins.lowest_pin(), young.epoch());
    }

    #[test]
    fn the_lowest_pin_is_the_oldest_read_and_without_reads_the_epoch() {
        let pins = Pins::new(Env::simulated(1).env.clock);
        assert_eq!(pins.lowest_pin(), 0);
        let old = pins.pin();
        assert_eq!(pins.advance(), 0);
        let new = pins.pin();
        let twin = pins.pin();
        assert_eq!((old.epoch(), new.epoch(), pins.lowest_pin()), (0, 1, 0));
        drop(old);
        assert_eq!(pins.lowest_pin(), 1);
        drop(new);
        assert_eq!(pins.advance(), 1);
        assert_eq!(pins.lowest_pin(), 1, "the twin still reads");
        drop(twin);
        assert_eq!(pins.lowest_pin(), 2);
    }
}
