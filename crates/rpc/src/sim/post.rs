//! Messages without answer on their way.
//!
//! Promises: delivered in the order of their times, then of their sending. Refuses to know: how times are drawn.

use super::net::Shared;
use crate::{Message, Service};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::Notify;
use types::NodeId;

#[derive(Default)]
pub(super) struct Post {
    letters: Mutex<Letters>,
    /// A letter came.
    came: Notify,
}

#[derive(Default)]
struct Letters {
    /// By time of arrival, on the clock outside.
    under_way: BTreeMap<(Duration, u64), Letter>,
    sent: u64,
    /// When the last one that may not be overtaken arrives, by direction and service.
    last: BTreeMap<(NodeId, NodeId, Service), Duration>,
}

#[derive(Clone)]
pub(super) struct Letter {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) service: Service,
    pub(super) message: Message,
}

impl Post {
    /// Puts a letter on its way, to arrive at that time, or later if it may not overtake those before it.
    pub(super) fn put(&self, letter: Letter, at: Duration, in_order: bool) {
        let mut letters = self.letters.lock();
        let mut at = at;
        if in_order {
            let last = letters.last.entry((letter.from, letter.to, letter.service)).or_default();
            at = at.max(*last);
            *last = at;
        }
        letters.sent += 1;
        let number = letters.sent;
        letters.under_way.insert((at, number), letter);
        drop(letters);
        self.came.notify_one();
    }

    /// The next letter, if its time has come, or how long until then.
    fn next(&self, now: Duration) -> Result<Letter, Option<Duration>> {
        let mut letters = self.letters.lock();
        match letters.under_way.first_entry() {
            Some(first) if first.key().0 <= now => Ok(first.remove()),
            first => Err(first.map(|first| first.key().0 - now)),
        }
    }
}

/// The postman: ends with the network.
pub(super) async fn deliver(net: Weak<Shared>) {
    while let Some(shared) = net.upgrade() {
        let (timers, clock) = (&shared.outside.timers, &shared.outside.clock);
        match shared.post.next(clock.monotonic()) {
            Ok(letter) => shared.receive(letter.from, letter.to, letter.service, letter.message),
            Err(Some(wait)) => drop(timers.timeout(wait, shared.post.came.notified()).await),
            Err(None) => shared.post.came.notified().await,
        }
    }
}
