//! What a group is opened for (protocols.md 1): groups are opened per replicas and erasure policy, so that no group mixes what must
//! be kept three times with what may be kept twice, or what may be encoded with what may not.
//!
//! Promises: an upload has one requirement from its beginning to its end, whatever becomes of its bucket's policy meanwhile
//! (protocols.md 9). Refuses to know: how many disks there are.

use types::bucket::{Durability, Erasure};

/// The requirement of an open group, and of what is written to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Requirement {
    /// Replicas.
    pub(crate) rf: u8,
    /// As the bucket says it. The delay makes no difference: the longest of a group counts.
    pub(crate) erasure: Erasure,
}

impl Requirement {
    /// Of a bucket, where the cluster's default is so many replicas.
    pub(crate) fn of(durability: &Durability, default_rf: u8) -> Requirement {
        Requirement { rf: durability.replicas(default_rf).max(1), erasure: durability.erasure }
    }
}
