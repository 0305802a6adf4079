//! Membership against root as it is: metadata's own apply over rows in a map, reached over a way that loses answers.
#![allow(clippy::panic)]

use bytes::Bytes;
use cluster::detector::Health;
use cluster::identity::NodeKey;
use cluster::identity::file::NodeFile;
use cluster::join::{JoinAnswer, JoinStep, Joiner};
use cluster::operator::{DiskWish, NodeWish, WishError, change_disk, change_node, make_token, status};
use cluster::placement::precheck::{Breaks, Situation};
use cluster::placement::{DiskLoad, Loads};
use cluster::root::{Announced, ChangeError, Root, Started, StartedDisk, admit, announce};
use cluster::token::JoinToken;
use env::Env;
use env::random::{Random, SimRandom};
use env::world::SimWorld;
use metadata::apply::Schema;
use metadata::command::{Command, Entry, Outcome, Refusal, RootCommand};
use metadata::read::root;
use metadata::shard::{KeyRange, ROOT, Shard, StateMachine};
use metadata::tree::{Read, Row, TreeError, WriteBatch};
use rpc::Boxed;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::cluster::command::{ClusterCommand, MapChange, NewDisk};
use types::cluster::{Addresses, ClusterRefusal, DiskState, Map, NodeStart, NodeState};
use types::{AttemptId, ClusterId, DiskId, NodeId};

const CLUSTER: ClusterId = ClusterId(7);

#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Bytes>);

type Walk<'a> = Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a>;

impl Read for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        Ok(self.0.get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Walk<'_> {
        let rows = self.0.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to.max(from))));
        Box::new(rows.map(|(key, value)| Ok((Bytes::copy_from_slice(key), value.clone()))))
    }

    fn range_back(&self, from: &[u8], to: &[u8]) -> Walk<'_> {
        let rows: Vec<_> = self.range(from, to).collect();
        Box::new(rows.into_iter().rev())
    }
}

struct State {
    rows: Rows,
    schema: Schema,
    applied: u64,
    now_ms: u64,
    /// Proposals whose outcome nobody was told: they may come again at any time.
    loose: Vec<ClusterCommand>,
}

impl State {
    fn apply(&mut self, command: ClusterCommand) -> Outcome {
        let shard = Shard { id: ROOT, range: KeyRange::ALL, version: 1 };
        self.applied += 1;
        self.now_ms += 5;
        let entry = Entry {
            attempt: AttemptId { node: 1, session: 1, sequence: self.applied },
            deadline_ms: u64::MAX,
            stamp_ms: self.now_ms,
            command: Command::Root(RootCommand::Cluster(command)),
        };
        let mut batch = WriteBatch::default();
        let outcome = self.schema.apply(&shard, &entry, &self.rows, &mut batch).expect("readable");
        for (key, value) in batch.rows {
            match value {
                Some(value) => self.rows.0.insert(key, value),
                None => self.rows.0.remove(&key),
            };
        }
        outcome
    }
}

/// Root, of which every so many proposals are lost before or after they happened.
struct Lossy {
    state: Mutex<State>,
    chance: SimRandom,
    lost_permille: u64,
}

impl Lossy {
    fn new(lost_permille: u64, seed: u64) -> Arc<Lossy> {
        let state =
            State { rows: Rows::default(), schema: Schema::default(), applied: 0, now_ms: 1_000_000, loose: vec![] };
        Arc::new(Lossy { state: Mutex::new(state), chance: SimRandom::new(seed), lost_permille })
    }

    fn known(&self) -> Map {
        Map::clone(&self.map().expect("born"))
    }

    fn decide(&self, command: ClusterCommand) -> Result<MapChange, ChangeError> {
        let mut state = self.state.lock().expect("no panic");
        // What was lost on its way arrives late, now and then.
        if !state.loose.is_empty() && self.chance.next_u64().is_multiple_of(2) {
            let at = self.chance.next_u64() as usize % state.loose.len();
            let late = state.loose[at].clone();
            state.apply(late);
        }
        if self.chance.next_u64() % 1000 < self.lost_permille {
            state.loose.push(command.clone());
            if self.chance.next_u64().is_multiple_of(2) {
                state.apply(command);
            }
            return Err(ChangeError::Unknown("lost".into()));
        }
        match state.apply(command) {
            Outcome::Map(change) => Ok(change),
            Outcome::Refused(Refusal::Cluster(refusal)) => Err(refusal.into()),
            other => panic!("{other:?}"),
        }
    }
}

impl Root for Lossy {
    fn map(&self) -> Option<Arc<Map>> {
        root::map(&self.state.lock().expect("no panic").rows).expect("readable").map(Arc::new)
    }

    fn change(&self, command: ClusterCommand) -> Boxed<Result<MapChange, ChangeError>> {
        let outcome = self.decide(command);
        Box::pin(async move { outcome })
    }

    fn now_ms(&self) -> u64 {
        self.state.lock().expect("no panic").now_ms
    }
}

fn disk(id: u64) -> NewDisk {
    NewDisk { id: DiskId(id), total_bytes: 1 << 40 }
}

fn start(node: NodeId) -> NodeStart {
    let addresses = Addresses { rpc: format!("n{node}:1"), ..Addresses::default() };
    NodeStart { incarnation: 0, version: 1, addresses, rack: None }
}

fn key(node: NodeId) -> NodeKey {
    NodeKey::generate(&SimRandom::new(node.into()))
}

/// A start of a node with one disk, which was started as often as the node.
fn started(node: NodeId, incarnation: u64) -> Started {
    let file = NodeFile { key: key(node), incarnation, member: Some((CLUSTER, node)) };
    let disks = vec![StartedDisk { disk: disk(u64::from(node) * 10), incarnation }];
    Started { cluster: CLUSTER, node, file, start: start(node), disks }
}

fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    SimWorld::new(1).block_on(future)
}

fn announced(root: &Arc<Lossy>, started: Started) -> Result<Announced, ChangeError> {
    let (world, root) = (SimWorld::new(1), root.clone());
    let env = world.node(1);
    world.block_on(async move { announce(&*root, &env, &started).await })
}

fn token(root: &Arc<Lossy>, valid: Option<Duration>) -> JoinToken {
    let (world, root) = (SimWorld::new(root.chance.next_u64()), root.clone());
    let env = world.node(1);
    world.block_on(async move { make_token(&*root, &env, valid).await }).expect("a token")
}

/// The whole way in: token, request, admission, start, active.
fn join(root: &Arc<Lossy>, as_key: NodeId) -> NodeId {
    let mut joiner = Joiner::new(token(root, None), key(as_key), start(as_key), vec![disk(u64::from(as_key) * 10)]);
    loop {
        let (door, request) = joiner.ask();
        let (door_key, root_too) = (door.key, root.clone());
        let command = request.judge(&root.known(), door_key).expect("well formed");
        let answer: JoinAnswer = run(admit(root_too, command));
        match joiner.answered(Ok(answer)) {
            JoinStep::Joined { node, .. } => return node,
            JoinStep::Ask { .. } => {}
            JoinStep::Failed(error) => panic!("{error}"),
        }
    }
}

fn three(lost_permille: u64, seed: u64) -> Arc<Lossy> {
    let root = Lossy::new(lost_permille, seed);
    announced(&root, started(1, 1)).expect("born");
    for node in [2, 3] {
        assert_eq!(join(&root, node), node);
        announced(&root, started(node, 1)).expect("started");
        wish(&root, node, NodeWish::Activate, false).expect("active");
    }
    root
}

struct Scene {
    map: Map,
    up: BTreeSet<NodeId>,
    voters: BTreeSet<NodeId>,
    loads: Loads,
}

impl Scene {
    fn of(root: &Lossy) -> Scene {
        let map = root.known();
        let load = DiskLoad { total_bytes: 1 << 40, free_bytes: 1 << 39, write_us: 0, is_usable: true };
        let up = map.nodes.keys().copied().collect();
        let loads = map.disks.keys().map(|disk| (*disk, load)).collect();
        Scene { voters: cluster::map::voters(&map), map, up, loads }
    }

    fn situation(&self) -> Situation<'_> {
        Situation { map: &self.map, up: &self.up, voters: &self.voters, loads: &self.loads, most_copies: 2 }
    }
}

fn with_env<T: Send + 'static>(act: impl AsyncFnOnceEnv<T>) -> T {
    let world = SimWorld::new(3);
    let env = world.node(1);
    world.block_on(act.call(env))
}

/// A closure that takes a world and gives a future.
trait AsyncFnOnceEnv<T> {
    fn call(self, env: Env) -> Boxed<T>;
}

impl<T, F: FnOnce(Env) -> Boxed<T>> AsyncFnOnceEnv<T> for F {
    fn call(self, env: Env) -> Boxed<T> {
        self(env)
    }
}

fn wish(root: &Arc<Lossy>, node: NodeId, wish: NodeWish, force: bool) -> Result<Vec<Breaks>, WishError> {
    let root = root.clone();
    with_env(move |env: Env| -> Boxed<_> {
        Box::pin(async move {
            let scene = Scene::of(&root);
            let done = change_node(&*root, &env, &scene.situation(), (node, wish), 0, force).await;
            done.map(|done| done.broke)
        })
    })
}

fn wish_of_disk(
    root: &Arc<Lossy>,
    disk: u64,
    wish: DiskWish,
    replicas: u64,
    force: bool,
) -> Result<Vec<Breaks>, WishError> {
    let root = root.clone();
    with_env(move |env: Env| -> Boxed<_> {
        Box::pin(async move {
            let scene = Scene::of(&root);
            let done = change_disk(&*root, &env, &scene.situation(), (DiskId(disk), wish), replicas, force).await;
            done.map(|done| done.broke)
        })
    })
}

#[test]
fn the_first_start_brings_the_map_to_the_world_and_every_start_is_known_by_it() {
    let root = Lossy::new(0, 1);
    assert_eq!(announced(&root, started(1, 4)).map(|done| done.refused), Ok(vec![]));
    let epoch = root.known().epoch;
    assert_eq!(announced(&root, started(1, 4)).map(|done| done.epoch), Ok(epoch), "the same start again");
    announced(&root, started(1, 5)).expect("the next start");
    let map = root.known();
    assert_eq!((map.nodes[&1].start.incarnation, map.disks[&DiskId(10)].incarnation), (5, 5));
    let old = announced(&root, started(1, 4));
    assert_eq!(old, Err(ClusterRefusal::OldIncarnation { known: 5, given: 4 }.into()));
}

#[test]
fn a_disk_that_was_set_back_is_named_and_the_node_goes_on() {
    let root = Lossy::new(0, 1);
    announced(&root, started(1, 5)).expect("born");
    let mut set_back = started(1, 6);
    set_back.disks[0].incarnation = 5;
    set_back.disks.push(StartedDisk { disk: disk(11), incarnation: 1 });
    let done = announced(&root, set_back).expect("the node is welcome");
    assert_eq!(done.refused, [(DiskId(10), ClusterRefusal::OldIncarnation { known: 5, given: 5 })]);
    assert_eq!(root.known().disks[&DiskId(11)].incarnation, 1, "and so is its new disk");
}

#[test]
fn a_node_whose_key_is_another_is_not_let_in() {
    let root = three(0, 1);
    let mut stranger = started(2, 9);
    stranger.file.key = key(77);
    assert!(matches!(announced(&root, stranger), Err(ChangeError::Refused(ClusterRefusal::Invalid(_)))));
}

#[test]
fn nodes_join_once_however_many_answers_are_lost_and_however_late_proposals_come() {
    for seed in 0..40 {
        let root = three(300, seed);
        let map = root.known();
        let nodes: Vec<_> = map.nodes.values().map(|node| (node.id, node.key, node.state)).collect();
        let expected = [1, 2, 3].map(|id| (id, key(id).hash(), NodeState::Active));
        assert_eq!(nodes, expected, "seed {seed}");
        let disks: Vec<_> = map.disks.values().map(|disk| (disk.id.0, disk.node, disk.incarnation)).collect();
        assert_eq!(disks, [(10, 1, 1), (20, 2, 1), (30, 3, 1)], "seed {seed}");
        // Birth and a report of its disk; two nodes: admission, start, report, active. A start says nothing new.
        assert!((8..=10).contains(&map.epoch), "seed {seed}: epoch {}", map.epoch);
    }
}

#[test]
fn a_root_that_never_answers_is_given_up_after_a_while() {
    let root = Lossy::new(1000, 1);
    assert_eq!(announced(&root, started(1, 1)), Err(ChangeError::Unknown("lost".into())));
}

#[test]
fn a_token_is_good_for_as_long_as_was_said() {
    let root = three(0, 2);
    let short = token(&root, Some(Duration::from_secs(60)));
    root.state.lock().expect("no panic").now_ms += 61_000;
    let joiner = Joiner::new(short, key(4), start(4), vec![]);
    let (door, request) = joiner.ask();
    let command = request.judge(&root.known(), door.key).expect("well formed");
    assert_eq!(run(admit(root.clone(), command)), JoinAnswer::Refused(ClusterRefusal::TokenExpired));
}

#[test]
fn a_wish_that_breaks_something_is_refused_with_its_name_or_done_by_force() {
    let root = three(0, 3);
    assert_eq!(wish(&root, 2, NodeWish::Remove, false), Err(WishError::Breaks(vec![Breaks::InService])));
    assert_eq!(wish(&root, 2, NodeWish::Drain, false), Ok(vec![]));
    let others = vec![Breaks::OthersAway(vec![2]), Breaks::Copies { wanted: 2, left: 1 }];
    let refused = Err(WishError::Breaks(
        [others.clone(), vec![Breaks::Space { needed_bytes: 1 << 39, room_bytes: 439_804_651_111 }]].concat(),
    ));
    assert_eq!(wish(&root, 3, NodeWish::Drain, false), refused);
    assert_eq!(root.known().nodes[&3].state, NodeState::Active);
    assert_eq!(wish(&root, 3, NodeWish::Maintain, true), Ok(others), "by force, and it says what broke");
    let no_way = wish(&root, 1, NodeWish::Drain, true);
    assert_eq!(no_way, Err(WishError::Change(ClusterRefusal::LastActive.into())), "force moves judgement, not sense");
    assert_eq!(wish(&root, 2, NodeWish::Remove, false), Ok(vec![]));
    assert_eq!(root.known().disks[&DiskId(20)].state, DiskState::Lost);
}

#[test]
fn a_wish_is_proposed_for_the_map_it_was_judged_on() {
    let root = three(0, 4);
    let refused: Result<(), WishError> = with_env({
        let root = root.clone();
        move |env: Env| -> Boxed<_> {
            Box::pin(async move {
                let scene = Scene::of(&root);
                change_node(&*root, &env, &scene.situation(), (3, NodeWish::Drain), 0, false).await?;
                // Judged before the other had begun.
                change_node(&*root, &env, &scene.situation(), (2, NodeWish::Drain), 0, false).await.map(|_| ())
            })
        }
    });
    let epoch = root.known().epoch;
    assert_eq!(refused, Err(WishError::Change(ClusterRefusal::MapMoved(epoch).into())));
}

#[test]
fn a_disk_with_replicas_is_given_up_only_by_force() {
    let root = three(0, 5);
    let last = vec![Breaks::LastCopies(3)];
    assert_eq!(wish_of_disk(&root, 30, DiskWish::Lose, 3, false), Err(WishError::Breaks(last.clone())));
    assert_eq!(wish_of_disk(&root, 30, DiskWish::Lose, 3, true), Ok(last));
    let again = wish_of_disk(&root, 30, DiskWish::Activate, 0, true);
    assert!(matches!(again, Err(WishError::Change(ChangeError::Refused(ClusterRefusal::State(_))))), "never again");
}

#[test]
fn the_status_names_who_votes_what_is_thought_and_what_may_be_lost() {
    let root = three(0, 6);
    let mut scene = Scene::of(&root);
    let health = |node| if node == 3 { (Health::Down, true) } else { (Health::Up, false) };
    let seen = status(&scene.situation(), health);
    assert_eq!((seen.epoch, seen.default_copies, seen.survives_nodes), (scene.map.epoch, 2, 1));
    let three = &seen.nodes[2];
    assert_eq!((three.state.as_str(), three.health.as_str(), three.slow, three.voter), ("active", "down", true, true));
    assert_eq!(three.disks[0].free_bytes, Some(1 << 39));
    scene.up.remove(&3);
    scene.voters.remove(&2);
    let seen = status(&scene.situation(), health);
    assert_eq!(seen.survives_nodes, 0);
    assert!(seen.nodes[1].voter_is_changing && !seen.nodes[0].voter_is_changing);
    assert!("drian".parse::<NodeWish>().is_err() && "lose".parse() == Ok(DiskWish::Lose));
}
