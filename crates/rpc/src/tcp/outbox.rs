//! What a node has to say to another, and the calls it waits for.
//!
//! Promises: bounded in number and bytes; a call whose caller gave up is not written; of each call it is known whether a byte of it can
//! have left, so that "nothing was done" is said only when it is so. Refuses to know: connections.

use crate::limits::{CALLS_IN_FLIGHT, CORK_BYTES, SMALL_BYTES, WAITING_BYTES, WAITING_MESSAGES};
use crate::wire::{HEADER_BYTES, Kind};
use crate::{Message, Service};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// Something waits.
    ready: Notify,
}

#[derive(Default)]
struct State {
    last_number: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    calls: BTreeMap<u64, Call>,
}

/// A message that was not written yet.
pub(super) struct Waiting {
    pub(super) kind: Kind,
    pub(super) service: Service,
    /// Of a call; 0 for others.
    pub(super) number: u64,
    /// On the monotonic clock, for calls.
    pub(super) deadline: Duration,
    pub(super) message: Message,
}

struct Call {
    reply: oneshot::Sender<Reply>,
    /// It may be on its way: from here on the other side may act.
    written: bool,
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(Message),
    Refused(String),
    Lost,
    Unreachable,
}

impl Outbox {
    /// Queues a call. `None`: too much waits already.
    pub(super) fn call(
        &self,
        service: Service,
        message: Message,
        deadline: Duration,
    ) -> Option<(u64, oneshot::Receiver<Reply>)> {
        let (reply, answer) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            if state.calls.len() >= CALLS_IN_FLIGHT {
                return None;
            }
            state.last_number += 1;
            let number = state.last_number;
            state.push(Waiting { kind: Kind::Call, service, number, deadline, message })?;
            state.calls.insert(number, Call { reply, written: false });
            number
        };
        self.ready.notify_one();
        Some((number, answer))
    }

    /// Queues a message without answer, or drops it if too much waits already.
    pub(super) fn send(&self, service: Service, message: Message) {
        let waiting = Waiting { kind: Kind::Send, service, number: 0, deadline: Duration::MAX, message };
        if self.state.lock().push(waiting).is_some() {
            self.ready.notify_one();
        }
    }

    /// Takes what goes into one write, without waiting. Calls among it count as written from now on.
    pub(super) fn take(&self, now: Duration) -> Vec<Waiting> {
        let mut state = self.state.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < CORK_BYTES {
            let Some(next) = state.pop() else { break };
            if next.kind == Kind::Call {
                // The caller gave up, or is about to: nobody would hear the answer.
                let Some(call) = state.calls.get_mut(&next.number).filter(|_| now < next.deadline) else { continue };
                call.written = true;
            }
            // A long one ends the batch.
            bytes += if next.bytes() > SMALL_BYTES { CORK_BYTES } else { next.bytes() };
            taken.push(next);
        }
        taken
    }

    /// Waits until there may be something to take, or [`Outbox::nudge`].
    pub(super) async fn ready(&self) {
        self.ready.notified().await;
    }

    pub(super) fn nudge(&self) {
        self.ready.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Ends a call. A number that nobody waits for is that of a caller who gave up.
    pub(super) fn reply(&self, number: u64, reply: Reply) {
        let call = self.state.lock().calls.remove(&number);
        if let Some(call) = call {
            let _ = call.reply.send(reply);
        }
    }

    /// The caller gives up; answers whether the call may have left.
    pub(super) fn give_up(&self, number: u64) -> bool {
        self.state.lock().calls.remove(&number).is_none_or(|call| call.written)
    }

    /// The connection ended: nobody answers what was written.
    pub(super) fn lose_written(&self) {
        let lost: Vec<Call> = {
            let mut state = self.state.lock();
            state.calls.extract_if(.., |_, call| call.written).map(|(_, call)| call).collect()
        };
        for call in lost {
            let _ = call.reply.send(Reply::Lost);
        }
    }

    /// There is no connection: nothing that waits will be written.
    pub(super) fn drop_waiting(&self) {
        let (waiting, calls) = {
            let mut state = self.state.lock();
            state.waiting_bytes = 0;
            let calls: Vec<Call> = state.calls.extract_if(.., |_, call| !call.written).map(|(_, call)| call).collect();
            (std::mem::take(&mut state.waiting), calls)
        };
        drop(waiting);
        for call in calls {
            let _ = call.reply.send(Reply::Unreachable);
        }
    }
}

impl State {
    fn push(&mut self, waiting: Waiting) -> Option<()> {
        let bytes = waiting.bytes();
        if self.waiting.len() >= WAITING_MESSAGES || self.waiting_bytes + bytes > WAITING_BYTES {
            return None;
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(waiting);
        Some(())
    }

    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.waiting_bytes -= next.bytes();
        Some(next)
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.message.head.len() + self.message.body.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Outbox, Reply};
    use crate::limits::{CALLS_IN_FLIGHT, MAX_BODY_BYTES, WAITING_BYTES, WAITING_MESSAGES};
    use crate::{Message, Service};
    use bytes::Bytes;
    use std::time::Duration;

    const SERVICE: Service = Service(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn message(body_bytes: usize) -> Message {
        Message { head: Bytes::new(), body: vec![0; body_bytes].into() }
    }

    #[test]
    fn small_messages_are_taken_together_in_order_and_a_long_one_ends_the_batch() {
        let outbox = Outbox::default();
        for bytes in [1, 2, 100_000, 3] {
            outbox.send(SERVICE, message(bytes));
        }
        let lengths = |outbox: &Outbox| outbox.take(SECOND).iter().map(|w| w.message.body.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&outbox), [1, 2, 100_000]);
        assert_eq!(lengths(&outbox), [3]);
        assert!(outbox.is_empty() && lengths(&outbox).is_empty());
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_bytes() {
        let outbox = Outbox::default();
        (0..WAITING_MESSAGES + 10).for_each(|_| outbox.send(SERVICE, message(0)));
        assert!(outbox.call(SERVICE, message(0), SECOND).is_none());
        let mut taken = 0;
        while !outbox.is_empty() {
            taken += outbox.take(Duration::ZERO).len();
        }
        assert_eq!(taken, WAITING_MESSAGES);
        let fit = WAITING_BYTES / (MAX_BODY_BYTES + 40);
        for _ in 0..fit {
            assert!(outbox.call(SERVICE, message(MAX_BODY_BYTES), SECOND).is_some());
        }
        assert!(outbox.call(SERVICE, message(MAX_BODY_BYTES), SECOND).is_none());
    }

    #[test]
    fn calls_that_nobody_answers_are_bounded() {
        let outbox = Outbox::default();
        let mut answers = Vec::new();
        for _ in 0..CALLS_IN_FLIGHT {
            answers.push(outbox.call(SERVICE, message(0), SECOND).expect("room"));
            outbox.take(Duration::ZERO);
        }
        assert!(outbox.call(SERVICE, message(0), SECOND).is_none());
        outbox.reply(1, Reply::Lost);
        assert!(outbox.call(SERVICE, message(0), SECOND).is_some());
    }

    #[test]
    fn a_call_that_was_given_up_or_is_too_late_is_never_written() {
        let outbox = Outbox::default();
        let (given_up, _) = outbox.call(SERVICE, message(0), SECOND).expect("room");
        let (late, _) = outbox.call(SERVICE, message(0), SECOND / 2).expect("room");
        let (kept, _) = outbox.call(SERVICE, message(0), SECOND).expect("room");
        assert!(!outbox.give_up(given_up), "it had not left");
        let taken = outbox.take(SECOND / 2);
        assert_eq!(taken.iter().map(|w| w.number).collect::<Vec<_>>(), [kept]);
        assert!(!outbox.give_up(late), "it had not left");
        assert!(outbox.give_up(kept), "it may have left");
    }

    #[test]
    fn an_ended_connection_loses_what_was_written_and_nothing_else() {
        let outbox = Outbox::default();
        let (_, mut written) = outbox.call(SERVICE, message(0), SECOND).expect("room");
        outbox.take(Duration::ZERO);
        let (_, mut waiting) = outbox.call(SERVICE, message(0), SECOND).expect("room");
        outbox.lose_written();
        assert!(matches!(written.try_recv(), Ok(Reply::Lost)));
        assert!(waiting.try_recv().is_err());
        outbox.drop_waiting();
        assert!(matches!(waiting.try_recv(), Ok(Reply::Unreachable)));
        assert!(outbox.is_empty());
    }
}
