//! Which groups make a strip, which of their replicas stay, and where the parity goes. Values in, values out.
//!
//! Promises: all members of a strip are on distinct nodes (rule R26), or there is none; lengths within 5 % where there are such.
//! Refuses to know: whether it is a good moment.

use std::collections::BTreeSet;
use types::{DiskId, GroupId, NodeId};

/// A group that may be encoded.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) group: GroupId,
    /// Of the record that was judged.
    pub(super) generation: u32,
    /// End of what lives in it.
    pub(super) length: u64,
    /// Its whole replicas on disks in service.
    pub(super) copies: Vec<(DiskId, NodeId)>,
}

/// A disk that may take parity.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) disk: DiskId,
    pub(super) node: NodeId,
    pub(super) rack: Option<String>,
    pub(super) used_percent: u64,
}

/// A data group of a strip to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) group: GroupId,
    /// Of the record that was judged: the strip begins at this one or not at all.
    pub(super) generation: u32,
    /// Of the replica that stays.
    pub(super) disk: DiskId,
}

/// A strip to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Data groups.
    pub(super) data: Vec<Member>,
    /// Disks for parity.
    pub(super) parity: Vec<DiskId>,
}

/// Candidates looked at: enough for any strip, and bounded.
const LOOKED_AT: usize = 512;

/// Of the candidates (the longest come first) k that fit each other, and m disks for their parity.
pub(super) fn choose(mut candidates: Vec<Candidate>, targets: &[Target], (k, m): (usize, usize)) -> Option<Chosen> {
    candidates.sort_by_key(|candidate| (std::cmp::Reverse(candidate.length), candidate.group));
    candidates.truncate(LOOKED_AT);
    if candidates.len() < k {
        return None;
    }
    let alike = |first: u64, other: u64| other >= first - first / 20;
    let all = (0..=candidates.len() - k).map(|first| &candidates[first..]);
    let strict = all.map(|rest| {
        let alike = rest.iter().take_while(|other| alike(rest[0].length, other.length));
        gather(alike, targets, (k, m))
    });
    strict.flatten().next().or_else(|| gather(candidates.iter(), targets, (k, m)))
}

fn gather<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
    targets: &[Target],
    (k, m): (usize, usize),
) -> Option<Chosen> {
    let mut matching = Matching::default();
    for candidate in candidates {
        matching.add(candidate);
        if matching.members.len() == k {
            break;
        }
    }
    if matching.members.len() < k {
        return None;
    }
    let member =
        |(of, at): &(&Candidate, usize)| Member { group: of.group, generation: of.generation, disk: of.copies[*at].0 };
    let data: Vec<_> = matching.members.iter().map(member).collect();
    let taken = matching.members.iter().map(|(member, at)| member.copies[*at].1).collect();
    parity(targets, taken, m).map(|parity| Chosen { data, parity })
}

/// Candidates, each with the place of the copy that stays; all on distinct nodes.
#[derive(Default)]
struct Matching<'a> {
    members: Vec<(&'a Candidate, usize)>,
}

impl<'a> Matching<'a> {
    /// Takes the candidate in if it and all before it can be on distinct nodes; others change to another copy of theirs for that.
    fn add(&mut self, candidate: &'a Candidate) {
        self.members.push((candidate, usize::MAX));
        let last = self.members.len() - 1;
        if !self.place(last, &mut BTreeSet::new()) {
            self.members.pop();
        }
    }

    fn place(&mut self, member: usize, tried: &mut BTreeSet<NodeId>) -> bool {
        let candidate = self.members[member].0;
        for (at, (_, node)) in candidate.copies.iter().enumerate() {
            if !tried.insert(*node) {
                continue;
            }
            let on_it = |(of, at): &(&Candidate, usize)| of.copies.get(*at).is_some_and(|(_, other)| other == node);
            let occupied = self.members.iter().position(on_it).filter(|other| *other != member);
            if occupied.is_none_or(|other| self.place(other, tried)) {
                self.members[member].1 = at;
                return true;
            }
        }
        false
    }
}

/// The first of these that cannot be on a node of its own with any of its copies, if they cannot all be.
pub(super) fn first_unplaced(members: &[Candidate]) -> Option<usize> {
    let mut matching = Matching::default();
    members.iter().position(|member| {
        let before = matching.members.len();
        matching.add(member);
        matching.members.len() == before
    })
}

/// The emptiest disks, one a node, on none of the nodes that are taken; in racks with the fewest of them.
fn parity(targets: &[Target], mut taken: BTreeSet<NodeId>, m: usize) -> Option<Vec<DiskId>> {
    let rack_of = |node: &NodeId| targets.iter().find(|target| target.node == *node).and_then(|t| t.rack.clone());
    let mut chosen = Vec::with_capacity(m);
    for _ in 0..m {
        let racks: Vec<_> = taken.iter().filter_map(rack_of).collect();
        let in_rack = |target: &Target| racks.iter().filter(|rack| target.rack.as_ref() == Some(rack)).count();
        let free = targets.iter().filter(|target| !taken.contains(&target.node));
        let best = free.min_by_key(|target| (in_rack(target), target.used_percent, target.disk))?;
        taken.insert(best.node);
        chosen.push(best.disk);
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Chosen, Target, choose, first_unplaced};
    use std::collections::BTreeSet;
    use types::{DiskId, GroupId, NodeId};

    fn candidate(group: u64, length: u64, nodes: &[NodeId]) -> Candidate {
        let copies = nodes.iter().map(|node| (DiskId(u64::from(*node)), *node)).collect();
        Candidate { group: GroupId(group), generation: 1, length, copies }
    }

    fn targets(nodes: impl IntoIterator<Item = NodeId>) -> Vec<Target> {
        let target = |node: NodeId| Target {
            disk: DiskId(u64::from(node)),
            node,
            rack: (node > 9).then(|| (node % 10).to_string()),
            used_percent: u64::from(node),
        };
        nodes.into_iter().map(target).collect()
    }

    fn nodes(chosen: &Chosen) -> BTreeSet<DiskId> {
        chosen.data.iter().map(|member| member.disk).chain(chosen.parity.iter().copied()).collect()
    }

    #[test]
    fn members_are_on_distinct_nodes_also_if_another_copy_must_stay_for_that() {
        // Each could stay on node 1; only one way gives four nodes.
        let groups = [(1, [1, 2]), (2, [1, 3]), (3, [1, 4]), (4, [1, 2])];
        let candidates = groups.iter().map(|(group, nodes)| candidate(*group, 100, nodes)).collect();
        let chosen = choose(candidates, &targets(1..=6), (4, 2)).expect("a strip");
        assert_eq!(nodes(&chosen), (1..=6).map(DiskId).collect());
        assert_eq!(chosen.parity, [DiskId(5), DiskId(6)]);
        // One way too few.
        let groups = [(1, [1, 2]), (2, [1, 3]), (3, [2, 3]), (4, [1, 2])];
        let candidates = groups.iter().map(|(group, nodes)| candidate(*group, 100, nodes)).collect();
        assert_eq!(choose(candidates, &targets(1..=6), (4, 2)), None);
    }

    #[test]
    fn without_a_node_for_each_member_there_is_no_strip() {
        let four = |_| (1..=4).map(|node| candidate(u64::from(node), 100, &[node])).collect::<Vec<_>>();
        assert_eq!(choose(four(()), &targets(1..=5), (4, 2)), None);
        assert_eq!(choose(four(())[..3].to_vec(), &targets(1..=6), (4, 2)), None);
        assert!(choose(four(()), &targets(1..=5), (4, 1)).is_some());
    }

    #[test]
    fn groups_of_like_length_are_taken_together_where_there_are_such() {
        let lengths = [(1, 1000), (2, 400), (3, 390), (4, 999), (5, 100)];
        let all =
            lengths.iter().map(|(node, length)| candidate(u64::from(*node), *length, &[*node])).collect::<Vec<_>>();
        let of = |chosen: Chosen| chosen.data.iter().map(|member| member.group.0).collect::<Vec<_>>();
        let rest = all.iter().filter(|candidate| candidate.group.0 > 1).cloned().collect();
        assert_eq!(of(choose(rest, &targets(1..=6), (2, 1)).expect("a strip")), [2, 3]);
        assert_eq!(
            of(choose(all[1..3].iter().chain(&all[4..]).cloned().collect(), &targets(1..=6), (3, 1)).expect("one")),
            [2, 3, 5]
        );
    }

    #[test]
    fn a_member_that_shares_its_only_node_or_has_none_is_unplaced() {
        let members =
            |of: [&[NodeId]; 3]| (0..).zip(of).map(|(group, nodes)| candidate(group, 9, nodes)).collect::<Vec<_>>();
        assert_eq!(first_unplaced(&members([&[1], &[2], &[3]])), None);
        assert_eq!(first_unplaced(&members([&[1, 2], &[1], &[3]])), None, "one of its copies is enough");
        assert_eq!(first_unplaced(&members([&[1], &[], &[3]])), Some(1));
        assert_eq!(first_unplaced(&members([&[1], &[2], &[2]])), Some(2));
        assert_eq!(first_unplaced(&members([&[1, 2], &[1, 2], &[1, 2]])), Some(2));
    }

    #[test]
    fn parity_goes_to_the_emptiest_disks_of_other_racks() {
        let two = vec![candidate(1, 9, &[11]), candidate(2, 9, &[21])];
        let chosen = choose(two, &targets([11, 21, 31, 12, 42, 3]), (2, 2)).expect("a strip");
        assert_eq!(chosen.parity, [DiskId(3), DiskId(12)]);
    }
}
