//! The planner against worlds drawn at random: what it may never ask for, and that it comes to rest.

use super::copies::Copies;
use super::place::{UnderWay, targets};
use super::{Kind, Plan, Task, surplus};
use crate::limits;
use crate::view::{DiskState, DiskView, Domain, Health, View};
use env::random::SimRandom;
use metadata::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, GroupId, NodeId};

const GIB: u64 = 1 << 30;

/// Disks, groups, and what each group requires.
#[derive(Clone, Debug)]
struct World {
    view: View,
    groups: BTreeMap<GroupId, (GroupRecord, usize)>,
    /// Copies made.
    added: usize,
    random: u64,
}

fn disk(node: NodeId, free_gib: u64, rack: Option<u8>) -> DiskView {
    DiskView {
        node,
        rack: rack.map(|rack| format!("rack {rack}")),
        health: Health::Up,
        state: DiskState::Active,
        awaited: false,
        free_bytes: free_gib * GIB,
        total_bytes: 100 * GIB,
    }
}

fn record(disks: &[DiskId]) -> GroupRecord {
    let whole = |disk: &DiskId| Replica { disk: *disk, file_generation: 1, state: ReplicaState::Whole };
    GroupRecord {
        state: GroupState::Sealed,
        generation: 2,
        rf: u8::try_from(disks.len()).expect("few"),
        replicas: disks.iter().map(whole).collect(),
        length: 64 << 20,
        writer: (1, 1),
        settled: true,
        account: None,
        buckets: Vec::new(),
        dead: Vec::new(),
        sealed_ms: 0,
        strip: None,
    }
}

/// Nodes 1 to n with one or two disks each, and groups that lie on distinct nodes with as many copies as they require.
fn worlds() -> impl Strategy<Value = World> {
    let node = (1usize..3, 30u64..95, proptest::option::of(0u8..3));
    (vec(node, 2..7), vec((any::<u64>(), 1usize..4, any::<u64>()), 1..12), any::<u64>()).prop_map(
        |(nodes, groups, random)| {
            let mut view = View { disks: BTreeMap::new(), default_rf: 2 };
            for (node, (disks, free, rack)) in (1..).zip(&nodes) {
                for index in 0..*disks as u64 {
                    view.disks.insert(DiskId(u64::from(node) * 10 + index), disk(node, *free, *rack));
                }
            }
            let mut world = World { view, groups: BTreeMap::new(), added: 0, random };
            for (id, required, seed) in groups {
                let required = required.min(nodes.len());
                let disks = world.draw(&record(&[]), required, seed);
                world.groups.insert(GroupId(id), (record(&disks), required));
            }
            world
        },
    )
}

impl World {
    /// So many disks, as the planner would take them.
    fn draw(&self, onto: &GroupRecord, count: usize, seed: u64) -> Vec<DiskId> {
        let (mut record, mut disks, random) = (onto.clone(), Vec::new(), SimRandom::new(seed));
        for _ in 0..count {
            let copies = Copies::of(&self.view, &record);
            let found = targets(&self.view, &record, &copies, 64 << 20, &UnderWay::new(), &random);
            let Some(disk) = found.first() else { break };
            disks.push(*disk);
            record.replicas.push(Replica { disk: *disk, file_generation: 1, state: ReplicaState::Whole });
        }
        disks
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.view.disks.values().map(|disk| disk.node).collect()
    }

    fn each_disk(&mut self, node: NodeId, change: impl Fn(&mut DiskView)) {
        self.view.disks.values_mut().filter(|disk| disk.node == node).for_each(change);
    }

    /// What every node would do.
    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for node in self.nodes() {
            let mut plan = Plan::default();
            for (group, (record, required)) in &self.groups {
                plan.add(&self.view, node, (*group, record, *required));
            }
            tasks.extend(plan.finish().tasks);
        }
        tasks
    }

    /// Does it, and checks what may never be.
    fn perform(&mut self, task: &Task) -> bool {
        let (mut record, required) = self.groups[&task.group].clone();
        let copies = Copies::of(&self.view, &record);
        let done = match task.kind {
            Kind::Add => {
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let drawn = self.draw(&record, 1, self.random);
                for disk in &drawn {
                    record.replicas.push(Replica { disk: *disk, file_generation: 3, state: ReplicaState::Whole });
                    self.added += 1;
                }
                !drawn.is_empty()
            }
            Kind::Trim => {
                let victim = surplus(&record, required, &copies).expect("a copy to trim");
                record.replicas.retain(|replica| replica.disk != victim);
                true
            }
            Kind::Forget => {
                record.replicas.retain(|replica| !self.view.is_lost(replica.disk));
                true
            }
            Kind::Seal | Kind::Leave => panic!("all are sealed"),
        };
        let after = Copies::of(&self.view, &record);
        let listed = |record: &GroupRecord| record.replicas.iter().map(|r| r.disk).collect::<Vec<_>>();
        let words =
            format!("{task:?}: {:?} to {:?} in {:#?}", listed(&self.groups[&task.group].0), listed(&record), self.view);
        if task.kind == Kind::Trim {
            assert!(after.sound.len() >= required, "trimmed below what is required: {words}");
            assert!(copies.away.is_empty() && copies.uncertain.is_empty(), "trimmed blindly: {words}");
        }
        if task.kind == Kind::Add && done {
            assert!(copies.sound.len() < required && after.sound.len() == copies.sound.len() + 1, "{words}");
            assert_distinct(&self.view, &copies, &record, &words);
        }
        assert!(after.readable.len() >= copies.readable.len().min(required), "fewer readable copies: {words}");
        self.groups.insert(task.group, (record, required));
        done
    }

    /// Until nothing is to be done, or nothing can be. Patience is over at once if `patient`.
    fn rest(&mut self, patient: bool) {
        for _ in 0..100 {
            let tasks: Vec<Task> = self.tasks().into_iter().filter(|task| patient || !task.patient).collect();
            let mut any = false;
            for task in tasks {
                any |= self.perform(&task);
            }
            if !any {
                return;
            }
        }
        panic!("never at rest: {:#?}", self.tasks());
    }

    /// Every group has what it requires, wherever that can be.
    fn assert_redundant(&self) {
        let places: BTreeSet<Domain> = self
            .view
            .disks
            .iter()
            .filter(|(_, d)| d.takes_copies())
            .filter_map(|(id, _)| self.view.domain(*id))
            .collect();
        for (group, (record, required)) in &self.groups {
            let copies = Copies::of(&self.view, record);
            let enough = copies.counted() >= *required || copies.sound.union(&places).count() < *required;
            assert!(enough || copies.sources.is_empty(), "{group}: {required} of {record:#?} in {:#?}", self.view);
        }
    }
}

/// The newest copy lies with none that stays.
fn assert_distinct(view: &View, before: &Copies, record: &GroupRecord, words: &str) {
    let new = record.replicas.last().expect("a copy").disk;
    assert!(!before.taken().contains(&view.domain(new).expect("a domain")), "two copies on a node: {words}");
}

proptest! {
    #[test]
    fn after_a_loss_every_group_gets_its_copies_again_and_it_comes_to_rest(world in worlds(), lost in 0usize..6, state in 0..4) {
        let mut world = world;
        world.rest(true);
        let before = world.added;
        let nodes: Vec<NodeId> = world.nodes().into_iter().collect();
        let node = nodes[lost % nodes.len()];
        world.each_disk(node, |disk| match state {
            0 => disk.health = Health::Down,
            1 => disk.state = DiskState::Lost,
            2 => disk.state = DiskState::Draining,
            _ => (disk.state, disk.health, disk.awaited) = (DiskState::Maintenance, Health::Down, true),
        });
        world.rest(true);
        world.assert_redundant();
        prop_assert!(world.added - before <= world.groups.len(), "one loss costs each group one copy at most");
        prop_assert!(world.tasks().iter().all(|task| task.kind == Kind::Add), "what is left has no place to go");
    }

    #[test]
    fn a_drained_disk_becomes_empty_where_there_is_another_place(world in worlds(), which in any::<proptest::sample::Index>()) {
        let mut world = world;
        world.rest(true);
        let ids: Vec<DiskId> = world.view.disks.keys().copied().collect();
        let drained = ids[which.index(ids.len())];
        world.view.disks.get_mut(&drained).expect("one of them").state = DiskState::Draining;
        world.rest(true);
        let places = world.view.disks.iter().filter(|(_, d)| d.takes_copies());
        let places: BTreeSet<Domain> = places.filter_map(|(id, _)| world.view.domain(*id)).collect();
        for (record, required) in world.groups.values() {
            let left = record.replicas.iter().any(|replica| replica.disk == drained);
            prop_assert!(!left || places.len() < *required, "{record:#?} in {:#?}", world.view);
        }
    }

    #[test]
    fn a_node_that_comes_and_goes_costs_each_group_one_copy_however_often(world in worlds(), which in 0usize..6, times in 1..6) {
        let mut world = world;
        world.rest(true);
        let nodes: Vec<NodeId> = world.nodes().into_iter().collect();
        let node = nodes[which % nodes.len()];
        let before = world.added;
        for _ in 0..times {
            world.each_disk(node, |disk| disk.health = Health::Down);
            world.rest(false);
            // Never long enough for a copy to count as surplus.
            world.each_disk(node, |disk| disk.health = Health::Up);
            world.rest(false);
        }
        prop_assert!(world.added - before <= world.groups.len(), "{} copies of {} groups", world.added - before, world.groups.len());
        world.rest(true);
        prop_assert!(world.tasks().is_empty(), "{:#?}", world.tasks());
        for (record, required) in world.groups.values() {
            prop_assert_eq!(record.replicas.len(), *required, "surplus is trimmed when it has stayed");
        }
    }

    #[test]
    fn copies_follow_a_policy_up_and_down(world in worlds(), required in 1usize..4) {
        let mut world = world;
        let most = world.nodes().len();
        for (_, wanted) in world.groups.values_mut() {
            *wanted = required.min(most);
        }
        world.rest(true);
        world.assert_redundant();
        prop_assert!(world.groups.values().all(|(record, required)| record.replicas.len() == *required));
    }

    #[test]
    fn the_last_copies_come_first_and_urgent_work_before_all_other(world in worlds(), down in vec(0usize..6, 0..3), drained in 0usize..6) {
        let mut world = world;
        let nodes: Vec<NodeId> = world.nodes().into_iter().collect();
        world.each_disk(nodes[drained % nodes.len()], |disk| disk.state = DiskState::Draining);
        for which in down {
            world.each_disk(nodes[which % nodes.len()], |disk| disk.health = Health::Down);
        }
        for node in nodes {
            let mut plan = Plan::default();
            for (group, (record, required)) in &world.groups {
                plan.add(&world.view, node, (*group, record, *required));
            }
            let tasks = plan.finish().tasks;
            prop_assert!(tasks.windows(2).all(|two| (two[0].priority, two[0].readable) <= (two[1].priority, two[1].readable)));
            let away = |task: &&Task| !Copies::of(&world.view, &world.groups[&task.group].0).away.is_empty();
            prop_assert!(tasks.iter().filter(away).all(|task| task.priority == 1 && task.kind == Kind::Add));
        }
    }

    #[test]
    fn nothing_goes_where_it_would_be_too_full(world in worlds(), seed in any::<u64>()) {
        let (view, random) = (&world.view, SimRandom::new(seed));
        let (record, _) = world.groups.values().next().expect("a group");
        let bytes = 38 * GIB;
        let found = targets(view, record, &Copies::of(view, record), bytes, &UnderWay::new(), &random);
        for disk in found {
            let seen = &view.disks[&disk];
            prop_assert!(seen.free_bytes - bytes > limits::KEPT_FREE_BYTES, "{seen:?}");
        }
    }

    #[test]
    fn one_and_only_one_node_has_each_task(world in worlds(), down in 0usize..6) {
        let mut world = world;
        let nodes: Vec<NodeId> = world.nodes().into_iter().collect();
        world.each_disk(nodes[down % nodes.len()], |disk| disk.health = Health::Down);
        let tasks = world.tasks();
        let groups: BTreeSet<GroupId> = tasks.iter().map(|task| task.group).collect();
        prop_assert_eq!(groups.len(), tasks.len());
    }
}

fn three_nodes() -> View {
    let disks = (1..4).map(|node| (DiskId(u64::from(node)), disk(node, 50, None)));
    View { disks: disks.collect(), default_rf: 2 }
}

fn planned(view: &View, record: &GroupRecord, required: usize) -> Option<Task> {
    super::decide(view, (GroupId(1), record, required), &Copies::of(view, record))
}

#[test]
fn a_copy_that_did_not_answer_the_seal_is_waited_for_while_its_node_is_there_and_not_when_it_is_down() {
    let (mut view, mut group) = (three_nodes(), record(&[DiskId(1), DiskId(2)]));
    group.replicas[1].state = ReplicaState::NotAnswered;
    let task = planned(&view, &group, 2).expect("a task");
    assert!((task.kind, task.patient) == (Kind::Add, true), "{task:?}");
    view.disks.get_mut(&DiskId(2)).expect("there").health = Health::Down;
    let task = planned(&view, &group, 2).expect("a task");
    assert!((task.kind, task.patient, task.priority) == (Kind::Add, false, 1), "{task:?}");
}

#[test]
fn a_copy_that_holds_less_or_did_not_answer_is_never_surplus_nor_is_one_beside_it() {
    let view = three_nodes();
    for state in [ReplicaState::Holds(8192), ReplicaState::NotAnswered] {
        let mut group = record(&[DiskId(1), DiskId(2), DiskId(3)]);
        group.replicas[2].state = state;
        assert_eq!(planned(&view, &group, 2), None, "{state:?}");
        assert_eq!(planned(&view, &group, 1), None, "{state:?}");
    }
}

#[test]
fn the_only_copy_on_a_node_stays_where_another_node_has_two() {
    let mut view = three_nodes();
    view.disks.insert(DiskId(11), disk(1, 99, None));
    view.disks.get_mut(&DiskId(2)).expect("there").free_bytes = 0;
    let group = record(&[DiskId(1), DiskId(11), DiskId(2)]);
    let copies = Copies::of(&view, &group);
    assert_eq!(surplus(&group, 2, &copies), Some(DiskId(1)), "the fullest disk is 2, and it must stay");
}

#[test]
fn a_group_of_a_writer_that_is_down_is_sealed_and_one_of_a_writer_that_lives_is_left() {
    let (mut view, mut group) = (three_nodes(), record(&[DiskId(1), DiskId(2)]));
    group.state = GroupState::Open;
    group.replicas.iter_mut().for_each(|replica| replica.state = ReplicaState::Open);
    assert_eq!(planned(&view, &group, 2), None);
    view.disks.get_mut(&DiskId(2)).expect("there").health = Health::Down;
    let task = planned(&view, &group, 2).expect("a task");
    assert!((task.kind, task.executor) == (Kind::Leave, 1), "{task:?}");
    group.writer = (2, 1);
    let task = planned(&view, &group, 2).expect("a task");
    assert!((task.kind, task.executor) == (Kind::Seal, 1), "{task:?}");
}

#[test]
fn a_node_in_maintenance_is_waited_for_unless_the_group_is_down_to_one_copy() {
    let mut view = three_nodes();
    view.disks.insert(DiskId(4), disk(4, 50, None));
    let away = |disk: &mut DiskView| {
        (disk.state, disk.health, disk.awaited) = (DiskState::Maintenance, Health::Down, true);
    };
    away(view.disks.get_mut(&DiskId(3)).expect("there"));
    assert_eq!(planned(&view, &record(&[DiskId(1), DiskId(2), DiskId(3)]), 3), None);
    assert_eq!(planned(&view, &record(&[DiskId(1), DiskId(3)]), 2).map(|task| task.kind), Some(Kind::Add));
    view.disks.get_mut(&DiskId(3)).expect("there").awaited = false;
    assert_eq!(planned(&view, &record(&[DiskId(1), DiskId(2), DiskId(3)]), 3).map(|t| t.kind), Some(Kind::Add));
}

#[test]
fn a_member_of_a_strip_is_left_to_those_who_keep_strips() {
    let (mut view, mut group) = (three_nodes(), record(&[DiskId(1), DiskId(2), DiskId(3)]));
    group.strip = Some(metadata::strip::StripPlace { strip: types::StripId(1), place: 0, live: Vec::new() });
    assert_eq!(planned(&view, &group, 1), None, "not trimmed");
    view.disks.get_mut(&DiskId(2)).expect("there").health = Health::Down;
    assert_eq!(planned(&view, &group, 3), None, "not copied");
    view.disks.get_mut(&DiskId(2)).expect("there").state = DiskState::Lost;
    assert_eq!(planned(&view, &group, 2), None, "its list stays");
}
