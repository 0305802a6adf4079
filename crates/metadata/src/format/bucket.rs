//! Values of the rows of buckets in root: postcard after the version.
//!
//! Version 1 knew no durability: such a bucket has the cluster's. It is read for ever and written no more.

use super::value::{RowValue, after_version, encode_postcard, whole};
use super::{FormatError, family};
use bytes::Bytes;
use serde::Deserialize;
use types::bucket::{BucketConfigs, BucketInfo, Durability, Versioning};
use types::{BucketId, BucketName};

const FIRST: u8 = 1;
const VERSION: u8 = 2;

#[derive(Deserialize)]
struct First {
    id: BucketId,
    name: BucketName,
    owner: String,
    created_ms: u64,
    generation: u64,
    versioning: Versioning,
    location: String,
    configs: BucketConfigs,
}

impl RowValue for BucketInfo {
    fn encode(&self) -> Bytes {
        encode_postcard(VERSION, self).into()
    }

    fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
        if bytes.first() != Some(&FIRST) {
            return whole(family::BUCKETS, after_version(family::BUCKETS, VERSION, bytes)?);
        }
        let fields = after_version(family::BUCKETS, FIRST, bytes)?;
        let First { id, name, owner, created_ms, generation, versioning, location, configs } =
            whole(family::BUCKETS, fields)?;
        let durability = Durability::default();
        Ok(BucketInfo { id, name, owner, created_ms, generation, versioning, location, configs, durability })
    }
}
