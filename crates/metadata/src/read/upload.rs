//! Multipart uploads and their parts.

use super::{ReadError, at, get, rows};
use crate::format::key::{self, Parsed};
use crate::format::value::RowValue;
use crate::format::{FormatError, family};
use crate::rows::{CompletedUpload, Home, PartRow, UploadRow};
use crate::shard::KeyRange;
use crate::tree::{Read, Row};
use types::{AttemptId, BucketId, ObjectKey};

/// An upload in progress.
pub fn upload(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    upload: AttemptId,
) -> Result<Option<UploadRow>, ReadError> {
    get(read, &key::of_id(family::UPLOADS, bucket, key, upload))
}

/// The remembered answer of a completed upload.
pub fn completed(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    upload: AttemptId,
) -> Result<Option<CompletedUpload>, ReadError> {
    get(read, &key::of_id(family::COMPLETED, bucket, key, upload))
}

/// One part of an upload.
pub fn part(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    upload: AttemptId,
    number: u32,
) -> Result<Option<PartRow>, ReadError> {
    get(read, &key::part(bucket, key, upload, number))
}

/// A page of parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// Number and part, in order of the numbers.
    pub parts: Vec<(u32, PartRow)>,
    /// More follow.
    pub truncated: bool,
}

/// Parts with numbers above `after`, at most `max`.
pub fn parts(
    read: &dyn Read,
    bucket: BucketId,
    key: &ObjectKey,
    upload: AttemptId,
    after: u32,
    max: usize,
) -> Result<Parts, ReadError> {
    let from = key::part(bucket, key, upload, after.saturating_add(1));
    let to = key::successor(key::of_id(family::PARTS, bucket, key, upload));
    let of = |row: &Row| -> Result<_, FormatError> {
        Ok((Parsed::new(&row.0)?.number(AttemptId::LEN)?, PartRow::decode(&row.1)?))
    };
    let mut page = Parts::default();
    for row in rows(read, &from, &to, of) {
        if page.parts.len() == max {
            page.truncated = max > 0;
            break;
        }
        page.parts.push(row?);
    }
    Ok(page)
}

/// Uploads in progress of a range. For the audit and for buckets that go.
pub fn all<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, AttemptId, UploadRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family::UPLOADS, range);
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.id(0)?, value))
    })
}

/// Buckets with uploads in progress in a range, each once: one seek a bucket.
pub fn buckets(read: &dyn Read, range: &KeyRange) -> Result<Vec<BucketId>, ReadError> {
    let (mut from, to) = key::range_bounds(family::UPLOADS, range);
    let mut found = Vec::new();
    while let Some(home) = rows(read, &from, &to, |row| Ok(at::<UploadRow>(row)?.0)).next() {
        let bucket = home?.bucket;
        found.push(bucket);
        from = key::bucket_end(family::UPLOADS, bucket);
    }
    Ok(found)
}

/// Every part of every upload of a range: key, upload, number, part. For the audit.
pub fn all_parts<'a>(
    read: &'a dyn Read,
    range: &KeyRange,
) -> impl Iterator<Item = Result<(Home, AttemptId, u32, PartRow), ReadError>> + Send + use<'a> {
    let (from, to) = key::range_bounds(family::PARTS, range);
    rows(read, &from, &to, |row| {
        let (home, parsed, value) = at(row)?;
        Ok((home, parsed.id(0)?, parsed.number(AttemptId::LEN)?, value))
    })
}
