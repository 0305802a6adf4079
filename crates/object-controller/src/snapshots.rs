//! Reads of metadata, at positions that see everything answered before.
//!
//! Promises: a snapshot does not change while it lives. Refuses to know: what is read.

use crate::api::StoreError;
use crate::nodes::Nodes;
use metadata::node::Metadata;
use metadata::read::{ReadError, root};
use metadata::rows::{GroupRecord, Home};
use metadata::shard::{ROOT, ShardId};
use metadata::tree::{Read, Snapshot as TreeSnapshot};
use std::sync::Arc;
use types::{BucketId, GroupId};

/// Where snapshots come from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshots {
    metadata: Metadata,
    nodes: Nodes,
}

/// One position. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshot {
    tree: Arc<TreeSnapshot>,
}

impl Snapshot {
    /// For the typed reads.
    pub(crate) fn read(&self) -> &dyn Read {
        &*self.tree
    }

    /// For readers of their own.
    pub(crate) fn into_tree(self) -> Arc<TreeSnapshot> {
        self.tree
    }
}

impl Snapshots {
    pub(crate) fn new(metadata: Metadata, nodes: Nodes) -> Snapshots {
        Snapshots { metadata, nodes }
    }

    /// For everything about one key.
    pub(crate) async fn of(&self, home: &Home) -> Result<Snapshot, StoreError> {
        if self.nodes.is_alone() {
            return Ok(self.now());
        }
        self.after(self.metadata.shard_of(home)).await
    }

    /// For the keys of a bucket, whose shards may be several.
    pub(crate) async fn of_bucket(&self, _bucket: BucketId) -> Result<Snapshot, StoreError> {
        self.of_keys().await
    }

    /// For all keys of all buckets.
    pub(crate) async fn of_keys(&self) -> Result<Snapshot, StoreError> {
        if !self.nodes.is_alone() {
            for shard in self.metadata.shards().map(|shard| shard.id).filter(|id| *id != ROOT) {
                self.nodes.barrier(shard).await?;
            }
        }
        Ok(self.now())
    }

    /// For everything.
    pub(crate) async fn of_all(&self) -> Result<Snapshot, StoreError> {
        self.nodes.barrier(ROOT).await?;
        self.of_keys().await
    }

    /// For root's rows.
    pub(crate) async fn of_root(&self) -> Result<Snapshot, StoreError> {
        self.after(ROOT).await
    }

    /// The record of a group as it is now.
    pub(crate) async fn group(&self, group: GroupId) -> Result<Option<GroupRecord>, StoreError> {
        root::group(self.of_root().await?.read(), group).map_err(read_failed)
    }

    async fn after(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        self.nodes.barrier(shard).await?;
        Ok(self.now())
    }

    /// The newest position that this node knows of.
    pub(crate) fn now(&self) -> Snapshot {
        Snapshot { tree: Arc::new(self.metadata.snapshot()) }
    }
}

/// A row that cannot be read is never reported as missing.
pub(crate) fn read_failed(error: ReadError) -> StoreError {
    match error {
        ReadError::Format(format) => StoreError::Damaged(format!("metadata: {format}")),
        ReadError::Tree(tree) => StoreError::Unavailable(tree.to_string()),
    }
}
