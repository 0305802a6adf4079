//! Reads that wait for a proof that the leader still leads.
//!
//! Promises: a read is answered with an index that was committed when the read had begun, proved by a round that began after it did; one
//! round serves all that waited when it began, and few are under way. Refuses to know: members, messages.

use crate::limits::READ_ROUNDS;
use crate::node::ProposeError;
use raft::ReadState;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Whom to tell up to which entry has to be applied.
pub(crate) type ReadReply = oneshot::Sender<Result<u64, ProposeError>>;

/// The reads of one group.
#[derive(Default)]
pub(super) struct Reads {
    waiting: Vec<ReadReply>,
    /// Under way, oldest first, by number.
    rounds: VecDeque<(u64, Vec<ReadReply>)>,
    /// Rounds begun since the start. A number stands in the messages of its round and is never used twice in a term: a term
    /// does not outlive its leader's process.
    begun: u64,
}

impl Reads {
    /// A read waits for the next round.
    pub(super) fn add(&mut self, reply: ReadReply) {
        self.waiting.push(reply);
    }

    /// Whether somebody waits for a round to begin.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins a round for all that wait, if there are not too many under way: what raft-rs is to be given.
    pub(super) fn begin(&mut self) -> Option<Vec<u8>> {
        if self.rounds.len() >= READ_ROUNDS {
            return None;
        }
        self.begun += 1;
        self.rounds.push_back((self.begun, std::mem::take(&mut self.waiting)));
        Some(self.begun.to_le_bytes().to_vec())
    }

    /// These rounds are proved.
    pub(super) fn proved(&mut self, states: Vec<ReadState>) {
        for state in states {
            let Ok(number) = state.request_ctx.try_into().map(u64::from_le_bytes) else { continue };
            while self.rounds.front().is_some_and(|(round, _)| *round <= number) {
                let readers = self.rounds.pop_front().map(|(_, readers)| readers).unwrap_or_default();
                // Whoever asked may have given up.
                readers.into_iter().for_each(|reply| drop(reply.send(Ok(state.index))));
            }
        }
    }

    /// Everybody goes away empty-handed.
    pub(super) fn refuse(&mut self, why: &ProposeError) {
        let under_way = self.rounds.drain(..).flat_map(|(_, readers)| readers);
        under_way.chain(self.waiting.drain(..)).for_each(|reply| drop(reply.send(Err(why.clone()))));
    }

    /// Rounds begun since the start.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }
}
