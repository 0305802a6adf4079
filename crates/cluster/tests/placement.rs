//! Placement against a brute-force checker, its weights against statistics, voters, balance, prechecks.
#![allow(clippy::panic)]

use cluster::map::{default_copies, next_voters, voter_count, voters};
use cluster::placement::balance::{fullness_permille, imbalance_permille, is_better, is_fairer};
use cluster::placement::precheck::{Breaks, Situation, drain_disk, drain_node, maintain_node, remove_node};
use cluster::placement::{DiskLoad, Loads, NoPlace, Purpose, Wanted, choose, room_bytes, spread};
use env::random::SimRandom;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::cluster::{Addresses, Disk, DiskState, KeyHash, Map, Node, NodeStart, NodeState};
use types::{ClusterId, DiskId, NodeId};

const GIB: u64 = 1 << 30;

fn node(id: NodeId, state: NodeState, rack: Option<u8>) -> Node {
    let addresses = Addresses { rpc: format!("n{id}:1"), ..Addresses::default() };
    let start = NodeStart { incarnation: 1, version: 1, addresses, rack: rack.map(|rack| format!("rack {rack}")) };
    Node { id, key: KeyHash([id as u8; 32]), state, start, joined_ms: 0 }
}

fn map(nodes: Vec<(Node, u32)>) -> Map {
    let mut map = Map { cluster: ClusterId(7), epoch: 1, version: 1, nodes: BTreeMap::new(), disks: BTreeMap::new() };
    for (node, disks) in nodes {
        for n in 0..disks {
            let id = DiskId(u64::from(node.id) * 10 + u64::from(n));
            let disk = Disk {
                id,
                node: node.id,
                state: DiskState::Active,
                incarnation: 1,
                reported_by: 1,
                total_bytes: 100 * GIB,
            };
            map.disks.insert(id, disk);
        }
        map.nodes.insert(node.id, node);
    }
    map
}

/// So many nodes with two disks each.
fn plain(nodes: u32) -> Map {
    map((1..=nodes).map(|id| (node(id, NodeState::Active, None), 2)).collect())
}

fn load(free_gib: u64) -> DiskLoad {
    DiskLoad { total_bytes: 100 * GIB, free_bytes: free_gib * GIB, write_us: 0, is_usable: true }
}

fn loads(map: &Map, free_gib: u64) -> Loads {
    map.disks.keys().map(|disk| (*disk, load(free_gib))).collect()
}

fn wanted(copies: usize) -> Wanted {
    Wanted { copies, bytes: GIB, purpose: Purpose::Write, beside: vec![] }
}

fn ids(of: &[u64]) -> Vec<DiskId> {
    of.iter().copied().map(DiskId).collect()
}

#[test]
fn voters_and_copies_follow_the_number_of_nodes() {
    assert_eq!([0, 1, 2, 3, 4, 5, 9].map(voter_count), [0, 1, 1, 3, 3, 5, 5]);
    assert_eq!([0, 1, 2, 3, 4, 5, 9].map(default_copies), [1, 1, 2, 2, 2, 3, 3]);
    for (nodes, expected) in
        [(1, vec![1]), (2, vec![1]), (3, vec![1, 2, 3]), (4, vec![1, 2, 3]), (6, vec![1, 2, 3, 4, 5])]
    {
        assert_eq!(voters(&plain(nodes)).into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn voters_stay_and_are_spread_over_racks_and_one_that_drains_votes_last() {
    let racks = [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3)];
    let mut map = map(racks.map(|(id, rack)| (node(id, NodeState::Active, Some(rack)), 1)).into());
    let set = |of: &[NodeId]| of.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(voters(&map), set(&[1, 2, 3, 4, 5]));
    map.nodes.retain(|id, _| *id != 2 && *id != 6);
    assert_eq!(voters(&map), set(&[1, 4, 5]), "three racks, three voters");
    assert_eq!(next_voters(&map, &set(&[1, 3, 5])), set(&[1, 3, 5]), "who votes goes on voting");
    map.nodes.get_mut(&3).expect("there").state = NodeState::Draining;
    assert_eq!(next_voters(&map, &set(&[1, 3, 5])), set(&[1, 4, 5]));
    map.nodes.get_mut(&1).expect("there").state = NodeState::Maintenance;
    assert_eq!(next_voters(&map, &set(&[1, 3, 5])), set(&[1, 4, 5]), "away for a while");
    map.nodes.remove(&5);
    assert_eq!(next_voters(&map, &set(&[1, 4, 5])), set(&[1, 3, 4]), "rather one that drains than two voters");
    map.nodes.get_mut(&4).expect("there").state = NodeState::Joining;
    assert_eq!(next_voters(&map, &set(&[3])), set(&[1]), "a node that joins does not vote yet");
}

#[test]
fn while_the_cluster_is_one_node_copies_lie_on_distinct_disks_and_on_distinct_nodes_ever_after() {
    let random = SimRandom::new(1);
    let one = map(vec![(node(1, NodeState::Active, None), 3)]);
    let found = choose(&one, &loads(&one, 50), &wanted(3), &random).expect("three disks");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>().len(), 3);
    let mut two = map(vec![(node(1, NodeState::Active, None), 3), (node(2, NodeState::Joining, None), 1)]);
    assert!(choose(&two, &loads(&two, 50), &wanted(3), &random).is_ok(), "the other is not in yet");
    two.nodes.get_mut(&2).expect("there").state = NodeState::Active;
    let error = choose(&two, &loads(&two, 50), &wanted(3), &random);
    assert_eq!(error, Err(NoPlace { wanted: 3, found: 2 }));
    two.nodes.get_mut(&2).expect("there").state = NodeState::Maintenance;
    let error = choose(&two, &loads(&two, 50), &wanted(2), &random);
    assert_eq!(
        error,
        Err(NoPlace { wanted: 2, found: 1 }),
        "two disks of one node are no substitute for one that is away"
    );
}

#[test]
fn room_ends_sooner_for_what_is_less_urgent() {
    for (free, write, rebuild, balance) in [(25, 17, 15, 5), (20, 12, 10, 0), (10, 2, 0, 0), (8, 0, 0, 0), (1, 0, 0, 0)]
    {
        let room = |purpose| room_bytes(&load(free), purpose) / GIB;
        assert_eq!((room(Purpose::Write), room(Purpose::Rebuild), room(Purpose::Balance)), (write, rebuild, balance));
    }
}

#[test]
fn disks_are_drawn_in_proportion_to_their_room_and_speed() {
    let map = map((1..=4).map(|id| (node(id, NodeState::Active, None), 1)).collect());
    let mut loads = loads(&map, 0);
    // Above 8 GiB: 10, 20, 30 and 40, the last three times as slow as the median.
    for (disk, free, write_us) in [(10, 18, 1000), (20, 28, 1000), (30, 38, 0), (40, 48, 3000)] {
        loads.insert(DiskId(disk), DiskLoad { write_us, ..load(free) });
    }
    let random = SimRandom::new(11);
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    const DRAWS: u32 = 20_000;
    for _ in 0..DRAWS {
        let found = choose(&map, &loads, &wanted(1), &random).expect("room");
        *counts.entry(found[0].0).or_default() += 1;
    }
    let weights = [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.0 / 3.0)];
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    for (disk, weight) in weights {
        let p = weight / total;
        let (mean, deviation) = (p * f64::from(DRAWS), (p * (1.0 - p) * f64::from(DRAWS)).sqrt());
        let count = f64::from(counts[&disk]);
        assert!((count - mean).abs() < 5.0 * deviation, "disk {disk}: {count} of {mean} expected");
    }
}

/// All sets of so many of the disks.
fn subsets(disks: &[DiskId], size: usize) -> Vec<Vec<DiskId>> {
    if size == 0 {
        return vec![vec![]];
    }
    let Some((first, rest)) = disks.split_first() else { return vec![] };
    let mut all = subsets(rest, size);
    all.extend(subsets(rest, size - 1).into_iter().map(|mut set| {
        set.push(*first);
        set
    }));
    all
}

/// State, rack, and of each disk its state, free GiB, and whether it is usable.
type NodeCase = (NodeState, Option<u8>, Vec<(DiskState, u64, bool)>);

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<NodeCase>,
    copies: usize,
    beside: Vec<prop::sample::Index>,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let node_state = prop::sample::select(vec![
        NodeState::Active,
        NodeState::Active,
        NodeState::Active,
        NodeState::Joining,
        NodeState::Draining,
        NodeState::Maintenance,
        NodeState::Removed,
    ]);
    let disk_state =
        prop::sample::select(vec![DiskState::Active, DiskState::Active, DiskState::Draining, DiskState::Lost]);
    let disk = (disk_state, 0u64..30, prop::bool::weighted(0.85));
    let node = (node_state, prop::option::of(1u8..4), prop::collection::vec(disk, 0..3));
    let nodes = prop::collection::vec(node, 1..6);
    let beside = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    (nodes, 1usize..4, beside, any::<u64>()).prop_map(|(nodes, copies, beside, seed)| Case {
        nodes,
        copies,
        beside,
        seed,
    })
}

fn build(case: &Case) -> (Map, Loads) {
    let mut map = map(vec![]);
    let mut loads = Loads::new();
    for (index, (state, rack, disks)) in case.nodes.iter().enumerate() {
        let id = index as NodeId + 1;
        map.nodes.insert(id, node(id, *state, *rack));
        for (n, (state, free, usable)) in disks.iter().enumerate() {
            let disk = DiskId(u64::from(id) * 10 + n as u64);
            let row =
                Disk { id: disk, node: id, state: *state, incarnation: 1, reported_by: 1, total_bytes: 100 * GIB };
            map.disks.insert(disk, row);
            loads.insert(disk, DiskLoad { is_usable: *usable, ..load(*free) });
        }
    }
    (map, loads)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn what_is_chosen_is_one_of_the_best_that_a_search_through_all_sets_finds(case in cases()) {
        let (map, loads) = build(&case);
        let all: Vec<DiskId> = map.disks.keys().copied().collect();
        let beside: BTreeSet<DiskId> = if all.is_empty() { BTreeSet::new() } else { case.beside.iter().map(|i| *i.get(&all)).collect() };
        let request = Wanted { beside: beside.iter().copied().collect(), ..wanted(case.copies) };
        let members = map.nodes.values().filter(|n| n.state.is_member()).count();
        let may = |disk: &DiskId| {
            let row = &map.disks[disk];
            map.nodes[&row.node].state == NodeState::Active
                && row.state == DiskState::Active
                && loads[disk].is_usable
                && loads[disk].free_bytes >= 9 * GIB
        };
        let domain = |disk: &DiskId| if members <= 1 { disk.0 } else { map.disks[disk].node.into() };
        let rack = |disk: &DiskId| {
            let node = &map.nodes[&map.disks[disk].node];
            node.start.rack.clone().unwrap_or(format!("node {}", node.id))
        };
        let valid = |set: &Vec<DiskId>| {
            let domains: BTreeSet<u64> = set.iter().map(domain).collect();
            let taken: BTreeSet<u64> = beside.iter().map(domain).collect();
            set.iter().all(may) && domains.len() == case.copies && domains.is_disjoint(&taken)
        };
        let racks = |set: &Vec<DiskId>| set.iter().chain(&beside).map(rack).collect::<BTreeSet<_>>().len();
        let best = subsets(&all, case.copies).into_iter().filter(|set| valid(set)).map(|set| racks(&set)).max();
        match (choose(&map, &loads, &request, &SimRandom::new(case.seed)), best) {
            (Ok(found), Some(best)) => {
                prop_assert!(valid(&found), "{:?}", found);
                prop_assert_eq!(racks(&found), best, "{:?}", found);
            }
            (Err(error), None) => prop_assert!(error.found < error.wanted),
            (found, best) => prop_assert!(false, "{:?} where the search finds {:?}", found, best),
        }
    }

    #[test]
    fn moves_that_are_called_better_come_to_an_end(free in prop::collection::vec(0u64..100, 2..6), seed: u64) {
        let map = plain(free.len() as u32);
        let mut loads = Loads::new();
        for (n, free) in free.iter().enumerate() {
            loads.insert(DiskId((n as u64 + 1) * 10), load(*free));
        }
        let random = SimRandom::new(seed);
        let disks: Vec<DiskId> = loads.keys().copied().collect();
        let squares = |loads: &Loads| loads.values().map(|l| u128::from((l.total_bytes - l.free_bytes) / (1 << 20)).pow(2)).sum::<u128>();
        let mut moves = 0;
        loop {
            let mut moved = false;
            for from in &disks {
                for to in disks.iter().filter(|to| *to != from) {
                    let bytes = (env::random::Random::next_u64(&random) % 4 + 1) * GIB;
                    if loads[from].free_bytes + bytes <= loads[from].total_bytes && is_better(&map, &loads, &[*from], *from, *to, bytes) {
                        let before = squares(&loads);
                        loads.get_mut(from).expect("there").free_bytes += bytes;
                        loads.get_mut(to).expect("there").free_bytes -= bytes;
                        prop_assert!(squares(&loads) < before);
                        (moved, moves) = (true, moves + 1);
                        prop_assert!(moves < 2000);
                    }
                }
            }
            if !moved {
                break;
            }
        }
        prop_assert!(imbalance_permille(&loads) <= 20 + 2 * 40, "{:?}", loads);
    }
}

#[test]
fn a_wider_spread_is_better_than_a_fairer_one() {
    let racks = [(1, 1), (2, 1), (3, 2)];
    let map = map(racks.map(|(id, rack)| (node(id, NodeState::Active, Some(rack)), 2)).into());
    let mut loads = loads(&map, 50);
    let copies = ids(&[10, 20]);
    assert_eq!((spread(&map, &copies).domains, spread(&map, &copies).racks), (2, 1));
    loads.insert(DiskId(30), load(10));
    assert!(is_better(&map, &loads, &copies, DiskId(20), DiskId(30), GIB), "another rack, though it is fuller");
    assert!(!is_better(&map, &loads, &copies, DiskId(20), DiskId(11), GIB), "not onto the node of the other copy");
    loads.insert(DiskId(21), load(90));
    assert!(is_better(&map, &loads, &copies, DiskId(20), DiskId(21), GIB), "the same spread and much emptier");
    assert!(!is_better(&map, &loads, &copies, DiskId(20), DiskId(20), GIB));
    assert!(!is_fairer(&load(50), &load(51), GIB) && !is_fairer(&load(0), &load(1), 2 * GIB));
    assert_eq!(fullness_permille(&DiskLoad { total_bytes: 0, ..load(0) }), 1000);
}

struct Scene {
    map: Map,
    up: BTreeSet<NodeId>,
    voters: BTreeSet<NodeId>,
    loads: Loads,
    most_copies: usize,
}

impl Scene {
    fn new(nodes: u32, most_copies: usize) -> Scene {
        let map = plain(nodes);
        let (up, voters) = (map.nodes.keys().copied().collect(), voters(&map));
        let loads = loads(&map, 70);
        Scene { map, up, voters, loads, most_copies }
    }

    fn situation(&self) -> Situation<'_> {
        let Scene { map, up, voters, loads, most_copies } = self;
        Situation { map, up, voters, loads, most_copies: *most_copies }
    }
}

#[test]
fn draining_is_refused_with_the_name_of_what_would_break() {
    let mut scene = Scene::new(4, 2);
    assert_eq!(drain_node(&scene.situation(), 2), []);
    assert_eq!(drain_node(&scene.situation(), 9), [Breaks::NoSuchNode(9)]);
    scene.most_copies = 4;
    assert_eq!(drain_node(&scene.situation(), 2), [Breaks::Copies { wanted: 4, left: 3 }]);
    scene.most_copies = 2;
    scene.up.remove(&3);
    assert_eq!(drain_node(&scene.situation(), 2), [Breaks::OthersAway(vec![3])]);
    let full = |scene: &mut Scene| scene.loads.values_mut().for_each(|load| load.free_bytes = 15 * GIB);
    let mut scene = Scene::new(4, 2);
    full(&mut scene);
    let room_bytes = 6 * 5 * GIB;
    assert_eq!(drain_node(&scene.situation(), 2), [Breaks::Space { needed_bytes: 170 * GIB, room_bytes }]);
    assert_eq!(drain_node(&Scene::new(1, 1).situation(), 1), [Breaks::LastNode]);
}

#[test]
fn maintenance_keeps_a_quorum_of_voters_and_enough_nodes_for_writes() {
    let mut scene = Scene::new(3, 2);
    assert_eq!(maintain_node(&scene.situation(), 1), []);
    scene.up.remove(&2);
    let breaks = maintain_node(&scene.situation(), 1);
    assert!(breaks.contains(&Breaks::Quorum { up: 1, needed: 2 }), "{breaks:?}");
    let scene = Scene::new(2, 2);
    let expected = [Breaks::Copies { wanted: 2, left: 1 }, Breaks::Quorum { up: 0, needed: 1 }];
    assert_eq!(maintain_node(&scene.situation(), 1), expected, "the only voter of two");
    assert_eq!(maintain_node(&scene.situation(), 2), [Breaks::Copies { wanted: 2, left: 1 }]);
}

#[test]
fn a_node_is_removed_only_when_it_is_drained_and_no_replica_counts_on_it() {
    let mut scene = Scene::new(4, 2);
    assert_eq!(remove_node(&scene.situation(), 4, 3), [Breaks::InService, Breaks::Replicas(3)]);
    scene.map.nodes.get_mut(&4).expect("there").state = NodeState::Draining;
    assert_eq!(remove_node(&scene.situation(), 4, 0), []);
    scene.map.nodes.get_mut(&2).expect("there").state = NodeState::Draining;
    scene.up.remove(&3);
    assert_eq!(remove_node(&scene.situation(), 2, 0), [Breaks::Quorum { up: 1, needed: 2 }]);
    scene.map.nodes.get_mut(&4).expect("there").state = NodeState::Removed;
    assert_eq!(remove_node(&scene.situation(), 4, 0), [Breaks::NoSuchNode(4)]);
}

#[test]
fn a_disk_is_drained_only_if_its_copies_find_another_place() {
    let one = Scene { most_copies: 2, ..Scene::new(1, 2) };
    assert_eq!(drain_disk(&one.situation(), DiskId(10)), [Breaks::Copies { wanted: 2, left: 1 }]);
    let mut three = Scene::new(3, 3);
    assert_eq!(drain_disk(&three.situation(), DiskId(10)), [], "the node has another");
    three.map.disks.get_mut(&DiskId(11)).expect("there").state = DiskState::Draining;
    assert_eq!(drain_disk(&three.situation(), DiskId(10)), [Breaks::Copies { wanted: 3, left: 2 }]);
    assert_eq!(drain_disk(&three.situation(), DiskId(11)), [Breaks::NoSuchDisk(DiskId(11))]);
    three.loads.values_mut().for_each(|load| load.free_bytes = 11 * GIB);
    three.most_copies = 2;
    let breaks = drain_disk(&three.situation(), DiskId(10));
    assert_eq!(breaks, [Breaks::Space { needed_bytes: 89 * GIB, room_bytes: 4 * GIB }]);
}
