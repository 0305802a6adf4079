//! One Raft group on this node: raft-rs and the proposals that wait for their entries to be committed.
//!
//! Promises: a proposal is answered for the very entry it became. Refuses to know: the log, apply.

use super::shared::InFlight;
use super::storage::Tail;
use super::{ShardId, rows::Applied};
use crate::command::{Entry, Outcome};
use crate::log::format::{HardState, Item, LogEntry};
use crate::node::ProposeError;
use raft::eraftpb;
use raft::{RawNode, Ready};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Raft's ticks are not driven while there is one voter; the bounds make its election timeout a constant (determinism).
const ELECTION_TICKS: usize = 10;

/// A proposer waiting for its answer.
pub(crate) struct Waiting {
    pub(crate) reply: oneshot::Sender<Result<Outcome, ProposeError>>,
    pub(crate) _in_flight: InFlight,
}

impl Waiting {
    pub(crate) fn answer(self, result: Result<Outcome, ProposeError>) {
        // A proposer that gave up is not told; the entry happened or not all the same.
        let _ = self.reply.send(result);
    }
}

/// An entry that is committed.
pub(crate) struct Committed {
    pub(crate) shard: ShardId,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) what: What,
    pub(crate) waiting: Option<Waiting>,
}

/// What an entry holds.
pub(crate) enum What {
    /// Proposed here: no need to decode it.
    Command(Box<Entry>),
    /// As it stands in the log.
    Data(bytes::Bytes),
}

struct Pending {
    index: u64,
    term: u64,
    entry: Box<Entry>,
    waiting: Waiting,
}

/// The group.
pub(super) struct Group {
    pub(super) shard: ShardId,
    raw: RawNode<Tail>,
    pending: VecDeque<Pending>,
}

impl Group {
    /// A group whose log is applied up to `applied`, the log's end.
    pub(super) fn new(shard: ShardId, node: u64, state: HardState, applied: Applied) -> Result<Group, raft::Error> {
        let (term, commit) = (state.term.max(applied.1), applied.0);
        let hard_state = eraftpb::HardState { term, vote: state.vote, commit, ..Default::default() };
        let config = raft::Config {
            id: node,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: ELECTION_TICKS + 1,
            applied: applied.0,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            pre_vote: true,
            check_quorum: true,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, Tail::new(node, hard_state, applied), &logger)?;
        Ok(Group { shard, raw, pending: VecDeque::new() })
    }

    /// Asks to lead; the only voter does so at once.
    pub(super) fn campaign(&mut self) -> Result<(), raft::Error> {
        self.raw.campaign()
    }

    /// Proposes `data`, which is `entry` encoded and stamped.
    pub(super) fn propose(&mut self, entry: Box<Entry>, data: Vec<u8>, waiting: Waiting) -> Result<(), Waiting> {
        if self.raw.propose(Vec::new(), data).is_err() {
            return Err(waiting);
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.pending.push_back(Pending { index, term, entry, waiting });
        Ok(())
    }

    /// What has to be made durable, if anything has to be done.
    pub(super) fn ready(&mut self, items: &mut Vec<Item>) -> Option<Ready> {
        if !self.raw.has_ready() {
            return None;
        }
        let ready = self.raw.ready();
        // Term and vote stand before the entries they allow (rule R15).
        if let Some(state) = ready.hs() {
            let state = HardState { term: state.term, vote: state.vote, commit: state.commit };
            items.push(Item::HardState(self.shard, state));
        }
        items.extend(ready.entries().iter().map(|entry| {
            let kind = entry.entry_type as u8;
            Item::Entry(LogEntry {
                shard: self.shard,
                index: entry.index,
                term: entry.term,
                kind,
                data: entry.data.clone(),
            })
        }));
        Some(ready)
    }

    /// Takes note that the items of `ready` are durable; gives what is committed now.
    pub(super) fn advance(&mut self, mut ready: Ready, committed: &mut Vec<Committed>) {
        self.raw.mut_store().append(ready.entries());
        let mut entries = ready.take_committed_entries();
        let mut light = self.raw.advance_append(ready);
        entries.extend(light.take_committed_entries());
        if let Some(last) = entries.last().map(|entry| entry.index) {
            // Handed over, in order, to apply; Raft need not know when apply is done with it.
            self.raw.advance_apply_to(last);
            self.raw.mut_store().forget(last);
        }
        for entry in entries {
            let found = self.take_pending(entry.index, entry.term);
            let (index, term, shard) = (entry.index, entry.term, self.shard);
            let (what, waiting) = match found {
                Some(pending) => (What::Command(pending.entry), Some(pending.waiting)),
                None => (What::Data(entry.data), None),
            };
            committed.push(Committed { shard, index, term, what, waiting });
        }
    }

    fn take_pending(&mut self, index: u64, term: u64) -> Option<Pending> {
        while self.pending.front().is_some_and(|pending| pending.index <= index) {
            let pending = self.pending.pop_front()?;
            if pending.index == index && pending.term == term {
                return Some(pending);
            }
            // Another leader's entry took its place: it never happens.
            pending.waiting.answer(Err(ProposeError::Busy));
        }
        None
    }

    /// Everybody who waits learns that the outcome is not known.
    pub(super) fn abandon(&mut self, reason: &str) {
        for pending in self.pending.drain(..) {
            pending.waiting.answer(Err(ProposeError::Failed(reason.to_owned())));
        }
    }

    /// Whether it may be proposed to.
    pub(super) fn leads(&self) -> bool {
        self.raw.raft.state == raft::StateRole::Leader
    }
}
