//! Pins of the reclaim epoch: what open reads hold on to (protocols.md 5).
//!
//! Promises: a read that pinned before it read metadata finds every extent that metadata named, until it lets go: the
//! reclaimer removes a content only when every pin is newer than the content's condemnation.
//! Refuses to know: what is condemned; when to tick (the curator does).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The local reclaim epoch and how many reads hold each of its values. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    held: BTreeMap<u64, usize>,
}

impl Pins {
    /// Epoch 0, nothing pinned.
    pub fn new() -> Pins {
        Pins::default()
    }

    /// Pins the newest epoch. To be called before metadata is read.
    pub fn pin(&self) -> Pin {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        *state.held.entry(epoch).or_default() += 1;
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
        state.epoch += 1;
        ended
    }

    /// A lower bound of all present and future pins.
    pub fn lowest_pin(&self) -> u64 {
        let state = self.state.lock();
        state.held.keys().next().copied().unwrap_or(state.epoch)
    }

    fn release(&self, epoch: u64) {
        let mut state = self.state.lock();
        if let Some(count) = state.held.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&epoch);
            }
        }
    }
}

/// One read's hold on the epoch it began in; let go when dropped.
#[derive(Debug)]
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

    #[test]
    fn the_lowest_pin_is_the_oldest_read_and_without_reads_the_epoch() {
        let pins = Pins::new();
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
