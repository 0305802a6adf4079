//! How long buckets and accounts in memory may be answered from.
//!
//! A node reads them from memory while its lease lasts: [`limits::LEASE`] from the *beginning* of its last barrier of root. Whoever
//! changes a bucket or an account waits, before the client is answered, until every other node has passed a barrier after the change
//! or its lease must have run out. So no request that begins after the answer sees the state from before, on any node.
//!
//! Promises: as said, if no monotonic clock is slower than another by more than the margin; a node that was paused finds its lease
//! over. Refuses to know: what buckets are.

use super::Nodes;
use super::wire::{Answer, Ask};
use crate::api::StoreError;
use crate::limits;
use metadata::shard::ROOT;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the lease ends, in microseconds of the monotonic clock.
#[derive(Default)]
pub(super) struct Lease {
    until_us: AtomicU64,
}

impl Lease {
    fn lasts(&self, now: Duration) -> bool {
        micros(now) < self.until_us.load(Ordering::Acquire)
    }

    fn extend(&self, began: Duration) {
        self.until_us.fetch_max(micros(began + limits::LEASE), Ordering::AcqRel);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Nodes {
    /// Whether buckets and accounts in memory may be answered from.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_alone() || self.inner.lease.lasts(self.inner.env.clock.monotonic())
    }

    /// Takes the lease anew.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let began = self.inner.env.clock.monotonic();
        self.barrier(ROOT).await?;
        self.inner.lease.extend(began);
        Ok(())
    }

    /// Waits until no node answers from the state before a change of root that is committed.
    pub(crate) async fn spread(&self) -> Result<(), StoreError> {
        let committed = self.inner.env.clock.monotonic();
        // Applied here too, wherever it was decided.
        self.refresh().await?;
        // Also where this node decides alone: others may follow and answer from memory.
        let answers = self.ask_all(&Ask::Refresh, limits::CALL_TIMEOUT).await;
        let silent: Vec<_> = answers.iter().filter(|(_, a)| !matches!(a, Ok(Answer::Fresh))).map(|(n, _)| n).collect();
        if !silent.is_empty() {
            tracing::info!(nodes = ?silent, "a change of buckets or accounts waits for the leases of silent nodes to end");
            let over = committed + limits::LEASE + limits::LEASE_MARGIN;
            self.inner.env.timers.sleep(over.saturating_sub(self.inner.env.clock.monotonic())).await;
        }
        Ok(())
    }
}
