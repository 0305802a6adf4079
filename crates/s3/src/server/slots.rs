//! How many requests are worked on at once, counted without a lock.
//!
//! Promises: never more than the limit; nobody waits. Refuses to know: what is answered to those who find none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of one listener.
pub struct Slots {
    taken: AtomicUsize,
    max: usize,
}

impl Slots {
    /// So many.
    pub fn new(max: usize) -> Arc<Slots> {
        Arc::new(Slots { taken: AtomicUsize::new(0), max })
    }

    /// One of them, if any is free.
    pub fn take(slots: &Arc<Slots>) -> Option<Slot> {
        // Those who find none are counted for a moment too: at worst somebody else is refused beside them.
        let slot = Slot(Arc::clone(slots), slots.taken.fetch_add(1, Ordering::AcqRel));
        (slot.1 < slots.max).then_some(slot)
    }
}

/// Held while a request is worked on, with the number of those before it.
pub struct Slot(Arc<Slots>, usize);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn there_are_as_many_slots_as_were_said_and_they_come_back() {
        let slots = Slots::new(2);
        let (first, second) = (Slots::take(&slots), Slots::take(&slots));
        assert!(first.is_some() && second.is_some());
        assert!(Slots::take(&slots).is_none() && Slots::take(&slots).is_none());
        drop(first);
        let third = Slots::take(&slots);
        assert!(third.is_some() && Slots::take(&slots).is_none());
    }
}
