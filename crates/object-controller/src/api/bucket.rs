//! Buckets and their settings.

use types::BucketName;

pub use types::bucket::{BucketChange, BucketConfigs, BucketInfo, Durability, Erasure, Versioning};

/// A bucket to be made.
#[derive(Clone, Debug)]
pub struct CreateBucket {
    /// Its name.
    pub name: BucketName,
    /// Canonical id of the owner.
    pub owner: String,
    /// Region named by the client (empty: none).
    pub location: String,
}
