//! Buckets and their settings.

use crate::object::Tag;
use crate::{BucketId, BucketName};
use serde::{Deserialize, Serialize};

/// Versioning of a bucket. It never returns to `Off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Versioning {
    /// Never switched on.
    #[default]
    Off,
    /// Every write is a new version.
    Enabled,
    /// Writes replace the `null` version.
    Suspended,
}

/// A bucket as every gateway sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BucketInfo {
    /// This incarnation.
    pub id: BucketId,
    /// Its name.
    pub name: BucketName,
    /// Canonical id of the owner.
    pub owner: String,
    /// Milliseconds since the epoch.
    pub created_ms: u64,
    /// Raised by every change that apply must know of; mutations carry it.
    pub generation: u64,
    /// Versioning state.
    pub versioning: Versioning,
    /// Region given at creation (empty: the server's).
    pub location: String,
    /// The settings that only the edge interprets.
    pub configs: BucketConfigs,
}

/// Settings that only the edge interprets; each the very text the client sent, after it was validated.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BucketConfigs {
    /// Bucket tags.
    pub tags: Option<Vec<Tag>>,
    /// CORS rules, XML.
    pub cors: Option<String>,
    /// Bucket policy, JSON.
    pub policy: Option<String>,
    /// Ownership controls, XML.
    pub ownership: Option<String>,
    /// Public access block, XML.
    pub public_access_block: Option<String>,
}

/// One change of a bucket's settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BucketChange {
    /// Switches versioning; `Off` is refused with `InvalidState`.
    Versioning(Versioning),
    /// Sets or removes the tags.
    Tags(Option<Vec<Tag>>),
    /// Sets or removes the CORS rules.
    Cors(Option<String>),
    /// Sets or removes the policy.
    Policy(Option<String>),
    /// Sets or removes the ownership controls.
    Ownership(Option<String>),
    /// Sets or removes the public access block.
    PublicAccessBlock(Option<String>),
}
