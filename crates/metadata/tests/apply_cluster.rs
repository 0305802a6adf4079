//! What apply decides about the cluster map, by example and against a plain model of it.
#![allow(clippy::panic)]

mod model_support;

use metadata::command::{Command, Outcome, Refusal, RootCommand};
use metadata::directory::Directory;
use metadata::read::root;
use metadata::shard::{KeyRange, ROOT, Shard, StateMachine};
use model_support::Store;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::cluster::command::{ClusterCommand, MapChange, NewDisk};
use types::cluster::{
    Addresses, ClusterRefusal, DiskState, KeyHash, Limit, MAX_DISKS_PER_NODE, MAX_TOKENS, Map, NewNode, NodeStart,
    NodeState,
};
use types::{ClusterId, DiskId, NodeId, TokenId};

const CLUSTER: ClusterId = ClusterId(7);
const SECRET: [u8; 32] = [5; 32];

fn start(incarnation: u64) -> NodeStart {
    let addresses = Addresses { rpc: format!("host-{incarnation}:7000"), ..Addresses::default() };
    NodeStart { incarnation, version: 1, addresses, rack: None }
}

fn node(key: u8) -> NewNode {
    NewNode { key: KeyHash([key; 32]), start: start(1) }
}

fn disk(id: u64) -> NewDisk {
    NewDisk { id: DiskId(id), total_bytes: 1 << 40 }
}

fn propose(store: &mut Store, command: ClusterCommand) -> Result<MapChange, ClusterRefusal> {
    match store.root(RootCommand::Cluster(command)) {
        Outcome::Map(change) => Ok(change),
        Outcome::Refused(Refusal::Cluster(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn init() -> ClusterCommand {
    ClusterCommand::Init { cluster: CLUSTER, node: node(1), disks: vec![disk(10), disk(11)] }
}

fn born() -> Store {
    let mut store = Store::new();
    assert_eq!(propose(&mut store, init()), Ok(MapChange { epoch: 1, node: Some(1) }));
    store
}

fn create_token(store: &Store, token: u64) -> ClusterCommand {
    let expires_ms = store.now_ms + 60_000;
    ClusterCommand::CreateToken { token: TokenId(token), secret_sha256: SECRET, expires_ms }
}

fn add(token: u64, key: u8, disks: &[u64]) -> ClusterCommand {
    let disks = disks.iter().copied().map(disk).collect();
    ClusterCommand::AddNode { token: TokenId(token), secret_sha256: SECRET, node: node(key), disks }
}

fn set_node(node: NodeId, state: NodeState) -> ClusterCommand {
    ClusterCommand::SetNodeState { node, state, at_epoch: None }
}

fn set_disk(disk: u64, state: DiskState) -> ClusterCommand {
    ClusterCommand::SetDiskState { disk: DiskId(disk), state, at_epoch: None }
}

fn report(node: NodeId, node_incarnation: u64, disk_id: u64, incarnation: u64) -> ClusterCommand {
    ClusterCommand::ReportDisk { node, node_incarnation, incarnation, disk: disk(disk_id) }
}

fn map(store: &Store) -> Map {
    root::map(&store.rows).expect("readable").expect("born")
}

/// A cluster of nodes 1, 2, 3: keys 1, 2, 3; disks 10 and 11, 20, 30; all active.
fn three() -> Store {
    let mut store = born();
    for id in [2u8, 3] {
        let token = create_token(&store, id.into());
        propose(&mut store, token).expect("a token");
        let added = propose(&mut store, add(id.into(), id, &[u64::from(id) * 10])).expect("admitted");
        assert_eq!(added.node, Some(id.into()));
        propose(&mut store, set_node(id.into(), NodeState::Active)).expect("active");
    }
    store
}

#[test]
fn a_map_is_born_once_with_its_first_node_and_disks() {
    let mut store = Store::new();
    assert_eq!(root::map(&store.rows).expect("readable"), None);
    assert_eq!(propose(&mut store, set_node(1, NodeState::Draining)), Err(ClusterRefusal::NotBorn));
    let mut store = born();
    assert_eq!(propose(&mut store, init()), Ok(MapChange { epoch: 1, node: Some(1) }), "every start says it again");
    let other = ClusterCommand::Init { cluster: ClusterId(8), node: node(1), disks: vec![] };
    assert_eq!(propose(&mut store, other), Err(ClusterRefusal::OtherCluster(CLUSTER)));
    let thief = ClusterCommand::Init { cluster: CLUSTER, node: node(9), disks: vec![] };
    assert!(matches!(propose(&mut store, thief), Err(ClusterRefusal::Invalid(_))));
    let map = map(&store);
    assert_eq!((map.cluster, map.epoch, map.version), (CLUSTER, 1, 1));
    assert_eq!(map.nodes[&1].state, NodeState::Active);
    assert_eq!(map.disks_of(1).map(|d| d.id).collect::<Vec<_>>(), [DiskId(10), DiskId(11)]);
}

#[test]
fn a_token_admits_one_node_and_tells_that_node_its_id_again() {
    let mut store = born();
    let token = create_token(&store, 4);
    assert_eq!(propose(&mut store, token.clone()), Ok(MapChange { epoch: 1, node: None }), "the map is as it was");
    assert_eq!(propose(&mut store, token), Ok(MapChange { epoch: 1, node: None }), "the very same again");
    let taken = ClusterCommand::CreateToken { token: TokenId(4), secret_sha256: [6; 32], expires_ms: u64::MAX };
    assert_eq!(propose(&mut store, taken), Err(ClusterRefusal::TokenTaken));
    assert_eq!(propose(&mut store, add(5, 2, &[])), Err(ClusterRefusal::TokenUnknown));
    let guessed =
        ClusterCommand::AddNode { token: TokenId(4), secret_sha256: [6; 32], node: node(2), disks: vec![disk(20)] };
    assert_eq!(propose(&mut store, guessed), Err(ClusterRefusal::TokenUnknown), "no word of which of the two is wrong");
    let admitted = Ok(MapChange { epoch: 2, node: Some(2) });
    assert_eq!(propose(&mut store, add(4, 2, &[20])), admitted);
    assert_eq!(propose(&mut store, add(4, 2, &[20])), admitted, "the answer was lost");
    assert_eq!(propose(&mut store, add(4, 3, &[30])), Err(ClusterRefusal::TokenUsed(2)));
    store.now_ms += 120_000;
    assert_eq!(propose(&mut store, add(4, 2, &[20])), admitted, "its key is in the map, whatever became of the token");
    assert_eq!(map(&store).nodes[&2].state, NodeState::Joining);
}

#[test]
fn a_token_that_expired_admits_nobody_and_is_forgotten_a_day_later() {
    let mut store = born();
    let token = create_token(&store, 4);
    propose(&mut store, token).expect("a token");
    store.now_ms += 60_000;
    assert_eq!(propose(&mut store, add(4, 2, &[])), Err(ClusterRefusal::TokenExpired));
    let late = ClusterCommand::CreateToken { token: TokenId(6), secret_sha256: SECRET, expires_ms: store.now_ms };
    assert_eq!(propose(&mut store, late), Err(ClusterRefusal::TokenExpired));
    let token = create_token(&store, 5);
    propose(&mut store, token).expect("a token");
    assert!(root::token(&store.rows, TokenId(4)).expect("readable").is_some());
    store.now_ms += 24 * 3600 * 1000;
    let token = create_token(&store, 7);
    propose(&mut store, token.clone()).expect("a token");
    assert!(root::token(&store.rows, TokenId(4)).expect("readable").is_none());
    assert!(root::token(&store.rows, TokenId(5)).expect("readable").is_some());
    let revoke = ClusterCommand::RevokeToken { token: TokenId(7) };
    assert!(propose(&mut store, revoke.clone()).is_ok() && propose(&mut store, revoke).is_ok());
    assert_eq!(propose(&mut store, add(7, 2, &[])), Err(ClusterRefusal::TokenExpired));
    assert_eq!(propose(&mut store, token), Err(ClusterRefusal::TokenTaken), "a late duplicate brings nothing back");
}

#[test]
fn a_node_id_is_never_given_again_and_a_removed_key_never_comes_back() {
    let mut store = three();
    propose(&mut store, set_node(3, NodeState::Draining)).expect("drains");
    let session = root::session(&store.rows, 3).expect("readable");
    propose(&mut store, set_node(3, NodeState::Removed)).expect("removed");
    assert_eq!(map(&store).disks[&DiskId(30)].state, DiskState::Lost, "what was left on it is lost");
    assert_eq!(root::session(&store.rows, 3).expect("readable"), session + 1, "its session ended with it");
    propose(&mut store, set_node(3, NodeState::Removed)).expect("again");
    assert_eq!(root::session(&store.rows, 3).expect("readable"), session + 1, "once");
    assert_eq!(map(&store).node_of(KeyHash([3; 32])), None, "its right ended");
    assert_eq!(propose(&mut store, add(3, 3, &[])), Err(ClusterRefusal::KeyRemoved(3)));
    let token = create_token(&store, 9);
    propose(&mut store, token).expect("a token");
    assert_eq!(propose(&mut store, add(9, 3, &[])), Err(ClusterRefusal::KeyRemoved(3)), "by no token");
    assert_eq!(propose(&mut store, add(9, 4, &[30])), Err(ClusterRefusal::ForeignDisk(3)));
    assert_eq!(propose(&mut store, add(9, 4, &[40])).map(|change| change.node), Ok(Some(4)));
}

#[test]
fn an_old_image_of_a_node_is_refused_and_so_is_a_second_copy_of_it() {
    let mut store = three();
    let update = |node, start| ClusterCommand::UpdateNode { node, start };
    let epoch = map(&store).epoch;
    assert_eq!(propose(&mut store, update(2, start(5))).map(|c| c.epoch), Ok(epoch + 1));
    assert_eq!(propose(&mut store, update(2, start(5))).map(|c| c.epoch), Ok(epoch + 1), "the same entry again");
    let elsewhere = NodeStart { addresses: Addresses { rpc: "copy:1".into(), ..Addresses::default() }, ..start(5) };
    let known = |given| Err(ClusterRefusal::OldIncarnation { known: 5, given });
    assert_eq!(propose(&mut store, update(2, elsewhere)), known(5));
    assert_eq!(propose(&mut store, update(2, start(4))), known(4));
    let silent = NodeStart { addresses: Addresses::default(), ..start(6) };
    assert!(matches!(propose(&mut store, update(2, silent)), Err(ClusterRefusal::Invalid(_))));
    propose(&mut store, set_node(2, NodeState::Draining)).expect("drains");
    propose(&mut store, set_node(2, NodeState::Removed)).expect("removed");
    assert_eq!(propose(&mut store, update(2, start(9))), Err(ClusterRefusal::NoSuchNode(2)));
}

#[test]
fn an_old_image_of_a_disk_is_refused_even_if_it_is_one_start_behind() {
    let mut store = three();
    propose(&mut store, ClusterCommand::UpdateNode { node: 2, start: start(2) }).expect("started");
    assert!(propose(&mut store, report(2, 2, 20, 5)).is_ok(), "the first start in the cluster, whatever its number");
    let epoch = map(&store).epoch;
    assert_eq!(propose(&mut store, report(2, 2, 20, 5)).map(|c| c.epoch), Ok(epoch), "the same again");
    let behind = Err(ClusterRefusal::OldIncarnation { known: 2, given: 1 });
    assert_eq!(propose(&mut store, report(2, 1, 20, 6)), behind, "a report of the former run");
    propose(&mut store, ClusterCommand::UpdateNode { node: 2, start: start(3) }).expect("started");
    for given in [4, 5] {
        let refused = Err(ClusterRefusal::OldIncarnation { known: 5, given });
        assert_eq!(propose(&mut store, report(2, 3, 20, given)), refused);
    }
    assert!(propose(&mut store, report(2, 3, 20, 6)).is_ok());
    assert_eq!(propose(&mut store, report(1, 1, 20, 7)), Err(ClusterRefusal::ForeignDisk(2)));
    assert!(propose(&mut store, report(2, 3, 21, 1)).is_ok(), "a new disk");
    propose(&mut store, set_disk(20, DiskState::Lost)).expect("given up");
    assert_eq!(propose(&mut store, report(2, 3, 20, 7)), Err(ClusterRefusal::DiskGone(DiskState::Lost)));
}

#[test]
fn a_change_is_refused_on_another_map_than_the_one_it_was_judged_by() {
    let mut store = three();
    let judged = map(&store).epoch;
    let drain = |node| ClusterCommand::SetNodeState { node, state: NodeState::Draining, at_epoch: Some(judged) };
    assert!(propose(&mut store, drain(2)).is_ok());
    assert_eq!(
        propose(&mut store, drain(3)),
        Err(ClusterRefusal::MapMoved(judged + 1)),
        "two at once would be too many"
    );
    assert!(propose(&mut store, drain(2)).is_ok(), "it has happened");
    let lose = |at_epoch| ClusterCommand::SetDiskState { disk: DiskId(30), state: DiskState::Lost, at_epoch };
    assert_eq!(propose(&mut store, lose(Some(judged))), Err(ClusterRefusal::MapMoved(judged + 1)));
    assert!(propose(&mut store, lose(Some(judged + 1))).is_ok());
}

#[test]
fn the_last_active_node_stays_and_nobody_is_removed_out_of_service() {
    let mut store = three();
    assert!(matches!(propose(&mut store, set_node(2, NodeState::Removed)), Err(ClusterRefusal::State(_))));
    assert!(matches!(propose(&mut store, set_disk(20, DiskState::Removed)), Err(ClusterRefusal::State(_))));
    propose(&mut store, set_node(2, NodeState::Maintenance)).expect("away");
    propose(&mut store, set_node(3, NodeState::Draining)).expect("drains");
    for state in [NodeState::Draining, NodeState::Maintenance] {
        assert_eq!(propose(&mut store, set_node(1, state)), Err(ClusterRefusal::LastActive));
    }
    propose(&mut store, set_node(2, NodeState::Active)).expect("back");
    assert!(propose(&mut store, set_node(1, NodeState::Draining)).is_ok());
}

#[test]
fn the_cluster_speaks_a_version_only_when_every_node_knows_it() {
    let mut store = three();
    let knows = |version, incarnation| NodeStart { version, ..start(incarnation) };
    for node in [1, 3] {
        propose(&mut store, ClusterCommand::UpdateNode { node, start: knows(3, 2) }).expect("started");
    }
    let speak = |version| ClusterCommand::SetVersion { version };
    assert_eq!(propose(&mut store, speak(2)), Err(ClusterRefusal::NotAllReady(2)));
    propose(&mut store, ClusterCommand::UpdateNode { node: 2, start: knows(2, 2) }).expect("started");
    assert_eq!(propose(&mut store, speak(3)), Err(ClusterRefusal::NotAllReady(2)));
    assert!(propose(&mut store, speak(2)).is_ok());
    assert!(matches!(propose(&mut store, speak(1)), Err(ClusterRefusal::Invalid(_))));
    let back = ClusterCommand::UpdateNode { node: 1, start: knows(1, 3) };
    assert_eq!(propose(&mut store, back), Err(ClusterRefusal::ProgramTooOld(2)), "no way back once it is spoken");
    let token = create_token(&store, 8);
    propose(&mut store, token).expect("a token");
    assert_eq!(propose(&mut store, add(8, 8, &[])), Err(ClusterRefusal::ProgramTooOld(2)));
}

#[test]
fn tokens_and_disks_are_bounded() {
    let mut store = born();
    for token in 0..MAX_TOKENS as u64 {
        let token = create_token(&store, token);
        propose(&mut store, token).expect("a token");
    }
    let token = create_token(&store, 1 << 20);
    assert_eq!(propose(&mut store, token), Err(ClusterRefusal::Full(Limit::Tokens)));
    let disks: Vec<u64> = (100..101 + MAX_DISKS_PER_NODE as u64).collect();
    assert_eq!(propose(&mut store, add(0, 2, &disks)), Err(ClusterRefusal::Full(Limit::Disks)));
    assert_eq!(map(&store).nodes.len(), 1, "a refusal leaves nothing behind");
    assert!(propose(&mut store, add(0, 2, &disks[1..])).is_ok(), "nor does it spend the token");
    assert_eq!(propose(&mut store, report(2, 1, 99, 1)), Err(ClusterRefusal::Full(Limit::Disks)));
}

#[test]
fn the_directory_has_the_map_as_of_every_answer() {
    let mut store = Store::new();
    let directory = Arc::new(Directory::default());
    store.schema = metadata::apply::Schema::new(Arc::clone(&directory));
    assert_eq!(directory.map(), None);
    let token = create_token(&store, 2);
    for command in [init(), token, add(2, 2, &[20]), set_node(2, NodeState::Active)] {
        let root = Shard { id: ROOT, range: KeyRange::ALL, version: 1 };
        let attempt = store.attempt();
        let entry = store.entry(attempt, Command::Root(RootCommand::Cluster(command)));
        let outcome = store.apply(&root, &entry);
        store.schema.applied(&root, &entry, &outcome, &store.rows);
        assert_eq!(directory.map().as_deref(), Some(&map(&store)));
    }
    assert_eq!(Directory::load(&store.rows).expect("readable").map(), directory.map());
}

/// The map as plain facts; what the specification says in the fewest words.
#[derive(Default)]
struct Model {
    epoch: u64,
    next_node: NodeId,
    nodes: BTreeMap<NodeId, (u8, NodeState, u64)>,
    /// Owner, state, starts, run of the node.
    disks: BTreeMap<u64, (NodeId, DiskState, u64, u64)>,
    /// Token to whom it admitted.
    tokens: BTreeMap<u64, Option<NodeId>>,
    keys_ever: BTreeSet<u8>,
}

impl Model {
    fn active(&self) -> usize {
        self.nodes.values().filter(|(_, state, _)| *state == NodeState::Active).count()
    }

    /// Whether the change is allowed; the model is as after it.
    fn step(&mut self, step: &Step) -> bool {
        match *step {
            Step::Token(token) => self.tokens.entry(token).or_insert(None).is_none(),
            Step::Add(token, key, disk) => self.add(token, key, disk),
            Step::Update(node, incarnation) => match self.nodes.get_mut(&node) {
                Some((_, state, known)) if *state != NodeState::Removed && incarnation >= *known => {
                    self.epoch += u64::from(incarnation > *known);
                    *known = incarnation;
                    true
                }
                _ => false,
            },
            Step::Node(node, to) => self.set_node(node, to),
            Step::Report(node, run, disk, starts) => self.report(node, run, disk, starts),
            Step::Disk(disk, to) => match self.disks.get_mut(&disk) {
                Some((_, state, ..)) if state.may_become(to) => {
                    self.epoch += u64::from(*state != to);
                    *state = to;
                    true
                }
                _ => false,
            },
        }
    }

    fn add(&mut self, token: u64, key: u8, disk: u64) -> bool {
        let Some(used_by) = self.tokens.get(&token).copied() else { return false };
        let known = self.nodes.iter().find(|(_, (other, ..))| *other == key).map(|(id, (_, state, _))| (*id, *state));
        match (known, used_by) {
            (Some((_, NodeState::Removed)), _) => false,
            (Some((id, _)), used_by) => used_by.is_none_or(|used_by| used_by == id),
            (None, Some(_)) => false,
            (None, None) if self.disks.contains_key(&disk) => false,
            (None, None) => {
                assert!(self.keys_ever.insert(key));
                self.next_node += 1;
                self.nodes.insert(self.next_node, (key, NodeState::Joining, 1));
                self.disks.insert(disk, (self.next_node, DiskState::Active, 0, 0));
                self.tokens.insert(token, Some(self.next_node));
                self.epoch += 1;
                true
            }
        }
    }

    fn set_node(&mut self, node: NodeId, to: NodeState) -> bool {
        let active = self.active();
        let Some((_, state, _)) = self.nodes.get_mut(&node) else { return false };
        if *state == to {
            return true;
        }
        if !state.may_become(to) || (*state == NodeState::Active && active == 1) {
            return false;
        }
        *state = to;
        self.epoch += 1;
        for (owner, state, ..) in self.disks.values_mut() {
            if *owner == node && to == NodeState::Removed && *state != DiskState::Removed {
                *state = DiskState::Lost;
            }
        }
        true
    }

    fn report(&mut self, node: NodeId, run: u64, disk: u64, starts: u64) -> bool {
        let live = self.nodes.get(&node).is_some_and(|(_, state, known)| *state != NodeState::Removed && *known == run);
        let before = self.disks.get(&disk).copied();
        let state = match before {
            _ if !live => return false,
            None => DiskState::Active,
            Some((owner, state, known, by)) => {
                let newer = starts > known || (starts == known && by == run);
                if owner != node || !newer || matches!(state, DiskState::Lost | DiskState::Removed) {
                    return false;
                }
                state
            }
        };
        let after = (node, state, starts, run);
        self.disks.insert(disk, after);
        self.epoch += u64::from(before != Some(after));
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Token(u64),
    Add(u64, u8, u64),
    Update(NodeId, u64),
    Node(NodeId, NodeState),
    Report(NodeId, u64, u64, u64),
    Disk(u64, DiskState),
}

fn steps() -> impl Strategy<Value = Step> {
    let node_state = prop::sample::select(vec![
        NodeState::Joining,
        NodeState::Active,
        NodeState::Active,
        NodeState::Draining,
        NodeState::Draining,
        NodeState::Maintenance,
        NodeState::Removed,
    ]);
    let disk_state =
        prop::sample::select(vec![DiskState::Active, DiskState::Draining, DiskState::Lost, DiskState::Removed]);
    prop_oneof![
        1 => (0u64..4).prop_map(Step::Token),
        3 => (0u64..4, 1u8..6, 10u64..15).prop_map(|(token, key, disk)| Step::Add(token, key, disk)),
        2 => (1u32..6, 1u64..4).prop_map(|(node, incarnation)| Step::Update(node, incarnation)),
        4 => (1u32..6, node_state).prop_map(|(node, state)| Step::Node(node, state)),
        3 => (1u32..6, 1u64..4, 10u64..15, 1u64..4).prop_map(|(n, run, d, starts)| Step::Report(n, run, d, starts)),
        2 => (10u64..15, disk_state).prop_map(|(disk, state)| Step::Disk(disk, state)),
    ]
}

fn command(step: &Step) -> ClusterCommand {
    match *step {
        Step::Token(token) => {
            ClusterCommand::CreateToken { token: TokenId(token), secret_sha256: SECRET, expires_ms: u64::MAX }
        }
        Step::Add(token, key, disk) => add(token, key, &[disk]),
        Step::Update(node, incarnation) => ClusterCommand::UpdateNode { node, start: start(incarnation) },
        Step::Node(node, state) => set_node(node, state),
        Step::Report(node, run, disk, starts) => report(node, run, disk, starts),
        Step::Disk(disk, state) => set_disk(disk, state),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_map_is_what_a_plain_model_says_after_any_changes(steps in prop::collection::vec(steps(), 1..60)) {
        let mut store = born();
        let mut model = Model { epoch: 1, next_node: 1, ..Model::default() };
        model.nodes.insert(1, (1, NodeState::Active, 1));
        model.keys_ever.insert(1);
        model.disks.extend([10, 11].map(|disk| (disk, (1, DiskState::Active, 0, 0))));
        for step in &steps {
            let allowed = model.step(step);
            let outcome = propose(&mut store, command(step));
            prop_assert_eq!(outcome.is_ok(), allowed, "{:?} gave {:?}", step, outcome);
            let map = map(&store);
            prop_assert_eq!(map.epoch, model.epoch, "{:?}", step);
            let nodes: Vec<_> = map.nodes.values().map(|n| (n.id, (n.key.0[0], n.state, n.start.incarnation))).collect();
            prop_assert_eq!(nodes, model.nodes.clone().into_iter().collect::<Vec<_>>(), "{:?}", step);
            let disks: Vec<_> =
                map.disks.values().map(|d| (d.id.0, (d.node, d.state, d.incarnation, d.reported_by))).collect();
            prop_assert_eq!(disks, model.disks.clone().into_iter().collect::<Vec<_>>(), "{:?}", step);
        }
    }
}
