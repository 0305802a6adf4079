//! One Raft group on this node: raft-rs, and who waits for its entries, its reads and its changes.
//!
//! Promises: a proposal is answered for the very entry it became, or told that nobody knows; term and vote are written before any
//! message that speaks of them, entries before their acknowledgement (rule R15); the commit index is written with every entry, so
//! that a node that holds a change of members knows the one before it to be committed and never campaigns by older members.
//! Refuses to know: the log, apply, the network.

use super::ShardId;
use super::members::{self, MemberChange, Members};
use super::reads::Reads;
use super::rows::Applied;
use super::shared::InFlight;
use super::storage::{Asked, Tail};
use super::wire::Outbox;
use crate::command::{Entry, Outcome};
use crate::limits::{ELECTION_TICKS, ELECTION_TICKS_MAX, IN_FLIGHT_MESSAGES};
use crate::log::format::{HardState, Item, LogEntry};
use crate::node::ProposeError;
use raft::eraftpb::{self, Message, MessageType};
use raft::{RawNode, Ready, StateRole};
use std::collections::VecDeque;
use tokio::sync::oneshot;
use types::NodeId;

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
    /// A change of members, and what they are after it.
    Members(Members),
}

struct Pending {
    index: u64,
    term: u64,
    entry: Box<Entry>,
    waiting: Waiting,
}

/// How a group is found at a start.
pub(crate) struct FoundGroup {
    pub(crate) shard: ShardId,
    pub(crate) state: HardState,
    /// How far the tree has it.
    pub(crate) applied: Applied,
    /// As of that entry.
    pub(crate) members: Members,
    /// Index and term of the entry before the first in the log.
    pub(crate) before: Applied,
    /// All that the log holds.
    pub(crate) entries: Vec<LogEntry>,
}

impl FoundGroup {
    /// Nothing is known of it: no members, no entries.
    pub(crate) fn unknown(shard: ShardId) -> FoundGroup {
        FoundGroup {
            shard,
            state: HardState::default(),
            applied: (0, 0),
            members: Members::default(),
            before: (0, 0),
            entries: Vec::new(),
        }
    }
}

/// What is the same for all groups of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupConfig {
    pub(crate) node: NodeId,
    /// Whether there are other nodes.
    pub(crate) clustered: bool,
    /// Of election timeouts.
    pub(crate) seed: u64,
    /// Most bytes of entries in a message, about.
    pub(crate) message_bytes: u64,
}

/// The group.
pub(super) struct Group {
    pub(super) shard: ShardId,
    config: GroupConfig,
    pub(super) raw: RawNode<Tail>,
    pending: VecDeque<Pending>,
    /// Term, vote and commit as the log has them.
    durable: HardState,
    /// Messages of a leader that must wait for its term to be durable.
    held: Vec<Message>,
    members: Members,
    /// There is nobody but this node.
    alone: bool,
    /// Elections it began; a part of the next timeout.
    campaigns: u64,
    pub(super) reads: Reads,
    /// Who waits for a change of members or leader.
    changing: Vec<oneshot::Sender<Result<(), ProposeError>>>,
    transferring: Vec<oneshot::Sender<Result<(), ProposeError>>>,
    /// A snapshot is being put into the tree: nothing may move meanwhile.
    pub(super) installing: bool,
}

impl Group {
    /// A group as it was found.
    pub(super) fn new(found: FoundGroup, config: GroupConfig) -> Result<Group, String> {
        let FoundGroup { shard, state, applied, members, before, entries } = found;
        let (term, commit) = (state.term.max(applied.1), state.commit.max(applied.0));
        let last = entries.last().map_or(before.0, |entry| entry.index);
        if commit > last {
            return Err(format!("shard {}: entry {commit} is known committed, the log ends at {last}", shard.0));
        }
        let hard_state = eraftpb::HardState { term, vote: state.vote, commit, ..Default::default() };
        let raft_config = raft::Config {
            id: u64::from(config.node),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: ELECTION_TICKS_MAX,
            applied: applied.0,
            max_size_per_msg: config.message_bytes,
            max_inflight_msgs: IN_FLIGHT_MESSAGES,
            pre_vote: true,
            check_quorum: true,
            ..raft::Config::default()
        };
        let mut tail = Tail::new(&members, hard_state, before, config.clustered);
        tail.append(&entries.into_iter().map(raft_entry).collect::<Vec<_>>());
        tail.forget(applied.0);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&raft_config, tail, &logger).map_err(|e| e.to_string())?;
        let alone = members.is_only(config.node);
        Ok(Group {
            shard,
            config,
            raw,
            pending: VecDeque::new(),
            durable: HardState { term, vote: state.vote, commit },
            held: Vec::new(),
            members,
            alone,
            campaigns: 0,
            reads: Reads::default(),
            changing: Vec::new(),
            transferring: Vec::new(),
            installing: false,
        })
    }

    /// Asks to lead; an only voter does so at once.
    pub(super) fn campaign(&mut self) -> Result<(), String> {
        self.raw.campaign().map_err(|e| e.to_string())
    }

    /// Whether this node alone decides.
    pub(super) fn decides(&self) -> bool {
        self.members.decides(self.config.node)
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Proposes `data`, which is `entry` encoded and stamped.
    pub(super) fn propose(
        &mut self,
        entry: Box<Entry>,
        data: Vec<u8>,
        waiting: Waiting,
    ) -> Result<(), (Waiting, ProposeError)> {
        // A follower would send it on to the leader, past the one driver that stamps and answers.
        if !self.leads() {
            return Err((waiting, ProposeError::NotLeader(self.leader())));
        }
        if self.raw.propose(Vec::new(), data).is_err() {
            return Err((waiting, ProposeError::Busy));
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.pending.push_back(Pending { index, term, entry, waiting });
        Ok(())
    }

    /// Time passes. The timeout is drawn by us: raft-rs draws it from a generator that no seed governs.
    pub(super) fn tick(&mut self) {
        if self.installing {
            return;
        }
        let range = (ELECTION_TICKS_MAX - ELECTION_TICKS) as u64;
        let drawn = mix(self.config.seed ^ u64::from(self.shard.0) << 32 ^ self.raw.raft.term << 8 ^ self.campaigns);
        self.raw.raft.set_randomized_election_timeout(ELECTION_TICKS + (drawn % range) as usize);
        let led = self.leads();
        if self.raw.tick() && !led {
            self.campaigns += 1;
        }
        if self.leads() && self.raw.raft.lead_transferee.is_none() {
            let failed = || ProposeError::Failed("the other node did not take the lead in time".to_owned());
            self.transferring.drain(..).for_each(|reply| drop(reply.send(Err(failed()))));
        }
    }

    /// Takes a message of another member in. An error names what no honest member with all its data can have said.
    pub(super) fn step(&mut self, message: Message) -> Result<(), String> {
        let raft = &self.raw.raft;
        if self.installing || !is_sound(&message) {
            return Ok(());
        }
        let last = raft.raft_log.last_index();
        if message.get_msg_type() == MessageType::MsgHeartbeat && message.term >= raft.term && message.commit > last {
            return Err(format!(
                "shard {}: node {} counts on entry {} of this node, whose log ends at {last}: it lost what it had acknowledged",
                self.shard.0, message.from, message.commit
            ));
        }
        // Refused are answers of those who are no members: nothing to be done about it.
        let _ = self.raw.step(message);
        Ok(())
    }

    /// What has to be made durable, if anything has to be done; what may leave before it is.
    pub(super) fn ready(&mut self, items: &mut Vec<Item>, out: &mut Outbox) -> Option<Ready> {
        if !self.raw.has_ready() {
            return None;
        }
        let mut ready = self.raw.ready();
        let snapshot = snapshot_at(&ready);
        if let Some((index, term)) = snapshot {
            // Two marks: the first removes whatever is above, which contradicts the snapshot; the log goes on behind the second.
            items.push(Item::Truncated(self.shard, self.raw.store().last().max(index), term));
            items.push(Item::Truncated(self.shard, index, term));
        }
        let (now, before) = (self.hard_state(), self.durable);
        let elected = (now.term, now.vote) != (before.term, before.vote);
        // An only member need not know what is committed: all of its log is.
        let in_full = !self.alone || ready.entries().iter().any(members::is_change);
        let behind = now != before && in_full && !(ready.entries().is_empty() && snapshot.is_none());
        // Term and vote stand before the entries they allow (rule R15).
        if elected || behind {
            items.push(Item::HardState(self.shard, now));
            self.durable = now;
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
        let messages = ready.take_messages();
        // A leader's messages need not wait for its disk, but for its term they do: an only voter leads before that is written.
        if elected {
            self.held = messages;
        } else {
            messages.iter().for_each(|message| out.push(self.shard, message));
        }
        Some(ready)
    }

    /// Takes note that the items of `ready` are durable; gives what is committed now and what may leave now.
    pub(super) fn advance(&mut self, mut ready: Ready, committed: &mut Vec<Committed>, out: &mut Outbox) {
        let snapshot = snapshot_at(&ready);
        if let Some(at) = snapshot {
            let members = ready.snapshot().get_metadata().get_conf_state().clone();
            self.set_members(&members);
            self.raw.mut_store().restore(at, members);
        }
        self.raw.mut_store().append(ready.entries());
        let mut entries = ready.take_committed_entries();
        let mut messages = std::mem::take(&mut self.held);
        messages.extend(ready.take_persisted_messages());
        self.reads.proved(ready.take_read_states());
        let mut light = self.raw.advance_append(ready);
        entries.extend(light.take_committed_entries());
        messages.extend(light.take_messages());
        messages.iter().for_each(|message| out.push(self.shard, message));
        if let Some((index, _)) = snapshot {
            self.raw.advance_apply_to(index);
        }
        let Some(last) = entries.last().map(|entry| entry.index) else { return };
        for entry in entries {
            let committed_now = self.commit(entry);
            committed.push(committed_now);
        }
        // Handed over, in order, to apply; Raft need not know when apply is done with it.
        self.raw.advance_apply_to(last);
        self.raw.mut_store().forget(last);
    }

    fn commit(&mut self, entry: eraftpb::Entry) -> Committed {
        let (index, term, shard) = (entry.index, entry.term, self.shard);
        let found = self.take_pending(index, term);
        let (what, waiting) = match found {
            Some(pending) => (What::Command(pending.entry), Some(pending.waiting)),
            None if members::is_change(&entry) => (self.change(&entry), None),
            None => (What::Data(entry.data), None),
        };
        Committed { shard, index, term, what, waiting }
    }

    /// The members change now, before the entry is applied to the rows: a later start finds it again behind those.
    fn change(&mut self, entry: &eraftpb::Entry) -> What {
        let changed =
            members::decode_change(entry).map(|change| self.raw.apply_conf_change(&change.unwrap_or_default()));
        match changed {
            Ok(Ok(state)) => self.set_members(&state),
            // Such a change never was one, on no member.
            other => tracing::warn!(shard = self.shard.0, ?other, "a change of members changes nothing"),
        }
        What::Members(self.members.clone())
    }

    fn set_members(&mut self, state: &eraftpb::ConfState) {
        if let Some(members) = Members::from_raft(state) {
            self.alone = members.is_only(self.config.node);
            self.members = members;
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
        let failed = || ProposeError::Failed(reason.to_owned());
        self.changing.drain(..).chain(self.transferring.drain(..)).for_each(|reply| drop(reply.send(Err(failed()))));
        self.reads.refuse(&failed());
    }

    /// After something happened: begins reads, ends a joint change, and answers those who wait for a leader that this node is
    /// not any more. An entry that was not committed then may still be, by the next leader.
    pub(super) fn settle(&mut self) {
        if !self.leads() {
            let not_leader = ProposeError::NotLeader(self.leader());
            self.reads.refuse(&not_leader);
            self.transferring.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
            if !(self.pending.is_empty() && self.changing.is_empty()) {
                self.abandon("the lead was lost: whether it happened is not known");
            }
            return;
        }
        if self.reads.wait()
            && self.raw.raft.commit_to_current_term()
            && let Some(round) = self.reads.begin()
        {
            self.raw.read_index(round);
        }
        if self.raw.raft.has_pending_conf() {
            return;
        }
        if self.members.is_joint() {
            // Empty: the way out. Refused only while something else is on its way; asked again then.
            let _ = self.raw.propose_conf_change(Vec::new(), eraftpb::ConfChangeV2::default());
        } else {
            self.changing.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
        }
    }

    /// Begins a change of members; answered when it is over. Refused while another is under way, while a snapshot is on its way
    /// to a voter (rule R61), and for a new voter that has not caught up.
    pub(super) fn change_members(
        &mut self,
        change: &MemberChange,
        reply: oneshot::Sender<Result<(), ProposeError>>,
        caught_up: u64,
    ) {
        let wanted = self.judge_change(change, caught_up);
        let proposed = wanted.and_then(|wanted| match wanted {
            false => Ok(false),
            true => {
                let change = change.to_raft(&self.members);
                self.raw.propose_conf_change(Vec::new(), change).map_err(|_| ProposeError::Busy).map(|()| true)
            }
        });
        match proposed {
            Ok(true) => self.changing.push(reply),
            // Whoever asked may have given up.
            Ok(false) => drop(reply.send(Ok(()))),
            Err(e) => drop(reply.send(Err(e))),
        }
    }

    /// Whether it is to be proposed; `false`: it is so already.
    fn judge_change(&self, change: &MemberChange, caught_up: u64) -> Result<bool, ProposeError> {
        let refuse = |why: &str| Err(ProposeError::Refused(why.to_owned()));
        let (members, raft) = (&self.members, &self.raw.raft);
        if !self.leads() {
            return Err(ProposeError::NotLeader(self.leader()));
        }
        let progress = |node: &NodeId| raft.prs().get(u64::from(*node));
        let fed = |node: &NodeId| progress(node).is_some_and(|member| member.state == raft::ProgressState::Snapshot);
        if raft.has_pending_conf() || members.is_joint() || members.voters.iter().any(fed) {
            return Err(ProposeError::Busy);
        }
        match change {
            MemberChange::AddLearner(node) => Ok(!members.contains(*node)),
            MemberChange::Remove(node) if members.voters.contains(node) => refuse("a voter is not removed"),
            MemberChange::Remove(node) => Ok(members.contains(*node)),
            MemberChange::SetVoters(voters) if *voters == members.voters => Ok(false),
            MemberChange::SetVoters(voters) if !voters.contains(&self.config.node) => {
                refuse("the leader must stay a voter: hand the lead over first")
            }
            MemberChange::SetVoters(voters) if voters.iter().any(|node| !members.contains(*node)) => {
                refuse("a new voter has to be a learner first")
            }
            MemberChange::SetVoters(voters) => {
                let last = raft.raft_log.last_index();
                let near = |node: &NodeId| progress(node).is_some_and(|member| member.matched + caught_up >= last);
                if voters.iter().all(near) { Ok(true) } else { Err(ProposeError::Busy) }
            }
        }
    }

    /// Hands the lead over; answered when this node does not lead any more, or when the time for that is over.
    pub(super) fn transfer(&mut self, to: NodeId, reply: oneshot::Sender<Result<(), ProposeError>>) {
        if self.leads() && self.members.voters.contains(&to) && to != self.config.node {
            self.raw.transfer_leader(u64::from(to));
            return self.transferring.push(reply);
        }
        let result = match self.leader() {
            Some(leader) if leader == to => Ok(()),
            Some(leader) if self.leads() && leader != to => Err(ProposeError::Refused("no voter".to_owned())),
            leader => Err(ProposeError::NotLeader(leader)),
        };
        drop(reply.send(result));
    }

    /// What raft-rs wanted and did not find in memory.
    pub(super) fn take_asked(&mut self) -> Asked {
        self.raw.mut_store().take_asked()
    }

    pub(super) fn hard_state(&self) -> HardState {
        let state = self.raw.raft.hard_state();
        HardState { term: state.term, vote: state.vote, commit: state.commit }
    }

    /// The leader, as this node believes.
    pub(super) fn leader(&self) -> Option<NodeId> {
        NodeId::try_from(self.raw.raft.leader_id).ok().filter(|id| *id != 0)
    }

    /// Whether it may be proposed to.
    pub(super) fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether an entry of its own term is committed: only then a leader knows all that is.
    pub(super) fn has_committed(&self) -> bool {
        self.raw.raft.commit_to_current_term()
    }
}

/// As raft-rs wants it.
pub(crate) fn raft_entry(entry: LogEntry) -> eraftpb::Entry {
    let mut out = eraftpb::Entry { term: entry.term, index: entry.index, data: entry.data, ..Default::default() };
    out.set_entry_type(match entry.kind {
        1 => eraftpb::EntryType::EntryConfChange,
        2 => eraftpb::EntryType::EntryConfChangeV2,
        _ => eraftpb::EntryType::EntryNormal,
    });
    out
}

/// Index and term of the snapshot that is to be recorded.
fn snapshot_at(ready: &Ready) -> Option<Applied> {
    let metadata = ready.snapshot().get_metadata();
    Some((metadata.index, metadata.term)).filter(|(index, _)| *index > 0)
}

fn is_from_leader(message: &Message) -> bool {
    matches!(
        message.get_msg_type(),
        MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot | MessageType::MsgTimeoutNow
    )
}

/// Whether raft-rs can take it without asserting: entries one after the other, no local message, none that would be forwarded.
fn is_sound(message: &Message) -> bool {
    let kind = message.get_msg_type();
    let follows = message.entries.iter().zip(1..).all(|(entry, n)| Some(entry.index) == message.index.checked_add(n));
    let rises = message.entries.windows(2).all(|pair| pair[0].term <= pair[1].term);
    let answers = matches!(
        kind,
        MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
    );
    (answers || is_from_leader(message)) && message.term > 0 && follows && rises
}

/// SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
