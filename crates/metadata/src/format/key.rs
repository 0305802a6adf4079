//! Keys of rows: built, bounded, taken apart.
//!
//! Escaping keeps order and makes every key end before its suffix: 00 becomes 00 FF, the end is 00 01. As 00 01 is below
//! 00 FF and below every other byte, a key that is a prefix of another sorts first. `current` has no suffix, so its keys
//! stand as they are and a listing reads them without a copy.

use super::{FormatError, family};
use crate::rows::{BodyId, Home};
use crate::shard::{KeyRange, ShardId};
use std::borrow::Cow;
use types::{AttemptId, BucketId, DiskId, GroupId, NodeId, ObjectKey, StripId, TokenId};

/// Family and bucket before the key.
pub const HEAD_BYTES: usize = 9;
const END: [u8; 2] = [0, 1];
const AFTER_END: [u8; 2] = [0, 2];
const ESCAPED_ZERO: [u8; 2] = [0, 0xFF];

fn head(family: u8, bucket: BucketId, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + room);
    out.push(family);
    out.extend_from_slice(&bucket.0.to_be_bytes());
    out
}

fn push_escaped(out: &mut Vec<u8>, key: &[u8]) {
    let mut rest = key;
    while let Some(at) = rest.iter().position(|b| *b == 0) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&ESCAPED_ZERO);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// First of all rows of `family` in `bucket` whose key is at least `key` (which need not be a valid key: a prefix or marker).
pub fn from_key(family: u8, bucket: BucketId, key: &[u8]) -> Vec<u8> {
    let mut out = head(family, bucket, key.len() + END.len());
    if family == family::CURRENT {
        out.extend_from_slice(key);
    } else {
        push_escaped(&mut out, key);
    }
    out
}

/// After all rows of exactly `key`.
pub fn after_key(family: u8, bucket: BucketId, key: &[u8]) -> Vec<u8> {
    let mut out = from_key(family, bucket, key);
    if family == family::CURRENT {
        out.push(0);
    } else {
        out.extend_from_slice(&AFTER_END);
    }
    out
}

/// After the row of exactly `key` with that id in its suffix (`uploads`).
pub fn after_id(family: u8, bucket: BucketId, key: &[u8], id: AttemptId) -> Vec<u8> {
    let mut out = from_key(family, bucket, key);
    out.extend_from_slice(&END);
    out.extend_from_slice(&id.to_bytes());
    successor(out)
}

/// First `versions` row of exactly `key` whose sequence is below `sequence`.
pub fn below_sequence(bucket: BucketId, key: &[u8], sequence: u64) -> Vec<u8> {
    let mut out = from_key(family::VERSIONS, bucket, key);
    out.extend_from_slice(&END);
    out.extend_from_slice(&(!sequence).to_be_bytes());
    successor(out)
}

/// After all rows of keys that begin with `prefix`.
pub fn after_prefix(family: u8, bucket: BucketId, prefix: &[u8]) -> Vec<u8> {
    successor(from_key(family, bucket, prefix))
}

/// After all rows of the bucket in this family.
pub fn bucket_end(family: u8, bucket: BucketId) -> Vec<u8> {
    successor(head(family, bucket, 0))
}

/// The least byte string above all that begin with `prefix`; never empty, as no family is FF.
pub fn successor(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < 0xFF {
            prefix.push(last + 1);
            return prefix;
        }
    }
    vec![0xFF]
}

/// First row and first row no more of `family` in `range`.
pub fn range_bounds(family: u8, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let bound = |home: &Home| from_key(family, home.bucket, home.key.as_str().as_bytes());
    let from = range.from.as_ref().map_or_else(|| vec![family], bound);
    let to = range.to.as_ref().map_or_else(|| vec![family + 1], bound);
    (from, to)
}

/// The part of a row's key that all rows of (family, bucket, key) share.
pub fn of_key(family: u8, bucket: BucketId, key: &ObjectKey) -> Vec<u8> {
    with_suffix(family, bucket, key, &[])
}

fn with_suffix(family: u8, bucket: BucketId, key: &ObjectKey, suffix: &[&[u8]]) -> Vec<u8> {
    let text = key.as_str().as_bytes();
    let room = text.len() + END.len() + suffix.iter().map(|s| s.len()).sum::<usize>();
    let mut out = head(family, bucket, room);
    push_escaped(&mut out, text);
    out.extend_from_slice(&END);
    for piece in suffix {
        out.extend_from_slice(piece);
    }
    out
}

/// `current` row of a key.
pub fn current(bucket: BucketId, key: &ObjectKey) -> Vec<u8> {
    from_key(family::CURRENT, bucket, key.as_str().as_bytes())
}

/// `body` row.
pub fn body(bucket: BucketId, key: &ObjectKey, id: BodyId) -> Vec<u8> {
    let part = id.part.to_be_bytes();
    let part: &[u8] = if id.part == 0 { &[] } else { &part };
    with_suffix(family::BODY, bucket, key, &[&id.id.to_bytes(), part])
}

/// `versions` row: the sequence is inverted, so that the newest comes first.
pub fn version(bucket: BucketId, key: &ObjectKey, sequence: u64) -> Vec<u8> {
    with_suffix(family::VERSIONS, bucket, key, &[&(!sequence).to_be_bytes()])
}

/// `nulls` row.
pub fn null(bucket: BucketId, key: &ObjectKey) -> Vec<u8> {
    of_key(family::NULLS, bucket, key)
}

/// `manifest` row of the chunk that begins at part `first`.
pub fn manifest(bucket: BucketId, key: &ObjectKey, id: AttemptId, first: u32) -> Vec<u8> {
    with_suffix(family::MANIFEST, bucket, key, &[&id.to_bytes(), &first.to_be_bytes()])
}

/// `uploads`, `completed` or `condemned` row of that id.
pub fn of_id(family: u8, bucket: BucketId, key: &ObjectKey, id: AttemptId) -> Vec<u8> {
    with_suffix(family, bucket, key, &[&id.to_bytes()])
}

/// `parts` row.
pub fn part(bucket: BucketId, key: &ObjectKey, upload: AttemptId, number: u32) -> Vec<u8> {
    with_suffix(family::PARTS, bucket, key, &[&upload.to_bytes(), &number.to_be_bytes()])
}

/// `owners` row.
pub fn owner(home: &Home, content: AttemptId, owner: AttemptId) -> Vec<u8> {
    with_suffix(family::OWNERS, home.bucket, &home.key, &[&content.to_bytes(), &owner.to_bytes()])
}

/// A row of one shard.
pub fn of_shard(family: u8, shard: ShardId, suffix: &[u8]) -> Vec<u8> {
    let mut out = vec![family];
    out.extend_from_slice(&shard.0.to_be_bytes());
    out.extend_from_slice(suffix);
    out
}

/// The shard's state.
pub fn shard_state(shard: ShardId) -> Vec<u8> {
    of_shard(family::SHARD, shard, &[0])
}

/// Where the walk of Forget goes on.
pub fn forget_cursor(shard: ShardId) -> Vec<u8> {
    of_shard(family::SHARD, shard, &[1])
}

/// Fence of a node in a shard.
pub fn fence(shard: ShardId, node: NodeId) -> Vec<u8> {
    of_shard(family::FENCES, shard, &node.to_be_bytes())
}

/// Outbox row.
pub fn outbox(shard: ShardId, sequence: u64) -> Vec<u8> {
    of_shard(family::OUTBOX, shard, &sequence.to_be_bytes())
}

/// A bucket's row in a shard.
pub fn bucket_row(shard: ShardId, bucket: BucketId) -> Vec<u8> {
    of_shard(family::BUCKET_ROWS, shard, &bucket.0.to_be_bytes())
}

fn root(family: u8, id: &[u8]) -> Vec<u8> {
    let mut out = vec![family];
    out.extend_from_slice(id);
    out
}

/// The counter of bucket ids.
pub fn bucket_counter() -> Vec<u8> {
    root(family::COUNTERS, &[0])
}

/// A bucket by id.
pub fn bucket(bucket: BucketId) -> Vec<u8> {
    root(family::BUCKETS, &bucket.0.to_be_bytes())
}

/// A bucket's id by name.
pub fn bucket_name(name: &str) -> Vec<u8> {
    root(family::BUCKET_NAMES, name.as_bytes())
}

/// A bucket that is being raised.
pub fn raising(bucket: BucketId) -> Vec<u8> {
    root(family::RAISING, &bucket.0.to_be_bytes())
}

/// An account by name.
pub fn user(name: &str) -> Vec<u8> {
    root(family::USERS, name.as_bytes())
}

/// An account's name by access key.
pub fn access_key(access_key: &str) -> Vec<u8> {
    root(family::ACCESS_KEYS, access_key.as_bytes())
}

/// Newest session of a node.
pub fn session(node: NodeId) -> Vec<u8> {
    root(family::SESSIONS, &node.to_be_bytes())
}

/// Record of a group.
pub fn group(group: GroupId) -> Vec<u8> {
    root(family::GROUPS, &group.0.to_be_bytes())
}

/// Head of the cluster map.
pub fn cluster() -> Vec<u8> {
    root(family::CLUSTER, &[0])
}

/// A node of the cluster map.
pub fn node(node: NodeId) -> Vec<u8> {
    root(family::NODES, &node.to_be_bytes())
}

/// A disk of the cluster map.
pub fn disk(disk: DiskId) -> Vec<u8> {
    root(family::DISKS, &disk.0.to_be_bytes())
}

/// A join token.
pub fn token(token: TokenId) -> Vec<u8> {
    root(family::TOKENS, &token.0.to_be_bytes())
}

/// A strip.
pub fn strip(strip: StripId) -> Vec<u8> {
    root(family::STRIPS, &strip.0.to_be_bytes())
}

/// A row's key taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Bucket.
    pub bucket: BucketId,
    /// Key, unescaped.
    pub key: Cow<'a, [u8]>,
    /// What follows the key.
    pub suffix: &'a [u8],
}

impl<'a> Parsed<'a> {
    /// Takes a key of a family of (bucket, key) apart.
    pub fn new(row: &'a [u8]) -> Result<Self, FormatError> {
        let family = row.first().copied().unwrap_or(0);
        let error = |what: &str| FormatError::new(family, what);
        let (head, rest) = row.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| error("short key"))?;
        let mut id = [0; 8];
        id.copy_from_slice(&head[1..]);
        let bucket = BucketId(u64::from_be_bytes(id));
        if family == family::CURRENT {
            return Ok(Parsed { bucket, key: Cow::Borrowed(rest), suffix: &[] });
        }
        let (key, suffix) = unescape(rest).ok_or_else(|| error("bad escape in key"))?;
        Ok(Parsed { bucket, key, suffix })
    }

    /// The key as text.
    pub fn text(&self) -> Result<&str, FormatError> {
        std::str::from_utf8(&self.key).map_err(|_| FormatError::new(0, "key is not UTF-8"))
    }

    /// (bucket, key) as values.
    pub fn home(&self) -> Result<Home, FormatError> {
        let key = ObjectKey::new(self.text()?).map_err(|e| FormatError::new(0, e))?;
        Ok(Home { bucket: self.bucket, key })
    }

    /// The `index`-th attempt id of the suffix.
    pub fn id(&self, index: usize) -> Result<AttemptId, FormatError> {
        let from = index * AttemptId::LEN;
        let bytes = self.suffix.get(from..).and_then(|s| s.first_chunk());
        bytes.map(|b| AttemptId::from_bytes(*b)).ok_or_else(|| FormatError::new(0, "short suffix"))
    }

    /// The four bytes at the end of the suffix, from offset `at`: a part number or index.
    pub fn number(&self, at: usize) -> Result<u32, FormatError> {
        let bytes = self.suffix.get(at..).and_then(|s| <[u8; 4]>::try_from(s).ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| FormatError::new(0, "bad number in suffix"))
    }

    /// The sequence of a `versions` row.
    pub fn sequence(&self) -> Result<u64, FormatError> {
        let bytes = <[u8; 8]>::try_from(self.suffix).map_err(|_| FormatError::new(0, "bad sequence in suffix"))?;
        Ok(!u64::from_be_bytes(bytes))
    }

    /// The id of a `body` row.
    pub fn body_id(&self) -> Result<BodyId, FormatError> {
        let part = if self.suffix.len() == AttemptId::LEN { 0 } else { self.number(AttemptId::LEN)? };
        Ok(BodyId { id: self.id(0)?, part })
    }
}

/// Splits at the end mark and undoes the escaping. `None`: not made by [`push_escaped`].
fn unescape(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut at = bytes.iter().position(|b| *b == 0)?;
    if bytes.get(at + 1) == Some(&END[1]) {
        return Some((Cow::Borrowed(&bytes[..at]), &bytes[at + 2..]));
    }
    let mut key = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        key.extend_from_slice(&rest[..at]);
        match rest.get(at + 1)? {
            0xFF => key.push(0),
            1 => return Some((Cow::Owned(key), &rest[at + 2..])),
            _ => return None,
        }
        rest = &rest[at + 2..];
        at = rest.iter().position(|b| *b == 0)?;
    }
}

/// The eight bytes at the end of a row's key that has a prefix of `prefix` bytes (a sequence of the outbox, an id in root).
pub fn trailing_u64(row: &[u8], prefix: usize) -> Result<u64, FormatError> {
    let family = row.first().copied().unwrap_or(0);
    let bytes = row.get(prefix..).and_then(|s| <[u8; 8]>::try_from(s).ok());
    bytes.map(u64::from_be_bytes).ok_or_else(|| FormatError::new(family, "bad number in key"))
}
