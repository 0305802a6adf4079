//! Joining over real sockets: the door's TLS, the cluster service, and a root that takes one node.
#![allow(clippy::panic)]

use cluster::detector::Me;
use cluster::heartbeats::{ClusterService, Heartbeats, SERVICE};
use cluster::identity::NodeKey;
use cluster::join::Joiner;
use cluster::knock::join;
use cluster::root::{ChangeError, Root};
use cluster::token::JoinToken;
use env::Env;
use env::buf::BufPool;
use env::random::SimRandom;
use rpc::handlers::Handlers;
use rpc::tcp::{Admission, KeySha256, Listener, Pace, Peers, TcpConfig, Trust};
use rpc::{Boxed, CallError, Message, Transport};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::cluster::command::{ClusterCommand, MapChange};
use types::cluster::{Addresses, KeyHash, Map, Node, NodeStart, NodeState};
use types::{ClusterId, NodeId};

fn key(id: NodeId) -> NodeKey {
    NodeKey::generate(&SimRandom::new(id.into()))
}

fn node(id: NodeId, state: NodeState) -> Node {
    let addresses = Addresses { rpc: "127.0.0.1:1".into(), ..Addresses::default() };
    Node {
        id,
        key: key(id).hash(),
        state,
        start: NodeStart { incarnation: 1, version: 1, addresses, rack: None },
        joined_ms: 0,
    }
}

/// The map is the root: it takes every node as the next.
struct Cluster(Mutex<Map>);

impl Cluster {
    fn new() -> Arc<Cluster> {
        let nodes = [(1, node(1, NodeState::Active))].into();
        Arc::new(Cluster(Mutex::new(Map {
            cluster: ClusterId(7),
            epoch: 1,
            version: 1,
            nodes,
            disks: BTreeMap::new(),
        })))
    }

    fn map_now(&self) -> Map {
        self.0.lock().expect("no panic").clone()
    }
}

impl Root for Cluster {
    fn map(&self) -> Option<Arc<Map>> {
        Some(Arc::new(self.map_now()))
    }

    fn change(&self, command: ClusterCommand) -> Boxed<Result<MapChange, ChangeError>> {
        let ClusterCommand::AddNode { node: new, .. } = command else { panic!("{command:?}") };
        let mut map = self.0.lock().expect("no panic");
        let id = map.node_of(new.key).unwrap_or(map.nodes.len() as NodeId + 1);
        map.nodes.insert(id, Node { key: new.key, start: new.start, ..node(id, NodeState::Joining) });
        map.epoch += 1;
        let epoch = map.epoch;
        Box::pin(async move { Ok(MapChange { epoch, node: Some(id) }) })
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

struct ByMap(Arc<Cluster>);

impl Trust for ByMap {
    fn node_of(&self, key: KeySha256) -> Option<NodeId> {
        self.0.map_now().node_of(KeyHash(key))
    }

    fn key_of(&self, node: NodeId) -> Option<KeySha256> {
        self.0.map_now().nodes.get(&node).map(|node| node.key.0)
    }

    fn address_of(&self, node: NodeId) -> Option<String> {
        self.0.map_now().nodes.get(&node).map(|node| node.start.addresses.rpc.clone())
    }
}

fn config(env: &Env, id: NodeId, identity: &NodeKey, cluster: &Arc<Cluster>) -> TcpConfig {
    TcpConfig {
        node: id,
        identity: identity.tls(),
        trust: Arc::new(ByMap(cluster.clone())),
        env: env.clone(),
        bulk: Arc::new([]),
        call_memory: BufPool::new(16 << 20),
        answer_memory: BufPool::new(16 << 20),
        pace: Pace::default(),
    }
}

/// Node 1 listens; the map says where.
async fn listen(env: &Env, identity: &NodeKey, cluster: &Arc<Cluster>) -> Listener {
    let me = Me { cluster: ClusterId(7), node: 1, incarnation: 1 };
    let heartbeats = Heartbeats::new(me, env.clone(), cluster.clone());
    let service = ClusterService::new(heartbeats, identity.hash());
    let handlers = Handlers::new().with(SERVICE, Arc::new(service));
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = config(env, 1, identity, cluster);
    let listener = Listener::bind(config, any, Admission::StrangersTo(SERVICE), handlers).await.expect("a free port");
    let mut map = cluster.0.lock().expect("no panic");
    map.nodes.get_mut(&1).expect("there").start.addresses.rpc = listener.address().to_string();
    listener
}

#[tokio::test]
async fn a_node_with_a_token_joins_and_its_key_opens_what_was_closed() {
    let (env, cluster) = (Env::system(1), Cluster::new());
    let listener = listen(&env, &key(1), &cluster).await;
    let token = JoinToken::mint(&cluster.map_now(), &*env.random).expect("a door");
    let member = |env: &Env| Peers::new(config(env, 2, &key(2), &cluster), Handlers::new());
    // As a stranger it may call this service alone, and not in anybody's name.
    let other = rpc::Service(2);
    let refused = member(&env).call(1, other, Message::default(), Duration::from_secs(5)).await;
    assert!(refused.is_err(), "{refused:?}");
    let joiner = Joiner::new(token.clone(), key(2), node(2, NodeState::Joining).start, vec![]);
    let (id, map) = join(&env, joiner).await.expect("admitted");
    assert_eq!((id, map.nodes[&2].key, map.epoch), (2, key(2).hash(), 2));
    let again = Joiner::new(token, key(2), node(2, NodeState::Joining).start, vec![]);
    assert_eq!(join(&env, again).await.map(|(id, _)| id), Ok(2));
    let answer = member(&env).call(1, other, Message::default(), Duration::from_secs(5)).await;
    assert!(matches!(answer, Err(CallError::Refused(1, _))), "it is heard now: there is no such service, {answer:?}");
    listener.stop().await;
}

#[tokio::test]
async fn the_secret_is_not_told_to_whoever_listens_at_the_address() {
    let (env, cluster) = (Env::system(1), Cluster::new());
    let impostor = listen(&env, &key(66), &cluster).await;
    let token = JoinToken::mint(&cluster.map_now(), &*env.random).expect("a door");
    let joiner = Joiner::new(token, key(2), node(2, NodeState::Joining).start, vec![]);
    let (door, request) = joiner.ask();
    let bytes = cluster::wire::ClusterMessage::Join(Box::new(request)).encode();
    let message = Message { head: bytes.into(), ..Message::default() };
    let at = (door.node, door.address.as_str(), door.key.0);
    let heard = rpc::tcp::knock(&env, &key(2).tls(), at, SERVICE, message, Duration::from_secs(5)).await;
    assert_eq!(heard, Err(CallError::Unreachable(1)), "nothing was sent");
    assert_eq!(cluster.map_now().nodes.len(), 1);
    impostor.stop().await;
}
