//! The disks of the cluster for the curator: the map, what the failure detector says of their nodes, how full they said they are.
//!
//! Promises: a node alone is up and its disks are in service; a node that is announced to be away is awaited for ten minutes from when
//! this node learnt of it, and no longer. Refuses to know: what is done about it.

use super::map::MapWatch;
use cluster::detector;
use cluster::heartbeats::Heartbeats;
use cluster::map::default_copies_of;
use curator::view::{DiskState, DiskView, Health, View};
use env::Env;
use object_controller::Copies;
use parking_lot::Mutex;
use replicas::{Replicas, Whereabouts};
use std::collections::BTreeMap;
use std::time::Duration;
use types::cluster::{Disk, DiskState as InMap, Map, Node, NodeState};
use types::{DiskId, NodeId};

/// How long a node may be away by announcement (protocols.md 12).
const AWAITED: Duration = Duration::from_secs(600);

/// Looks at everything.
pub struct Viewer {
    node: NodeId,
    env: Env,
    map: MapWatch,
    heartbeats: Heartbeats,
    replicas: Replicas,
    copies: Copies,
    /// Since when this node knows that another is in maintenance.
    announced: Mutex<BTreeMap<NodeId, Duration>>,
}

impl Viewer {
    /// Of a node that listens to the others.
    pub fn new(
        node: NodeId,
        env: Env,
        map: MapWatch,
        heartbeats: Heartbeats,
        replicas: Replicas,
        copies: Copies,
    ) -> Viewer {
        Viewer { node, env, map, heartbeats, replicas, copies, announced: Mutex::default() }
    }

    /// What there is now.
    pub fn view(&self) -> View {
        let Some(map) = self.map.now() else {
            let disks = self.replicas.local().iter().map(|disk| (disk.id(), self.own(disk.id())));
            return View { disks: disks.collect(), default_rf: self.copies.get() };
        };
        self.note_announced(&map);
        let here = |disk: &&Disk| disk.state != InMap::Removed;
        let disks = map.disks.values().filter(here).filter_map(|disk| Some((disk.id, self.disk(&map, disk)?)));
        View { disks: disks.collect(), default_rf: self.copies.get().max(default_copies_of(&map)) }
    }

    /// Before there is a map.
    fn own(&self, disk: DiskId) -> DiskView {
        let (free_bytes, total_bytes) = self.space(disk);
        let (node, health, state) = (self.node, Health::Up, DiskState::Active);
        DiskView { node, rack: None, health, state, awaited: false, free_bytes, total_bytes }
    }

    fn disk(&self, map: &Map, disk: &Disk) -> Option<DiskView> {
        let node = map.nodes.get(&disk.node)?;
        let (free_bytes, total_bytes) = self.space(disk.id);
        let health = self.health(node);
        let awaited = node.state == NodeState::Maintenance && self.is_awaited(node.id);
        let total_bytes = if total_bytes == 0 { disk.total_bytes } else { total_bytes };
        // What an operator gave up at a start of this node is lost, whatever the map says still.
        let given_up = self.replicas.whereabouts(disk.id) == Whereabouts::Lost;
        let state = if given_up { DiskState::Lost } else { state_of(node, disk) };
        let rack = node.start.rack.clone();
        Some(DiskView { node: node.id, rack, health, state, awaited, free_bytes, total_bytes })
    }

    fn space(&self, disk: DiskId) -> (u64, u64) {
        let space = self.replicas.get(disk).and_then(|disk| disk.known_space());
        space.map_or((0, 0), |space| (space.free_bytes, space.total_bytes))
    }

    fn health(&self, node: &Node) -> Health {
        if node.id == self.node {
            return Health::Up;
        }
        match self.heartbeats.health(node.id) {
            Some(detector::Health::Up) => Health::Up,
            // The detector has not taken the newest map up yet.
            Some(detector::Health::Suspect) | None => Health::Suspect,
            Some(detector::Health::Down) => Health::Down,
        }
    }

    fn note_announced(&self, map: &Map) {
        let now = self.env.clock.monotonic();
        let mut announced = self.announced.lock();
        let away = |node: &NodeId| map.nodes.get(node).is_some_and(|node| node.state == NodeState::Maintenance);
        announced.retain(|node, _| away(node));
        for node in map.nodes.values().filter(|node| node.state == NodeState::Maintenance) {
            announced.entry(node.id).or_insert(now);
        }
    }

    fn is_awaited(&self, node: NodeId) -> bool {
        let now = self.env.clock.monotonic();
        self.announced.lock().get(&node).is_some_and(|since| now.saturating_sub(*since) < AWAITED)
    }
}

fn state_of(node: &Node, disk: &Disk) -> DiskState {
    match (disk.state, node.state) {
        (InMap::Lost | InMap::Removed, _) | (_, NodeState::Removed) => DiskState::Lost,
        (InMap::Draining, _) | (_, NodeState::Draining) => DiskState::Draining,
        // One that joins holds nothing yet and takes nothing yet.
        (_, NodeState::Maintenance | NodeState::Joining) => DiskState::Maintenance,
        (InMap::Active, NodeState::Active) => DiskState::Active,
    }
}
