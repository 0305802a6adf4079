//! Identities. All are minted once and never reused.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! id_u64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(s: &str) -> Result<Self, IdError> {
                if s.len() != 16 {
                    return Err(IdError);
                }
                u64::from_str_radix(s, 16).map($name).map_err(|_| IdError)
            }
        }
    };
}

id_u64!(
    /// A bucket's incarnation. Rows carry it, never the name: a recreated bucket is another bucket.
    BucketId
);
id_u64!(
    /// An extent group. The high 32 bits are random so that no shard of records is the hot newest one.
    GroupId
);
id_u64!(
    /// The cluster a disk belongs to.
    ClusterId
);
id_u64!(
    /// One disk (data directory), minted at its birth.
    DiskId
);
id_u64!(
    /// A join token: the public half; its secret is in the token's text only.
    TokenId
);

id_u64!(
    /// A strip: a set of groups that are erasure-coded together. Drawn anew for every attempt at encoding and never used again.
    StripId
);

/// A node of the cluster; the first is 1.
pub type NodeId = u32;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid id")]
pub struct IdError;

/// One attempt at one mutation: minted before the first proposal and kept over its retries (protocols.md).
///
/// It is the write id of the entry, and for an upload also the id of its content and of its first owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// Who minted it.
    pub node: NodeId,
    /// The gateway session of that node; a fenced session's attempts are refused for ever.
    pub session: u32,
    /// Counted within the session.
    pub sequence: u64,
}

/// The immutable bytes of one upload (object or part), named by the attempt that wrote them.
pub type ContentId = AttemptId;
/// The name under which a version or part refers to a content, minted by the attempt that made the reference.
pub type OwnerId = AttemptId;

impl AttemptId {
    /// Bytes of the encoded form.
    pub const LEN: usize = 16;

    /// Big-endian bytes: sorts by node, session, sequence.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..4].copy_from_slice(&self.node.to_be_bytes());
        b[4..8].copy_from_slice(&self.session.to_be_bytes());
        b[8..].copy_from_slice(&self.sequence.to_be_bytes());
        b
    }

    /// The inverse of [`AttemptId::to_bytes`].
    pub fn from_bytes(b: [u8; Self::LEN]) -> Self {
        let word = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        AttemptId { node: word(0), session: word(4), sequence: (u64::from(word(8)) << 32) | u64::from(word(12)) }
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_bytes()))
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.session, self.sequence)
    }
}

impl FromStr for AttemptId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        let mut b = [0; Self::LEN];
        hex::decode_to_slice(s, &mut b).map_err(|_| IdError)?;
        Ok(AttemptId::from_bytes(b))
    }
}

/// What S3 calls the version id: `null`, or the per-key sequence and the attempt that made it; both must match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum VersionId {
    /// The version written while versioning was off or suspended.
    Null,
    /// A version of a versioned bucket.
    Id {
        /// Predecessor's + 1: Raft order, never a clock.
        sequence: u64,
        /// The attempt that created it.
        attempt: AttemptId,
    },
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionId::Null => f.write_str("null"),
            VersionId::Id { sequence, attempt } => {
                let mut b = [0u8; 24];
                b[..8].copy_from_slice(&sequence.to_be_bytes());
                b[8..].copy_from_slice(&attempt.to_bytes());
                f.write_str(&base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, b))
            }
        }
    }
}

impl FromStr for VersionId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        if s == "null" {
            return Ok(VersionId::Null);
        }
        let b = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, s).map_err(|_| IdError)?;
        let (head, tail) = b.split_first_chunk::<8>().ok_or(IdError)?;
        let attempt: [u8; 16] = tail.try_into().map_err(|_| IdError)?;
        Ok(VersionId::Id { sequence: u64::from_be_bytes(*head), attempt: AttemptId::from_bytes(attempt) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_id_survives_its_text_form() {
        let v = VersionId::Id { sequence: 7, attempt: AttemptId { node: 1, session: 2, sequence: u64::MAX - 3 } };
        assert_eq!(v.to_string().parse(), Ok(v));
        assert_eq!("null".parse(), Ok(VersionId::Null));
        assert_eq!("not-a-version".parse::<VersionId>(), Err(IdError));
        assert_eq!("".parse::<VersionId>(), Err(IdError));
    }

    #[test]
    fn attempt_ids_sort_as_their_bytes() {
        let a = AttemptId { node: 1, session: 1, sequence: 256 };
        let b = AttemptId { node: 1, session: 2, sequence: 1 };
        assert!(a < b && a.to_bytes() < b.to_bytes());
        assert_eq!(AttemptId::from_bytes(b.to_bytes()), b);
        assert_eq!(a.to_string().parse(), Ok(a));
    }
}
