//! The bounded queue behind a worker.
//!
//! Promises: first in first out; never more than its bound; batches are taken under one lock; a crowd of senders is gathered for
//! a bounded while (see [`Gather`]), one that is not there is never waited for.
//! Refuses to know: who takes the batches, a thread or the simulation.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::worker::{Gather, SubmitError};

/// A queue longer than this grows on demand instead of being allocated up front.
const PREALLOCATED_MESSAGES: usize = 1024;

pub(super) struct Queue<M> {
    bound: usize,
    state: Mutex<State<M>>,
    /// A message came or the queue was closed.
    ready: Condvar,
    /// The worker came to its end.
    ended: Condvar,
    /// There is room again, or the queue was closed.
    room: Notify,
}

struct State<M> {
    messages: VecDeque<M>,
    closed: bool,
    ended: bool,
    poisoned: bool,
    /// Messages that are worth waking the worker for.
    wake_at: usize,
    /// Messages of the last batch.
    last_batch: usize,
}

impl<M> Queue<M> {
    pub(super) fn new(bound: usize) -> Queue<M> {
        assert!(bound > 0, "a queue that can hold nothing");
        let messages = VecDeque::with_capacity(bound.min(PREALLOCATED_MESSAGES));
        Queue {
            bound,
            state: Mutex::new(State {
                messages,
                closed: false,
                ended: false,
                poisoned: false,
                wake_at: 1,
                last_batch: 0,
            }),
            ready: Condvar::new(),
            ended: Condvar::new(),
            room: Notify::new(),
        }
    }

    pub(super) fn submit(&self, message: M) -> Result<(), SubmitError<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(SubmitError::Closed(message));
        }
        if state.messages.len() >= self.bound {
            return Err(SubmitError::Full(message));
        }
        state.messages.push_back(message);
        let wake = state.messages.len() >= state.wake_at;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    pub(super) async fn submit_waiting(&self, mut message: M) -> Result<(), SubmitError<M>> {
        loop {
            // Registered before the attempt, so that room made in between is not missed.
            let room = self.room.notified();
            match self.submit(message) {
                Err(SubmitError::Full(back)) => message = back,
                done => return done,
            }
            room.await;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// Waits for the first message, gathers a crowd if there is one, then takes what is there, at most `max`; empty when closed
    /// and drained.
    pub(super) fn wait_batch(&self, max: usize, gather: Gather) -> Vec<M> {
        let mut state = self.state.lock();
        while state.messages.is_empty() && !state.closed {
            self.ready.wait(&mut state);
        }
        let senders = state.last_batch + state.messages.len();
        let enough = gather.enough(senders).min(max);
        if state.messages.len() < enough && !state.closed {
            state.wake_at = enough;
            // Woken by enough, by closing or by time: whichever it was, what is there is taken.
            self.ready.wait_for(&mut state, gather.at_most);
            state.wake_at = 1;
        }
        let batch = take(&mut state.messages, max);
        state.last_batch = batch.len();
        drop(state);
        self.room.notify_waiters();
        batch
    }

    /// Takes at most `max` messages without waiting.
    pub(super) fn take_batch(&self, max: usize) -> Vec<M> {
        let batch = take(&mut self.state.lock().messages, max);
        self.room.notify_waiters();
        batch
    }

    /// Accepts nothing from now on; what is queued stays.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
        self.room.notify_waiters();
    }

    /// Closes and gives back what was queued, for the caller to drop outside the lock.
    pub(super) fn abandon(&self) -> VecDeque<M> {
        let left = std::mem::take(&mut self.state.lock().messages);
        self.close();
        left
    }

    /// The handler panicked: closes and drops what was queued, so that those who wait for replies learn of it.
    pub(super) fn poison(&self) {
        self.state.lock().poisoned = true;
        drop(self.abandon());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.state.lock().poisoned
    }

    pub(super) fn mark_ended(&self) {
        self.state.lock().ended = true;
        self.ended.notify_all();
    }

    pub(super) fn wait_ended(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            self.ended.wait(&mut state);
        }
    }
}

fn take<M>(messages: &mut VecDeque<M>, max: usize) -> Vec<M> {
    let count = messages.len().min(max);
    messages.drain(..count).collect()
}
