//! How a node with empty folders becomes a node of a cluster.
//!
//! Its key is durable in its folders; a door of the token admits it; its id is durable in its folders. Then it starts as any node does:
//! without shards, until their leaders add it.
//!
//! Promises: a crash anywhere is healed by joining again with the same folders and token. Refuses to know: who decides.

use crate::birth::Place;
use cluster::identity::file::{self, NodeFile};
use cluster::join::Joiner;
use cluster::knock;
use cluster::token::JoinToken;
use env::Env;
use env::disk::Disk;
use std::sync::Arc;
use types::DiskId;
use types::cluster::command::NewDisk;
use types::cluster::{Map, NodeStart};

/// Joins. Answers who it is now, and the map that says so.
pub async fn join(
    token: &str,
    folders: &[Arc<dyn Disk>],
    node_file: &NodeFile,
    start: NodeStart,
    disks: Vec<(DiskId, u64)>,
    env: &Env,
) -> Result<(NodeFile, Place, Map), String> {
    let token = JoinToken::parse(token).map_err(|e| format!("--join: {e}"))?;
    let disks = disks.into_iter().map(|(id, total_bytes)| NewDisk { id, total_bytes }).collect();
    let joiner = Joiner::new(token, node_file.key.clone(), start, disks);
    let (node, map) = knock::join(env, joiner).await.map_err(|e| e.to_string())?;
    let member = file::become_member(folders, node_file, map.cluster, node).map_err(|e| e.to_string())?;
    Ok((member, Place { cluster: map.cluster, node }, map))
}
