//! Who takes part in each Raft group, as the cluster map wants it: looked after by the leader of each.
//!
//! Every node of the map follows every group; the voters are those that `cluster::map::next_voters` names.
//!
//! Promises: one change at a time, learners first, voters exchanged jointly, and a leader never takes its own vote away: it hands the
//! lead over first (rule R61). Refuses to know: how a change becomes durable.

use cluster::map::next_voters;
use metadata::shard::{MemberChange, Members};
use std::collections::BTreeSet;
use types::NodeId;
use types::cluster::Map;

/// What a leader does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Change the members.
    Change(MemberChange),
    /// Hand the lead to this voter.
    Transfer(NodeId),
}

/// The next step of the leader `leader` towards what the map wants; `None`: all is as it should be, or a change is under way.
pub fn next_step(map: &Map, members: &Members, leader: NodeId) -> Option<Step> {
    if members.is_joint() {
        return None;
    }
    let trusted: BTreeSet<NodeId> = map.trusted().map(|node| node.id).collect();
    if let Some(new) = trusted.iter().find(|node| !members.contains(**node)) {
        return Some(Step::Change(MemberChange::AddLearner(*new)));
    }
    let wanted = next_voters(map, &members.voters);
    if !wanted.is_empty() && wanted != members.voters {
        if !wanted.contains(&leader) {
            return wanted.intersection(&members.voters).next().map(|voter| Step::Transfer(*voter));
        }
        return Some(Step::Change(MemberChange::SetVoters(wanted)));
    }
    let gone = members.learners.iter().find(|node| !trusted.contains(node));
    gone.map(|node| Step::Change(MemberChange::Remove(*node)))
}

#[cfg(test)]
mod tests {
    use super::{Step, next_step};
    use metadata::shard::{MemberChange, Members};
    use std::collections::BTreeMap;
    use types::cluster::{Addresses, KeyHash, Map, Node, NodeStart, NodeState};
    use types::{ClusterId, NodeId};

    fn map(states: &[(NodeId, NodeState)]) -> Map {
        let node = |(id, state): &(NodeId, NodeState)| {
            let addresses = Addresses { rpc: format!("n{id}:1"), ..Addresses::default() };
            let start = NodeStart { incarnation: 1, version: 1, addresses, rack: None };
            (*id, Node { id: *id, key: KeyHash([*id as u8; 32]), state: *state, start, joined_ms: 0 })
        };
        let nodes: BTreeMap<NodeId, Node> = states.iter().map(node).collect();
        Map { cluster: ClusterId(1), epoch: 1, version: 1, nodes, disks: BTreeMap::new() }
    }

    /// What raft-rs makes of a step, as far as this needs to know.
    fn after(members: &mut Members, step: &Step) {
        match step {
            Step::Change(MemberChange::AddLearner(node)) => drop(members.learners.insert(*node)),
            Step::Change(MemberChange::Remove(node)) => drop(members.learners.remove(node)),
            Step::Change(MemberChange::SetVoters(voters)) => {
                let gone: Vec<NodeId> = members.voters.difference(voters).copied().collect();
                members.learners.extend(gone);
                members.learners.retain(|node| !voters.contains(node));
                members.voters = voters.clone();
            }
            Step::Transfer(_) => {}
        }
    }

    #[test]
    fn one_node_grows_to_three_voters_by_learners_and_one_joint_change() {
        use NodeState::{Active, Joining};
        let mut members = Members::single(1);
        let joining = map(&[(1, Active), (2, Joining), (3, Joining)]);
        for node in [2, 3] {
            let step = next_step(&joining, &members, 1).expect("a learner");
            assert_eq!(step, Step::Change(MemberChange::AddLearner(node)));
            after(&mut members, &step);
        }
        assert_eq!(next_step(&joining, &members, 1), None, "they have to catch up");
        assert_eq!(next_step(&map(&[(1, Active), (2, Active), (3, Joining)]), &members, 1), None, "never two voters");
        let active = map(&[(1, Active), (2, Active), (3, Active)]);
        let step = next_step(&active, &members, 1).expect("voters");
        assert_eq!(step, Step::Change(MemberChange::SetVoters([1, 2, 3].into())));
        after(&mut members, &step);
        assert_eq!(next_step(&active, &members, 1), None);
    }

    #[test]
    fn a_leader_that_shall_not_vote_hands_the_lead_over_and_a_removed_node_leaves() {
        use NodeState::{Active, Draining, Removed};
        let mut members = Members { voters: [1, 2, 3].into(), learners: [4].into(), ..Members::default() };
        let draining = map(&[(1, Draining), (2, Active), (3, Active), (4, Active)]);
        assert!(matches!(next_step(&draining, &members, 1), Some(Step::Transfer(2 | 3))));
        let step = next_step(&draining, &members, 2).expect("voters");
        assert_eq!(step, Step::Change(MemberChange::SetVoters([2, 3, 4].into())));
        after(&mut members, &step);
        assert_eq!(next_step(&draining, &members, 2), None, "it follows while it drains");
        let gone = map(&[(1, Removed), (2, Active), (3, Active), (4, Active)]);
        assert_eq!(next_step(&gone, &members, 2), Some(Step::Change(MemberChange::Remove(1))));
    }
}
