//! Nodes and disks: what they are to the cluster, what lies on them, and changing that. Moving data is the curator's: a node or disk
//! that drains is left by it, and may be removed when nothing counts on it any more (rule R62).

use super::{Manager, Scene};
use admin::operations::{ChangeWish, Refused};
use cluster::operator::{DiskWish, Fulfilled, NodeWish, WishError, change_disk, change_node, status};
use cluster::placement::precheck::{Breaks, Situation};
use cluster::placement::{DiskLoad, Loads};
use curator::view::Health;
use metadata::rows::GroupState;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{DiskId, NodeId};

/// What lies on a disk by the records of the groups.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    replicas: u64,
    bytes: u64,
    /// Of these, replicas of groups that have none on another disk that is here.
    last: u64,
}

impl Manager {
    pub(super) async fn nodes(&self) -> Result<Value, Refused> {
        let scene = self.scene().await?;
        let held = held(&scene).await?;
        let loads = loads(&scene);
        let situation = self.situation(&scene, &loads);
        let health = |node: NodeId| (self.health(node), self.heartbeats.is_slow(node));
        let mut value = serde_json::to_value(status(&situation, health)).unwrap_or_default();
        for node in value["nodes"].as_array_mut().into_iter().flatten() {
            let id = node["node"].as_u64().unwrap_or_default();
            let own = scene.map.disks.values().filter(|disk| u64::from(disk.node) == id);
            let own: Vec<Held> = own.filter_map(|disk| held.get(&disk.id).copied()).collect();
            node["name"] = json!(format!("n{id}"));
            node["replicas"] = json!(own.iter().map(|held| held.replicas).sum::<u64>());
            node["replica_bytes"] = json!(own.iter().map(|held| held.bytes).sum::<u64>());
        }
        Ok(value)
    }

    pub(super) async fn change_node(&self, name: &str, wish: &ChangeWish) -> Result<Value, Refused> {
        let node = node_id(name)?;
        let wanted: NodeWish = wish.wish.parse().map_err(|e| Refused::Wrong(format!("{e}")))?;
        let scene = self.scene().await?;
        if !scene.map.nodes.contains_key(&node) {
            return Err(Refused::Unknown(format!("there is no node {node}")));
        }
        let held = held(&scene).await?;
        let own = scene.map.disks.values().filter(|disk| disk.node == node);
        let replicas = own.filter_map(|disk| held.get(&disk.id)).map(|held| held.replicas).sum();
        let loads = loads(&scene);
        let situation = self.situation(&scene, &loads);
        let done = change_node(&self.gate, &self.env, &situation, (node, wanted), replicas, wish.force).await;
        answer(json!({ "node": node, "name": format!("n{node}"), "replicas": replicas }), done)
    }

    pub(super) async fn disks(&self) -> Result<Value, Refused> {
        let scene = self.scene().await?;
        let held = held(&scene).await?;
        let disks = scene.map.disks.values().map(|disk| {
            let view = scene.view.disks.get(&disk.id);
            let held = held.get(&disk.id).copied().unwrap_or_default();
            json!({
                "disk": disk.id.to_string(),
                "node": disk.node,
                "state": word(&disk.state),
                "health": view.filter(|_| disk.state.is_here()).map_or("-".to_owned(), |view| word(&view.health)),
                "total_bytes": disk.total_bytes,
                "free_bytes": view.map(|view| view.free_bytes),
                "replicas": held.replicas,
                "replica_bytes": held.bytes,
                "last_replicas": held.last,
            })
        });
        Ok(json!({ "epoch": scene.map.epoch, "disks": disks.collect::<Vec<_>>() }))
    }

    pub(super) async fn change_disk(&self, id: &str, wish: &ChangeWish) -> Result<Value, Refused> {
        let disk: DiskId =
            id.parse().map_err(|_| Refused::Wrong(format!("'{id}' is not a disk: its id has 16 hex digits")))?;
        let wanted: DiskWish = wish.wish.parse().map_err(|e| Refused::Wrong(format!("{e}")))?;
        let scene = self.scene().await?;
        if !scene.map.disks.contains_key(&disk) {
            return Err(Refused::Unknown(format!("there is no disk {disk}")));
        }
        let held = held(&scene).await?.get(&disk).copied().unwrap_or_default();
        // What is lost is made again from other copies; where there is none it is lost for good.
        let counts = if wanted == DiskWish::Lose { held.last } else { held.replicas };
        let loads = loads(&scene);
        let situation = self.situation(&scene, &loads);
        let done = change_disk(&self.gate, &self.env, &situation, (disk, wanted), counts, wish.force).await;
        answer(json!({ "disk": id, "replicas": held.replicas, "last_replicas": held.last }), done)
    }

    fn situation<'a>(&self, scene: &'a Scene, loads: &'a Loads) -> Situation<'a> {
        let default_rf = self.controller.rf();
        let asked = scene.buckets.values().map(|bucket| bucket.durability.replicas(default_rf));
        let most_copies = usize::from(asked.chain([default_rf]).max().unwrap_or(1));
        Situation { map: &scene.map, up: &scene.up, voters: &scene.voters, loads, most_copies }
    }
}

fn loads(scene: &Scene) -> Loads {
    let load = |disk: &curator::view::DiskView| DiskLoad {
        total_bytes: disk.total_bytes,
        free_bytes: disk.free_bytes,
        write_us: 0,
        is_usable: disk.health == Health::Up,
    };
    scene.view.disks.iter().map(|(id, disk)| (*id, load(disk))).collect()
}

/// By disk, of all groups.
async fn held(scene: &Scene) -> Result<BTreeMap<DiskId, Held>, Refused> {
    let map = scene.map.clone();
    let is_here = move |disk: &DiskId| map.disks.get(disk).is_some_and(|disk| disk.state.is_here());
    let count = move |all: &mut BTreeMap<DiskId, Held>, _, record: metadata::rows::GroupRecord| {
        if record.state == GroupState::Dropped {
            return;
        }
        let here = record.replicas.iter().filter(|replica| is_here(&replica.disk)).count();
        for replica in &record.replicas {
            let held = all.entry(replica.disk).or_default();
            held.replicas += 1;
            held.bytes += record.length;
            held.last += u64::from(here == 1 && is_here(&replica.disk));
        }
    };
    scene.groups(count, BTreeMap::new()).await
}

/// `n3` or `3`.
fn node_id(name: &str) -> Result<NodeId, Refused> {
    let digits = name.strip_prefix('n').unwrap_or(name);
    digits.parse().map_err(|_| Refused::Wrong(format!("'{name}' is not a node: write it as n3 or 3")))
}

fn answer(mut value: Value, done: Result<Fulfilled, WishError>) -> Result<Value, Refused> {
    match done {
        Ok(Fulfilled { epoch, broke }) => {
            value["epoch"] = json!(epoch);
            value["broke"] = json!(broke.iter().map(Breaks::to_string).collect::<Vec<_>>());
            Ok(value)
        }
        Err(error @ WishError::Breaks(_)) => Err(Refused::Breaks(format!("{error} (--force does it all the same)"))),
        Err(WishError::Change(cluster::root::ChangeError::Unknown(why))) => Err(Refused::Unavailable(why)),
        Err(error) => Err(Refused::Breaks(error.to_string())),
    }
}

fn word(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::node_id;

    #[test]
    fn a_node_is_named_as_in_dev_or_by_its_id() {
        assert_eq!((node_id("n3"), node_id("12")), (Ok(3), Ok(12)));
        for wrong in ["", "n", "nn3", "x3", "-1"] {
            assert!(node_id(wrong).is_err(), "{wrong}");
        }
    }
}
