//! Buckets: made, changed, removed.

use object_controller::api::{
    BucketChange, BucketConfigs, BucketInfo, CreateBucket, Durability, StoreError, Versioning,
};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::{Bucket, State};

/// Creates, or names the present one.
pub fn create(state: &mut State, request: CreateBucket, now_ms: u64) -> Result<Arc<BucketInfo>, StoreError> {
    if let Some(present) = state.buckets.get(request.name.as_str()) {
        return Err(StoreError::BucketExists(Arc::clone(&present.info)));
    }
    let info = Arc::new(BucketInfo {
        id: state.mint_bucket(),
        name: request.name,
        owner: request.owner,
        created_ms: now_ms,
        generation: 1,
        versioning: Versioning::Off,
        location: request.location,
        configs: BucketConfigs::default(),
        durability: Durability::default(),
    });
    let bucket = Bucket { info: Arc::clone(&info), keys: BTreeMap::new(), uploads: BTreeMap::new() };
    state.buckets.insert(info.name.as_str().to_owned(), bucket);
    Ok(info)
}

/// Removes a bucket without versions and markers; its uploads end.
pub fn delete(state: &mut State, wanted: &BucketInfo) -> Result<(), StoreError> {
    if !state.bucket(wanted)?.keys.is_empty() {
        return Err(StoreError::BucketNotEmpty);
    }
    state.buckets.remove(wanted.name.as_str());
    Ok(())
}

/// Changes one setting.
pub fn change(state: &mut State, wanted: &BucketInfo, change: BucketChange) -> Result<Arc<BucketInfo>, StoreError> {
    let bucket = state.bucket_mut(wanted)?;
    let mut info = BucketInfo::clone(&bucket.info);
    match change {
        BucketChange::Versioning(Versioning::Off) => {
            return Err(StoreError::InvalidState("versioning never returns to off".into()));
        }
        BucketChange::Versioning(versioning) => info.versioning = versioning,
        BucketChange::Tags(tags) => info.configs.tags = tags,
        BucketChange::Cors(cors) => info.configs.cors = cors,
        BucketChange::Policy(policy) => info.configs.policy = policy,
        BucketChange::Ownership(ownership) => info.configs.ownership = ownership,
        BucketChange::PublicAccessBlock(block) => info.configs.public_access_block = block,
        BucketChange::Durability(durability) => {
            durability.check().map_err(StoreError::InvalidState)?;
            info.durability = durability;
        }
    }
    info.generation += 1;
    bucket.info = Arc::new(info);
    Ok(Arc::clone(&bucket.info))
}
