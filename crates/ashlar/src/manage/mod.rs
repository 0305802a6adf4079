//! What an operator looks at and changes of buckets, nodes and disks, and where an object lies: the server's half.
//!
//! Promises: everything is read at one linearizable position, and a change is judged on what was read there; a refusal says all that
//! would break and changes nothing. Refuses to know: HTTP; who moves data (the curator does, when states and policies have changed).

mod buckets;
mod members;
mod object;
mod policy;

use crate::cluster::{Gate, Viewer};
use admin::operations::{Manage, Refused};
use cluster::detector::Health;
use cluster::heartbeats::Heartbeats;
use curator::View;
use env::Env;
use metadata::node::Metadata;
use metadata::read::{ReadError, root};
use metadata::rows::GroupRecord;
use metadata::tree::Snapshot;
use object_controller::Controller;
use object_controller::api::StoreError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::bucket::BucketInfo;
use types::cluster::Map;
use types::{BucketId, GroupId, NodeId};

/// Whom to ask. Cheap to clone.
#[derive(Clone)]
pub struct Manager {
    /// The store.
    pub controller: Arc<Controller>,
    /// Its rows.
    pub metadata: Metadata,
    /// Clock and timers.
    pub env: Env,
    /// Root, for changes of the map.
    pub gate: Gate,
    /// What is thought of the nodes.
    pub heartbeats: Heartbeats,
    /// The disks as they are just now.
    pub viewer: Arc<Viewer>,
    /// The code of buckets that do not say, as the curator has it, and its delay in milliseconds.
    pub erasure: CodeOfCluster,
}

/// The code of buckets that leave it to the cluster, by what the cluster is just now, and its delay in milliseconds.
pub type CodeOfCluster = fn(&View) -> (Option<(u8, u8)>, u64);

/// What is known of the cluster at one position.
struct Scene {
    map: Arc<Map>,
    view: View,
    /// Nodes that are up.
    up: BTreeSet<NodeId>,
    voters: BTreeSet<NodeId>,
    buckets: BTreeMap<BucketId, BucketInfo>,
    snapshot: Arc<Snapshot>,
}

impl Manager {
    /// What came of it.
    pub async fn manage(&self, wanted: Manage) -> Result<Value, Refused> {
        match wanted {
            Manage::Buckets => self.buckets().await,
            Manage::Bucket(name) => self.bucket(&name).await,
            Manage::SetDurability(name, wish) => self.set_durability(&name, &wish).await,
            Manage::Nodes => self.nodes().await,
            Manage::Node(name, wish) => self.change_node(&name, &wish).await,
            Manage::Disks => self.disks().await,
            Manage::Disk(id, wish) => self.change_disk(&id, &wish).await,
            Manage::Object(wish) => self.object(&wish).await,
        }
    }

    async fn scene(&self) -> Result<Scene, Refused> {
        let snapshot = self.controller.position().await.map_err(|e| store_error(&e))?;
        let map = root::map(&*snapshot).map_err(|e| unreadable(&e))?;
        let map = map.ok_or_else(|| Refused::Unavailable("there is no cluster map yet".to_owned()))?;
        let buckets = root::buckets(&*snapshot).map(|bucket| bucket.map(|bucket| (bucket.id, bucket)));
        let buckets = buckets.collect::<Result<_, _>>().map_err(|e| unreadable(&e))?;
        let up = map.trusted().map(|node| node.id).filter(|node| self.health(*node) == Health::Up).collect();
        let voters = self.metadata.members(metadata::shard::ROOT).voters;
        Ok(Scene { map: Arc::new(map), view: self.viewer.view(), up, voters, buckets, snapshot })
    }

    fn health(&self, node: NodeId) -> Health {
        self.heartbeats.health(node).unwrap_or(Health::Suspect)
    }
}

impl Scene {
    /// All records of groups, read away from the threads that serve.
    async fn groups<T: Send + 'static>(
        &self,
        mut each: impl FnMut(&mut T, GroupId, GroupRecord) + Send + 'static,
        mut sum: T,
    ) -> Result<T, Refused> {
        let snapshot = self.snapshot.clone();
        let read = move || -> Result<T, ReadError> {
            for group in root::groups(&*snapshot) {
                let (id, record) = group?;
                each(&mut sum, id, record);
            }
            Ok(sum)
        };
        let joined = tokio::task::spawn_blocking(read).await;
        joined.map_err(|e| Refused::Unavailable(e.to_string()))?.map_err(|e| unreadable(&e))
    }
}

fn unreadable(error: &ReadError) -> Refused {
    Refused::Unavailable(format!("the metadata cannot be read: {error}"))
}

fn store_error(error: &StoreError) -> Refused {
    match error {
        StoreError::NoSuchBucket | StoreError::NoSuchKey { .. } | StoreError::NoSuchVersion => {
            Refused::Unknown(error.to_string())
        }
        StoreError::DeleteMarker { .. } => Refused::Unknown("the version is a delete marker".to_owned()),
        StoreError::InvalidState(what) => Refused::Wrong(what.clone()),
        other => Refused::Unavailable(other.to_string()),
    }
}
