//! Waiting for replicas on several nodes (protocols.md 1).
//!
//! Promises: an extent counts when all replicas answered; the first that fails ends the wait, and so does one that is much later
//! than the others: the writer goes on in another group at once. That all are late together ends nothing before the patience of the
//! network does, for then another group would be no faster. Refuses to know: how a group is sealed.

use super::open::Reserved;
use super::{Groups, OpenGroup, append_error};
use crate::api::StoreError;
use crate::limits;
use extent_store::AppendError;
use replicas::Acknowledged;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use types::DiskId;

/// How long the first replica's answer usually takes: a moving mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual(Duration);

impl Usual {
    fn record(&mut self, took: Duration) {
        self.0 = if self.0.is_zero() { took } else { (self.0 * 15 + took) / 16 };
    }

    /// How much later than the first the last may be.
    fn patience(self) -> Duration {
        (self.0 * limits::SLOW_FACTOR).clamp(*limits::SLOW_REPLICA.start(), *limits::SLOW_REPLICA.end())
    }
}

/// Disks that no new group should be on.
pub(super) struct Avoided {
    /// At all.
    pub(super) suspect: BTreeSet<DiskId>,
    /// If there are others.
    pub(super) slow: BTreeSet<DiskId>,
}

impl Groups {
    /// Why the extent does not count, if it does not.
    pub(super) async fn wait_spread(
        self: &Arc<Self>,
        group: &Arc<OpenGroup>,
        reserved: &mut Reserved,
    ) -> Option<StoreError> {
        let mut pending = reserved.take_answers();
        let began = self.env.clock.monotonic();
        let mut first = true;
        while !pending.is_empty() {
            let next = next_answer(&mut pending);
            let answered = match first {
                true => Some(next.await),
                false => {
                    let patience = self.state.lock().usual.patience();
                    self.env.timers.timeout(patience, next).await
                }
            };
            match answered {
                Some((disk, Err(error))) => {
                    self.replica_failed(group, disk, reserved.address, &error);
                    return Some(append_error(&error));
                }
                Some((_, Ok(()))) if first => {
                    let took = self.env.clock.monotonic().saturating_sub(began);
                    self.state.lock().usual.record(took);
                    first = false;
                }
                Some((_, Ok(()))) => {}
                None => {
                    let late: Vec<DiskId> = pending.iter().map(|(disk, _)| *disk).collect();
                    return Some(self.leave_slow(group, &late));
                }
            }
        }
        None
    }

    /// No open group with a replica there takes more; new ones go elsewhere for a while.
    fn leave_slow(self: &Arc<Self>, group: &OpenGroup, late: &[DiskId]) -> StoreError {
        tracing::warn!(group = %group.id(), ?late, "replicas are much later than the others; writing goes on elsewhere");
        let until = self.env.clock.monotonic() + limits::SLOW_AVOIDED;
        let left: Vec<_> = {
            let mut state = self.state.lock();
            state.slow.extend(late.iter().map(|disk| (*disk, until)));
            state.open.extract_if(.., |open| open.disk_ids().iter().any(|disk| late.contains(disk))).collect()
        };
        for group in left {
            self.close_full(group);
        }
        StoreError::Unavailable(format!("disks {late:?} are late"))
    }

    /// What failed or was late a while ago.
    pub(super) fn avoided(&self) -> Avoided {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        state.slow.retain(|_, until| now < *until);
        Avoided { suspect: state.suspect.clone(), slow: state.slow.keys().copied().collect() }
    }
}

/// The next of them to answer; it is taken out.
async fn next_answer(pending: &mut Vec<(DiskId, Acknowledged)>) -> (DiskId, Result<(), AppendError>) {
    poll_fn(|context| {
        for index in 0..pending.len() {
            if let Poll::Ready(answer) = pending[index].1.as_mut().poll(context) {
                return Poll::Ready((pending.swap_remove(index).0, answer));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::Usual;
    use crate::limits;
    use std::time::Duration;

    #[test]
    fn a_replica_is_slow_after_ten_times_the_usual_within_bounds() {
        let mut usual = Usual::default();
        assert_eq!(usual.patience(), *limits::SLOW_REPLICA.start());
        for _ in 0..100 {
            usual.record(Duration::from_millis(50));
        }
        assert_eq!(usual.patience(), Duration::from_millis(500));
        for _ in 0..200 {
            usual.record(Duration::from_secs(3));
        }
        assert_eq!(usual.patience(), *limits::SLOW_REPLICA.end());
    }
}
