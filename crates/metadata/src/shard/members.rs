//! Who takes part in a group, and how that changes.
//!
//! Promises: a change of members is an entry like any other: what it makes of the members is written with the applied row of
//! that entry, in the same batch, and computed by raft-rs alone. Refuses to know: addresses, nodes that take no part.

use super::storage::Tail;
use super::{DRIVER_FAMILY, ShardId};
use crate::tree::{Read, TreeError, WriteBatch};
use protobuf::Message as _;
use raft::RawNode;
use raft::eraftpb::{ConfChange, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use raft::eraftpb::{Entry, EntryType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use types::NodeId;

const MEMBERS: u8 = b'm';
/// Version of the bytes of the members' row, their first byte.
const FORMAT: u8 = 1;

/// The members of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Members {
    /// A majority of these commits.
    pub voters: BTreeSet<NodeId>,
    /// While voters are being exchanged: those before. A majority of these is needed, too.
    pub outgoing: BTreeSet<NodeId>,
    /// They follow and do not count.
    pub learners: BTreeSet<NodeId>,
    /// Voters before that become learners when the exchange is over.
    pub next_learners: BTreeSet<NodeId>,
}

/// One change of the members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberChange {
    /// Adds a node that follows without counting: always the first step of a new one.
    AddLearner(NodeId),
    /// Exchanges the voters for these, jointly: old and new majorities are both needed until it is over. Whoever comes new was
    /// a learner that has caught up; whoever goes stays a learner. The leader cannot be among those who go.
    SetVoters(BTreeSet<NodeId>),
    /// Removes a learner.
    Remove(NodeId),
}

impl Members {
    /// One voter.
    pub fn single(node: NodeId) -> Members {
        Members { voters: [node].into(), ..Members::default() }
    }

    /// Whether this node takes part in any role.
    pub fn contains(&self, node: NodeId) -> bool {
        [&self.voters, &self.outgoing, &self.learners, &self.next_learners].iter().any(|set| set.contains(&node))
    }

    /// Whether `node` alone decides.
    pub fn decides(&self, node: NodeId) -> bool {
        self.outgoing.is_empty() && self.voters.len() == 1 && self.voters.contains(&node)
    }

    /// Whether there is nobody but `node`.
    pub(crate) fn is_only(&self, node: NodeId) -> bool {
        self.decides(node) && self.learners.is_empty()
    }

    /// Whether voters are being exchanged.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn to_raft(&self) -> ConfState {
        let ids = |set: &BTreeSet<NodeId>| set.iter().map(|id| u64::from(*id)).collect();
        ConfState {
            voters: ids(&self.voters),
            voters_outgoing: ids(&self.outgoing),
            learners: ids(&self.learners),
            learners_next: ids(&self.next_learners),
            ..ConfState::default()
        }
    }

    /// `None`: an id that no node has.
    pub(super) fn from_raft(state: &ConfState) -> Option<Members> {
        let ids = |ids: &[u64]| ids.iter().map(|id| NodeId::try_from(*id).ok()).collect::<Option<BTreeSet<_>>>();
        Some(Members {
            voters: ids(&state.voters)?,
            outgoing: ids(&state.voters_outgoing)?,
            learners: ids(&state.learners)?,
            next_learners: ids(&state.learners_next)?,
        })
    }

    /// What an entry that is known committed makes of them, without a group: for a replay. The same code as in a group.
    pub(crate) fn after(&self, entry: &Entry) -> Result<Members, String> {
        let Some(change) = decode_change(entry)? else { return Ok(self.clone()) };
        // Any id will do: a group without entries that never campaigns.
        let config = raft::Config { id: u64::MAX, ..raft::Config::default() };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut raw = RawNode::new(&config, Tail::scratch(self), &logger).map_err(|e| e.to_string())?;
        match raw.apply_conf_change(&change) {
            Ok(state) => Members::from_raft(&state).ok_or_else(|| "a member has an id that no node has".to_owned()),
            // Every replica comes to the same answer, as it decides from the same members.
            Err(_) => Ok(self.clone()),
        }
    }
}

impl MemberChange {
    /// As Raft wants it.
    pub(super) fn to_raft(&self, now: &Members) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let single = |node: NodeId, kind: ConfChangeType| ConfChangeSingle {
            node_id: u64::from(node),
            change_type: kind,
            ..ConfChangeSingle::default()
        };
        match self {
            MemberChange::AddLearner(node) => change.mut_changes().push(single(*node, ConfChangeType::AddLearnerNode)),
            MemberChange::Remove(node) => change.mut_changes().push(single(*node, ConfChangeType::RemoveNode)),
            MemberChange::SetVoters(voters) => {
                // Left by an entry of the leader's once this one is applied, whoever leads then: raft-rs would forget to if
                // the leader changed in between.
                change.set_transition(ConfChangeTransition::Explicit);
                let come = voters.difference(&now.voters).map(|node| single(*node, ConfChangeType::AddNode));
                let go = now.voters.difference(voters).map(|node| single(*node, ConfChangeType::AddLearnerNode));
                change.mut_changes().extend(come.chain(go));
            }
        }
        change
    }
}

/// Whether this entry changes members.
pub(super) fn is_change(entry: &Entry) -> bool {
    matches!(entry.get_entry_type(), EntryType::EntryConfChange | EntryType::EntryConfChangeV2)
}

/// The change in an entry; `None` if it is none.
pub(super) fn decode_change(entry: &Entry) -> Result<Option<ConfChangeV2>, String> {
    let bad = |e: protobuf::ProtobufError| format!("a change of members that cannot be read: {e}");
    match entry.get_entry_type() {
        EntryType::EntryNormal => Ok(None),
        EntryType::EntryConfChange => {
            let mut change = ConfChange::default();
            change.merge_from_bytes(&entry.data).map_err(bad)?;
            Ok(Some(raft_v2(change)))
        }
        EntryType::EntryConfChangeV2 => {
            let mut change = ConfChangeV2::default();
            change.merge_from_bytes(&entry.data).map_err(bad)?;
            Ok(Some(change))
        }
    }
}

fn raft_v2(change: ConfChange) -> ConfChangeV2 {
    let (node_id, change_type) = (change.node_id, change.get_change_type());
    let single = ConfChangeSingle { node_id, change_type, ..ConfChangeSingle::default() };
    let mut v2 = ConfChangeV2::default();
    v2.mut_changes().push(single);
    v2
}

fn key(shard: ShardId) -> Vec<u8> {
    let mut key = vec![DRIVER_FAMILY, MEMBERS];
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

/// Writes the members of a shard's group. A group that never had another than this node has no such row.
pub(crate) fn put_members(batch: &mut WriteBatch, shard: ShardId, members: &Members) {
    let value = postcard::to_extend(members, vec![FORMAT]).expect("members have nothing that cannot be encoded");
    batch.put(key(shard), value);
}

/// The members of a shard's group; `None`: there is no row.
pub(crate) fn read_members(read: &dyn Read, shard: ShardId) -> Result<Option<Members>, TreeError> {
    let Some(value) = read.get(&key(shard))? else { return Ok(None) };
    let bytes = value.strip_prefix(&[FORMAT]);
    let members = bytes.and_then(|bytes| postcard::from_bytes(bytes).ok());
    members.map(Some).ok_or_else(|| TreeError(format!("the members' row of shard {}", shard.0)))
}

#[cfg(test)]
mod tests {
    use super::{MemberChange, Members, put_members};
    use crate::shard::ShardId;
    use crate::tree::WriteBatch;
    use protobuf::Message as _;
    use raft::eraftpb::{Entry, EntryType};

    #[test]
    fn the_row_of_members_has_its_golden_bytes() {
        let members = Members {
            voters: [1, 2, 300].into(),
            outgoing: [1].into(),
            learners: [4].into(),
            next_learners: [5].into(),
        };
        let mut batch = WriteBatch::default();
        put_members(&mut batch, ShardId(2), &members);
        let (key, value) = batch.rows.pop().expect("a row");
        assert_eq!(key, vec![0, b'm', 0, 0, 0, 2]);
        assert_eq!(value.expect("a value").to_vec(), vec![1, 3, 1, 2, 0xac, 2, 1, 1, 1, 4, 1, 5]);
    }

    fn entry(change: &MemberChange, now: &Members) -> Entry {
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.data = change.to_raft(now).write_to_bytes().expect("encodes").into();
        entry
    }

    #[test]
    fn voters_are_exchanged_jointly_and_those_who_go_become_learners() {
        let mut members = Members::single(1);
        for node in [2, 3] {
            members = members.after(&entry(&MemberChange::AddLearner(node), &members)).expect("follows");
        }
        assert_eq!(members.learners, [2, 3].into());
        assert!(members.decides(1) && !members.is_only(1));
        let change = MemberChange::SetVoters([2, 3].into());
        members = members.after(&entry(&change, &members)).expect("follows");
        assert_eq!((&members.voters, &members.outgoing), (&[2, 3].into(), &[1].into()));
        assert!(members.is_joint() && !members.decides(1));
        let mut leave = Entry::default();
        leave.set_entry_type(EntryType::EntryConfChangeV2);
        members = members.after(&leave).expect("follows");
        let expected = Members { voters: [2, 3].into(), learners: [1].into(), ..Members::default() };
        assert_eq!(members, expected);
        assert_eq!(members.after(&leave), Ok(expected), "nothing to leave");
    }
}
