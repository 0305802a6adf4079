//! The driver over a simulated world: nodes with clocks of their own, that die, stop, and join.
#![allow(clippy::panic)]

use cluster::detector::{Health, Me, Verdict};
use cluster::heartbeats::{ClusterService, Heartbeats, SERVICE};
use cluster::identity::NodeKey;
use cluster::join::{JoinAnswer, JoinStep, Joiner};
use cluster::root::{ChangeError, Root};
use cluster::token::JoinToken;
use cluster::wire::ClusterMessage;
use env::random::SimRandom;
use env::world::SimWorld;
use rpc::handlers::Handlers;
use rpc::sim::{Faults, SimNet};
use rpc::{Boxed, Handler, Message, Transport};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::cluster::command::{ClusterCommand, MapChange};
use types::cluster::{Addresses, ClusterRefusal, Map, Node, NodeStart, NodeState};
use types::{ClusterId, NodeId};

/// A root that takes every node as node 9.
struct Fixed(Mutex<Arc<Map>>);

impl Fixed {
    fn new(map: Map) -> Arc<Fixed> {
        Arc::new(Fixed(Mutex::new(Arc::new(map))))
    }
}

impl Root for Fixed {
    fn map(&self) -> Option<Arc<Map>> {
        Some(self.0.lock().expect("no panic").clone())
    }

    fn change(&self, command: ClusterCommand) -> Boxed<Result<MapChange, ChangeError>> {
        let ClusterCommand::AddNode { node: new, .. } = command else { panic!("{command:?}") };
        let mut map = self.0.lock().expect("no panic");
        let mut next = Map::clone(&map);
        next.nodes.insert(9, Node { key: new.key, start: new.start, ..node(9, NodeState::Joining) });
        next.epoch += 1;
        let epoch = next.epoch;
        *map = Arc::new(next);
        Box::pin(async move { Ok(MapChange { epoch, node: Some(9) }) })
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

fn key(id: NodeId) -> NodeKey {
    NodeKey::generate(&SimRandom::new(id.into()))
}

fn node(id: NodeId, state: NodeState) -> Node {
    let addresses = Addresses { rpc: format!("n{id}:1"), ..Addresses::default() };
    Node {
        id,
        key: key(id).hash(),
        state,
        start: NodeStart { incarnation: 1, version: 1, addresses, rack: None },
        joined_ms: 0,
    }
}

fn map(count: u32) -> Map {
    let nodes = (1..=count).map(|id| (id, node(id, NodeState::Active))).collect();
    Map { cluster: ClusterId(7), epoch: 3, version: 1, nodes, disks: BTreeMap::new() }
}

type Told = Arc<Mutex<Vec<(NodeId, Verdict)>>>;

/// The node's driver and its way to the others; not running yet.
fn join(world: &SimWorld, net: &SimNet, map: &Map, id: NodeId) -> (Heartbeats, Arc<dyn Transport>) {
    let env = world.node(id.into());
    let me = Me { cluster: ClusterId(7), node: id, incarnation: 1 };
    let heartbeats = Heartbeats::new(me, env.clone(), Fixed::new(map.clone()));
    let service = ClusterService::new(heartbeats.clone(), key(id).hash());
    let transport = net.join(id, &env, Handlers::new().with(SERVICE, Arc::new(service)));
    (heartbeats, transport)
}

fn start(world: &SimWorld, net: &SimNet, map: &Map, id: NodeId, told: &Told) -> Heartbeats {
    let (heartbeats, transport) = join(world, net, map, id);
    let told = told.clone();
    let tell = move |verdict| told.lock().expect("no panic").push((id, verdict));
    world.node(id.into()).tasks.spawn(heartbeats.clone().run(transport, tell));
    heartbeats
}

#[test]
fn nodes_with_clocks_of_their_own_find_out_who_died_and_who_only_slept() {
    let (world, told) = (SimWorld::new(4), Told::default());
    let net = SimNet::new(&world, 1);
    let map = map(3);
    let nodes: Vec<Heartbeats> = (1..=3).map(|id| start(&world, &net, &map, id, &told)).collect();
    world.run_for(Duration::from_secs(10));
    assert_eq!(*told.lock().expect("no panic"), []);
    assert_eq!(nodes[0].newest_epoch(), 3);
    assert!(nodes.iter().all(|node| !node.is_cut_off() && node.clocks_ahead_ms().is_some()));
    world.pause(3);
    world.run_for(Duration::from_secs(60));
    let of = |by: usize, about| nodes[by].health(about).expect("in the map");
    assert_eq!((of(0, 3), of(1, 3), of(0, 2)), (Health::Down, Health::Down, Health::Up));
    world.resume(3);
    world.run_for(Duration::from_secs(5));
    assert_eq!((of(0, 3), of(1, 3), of(2, 1)), (Health::Up, Health::Up, Health::Up));
    world.kill(2);
    world.run_for(Duration::from_secs(7));
    assert_eq!((of(0, 2), of(2, 2), of(0, 3)), (Health::Down, Health::Down, Health::Up));
    let down: Vec<_> = told
        .lock()
        .expect("no panic")
        .iter()
        .filter(|(_, v)| v.health == Health::Down)
        .map(|(by, v)| (*by, v.node))
        .collect();
    assert_eq!(down.len(), 4, "{down:?}");
}

#[test]
fn on_a_rough_network_nobody_is_declared_and_a_part_that_is_cut_off_knows_it() {
    let (world, told) = (SimWorld::new(8), Told::default());
    let net = SimNet::new(&world, 2);
    let map = map(5);
    let nodes: Vec<Heartbeats> = (1..=5).map(|id| start(&world, &net, &map, id, &told)).collect();
    net.set_faults(Faults::ROUGH);
    world.run_for(Duration::from_secs(300));
    let down = |told: &Told| {
        let told = told.lock().expect("no panic");
        told.iter().filter(|(_, v)| v.health == Health::Down).map(|(by, v)| (*by, v.node)).collect::<Vec<_>>()
    };
    assert_eq!(down(&told), []);
    net.cut(1, 2);
    world.run_for(Duration::from_secs(60));
    assert_eq!(down(&told), [], "one direction of one link");
    assert!(nodes[0].is_silent_to_us(2) && nodes[1].is_silent_to_us(1));
    net.partition(&[&[1, 2, 3], &[4, 5]]);
    net.mend(1, 2);
    world.run_for(Duration::from_secs(20));
    let mut seen = down(&told);
    seen.sort_unstable();
    assert_eq!(seen, [(1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)]);
    assert_eq!(nodes.iter().map(Heartbeats::is_cut_off).collect::<Vec<_>>(), [false, false, false, true, true]);
}

#[test]
fn the_driver_ends_when_it_is_told_to() {
    let world = SimWorld::new(5);
    let (heartbeats, transport) = join(&world, &SimNet::new(&world, 3), &map(2), 1);
    let mut ended = world.spawn_on(1, heartbeats.clone().run(transport, |_| {}));
    world.run_for(Duration::from_secs(1));
    heartbeats.stop();
    world.run_for(Duration::from_secs(1));
    assert_eq!(ended.take(), Some(()));
}

#[test]
fn a_call_to_join_is_judged_here_and_put_before_root() {
    let world = SimWorld::new(6);
    let map = map(3);
    let (heartbeats, _) = join(&world, &SimNet::new(&world, 4), &map, 1);
    let token = JoinToken::mint(&map, &SimRandom::new(1)).expect("doors");
    let service = ClusterService::new(heartbeats, key(1).hash());
    let call = |bytes: Vec<u8>| {
        let answer = service.call(0, Message { head: bytes.into(), ..Message::default() });
        world.block_on(answer).map(|message| ClusterMessage::decode(&message.body).expect("ours"))
    };
    let mut joiner = Joiner::new(token, key(40), node(40, NodeState::Joining).start, vec![]);
    let (door, request) = joiner.ask();
    assert_eq!(door.key, key(1).hash());
    let Ok(ClusterMessage::Joined(answer)) = call(ClusterMessage::Join(Box::new(request.clone())).encode()) else {
        panic!("no answer");
    };
    assert!(matches!(joiner.answered(Ok(*answer)), JoinStep::Joined { node: 9, .. }));
    let mut forged = request;
    forged.proof[0] ^= 1;
    let Ok(ClusterMessage::Joined(answer)) = call(ClusterMessage::Join(Box::new(forged)).encode()) else {
        panic!("no answer");
    };
    assert!(matches!(*answer, JoinAnswer::Refused(ClusterRefusal::Invalid(_))));
    assert!(call(vec![9, 9, 9]).is_err() && call(vec![]).is_err());
}
