//! Rows of root: buckets, accounts, sessions, records of groups, the cluster map.

use super::{ReadError, get, rows};
use crate::format::key;
use crate::format::value::{Counter, Name, RowValue};
use crate::format::{FormatError, family};
use crate::rows::{ClusterRow, GroupRecord, TokenRow};
use crate::strip::StripRecord;
use crate::tree::{Read, Row};
use types::account::Credential;
use types::bucket::BucketInfo;
use types::cluster::{Disk, Map, Node};
use types::{BucketId, BucketName, DiskId, GroupId, NodeId, StripId, TokenId};

/// A bucket by id.
pub fn bucket(read: &dyn Read, bucket: BucketId) -> Result<Option<BucketInfo>, ReadError> {
    get(read, &key::bucket(bucket))
}

/// A bucket by name.
pub fn bucket_by_name(read: &dyn Read, name: &BucketName) -> Result<Option<BucketInfo>, ReadError> {
    match get::<Counter>(read, &key::bucket_name(name.as_str()))? {
        Some(Counter(id)) => bucket(read, BucketId(id)),
        None => Ok(None),
    }
}

/// All buckets, by id.
pub fn buckets(read: &dyn Read) -> impl Iterator<Item = Result<BucketInfo, ReadError>> + Send + '_ {
    rows(read, &[family::BUCKETS], &[family::BUCKETS + 1], |row| BucketInfo::decode(&row.1))
}

/// Buckets whose row may be missing in some shard, with the generation to raise. A start raises them again.
pub fn raising(read: &dyn Read) -> impl Iterator<Item = Result<(BucketId, u64), ReadError>> + Send + '_ {
    rows(read, &[family::RAISING], &[family::RAISING + 1], |row: &Row| -> Result<_, FormatError> {
        Ok((BucketId(key::trailing_u64(&row.0, 1)?), Counter::decode(&row.1)?.0))
    })
}

/// An account by name.
pub fn user(read: &dyn Read, name: &str) -> Result<Option<Credential>, ReadError> {
    get(read, &key::user(name))
}

/// An account by access key.
pub fn user_by_access_key(read: &dyn Read, access_key: &str) -> Result<Option<Credential>, ReadError> {
    match get::<Name>(read, &key::access_key(access_key))? {
        Some(Name(name)) => user(read, &name),
        None => Ok(None),
    }
}

/// All accounts, by name.
pub fn users(read: &dyn Read) -> impl Iterator<Item = Result<Credential, ReadError>> + Send + '_ {
    rows(read, &[family::USERS], &[family::USERS + 1], |row| Credential::decode(&row.1))
}

/// The newest session of a node; 0 if it never had one. All older ones have ended.
pub fn session(read: &dyn Read, node: NodeId) -> Result<u32, ReadError> {
    let session = get::<Counter>(read, &key::session(node))?.unwrap_or_default();
    Ok(u32::try_from(session.0).unwrap_or(u32::MAX))
}

/// The record of a group.
pub fn group(read: &dyn Read, group: GroupId) -> Result<Option<GroupRecord>, ReadError> {
    get(read, &key::group(group))
}

/// All records of groups, by id.
pub fn groups(read: &dyn Read) -> impl Iterator<Item = Result<(GroupId, GroupRecord), ReadError>> + Send + '_ {
    rows(read, &[family::GROUPS], &[family::GROUPS + 1], |row: &Row| -> Result<_, FormatError> {
        Ok((GroupId(key::trailing_u64(&row.0, 1)?), GroupRecord::decode(&row.1)?))
    })
}

/// A strip.
pub fn strip(read: &dyn Read, strip: StripId) -> Result<Option<StripRecord>, ReadError> {
    get(read, &key::strip(strip))
}

/// All strips, by id.
pub fn strips(read: &dyn Read) -> impl Iterator<Item = Result<(StripId, StripRecord), ReadError>> + Send + '_ {
    rows(read, &[family::STRIPS], &[family::STRIPS + 1], |row: &Row| -> Result<_, FormatError> {
        Ok((StripId(key::trailing_u64(&row.0, 1)?), StripRecord::decode(&row.1)?))
    })
}

/// Head of the cluster map; `None` before its birth.
pub fn cluster(read: &dyn Read) -> Result<Option<ClusterRow>, ReadError> {
    get(read, &key::cluster())
}

/// A node of the cluster map, removed ones too.
pub fn node(read: &dyn Read, node: NodeId) -> Result<Option<Node>, ReadError> {
    get(read, &key::node(node))
}

/// All nodes of the cluster map, by id.
pub fn nodes(read: &dyn Read) -> impl Iterator<Item = Result<Node, ReadError>> + Send + '_ {
    rows(read, &[family::NODES], &[family::NODES + 1], |row| Node::decode(&row.1))
}

/// A disk of the cluster map, lost and removed ones too.
pub fn disk(read: &dyn Read, disk: DiskId) -> Result<Option<Disk>, ReadError> {
    get(read, &key::disk(disk))
}

/// All disks of the cluster map, by id.
pub fn disks(read: &dyn Read) -> impl Iterator<Item = Result<Disk, ReadError>> + Send + '_ {
    rows(read, &[family::DISKS], &[family::DISKS + 1], |row| Disk::decode(&row.1))
}

/// The cluster map as of the position of `read`; `None` before its birth.
pub fn map(read: &dyn Read) -> Result<Option<Map>, ReadError> {
    let Some(head) = cluster(read)? else { return Ok(None) };
    let nodes = nodes(read).map(|node| node.map(|node| (node.id, node))).collect::<Result<_, _>>()?;
    let disks = disks(read).map(|disk| disk.map(|disk| (disk.id, disk))).collect::<Result<_, _>>()?;
    Ok(Some(Map { cluster: head.cluster, epoch: head.epoch, version: head.version, nodes, disks }))
}

/// A join token.
pub fn token(read: &dyn Read, token: TokenId) -> Result<Option<TokenRow>, ReadError> {
    get(read, &key::token(token))
}

/// All join tokens, by id.
pub fn tokens(read: &dyn Read) -> impl Iterator<Item = Result<(TokenId, TokenRow), ReadError>> + Send + '_ {
    rows(read, &[family::TOKENS], &[family::TOKENS + 1], |row: &Row| -> Result<_, FormatError> {
        Ok((TokenId(key::trailing_u64(&row.0, 1)?), TokenRow::decode(&row.1)?))
    })
}
