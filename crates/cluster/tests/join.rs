//! Joining, step by step: a joiner, doors, and a root that decides as apply does.
#![allow(clippy::panic)]

use cluster::identity::NodeKey;
use cluster::join::{JoinAnswer, JoinError, JoinRequest, JoinStep, Joiner};
use cluster::limits::JOIN_ROUNDS;
use cluster::token::JoinToken;
use cluster::wire::ClusterMessage;
use env::random::SimRandom;
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{Addresses, ClusterRefusal, Disk, DiskState, Map, Node, NodeStart, NodeState};
use types::{ClusterId, DiskId, NodeId};

fn start(rpc: &str) -> NodeStart {
    let addresses = Addresses { rpc: rpc.into(), ..Addresses::default() };
    NodeStart { incarnation: 1, version: 1, addresses, rack: None }
}

fn key(seed: u64) -> NodeKey {
    NodeKey::generate(&SimRandom::new(seed))
}

fn node(id: NodeId, state: NodeState) -> Node {
    Node { id, key: key(id.into()).hash(), state, start: start(&format!("n{id}:1")), joined_ms: 0 }
}

/// Root, with one token.
struct Root {
    map: Map,
    token: JoinToken,
    used_by: Option<NodeId>,
    expired: bool,
}

impl Root {
    fn new() -> Root {
        let nodes = [node(1, NodeState::Active), node(2, NodeState::Draining), node(3, NodeState::Active)];
        let nodes: BTreeMap<_, _> = nodes.into_iter().map(|node| (node.id, node)).collect();
        let map = Map { cluster: ClusterId(7), epoch: 4, version: 1, nodes, disks: BTreeMap::new() };
        let token = JoinToken::mint(&map, &SimRandom::new(77)).expect("there are doors");
        Root { map, token, used_by: None, expired: false }
    }

    /// As metadata's apply decides.
    fn admit(&mut self, command: &ClusterCommand) -> JoinAnswer {
        let ClusterCommand::AddNode { token, secret_sha256, node, disks } = command else { panic!("{command:?}") };
        let known = self.map.nodes.values().find(|known| known.key == node.key).map(|known| known.id);
        let refusal = match (known, self.used_by) {
            _ if *token != self.token.id || *secret_sha256 != self.token.secret.sha256() => {
                ClusterRefusal::TokenUnknown
            }
            (Some(node), Some(used_by)) if node == used_by => {
                return JoinAnswer::Admitted { node, map: self.map.clone() };
            }
            (_, Some(used_by)) => ClusterRefusal::TokenUsed(used_by),
            _ if self.expired => ClusterRefusal::TokenExpired,
            _ => {
                let id = 1 + self.map.nodes.keys().max().copied().unwrap_or(0);
                let (key, start) = (node.key, node.start.clone());
                self.map.nodes.insert(id, Node { id, key, state: NodeState::Joining, start, joined_ms: 1 });
                for NewDisk { id: disk, total_bytes } in disks.iter().copied() {
                    let row = Disk {
                        id: disk,
                        node: id,
                        state: DiskState::Active,
                        incarnation: 0,
                        reported_by: 0,
                        total_bytes,
                    };
                    self.map.disks.insert(disk, row);
                }
                self.map.epoch += 1;
                self.used_by = Some(id);
                return JoinAnswer::Admitted { node: id, map: self.map.clone() };
            }
        };
        JoinAnswer::Refused(refusal)
    }

    /// What the door with this key answers, over the wire.
    fn ask(&mut self, door: &NodeKey, request: JoinRequest) -> JoinAnswer {
        let bytes = ClusterMessage::Join(Box::new(request)).encode();
        let Ok(ClusterMessage::Join(request)) = ClusterMessage::decode(&bytes) else { panic!("not a request") };
        let answer = match request.judge(&self.map, door.hash()) {
            Ok(command) => self.admit(&command),
            Err(refusal) => JoinAnswer::Refused(refusal),
        };
        let bytes = ClusterMessage::Joined(Box::new(answer)).encode();
        match ClusterMessage::decode(&bytes) {
            Ok(ClusterMessage::Joined(answer)) => *answer,
            other => panic!("{other:?}"),
        }
    }
}

fn joiner(root: &Root, seed: u64) -> Joiner {
    Joiner::new(root.token.clone(), key(seed), start("new:1"), vec![NewDisk { id: DiskId(seed), total_bytes: 1 << 40 }])
}

#[test]
fn a_token_names_the_nodes_in_service_with_their_keys() {
    let root = Root::new();
    let doors: Vec<_> = root.token.doors.iter().map(|door| (door.node, door.key)).collect();
    assert_eq!(doors, [(1, key(1).hash()), (3, key(3).hash())]);
    let empty = Map { nodes: BTreeMap::new(), ..root.map };
    assert_eq!(JoinToken::mint(&empty, &SimRandom::new(1)), None);
}

#[test]
fn a_node_is_admitted_once_however_often_its_answer_is_lost() {
    let mut root = Root::new();
    let mut joiner = joiner(&root, 50);
    let mut ids = Vec::new();
    for turn in 0..4 {
        let (door, request) = joiner.ask();
        let door = key(door.node.into());
        let answer = root.ask(&door, request);
        let JoinAnswer::Admitted { node, .. } = &answer else { panic!("{answer:?}") };
        ids.push(*node);
        let lost = joiner.answered(Err("lost".into()));
        assert_eq!(lost, JoinStep::Ask { wait: turn % 2 == 1 }, "after both doors it waits");
        if turn == 3 {
            assert!(matches!(joiner.answered(Ok(answer)), JoinStep::Joined { node: 4, .. }));
        }
    }
    assert_eq!(ids, [4, 4, 4, 4]);
    assert_eq!((root.map.epoch, root.map.disks.len()), (5, 1));
}

#[test]
fn a_recorded_request_admits_nobody_else_and_opens_no_other_door() {
    let mut root = Root::new();
    let (_, request) = joiner(&root, 50).ask();
    let first = root.ask(&key(1), request.clone());
    assert!(matches!(first, JoinAnswer::Admitted { node: 4, .. }));
    assert!(matches!(root.ask(&key(1), request.clone()), JoinAnswer::Admitted { node: 4, .. }), "changes nothing");
    let other_door = root.ask(&key(3), request.clone());
    assert!(matches!(other_door, JoinAnswer::Refused(ClusterRefusal::Invalid(_))), "it was signed for node 1");
    let stolen = JoinRequest { public_key: key(51).public(), ..request.clone() };
    assert!(matches!(root.ask(&key(1), stolen), JoinAnswer::Refused(ClusterRefusal::Invalid(_))));
    let moved = JoinRequest { start: start("thief:1"), ..request };
    assert!(matches!(root.ask(&key(1), moved), JoinAnswer::Refused(ClusterRefusal::Invalid(_))));
    let (_, second) = joiner(&root, 51).ask();
    assert_eq!(root.ask(&key(1), second), JoinAnswer::Refused(ClusterRefusal::TokenUsed(4)));
}

#[test]
fn refusals_are_final_and_say_why() {
    let mut root = Root::new();
    root.expired = true;
    let mut joining = joiner(&root, 50);
    let (_, request) = joining.ask();
    let answer = root.ask(&key(1), request.clone());
    assert_eq!(answer, JoinAnswer::Refused(ClusterRefusal::TokenExpired));
    assert_eq!(joining.answered(Ok(answer)), JoinStep::Failed(JoinError::Refused(ClusterRefusal::TokenExpired)));
    root.map.cluster = ClusterId(8);
    let answer = root.ask(&key(1), request);
    assert_eq!(answer, JoinAnswer::Refused(ClusterRefusal::OtherCluster(ClusterId(8))));
}

#[test]
fn a_joiner_goes_round_the_doors_and_gives_up_in_the_end() {
    let root = Root::new();
    let mut joiner = joiner(&root, 50);
    let mut asked = Vec::new();
    let failed = loop {
        asked.push(joiner.ask().0.node);
        match joiner.answered(Ok(JoinAnswer::NotNow("no leader".into()))) {
            JoinStep::Ask { .. } => {}
            other => break other,
        }
    };
    assert_eq!(failed, JoinStep::Failed(JoinError::NoAnswer("no leader".into())));
    assert_eq!(asked.len(), 2 * JOIN_ROUNDS as usize);
    assert_eq!(asked[..3], [1, 3, 1]);
}

#[test]
fn an_answer_that_does_not_hold_the_node_is_not_believed() {
    let mut root = Root::new();
    let mut joining = joiner(&root, 50);
    let wrong = JoinAnswer::Admitted { node: 3, map: root.map.clone() };
    assert_eq!(joining.answered(Ok(wrong)), JoinStep::Ask { wait: false });
    let (_, request) = joiner(&root, 50).ask();
    let JoinAnswer::Admitted { node, mut map } = root.ask(&key(1), request) else { panic!("not admitted") };
    map.cluster = ClusterId(8);
    assert_eq!(joining.answered(Ok(JoinAnswer::Admitted { node, map })), JoinStep::Ask { wait: true });
}

proptest! {
    #[test]
    fn any_change_of_a_signed_request_is_noticed(at: prop::sample::Index, flip in 1u8..=255) {
        let root = Root::new();
        let (door, request) = { let joiner = joiner(&root, 50); let (door, request) = joiner.ask(); (door.key, request) };
        let mut bytes = ClusterMessage::Join(Box::new(request.clone())).encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(ClusterMessage::Join(changed)) = ClusterMessage::decode(&bytes)
            && *changed != request
        {
            prop_assert!(changed.judge(&root.map, door).is_err());
        }
    }
}
