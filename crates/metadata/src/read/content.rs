//! Contents, manifests, owners, condemned rows.

use super::{ReadError, at, get, rows};
use crate::format::key::{self, Parsed};
use crate::format::value::RowValue;
use crate::format::{FormatError, family};
use crate::rows::{BodyId, BodyRow, CondemnedRow, Home, ManifestPart, ManifestRow, OwnerRow};
use crate::shard::KeyRange;
use crate::tree::{Read, Row};
use types::{AttemptId, BucketId, ContentId, ObjectKey, OwnerId};

/// Parts in one manifest row.
pub const MANIFEST_ROW_PARTS: u32 = 256;

/// A body.
pub fn body(read: &dyn Read, bucket: BucketId, key: &ObjectKey, id: BodyId) -> Result<Option<BodyRow>, ReadError> {
    get(read, &key::body(bucket, key, id))
}

/// Whether a version or part of this key owns something under that id: what tells an owner row whose copy took effect.
pub fn has_body_of(read: &dyn Read, at: &Home, id: AttemptId) -> Result<bool, ReadError> {
    let from = key::of_id(family::BODY, at.bucket, &at.key, id);
    Ok(read.range(&from, &key::successor(from.clone())).next().transpose()?.is_some())
}

/// Parts of a manifest from the `index`-th (0-based) on: at most `max`.
pub fn manifest(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    id: AttemptId,
    index: u32,
    max: usize,
) -> Result<Vec<ManifestPart>, ReadError> {
    let first = index - index % MANIFEST_ROW_PARTS;
    let from = key::manifest(bucket, key, id, first);
    let to = key::successor(key::of_id(family::MANIFEST, bucket, key, id));
    let mut parts = Vec::new();
    let mut skip = (index - first) as usize;
    for row in rows(read, &from, &to, |row| ManifestRow::decode(&row.1)) {
        parts.extend(row?.parts.into_iter().skip(skip).take(max - parts.len()));
        skip = 0;
        if parts.len() >= max {
            break;
        }
    }
    Ok(parts)
}

/// Parts of a manifest from the one that holds byte `offset` of the object on, with its index: at most `max`. Reads the one
/// row of each 256 parts that it needs, and the first row after a guess by halves.
pub fn manifest_at(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    id: AttemptId,
    parts: u32,
    offset: u64,
    max: usize,
) -> Result<(u32, Vec<ManifestPart>), ReadError> {
    let (mut low, mut high) = (0, parts.div_ceil(MANIFEST_ROW_PARTS));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let first = manifest(read, bucket, key, id, middle * MANIFEST_ROW_PARTS, 1)?;
        match first.first() {
            Some(part) if part.offset <= offset => low = middle,
            _ => high = middle,
        }
    }
    let row = manifest(read, bucket, key, id, low * MANIFEST_ROW_PARTS, MANIFEST_ROW_PARTS as usize)?;
    let at = row.partition_point(|p| p.offset + p.size <= offset) as u32;
    let index = low * MANIFEST_ROW_PARTS + at;
    Ok((index, manifest(read, bucket, key, id, index, max)?))
}

/// Owners of a content beside its writer. A row under the content's own id says that the writer let go.
pub fn owners(read: &dyn Read, home: &Home, content: ContentId) -> Result<Vec<(OwnerId, OwnerRow)>, ReadError> {
    let from = key::of_id(family::OWNERS, home.bucket, &home.key, content);
    let to = key::successor(from.clone());
    let of = |row: &Row| -> Result<_, FormatError> { Ok((Parsed::new(&row.0)?.id(1)?, OwnerRow::decode(&row.1)?)) };
    rows(read, &from, &to, of).collect()
}

/// The condemned row of a content or manifest.
pub fn condemned_row(read: &dyn Read, home: &Home, id: AttemptId) -> Result<Option<CondemnedRow>, ReadError> {
    get(read, &key::of_id(family::CONDEMNED, home.bucket, &home.key, id))
}

/// Condemned contents and manifests of a range, in order of their keys, after `after`.
pub fn condemned<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
    after: Option<(&Home, AttemptId)>,
) -> impl Iterator<Item = Result<(Home, AttemptId, CondemnedRow), ReadError>> + Send + use<'a> {
    let (mut from, to) = key::range_bounds(family::CONDEMNED, range);
    if let Some((home, id)) = after {
        from = from.max(key::successor(key::of_id(family::CONDEMNED, home.bucket, &home.key, id)));
    }
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.id(0)?, value))
    })
}

/// Every body of a range, in order of their keys. For the audit.
pub fn bodies<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, BodyId, BodyRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family::BODY, range);
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.body_id()?, value))
    })
}

/// Every owner row of a range: home, content, owner. For the audit and the settling of owner rows.
pub fn all_owners<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, ContentId, OwnerId, OwnerRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family::OWNERS, range);
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.id(0)?, parsed.id(1)?, value))
    })
}

/// Every manifest row of a range: key, manifest id, index of its first part, parts. For the audit.
pub fn manifests<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, AttemptId, u32, ManifestRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family::MANIFEST, range);
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.id(0)?, parsed.number(AttemptId::LEN)?, value))
    })
}
