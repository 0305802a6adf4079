//! What the model remembers: accounts, buckets, versions, uploads.

use bytes::Bytes;
use object_controller::api::{
    BucketInfo, Credential, ObjectInfo, PartEntry, PartInfo, PutOutcome, StoreError, UploadId, UploadInfo,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{AttemptId, BucketId, VersionId};

/// Bytes of a version and what is known of them.
pub struct Object {
    /// Its `version` is what a bucket with versioning would say; readers mask it.
    pub info: ObjectInfo,
    pub body: Bytes,
    pub parts: Vec<PartInfo>,
}

/// One version or delete marker of a key.
pub struct Version {
    pub id: VersionId,
    /// Minted for it alone: tells it from any other version the key ever has.
    pub attempt: AttemptId,
    /// Predecessor's + 1, also for null versions: the order within the key.
    pub sequence: u64,
    pub modified_ms: u64,
    /// `None`: a delete marker.
    pub object: Option<Arc<Object>>,
}

impl Version {
    pub fn object(&self) -> Option<&Arc<Object>> {
        self.object.as_ref()
    }
}

/// A part and its bytes.
pub struct Part {
    pub entry: PartEntry,
    pub body: Bytes,
}

/// What a completed upload answered, to be answered again.
pub struct Completed {
    pub parts: Vec<(u32, String)>,
    /// Of the version it made.
    pub attempt: AttemptId,
    pub outcome: PutOutcome,
}

/// An upload in progress or completed.
pub struct Upload {
    pub info: UploadInfo,
    pub parts: BTreeMap<u32, Part>,
    pub completed: Option<Completed>,
}

/// A bucket and all that is in it.
pub struct Bucket {
    pub info: Arc<BucketInfo>,
    /// Versions of a key from oldest to newest; never empty.
    pub keys: BTreeMap<String, Vec<Version>>,
    pub uploads: BTreeMap<(String, UploadId), Upload>,
}

impl Bucket {
    pub fn newest(&self, key: &str) -> Option<&Version> {
        self.keys.get(key).and_then(|versions| versions.last())
    }

    pub fn version(&self, key: &str, id: VersionId) -> Option<&Version> {
        self.keys.get(key).and_then(|versions| versions.iter().find(|v| v.id == id))
    }

    /// The current version, or the one of that id.
    pub fn find(&self, key: &str, id: Option<VersionId>) -> Result<&Version, StoreError> {
        match id {
            None => match self.newest(key) {
                Some(v) if v.object.is_some() => Ok(v),
                other => Err(StoreError::NoSuchKey { delete_marker: other.map(|v| v.id) }),
            },
            Some(id) => match self.version(key, id) {
                None => Err(StoreError::NoSuchVersion),
                Some(v) if v.object.is_none() => {
                    Err(StoreError::DeleteMarker { version: v.id, modified_ms: v.modified_ms })
                }
                Some(v) => Ok(v),
            },
        }
    }
}

/// Everything.
pub struct State {
    pub root: Arc<Credential>,
    pub users: BTreeMap<String, Arc<Credential>>,
    pub buckets: BTreeMap<String, Bucket>,
    /// Source of all ids: attempts, bucket incarnations, canonical ids.
    pub next_id: u64,
}

impl State {
    pub fn mint(&mut self) -> AttemptId {
        self.next_id += 1;
        AttemptId { node: 1, session: 1, sequence: self.next_id }
    }

    /// The bucket if it is still that incarnation.
    pub fn bucket(&self, wanted: &BucketInfo) -> Result<&Bucket, StoreError> {
        let found = self.buckets.get(wanted.name.as_str());
        found.filter(|b| b.info.id == wanted.id).ok_or(StoreError::NoSuchBucket)
    }

    /// The bucket if it is still that incarnation.
    pub fn bucket_mut(&mut self, wanted: &BucketInfo) -> Result<&mut Bucket, StoreError> {
        let found = self.buckets.get_mut(wanted.name.as_str());
        found.filter(|b| b.info.id == wanted.id).ok_or(StoreError::NoSuchBucket)
    }

    pub fn mint_bucket(&mut self) -> BucketId {
        BucketId(self.mint().sequence)
    }
}
