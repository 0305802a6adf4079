//! On which disks a new group goes.
//!
//! Promises: RF disks of distinct nodes (rule R26) or, while there is one node, distinct disks; nothing when there are too few; a
//! function of its arguments. Refuses to know: racks and weights (the cluster's placement will say more), how the disks are asked.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use types::{DiskId, NodeId};

/// A disk that may take a group: it is sound, can be reached and has room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) disk: DiskId,
    pub(super) node: NodeId,
    pub(super) free_bytes: u64,
    /// Groups this controller has open there.
    pub(super) open_groups: usize,
    /// It was late a moment ago: taken only if there is no other.
    pub(super) slow: bool,
    /// It drains, or its node does or is in maintenance: taken only if there is no other, slow or not.
    pub(super) leaving: bool,
}

/// Those with the fewest open groups, then the most room. `Err` says how many domains there are.
pub(super) fn choose(candidates: &[Candidate], rf: usize, by_node: bool) -> Result<Vec<DiskId>, usize> {
    let mut sorted: Vec<&Candidate> = candidates.iter().collect();
    sorted.sort_by_key(|c| (c.leaving, c.slow, c.open_groups, Reverse(c.free_bytes), c.disk));
    let (mut nodes, mut chosen) = (BTreeSet::new(), Vec::new());
    for candidate in sorted {
        if chosen.len() < rf && (!by_node || nodes.insert(candidate.node)) && !chosen.contains(&candidate.disk) {
            chosen.push(candidate.disk);
        }
    }
    if chosen.len() == rf { Ok(chosen) } else { Err(chosen.len()) }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, choose};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use types::DiskId;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (1u32..6, 0u64..4, 0usize..3, any::<bool>(), any::<bool>());
        proptest::collection::vec(one, 0..12).prop_map(|list| {
            let of = |(index, (node, free, open_groups, slow, leaving)): (usize, _)| Candidate {
                disk: DiskId(index as u64),
                node,
                free_bytes: free << 30,
                open_groups,
                slow,
                leaving,
            };
            list.into_iter().enumerate().map(of).collect()
        })
    }

    proptest! {
        #[test]
        fn replicas_are_on_distinct_nodes_whenever_there_are_enough_nodes(list in candidates(), rf in 1usize..4) {
            let nodes: BTreeSet<_> = list.iter().map(|c| c.node).collect();
            match choose(&list, rf, true) {
                Ok(chosen) => {
                    let of = |id: &DiskId| list.iter().find(|c| c.disk == *id).expect("one of them").node;
                    let used: BTreeSet<_> = chosen.iter().map(of).collect();
                    prop_assert_eq!(used.len(), rf);
                }
                Err(found) => {
                    prop_assert!(nodes.len() < rf);
                    prop_assert_eq!(found, nodes.len());
                }
            }
        }

        #[test]
        fn one_node_puts_replicas_on_distinct_disks(list in candidates(), rf in 1usize..4) {
            match choose(&list, rf, false) {
                Ok(chosen) => prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), rf),
                Err(found) => prop_assert!(found < rf && found == list.len()),
            }
        }

        #[test]
        fn a_disk_that_leaves_or_is_slow_is_taken_only_when_there_is_no_other(list in candidates(), rf in 1usize..4) {
            for avoided in [|c: &Candidate| c.leaving, |c: &Candidate| c.leaving || c.slow] {
                let sound: BTreeSet<_> = list.iter().filter(|c| !avoided(c)).map(|c| c.node).collect();
                if let Ok(chosen) = choose(&list, rf, true)
                    && sound.len() >= rf
                {
                    let taken = |id: &DiskId| list.iter().any(|c| c.disk == *id && avoided(c));
                    prop_assert!(!chosen.iter().any(taken));
                }
            }
        }
    }
}
