//! Which positions are being read.
//!
//! Promises: the [`Pins::watermark`] is never above a position that a pin holds or that a later pin will hold.
//! Refuses to know: rows.

use super::Sequence;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The published position and the pinned ones. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct Pins {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    published: Sequence,
    /// How many pins hold each position.
    held: BTreeMap<Sequence, usize>,
}

impl Pins {
    pub(super) fn new(published: Sequence) -> Pins {
        Pins { shared: Arc::new(Mutex::new(State { published, held: BTreeMap::new() })) }
    }

    pub(super) fn publish(&self, at: Sequence) {
        let mut state = self.shared.lock();
        state.published = state.published.max(at);
    }

    /// What new snapshots see.
    pub fn published(&self) -> Sequence {
        self.shared.lock().published
    }

    /// Pins the published position.
    pub fn pin(&self) -> Pin {
        let mut state = self.shared.lock();
        let at = state.published;
        *state.held.entry(at).or_default() += 1;
        Pin { pins: self.clone(), at }
    }

    /// Pins the position that `held` holds, once more.
    pub(super) fn pin_again(&self, held: &Pin) -> Pin {
        *self.shared.lock().held.entry(held.at).or_default() += 1;
        Pin { pins: self.clone(), at: held.at }
    }

    /// What no reader, now or later, looks below.
    pub fn watermark(&self) -> Sequence {
        let state = self.shared.lock();
        state.held.keys().next().map_or(state.published, |lowest| *lowest.min(&state.published))
    }
}

/// Keeps one position readable.
#[derive(Debug)]
pub struct Pin {
    pins: Pins,
    at: Sequence,
}

impl Pin {
    /// The position.
    pub fn at(&self) -> Sequence {
        self.at
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.pins.shared.lock();
        if let Some(count) = state.held.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;

    #[test]
    fn the_watermark_is_the_lowest_pin_or_what_is_published() {
        let pins = Pins::new(3);
        assert_eq!(pins.watermark(), 3);
        let first = pins.pin();
        pins.publish(9);
        let second = pins.pin();
        assert_eq!((first.at(), second.at(), pins.watermark()), (3, 9, 3));
        drop(first);
        assert_eq!(pins.watermark(), 9);
        pins.publish(4);
        assert_eq!(pins.published(), 9, "published never goes back");
    }
}
