//! Reads of metadata, at positions that see everything answered before.
//!
//! Promises: a snapshot does not change while it lives. Refuses to know: what is read.

use crate::api::StoreError;
use metadata::node::Metadata;
use metadata::read::{ReadError, root};
use metadata::rows::{GroupRecord, Home};
use metadata::tree::{Read, Snapshot as TreeSnapshot};
use std::sync::Arc;
use types::{BucketId, GroupId};

/// Where snapshots come from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshots {
    metadata: Metadata,
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
}

impl Snapshots {
    pub(crate) fn new(metadata: Metadata) -> Snapshots {
        Snapshots { metadata }
    }

    /// For everything about one key.
    pub(crate) async fn of(&self, _home: &Home) -> Result<Snapshot, StoreError> {
        self.newest().await
    }

    /// For the keys of a bucket.
    pub(crate) async fn of_bucket(&self, _bucket: BucketId) -> Result<Snapshot, StoreError> {
        self.newest().await
    }

    /// For root's rows.
    pub(crate) async fn of_root(&self) -> Result<Snapshot, StoreError> {
        self.newest().await
    }

    /// The record of a group as it is now.
    pub(crate) async fn group(&self, group: GroupId) -> Result<Option<GroupRecord>, StoreError> {
        root::group(self.of_root().await?.read(), group).map_err(read_failed)
    }

    /// One node holds all shards in one tree.
    async fn newest(&self) -> Result<Snapshot, StoreError> {
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
