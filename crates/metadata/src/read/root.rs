//! Rows of root: buckets, accounts, sessions, records of groups.

use super::{ReadError, get, rows};
use crate::format::key;
use crate::format::value::{Counter, Name, RowValue};
use crate::format::{FormatError, family};
use crate::rows::GroupRecord;
use crate::tree::{Read, Row};
use types::account::Credential;
use types::bucket::BucketInfo;
use types::{BucketId, BucketName, GroupId, NodeId};

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
