//! All disks of the cluster by id, as one node sees them.
//!
//! Promises: a disk of this node is found without a lock; where the others are is what the cluster map last said, replaced
//! whole. A disk that the map does not know is *away*, not lost: only the map says that a disk is lost. Refuses to know: which
//! groups are on them, where groups ought to be.

use crate::limits;
use crate::link::Link;
use crate::remote::RemoteDisk;
use crate::replica::{Replica, space_of};
use arc_swap::ArcSwap;
use env::Env;
use env::disk::Space;
use extent_store::{DiskStore, StoreSet};
use futures_util::future::join_all;
use parking_lot::Mutex;
use rpc::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{ClusterId, DiskId, NodeId};

/// The disks of this node, and the way to those of others. Cheap to clone.
#[derive(Clone)]
pub struct Replicas {
    inner: Arc<Inner>,
}

struct Inner {
    local: StoreSet,
    others: Option<Others>,
}

struct Others {
    cluster: ClusterId,
    transport: Arc<dyn Transport>,
    env: Env,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    map: ArcSwap<DiskMap>,
    changes: AtomicU64,
}

#[derive(Default)]
struct DiskMap {
    remote: BTreeMap<DiskId, RemoteDisk>,
    lost: BTreeSet<DiskId>,
}

/// Whether a disk can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// It is this node's.
    Here,
    /// It is another node's.
    There(NodeId),
    /// It will never come back: the map says so, or, on a node alone, the operator did by starting without it.
    Lost,
    /// The map, as far as this node knows it, does not say.
    Unknown,
}

impl From<StoreSet> for Replicas {
    fn from(local: StoreSet) -> Replicas {
        Replicas { inner: Arc::new(Inner { local, others: None }) }
    }
}

impl Replicas {
    /// The disks of this node and, once [`Replicas::set_remote`] said where they are, those of others.
    pub fn new(local: StoreSet, cluster: ClusterId, transport: Arc<dyn Transport>, env: Env) -> Replicas {
        let others = Others {
            cluster,
            transport,
            env,
            links: Mutex::default(),
            map: ArcSwap::default(),
            changes: AtomicU64::new(0),
        };
        Replicas { inner: Arc::new(Inner { local, others: Some(others) }) }
    }

    /// What the cluster map says: the node of each disk that is not this node's, and the disks that are lost for good. Replaces
    /// what it said before. A disk of this node stays this node's, whatever the map says.
    pub fn set_remote(&self, remote: &BTreeMap<DiskId, NodeId>, lost: BTreeSet<DiskId>) {
        let Some(others) = &self.inner.others else { return };
        let mut links = others.links.lock();
        let nodes: BTreeSet<NodeId> = remote.values().copied().collect();
        links.retain(|node, _| nodes.contains(node));
        let mut map = DiskMap { remote: BTreeMap::new(), lost };
        for (disk, node) in remote {
            if self.inner.local.get(*disk).is_some() || *node == others.transport.node() {
                continue;
            }
            let link = links
                .entry(*node)
                .or_insert_with(|| Link::new(*node, others.transport.clone(), others.env.clone()))
                .clone();
            map.remote.insert(*disk, RemoteDisk::new(link, *disk, others.cluster));
        }
        others.map.store(Arc::new(map));
        others.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often [`Replicas::set_remote`] was called.
    pub fn map_changes(&self) -> u64 {
        self.inner.others.as_ref().map_or(0, |others| others.changes.load(Ordering::Relaxed))
    }

    /// Whether no other node's disks are known: one node, or one that was not told of others yet.
    pub fn is_alone(&self) -> bool {
        self.inner.others.as_ref().is_none_or(|others| others.map.load().remote.is_empty())
    }

    /// Whether this node may have others beside it.
    pub fn is_clustered(&self) -> bool {
        self.inner.others.is_some()
    }

    /// The disks of this node.
    pub fn local(&self) -> &StoreSet {
        &self.inner.local
    }

    /// A disk of this node, without a lock.
    pub fn here(&self, disk: DiskId) -> Option<&DiskStore> {
        self.inner.local.get(disk)
    }

    /// A disk of any node.
    pub fn get(&self, disk: DiskId) -> Option<Replica> {
        if let Some(local) = self.inner.local.get(disk) {
            return Some(Replica::Local(local.clone()));
        }
        let others = self.inner.others.as_ref()?;
        others.map.load().remote.get(&disk).cloned().map(Replica::Remote)
    }

    /// Where a disk is, if it is anywhere.
    pub fn whereabouts(&self, disk: DiskId) -> Whereabouts {
        match (self.get(disk), &self.inner.others) {
            (Some(Replica::Local(_)), _) => Whereabouts::Here,
            (Some(Replica::Remote(remote)), _) => Whereabouts::There(remote.node()),
            (None, None) => Whereabouts::Lost,
            (None, Some(others)) if others.map.load().lost.contains(&disk) => Whereabouts::Lost,
            (None, Some(_)) => Whereabouts::Unknown,
        }
    }

    /// How many disks can be asked.
    pub fn len(&self) -> usize {
        let others = self.inner.others.as_ref().map_or(0, |others| others.map.load().remote.len());
        self.inner.local.len() + others
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All disks that can be asked, those of this node first.
    pub fn all(&self) -> Vec<Replica> {
        let local = self.inner.local.iter().cloned().map(Replica::Local);
        let mut all: Vec<Replica> = local.collect();
        if let Some(others) = &self.inner.others {
            all.extend(others.map.load().remote.values().cloned().map(Replica::Remote));
        }
        all
    }

    /// The nodes whose disks are known, this one among them if it has any.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.all().iter().map(Replica::node).collect()
    }

    /// How full each disk is that can be asked, and whether it failed: of this node by system calls away from the caller's thread,
    /// of others by one question each, at once. Silent and failing ones are left out.
    pub async fn ask_all(&self, env: &Env) -> Vec<(Replica, Space)> {
        let asked = self.all().into_iter().filter(|disk| !disk.is_silent()).map(|disk| async move {
            let space = match &disk {
                Replica::Local(local) => {
                    let local = local.clone();
                    env.tasks.run(move || local.space()).await.map_err(|error| error.to_string())
                }
                Replica::Remote(remote) => {
                    remote.status(limits::SILENT_PATIENCE).await.map(space_of).map_err(|away| away.to_string())
                }
            };
            match space {
                Ok(space) if !disk.is_suspect() => Some((disk, space)),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(?disk, error, "the disk does not say how full it is");
                    None
                }
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Hears how the disks of other nodes are, silent ones too. To be called every few seconds.
    pub async fn tend(&self) {
        let Some(others) = &self.inner.others else { return };
        let disks: Vec<RemoteDisk> = others.map.load().remote.values().cloned().collect();
        let asked = disks.iter().map(|disk| async move {
            if let Err(away) = disk.status(limits::SILENT_PATIENCE).await {
                tracing::debug!(disk = %disk.id(), %away, "a disk of another node was not heard");
            }
        });
        join_all(asked).await;
    }

    /// What a failure detector says of a node. Its next answer, or the next silence, corrects it.
    pub fn set_silent(&self, node: NodeId, silent: bool) {
        if let Some(others) = &self.inner.others
            && let Some(link) = others.links.lock().get(&node)
        {
            link.set_silent(silent);
        }
    }
}
