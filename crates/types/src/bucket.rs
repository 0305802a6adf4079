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
    /// How its bytes are kept; the cluster's way where it says nothing.
    pub durability: Durability,
}

/// How the bytes of a bucket are kept. The default says nothing: all is as the cluster does it, and follows when the cluster grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Durability {
    /// Replicas of each extent; `None`: as many as the cluster's default.
    pub rf: Option<u8>,
    /// Whether write-cold groups are encoded.
    pub erasure: Erasure,
    /// Milliseconds from the sealing of a group to its encoding, at least; `None`: the cluster's default.
    pub erasure_after_ms: Option<u64>,
}

/// Whether write-cold groups are encoded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Erasure {
    /// As the cluster does it.
    #[default]
    ByCluster,
    /// They stay replicas.
    Never,
    /// Strips of so many data and parity members.
    Code {
        /// Data members.
        k: u8,
        /// Parity members.
        m: u8,
    },
}

/// Replicas that a policy may ask for.
pub const RF: std::ops::RangeInclusive<u8> = 1..=3;
/// Data members of a strip that a policy may ask for: below 2 it is a replica, above 16 a rebuild reads too much.
pub const DATA_MEMBERS: std::ops::RangeInclusive<u8> = 2..=16;
/// Parity members of a strip that a policy may ask for.
pub const PARITY_MEMBERS: std::ops::RangeInclusive<u8> = 1..=4;

impl Durability {
    /// What is wrong with it in any cluster, in a word.
    pub fn check(&self) -> Result<(), String> {
        let within = |range: &std::ops::RangeInclusive<u8>| format!("{} to {}", range.start(), range.end());
        if self.rf.is_some_and(|rf| !RF.contains(&rf)) {
            return Err(format!("a bucket has {} replicas", within(&RF)));
        }
        match self.erasure {
            Erasure::Code { k, m } if !DATA_MEMBERS.contains(&k) || !PARITY_MEMBERS.contains(&m) => {
                let (data, parity) = (within(&DATA_MEMBERS), within(&PARITY_MEMBERS));
                Err(format!("a strip has {data} data members and {parity} parity members"))
            }
            _ => Ok(()),
        }
    }

    /// Replicas wanted where the cluster's default is `default_rf`.
    pub fn replicas(&self, default_rf: u8) -> u8 {
        self.rf.unwrap_or(default_rf)
    }
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
    /// Sets how the bytes are kept. Not a matter of mutations, so the generation stays as it is: a running upload ends under the
    /// policy it began with, and the curator raises what it wrote (protocols.md 9).
    Durability(Durability),
}

#[cfg(test)]
mod tests {
    use super::{Durability, Erasure};

    #[test]
    fn a_policy_outside_of_the_limits_is_no_policy() {
        let of = |rf, erasure| Durability { rf, erasure, erasure_after_ms: None }.check().is_ok();
        assert!(of(None, Erasure::ByCluster) && of(Some(1), Erasure::Never) && of(Some(3), Erasure::Never));
        assert!(!of(Some(0), Erasure::Never) && !of(Some(4), Erasure::Never));
        assert!(of(None, Erasure::Code { k: 2, m: 1 }) && of(None, Erasure::Code { k: 16, m: 4 }));
        for (k, m) in [(1, 1), (17, 2), (4, 0), (4, 5)] {
            assert!(!of(None, Erasure::Code { k, m }), "{k}+{m}");
        }
    }

    #[test]
    fn what_a_policy_leaves_open_is_the_clusters() {
        assert_eq!(Durability::default().replicas(2), 2);
        assert_eq!(Durability { rf: Some(3), ..Durability::default() }.replicas(2), 3);
    }
}
