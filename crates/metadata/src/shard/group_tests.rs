//! What a group makes durable before it says what, step by step (rules R14 and R15).

use super::{Committed, FoundGroup, Group, GroupConfig, HardState, Item};
use crate::log::format::LogEntry;
use crate::shard::ShardId;
use crate::shard::members::Members;
use crate::shard::wire::{Outbox, decode};
use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};
use tokio::sync::oneshot::{self, error::TryRecvError};
use types::NodeId;

const SHARD: ShardId = ShardId(1);

fn three() -> Members {
    Members { voters: [1, 2, 3].into(), ..Members::default() }
}

fn group(node: NodeId, found: FoundGroup) -> Group {
    let config = GroupConfig { node, clustered: true, seed: 7, message_bytes: 1 << 20 };
    Group::new(found, config).expect("a group")
}

fn fresh(node: NodeId) -> Group {
    group(node, FoundGroup { members: three(), ..FoundGroup::unknown(SHARD) })
}

fn message(kind: MessageType, from: NodeId, to: NodeId, term: u64) -> Message {
    let mut message = Message { from: from.into(), to: to.into(), term, ..Message::default() };
    message.set_msg_type(kind);
    message
}

/// The first `last` entries, of term 1, behind those up to `after`.
fn append(after: u64, last: u64, commit: u64) -> Message {
    let mut append = message(MessageType::MsgAppend, 1, 2, 1);
    (append.index, append.log_term, append.commit) = (after, u64::from(after > 0), commit);
    append.entries =
        (after + 1..=last).map(|index| Entry { index, term: 1, ..Entry::default() }).collect::<Vec<_>>().into();
    append
}

fn sent(out: &mut Outbox) -> Vec<Message> {
    out.take().flat_map(|(_, batch)| decode(batch)).map(|(_, message)| message).collect()
}

/// One step: what it says before its items are durable, the items, and what it says afterwards.
struct Step {
    before: Vec<Message>,
    items: Vec<Item>,
    after: Vec<Message>,
    committed: Vec<Committed>,
}

fn step(group: &mut Group) -> Option<Step> {
    let (mut items, mut out, mut committed) = (Vec::new(), Outbox::default(), Vec::new());
    let ready = group.ready(&mut items, &mut out)?;
    let before = sent(&mut out);
    group.advance(ready, &mut committed, &mut out);
    Some(Step { before, items, after: sent(&mut out), committed })
}

/// All steps there are, as one.
fn steps(group: &mut Group) -> Step {
    let mut all = Step { before: Vec::new(), items: Vec::new(), after: Vec::new(), committed: Vec::new() };
    while let Some(one) = step(group) {
        all.before.extend(one.before);
        all.items.extend(one.items);
        all.after.extend(one.after);
        all.committed.extend(one.committed);
    }
    all
}

fn states(items: &[Item]) -> Vec<HardState> {
    let state = |item: &Item| if let Item::HardState(_, state) = item { Some(*state) } else { None };
    items.iter().filter_map(state).collect()
}

#[test]
fn a_vote_is_durable_before_anybody_hears_of_it_and_after_a_restart_it_is_not_given_again() {
    let mut voter = fresh(2);
    voter.step(message(MessageType::MsgRequestVote, 1, 2, 1)).expect("taken");
    let step = step(&mut voter).expect("something to do");
    assert_eq!(states(&step.items), [HardState { term: 1, vote: 1, commit: 0 }]);
    assert_eq!(step.before, [], "nothing is said before");
    let votes: Vec<_> = step.after.iter().map(|m| (m.get_msg_type(), m.to, m.term, m.reject)).collect();
    assert_eq!(votes, [(MessageType::MsgRequestVoteResponse, 1, 1, false)]);

    let state = states(&step.items)[0];
    let mut again = group(2, FoundGroup { members: three(), state, ..FoundGroup::unknown(SHARD) });
    again.step(message(MessageType::MsgRequestVote, 3, 2, 1)).expect("taken");
    let answers = steps(&mut again);
    let said = answers.before.iter().chain(&answers.after);
    assert!(said.clone().count() > 0 && said.clone().all(|m| m.to == 3 && m.reject), "it has voted in that term");
}

#[test]
fn entries_are_durable_before_they_are_acknowledged_and_bring_what_is_known_committed() {
    let mut follower = fresh(2);
    follower.step(append(0, 2, 0)).expect("taken");
    let first = step(&mut follower).expect("something to do");
    let held = |items: &[Item]| items.iter().filter(|item| matches!(item, Item::Entry(_))).count();
    assert_eq!((held(&first.items), first.before.len()), (2, 0), "nothing is said before");
    let told: Vec<_> = first.after.iter().map(|m| (m.get_msg_type(), m.index, m.reject)).collect();
    assert_eq!(told, [(MessageType::MsgAppendResponse, 2, false)]);

    follower.step(append(2, 3, 2)).expect("taken");
    let second = step(&mut follower).expect("something to do");
    assert_eq!(states(&second.items), [HardState { term: 1, vote: 0, commit: 2 }], "with the entry");
    assert!(matches!(second.items[0], Item::HardState(..)), "before the entry: {:?}", second.items);
    assert_eq!(second.committed.iter().map(|entry| entry.index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_member_that_does_not_decide_hands_over_only_what_is_known_committed() {
    let log = |index| LogEntry { shard: SHARD, index, term: 1, kind: 0, data: Bytes::new() };
    let voters = Members { voters: [1, 3].into(), learners: [2].into(), ..Members::default() };
    let learner = Members { voters: [1].into(), learners: [2].into(), ..Members::default() };
    for members in [learner, voters, three()] {
        let state = HardState { term: 1, vote: 0, commit: 3 };
        let found = FoundGroup { members, state, entries: (1..=5).map(log).collect(), ..FoundGroup::unknown(SHARD) };
        let committed = steps(&mut group(2, found)).committed;
        assert_eq!(committed.iter().map(|entry| entry.index).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[test]
fn a_read_is_answered_only_by_a_round_that_began_after_it_and_that_a_majority_answered() {
    let mut leader = fresh(1);
    leader.campaign().expect("a candidate");
    let answer = |kind, from, term| message(kind, from, 1, term);
    while !leader.leads() {
        let asked = steps(&mut leader);
        for ask in asked.before.into_iter().chain(asked.after).filter(|ask| ask.to == 2) {
            let kind = match ask.get_msg_type() {
                MessageType::MsgRequestPreVote => MessageType::MsgRequestPreVoteResponse,
                MessageType::MsgRequestVote => MessageType::MsgRequestVoteResponse,
                other => unreachable!("{other:?}"),
            };
            leader.step(answer(kind, 2, ask.term)).expect("taken");
        }
    }
    steps(&mut leader);
    let mut appended = answer(MessageType::MsgAppendResponse, 2, 1);
    appended.index = 1;
    leader.step(appended).expect("taken");
    assert_eq!(steps(&mut leader).committed.len(), 1, "the leader's own entry");
    assert!(leader.has_committed());

    let (reply, mut read) = oneshot::channel();
    leader.reads.add(reply);
    leader.settle();
    let round = steps(&mut leader);
    assert_eq!(read.try_recv(), Err(TryRecvError::Empty), "nobody has answered");
    let asked = round.before.into_iter().chain(round.after).find(|m| m.to == 2).expect("the round's heartbeat");
    assert!(!asked.context.is_empty());
    // One of before the round proves nothing.
    leader.step(answer(MessageType::MsgHeartbeatResponse, 3, 1)).expect("taken");
    steps(&mut leader);
    assert_eq!(read.try_recv(), Err(TryRecvError::Empty));
    let mut heard = answer(MessageType::MsgHeartbeatResponse, 2, 1);
    heard.context = asked.context;
    leader.step(heard).expect("taken");
    steps(&mut leader);
    assert_eq!(read.try_recv(), Ok(Ok(1)));
}
