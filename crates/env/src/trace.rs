//! A record of what a simulation did.
//!
//! Promises: the digest covers every event ever recorded; the newest [`KEPT_EVENTS`] can be looked at.
//! Refuses to know: what the events mean.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// Events kept; a long run records millions.
const KEPT_EVENTS: usize = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct Trace<E> {
    events: VecDeque<E>,
    digest: Digest,
}

impl<E: Hash + Clone> Trace<E> {
    pub(crate) fn new() -> Trace<E> {
        Trace { events: VecDeque::new(), digest: Digest::new() }
    }

    pub(crate) fn record(&mut self, event: E) {
        event.hash(&mut self.digest);
        if self.events.len() == KEPT_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn events(&self) -> Vec<E> {
        self.events.iter().cloned().collect()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}

/// FNV-1a over eight bytes at a time: the same in every run, unlike std's hasher. Not against an adversary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// The digest of `bytes` alone.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut digest = Digest::new();
        digest.write(bytes);
        digest.finish()
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
            // Multiplication alone never carries high bits down.
            self.0 ^= self.0 >> 32;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
