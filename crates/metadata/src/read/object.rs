//! Versions of a key.

use super::{ReadError, get, rows};
use crate::format::key::{self, Parsed};
use crate::format::value::{Counter, RowValue};
use crate::format::{FormatError, family};
use crate::rows::{Home, VersionRow};
use crate::shard::KeyRange;
use crate::tree::Read;
use types::{BucketId, ObjectKey, VersionId};

/// The live newest version: one row.
pub fn current(read: &dyn Read, bucket: BucketId, key: &ObjectKey) -> Result<Option<VersionRow>, ReadError> {
    get(read, &key::current(bucket, key))
}

/// The newest version, live or a delete marker. One row, and one seek more if the key has no live version: only buckets that
/// ever had versioning need to ask.
pub fn newest(read: &dyn Read, bucket: BucketId, key: &ObjectKey) -> Result<Option<VersionRow>, ReadError> {
    match current(read, bucket, key)? {
        Some(row) => Ok(Some(row)),
        None => newest_other(read, bucket, key),
    }
}

/// The newest version that is not in `current`.
pub fn newest_other(read: &dyn Read, bucket: BucketId, key: &ObjectKey) -> Result<Option<VersionRow>, ReadError> {
    let from = key::of_key(family::VERSIONS, bucket, key);
    let to = key::successor(from.clone());
    rows(read, &from, &to, |row| VersionRow::decode(&row.1)).next().transpose()
}

/// The version of that id; a delete marker too.
pub fn version(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    id: VersionId,
) -> Result<Option<VersionRow>, ReadError> {
    if let Some(row) = current(read, bucket, key)?
        && row.version_id() == id
    {
        return Ok(Some(row));
    }
    let sequence = match id {
        VersionId::Id { sequence, .. } => sequence,
        VersionId::Null => match get::<Counter>(read, &key::null(bucket, key))? {
            Some(Counter(sequence)) => sequence,
            None => return Ok(None),
        },
    };
    let row = get::<VersionRow>(read, &key::version(bucket, key, sequence))?;
    Ok(row.filter(|row| row.version_id() == id))
}

/// What a reader without conditions finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// A live version.
    Live(Box<VersionRow>),
    /// No version, or the newest is this delete marker.
    NoSuchKey(Option<VersionId>),
    /// No version of the id that was asked for.
    NoSuchVersion,
    /// The version of the id that was asked for is a delete marker, made then.
    DeleteMarker(VersionId, u64),
}

/// The current version, or the one of that id. `versioned`: the bucket ever had versioning; without it a miss costs no seek.
pub fn lookup(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    id: Option<VersionId>,
    versioned: bool,
) -> Result<Lookup, ReadError> {
    let Some(id) = id else {
        if let Some(row) = current(read, bucket, key)? {
            return Ok(Lookup::Live(Box::new(row)));
        }
        let marker = if versioned { newest_other(read, bucket, key)? } else { None };
        return Ok(Lookup::NoSuchKey(marker.map(|m| m.version_id())));
    };
    Ok(match version(read, bucket, key, id)? {
        None => Lookup::NoSuchVersion,
        Some(row) if row.object.is_none() => Lookup::DeleteMarker(row.version_id(), row.modified_ms),
        Some(row) => Lookup::Live(Box::new(row)),
    })
}

/// Every version of a range of keys: first all live newest ones, then the others. For the audit.
pub fn all<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, VersionRow), ReadError>> + Send + use<'a> {
    of_family(read, family::CURRENT, range).chain(of_family(read, family::VERSIONS, range))
}

/// The versions of a range of keys that are in that family: `current` or `versions`.
pub(crate) fn of_family<'a>(
    read: &'a dyn Read,
    family: u8,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, VersionRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family, range);
    rows(read, &from, &to, |row| -> Result<_, FormatError> {
        Ok((Parsed::new(&row.0)?.home()?, VersionRow::decode(&row.1)?))
    })
}
