//! The end of an epoch of pins at every gateway (protocols.md 5).
//!
//! Pins are counted by each gateway for itself. Whoever reclaims ends the present epoch at all of them, *after* it saw a content
//! condemned in applied rows: a read that pins later passes its barrier later too, and does not find the content any more.
//!
//! Promises: [`Nodes::is_released`] says yes only when every read that began before [`Nodes::end_epoch`] was called, on any
//! node that answers, has let go. A node that has not answered for [`limits::SILENCE_MAX`] is not waited for: whoever reads there still
//! finds a missing frame and ends with an error, never with other bytes. Refuses to know: what is condemned.

use super::Nodes;
use super::wire::{Answer, Ask};
use crate::api::StoreError;
use crate::limits;
use crate::pins::Pins;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::NodeId;

/// Epochs that ended together.
#[derive(Clone, Debug)]
pub struct Ended {
    here: u64,
    /// Session and epoch of each other gateway.
    there: BTreeMap<NodeId, (u32, u64)>,
}

/// Which nodes do not answer: when each was first asked in vain since it last answered, and how often.
#[derive(Default)]
pub(super) struct Heard {
    unanswered: Mutex<BTreeMap<NodeId, (Duration, u32)>>,
}

impl Heard {
    fn answered(&self, node: NodeId) {
        self.unanswered.lock().remove(&node);
    }

    /// Whether it has been silent for long, after one more question in vain. How long ago it was asked before does not count: nobody
    /// asks while nothing is condemned.
    fn is_silent(&self, node: NodeId, now: Duration) -> bool {
        let mut unanswered = self.unanswered.lock();
        let (since, questions) = unanswered.entry(node).or_insert((now, 0));
        *questions = questions.saturating_add(1);
        *questions >= limits::SILENCE_QUESTIONS && now.saturating_sub(*since) >= limits::SILENCE_MAX
    }
}

impl Nodes {
    /// Ends the present epoch everywhere.
    pub(crate) async fn end_epoch(&self, pins: &Pins) -> Result<Ended, StoreError> {
        let here = pins.advance();
        let mut there = BTreeMap::new();
        for (node, answer) in self.ask_all(&Ask::EndEpoch, limits::CALL_TIMEOUT).await {
            match answer {
                Ok(Answer::Epoch { session, epoch }) => {
                    self.inner.heard.answered(node);
                    there.insert(node, (session, epoch));
                }
                _ if self.is_silent(node) => {}
                _ => return Err(StoreError::Unavailable(format!("node {node} does not say what is read there"))),
            }
        }
        Ok(Ended { here, there })
    }

    /// Whether every read from before has let go.
    pub(crate) async fn is_released(&self, pins: &Pins, ended: &Ended) -> bool {
        if pins.lowest_pin() <= ended.here {
            return false;
        }
        if ended.there.is_empty() {
            return true;
        }
        let mut released = true;
        for (node, answer) in self.ask_all(&Ask::LowestPin, limits::CALL_TIMEOUT).await {
            let Some((session, epoch)) = ended.there.get(&node) else { continue };
            released &= match answer {
                Ok(Answer::Epoch { session: now, epoch: lowest }) => {
                    self.inner.heard.answered(node);
                    // A gateway that began anew reads nothing from before.
                    now != *session || lowest > *epoch
                }
                _ => self.is_silent(node),
            };
        }
        released
    }

    fn is_silent(&self, node: NodeId) -> bool {
        self.inner.heard.is_silent(node, self.inner.env.clock.monotonic())
    }
}

#[cfg(test)]
mod tests {
    use super::{Heard, limits};
    use std::time::Duration;

    #[test]
    fn one_missed_answer_after_an_hour_without_questions_makes_nobody_silent() {
        let (heard, hour) = (Heard::default(), Duration::from_secs(3600));
        heard.answered(7);
        assert!(!heard.is_silent(7, hour));
        assert!(!heard.is_silent(7, hour + limits::SILENCE_MAX / 2));
        assert!(heard.is_silent(7, hour + limits::SILENCE_MAX));
        heard.answered(7);
        assert!(!heard.is_silent(7, hour + limits::SILENCE_MAX * 2), "it answered since");
    }

    #[test]
    fn two_questions_far_apart_are_too_few() {
        let heard = Heard::default();
        assert!(!heard.is_silent(7, Duration::ZERO));
        assert!(!heard.is_silent(7, limits::SILENCE_MAX * 100));
    }
}
