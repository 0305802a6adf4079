//! A bucket as one shard knows it: raised, emptied of uploads.

use crate::apply::draft::Work;
use crate::apply::{Decision, multipart};
use crate::command::{Outcome, Refusal};
use crate::format::key::{self, Parsed};
use crate::format::{FormatError, family};
use crate::read::{self, ReadError, rows};
use crate::rows::{BucketRow, Home};
use crate::tree::{Read, Row};
use types::limits::PART_NUMBER_MAX;
use types::{AttemptId, BucketId, ObjectKey};

pub(super) fn raise(work: &mut Work<'_>, bucket: BucketId, row: &BucketRow) -> Decision {
    let covered_to = covered(work, bucket)?;
    let present = read::shard::bucket_row(&work.draft, work.shard.id, bucket)?;
    if present.is_none_or(|present| present.generation <= row.generation) {
        work.draft.put(key::bucket_row(work.shard.id, bucket), row);
    }
    let versions = any(work, bucket, family::CURRENT)? || any(work, bucket, family::VERSIONS)?;
    let uploads = any(work, bucket, family::UPLOADS)?;
    Ok(Outcome::BucketHolds { versions, uploads, covered_to })
}

/// First key of the bucket beyond this shard; refused if the shard holds nothing of the bucket.
fn covered(work: &Work<'_>, bucket: BucketId) -> Decision<Option<ObjectKey>> {
    let range = &work.shard.range;
    let begins_later = range.from.as_ref().is_some_and(|from| from.bucket > bucket);
    match &range.to {
        _ if begins_later => Err(Refusal::Moved.into()),
        Some(to) if to.bucket < bucket => Err(Refusal::Moved.into()),
        Some(to) if to.bucket == bucket => Ok(Some(to.key.clone())),
        _ => Ok(None),
    }
}

/// The bucket's rows of a family that are in this shard.
fn bounds(work: &Work<'_>, bucket: BucketId, family: u8) -> (Vec<u8>, Vec<u8>) {
    let (from, to) = key::range_bounds(family, &work.shard.range);
    (from.max(key::from_key(family, bucket, &[])), to.min(key::bucket_end(family, bucket)))
}

fn any(work: &Work<'_>, bucket: BucketId, family: u8) -> Result<bool, ReadError> {
    let (from, to) = bounds(work, bucket, family);
    Ok(from < to && work.draft.range(&from, &to).next().transpose()?.is_some())
}

/// Ends up to `max` uploads, and no more of them than one entry should take parts.
pub(super) fn abort_uploads(work: &mut Work<'_>, bucket: BucketId, max: u32) -> Decision {
    covered(work, bucket)?;
    let row = read::shard::bucket_row(&work.draft, work.shard.id, bucket)?;
    if row.is_some_and(|row| !row.deleting) {
        return Err(Refusal::Invalid("the bucket is not being deleted".into()).into());
    }
    let (from, to) = bounds(work, bucket, family::UPLOADS);
    let of = |row: &Row| -> Result<(Home, AttemptId), FormatError> {
        let parsed = Parsed::new(&row.0)?;
        Ok((parsed.home()?, parsed.id(0)?))
    };
    let found: Vec<_> = rows(&work.draft, &from, &to, of).take(max as usize + 1).collect::<Result<_, _>>()?;
    let (mut ended, mut parts) = (0, 0);
    for (home, upload) in found.iter().take(max as usize) {
        if parts >= PART_NUMBER_MAX {
            break;
        }
        parts += multipart::end_upload(work, home, *upload)?;
        ended += 1;
    }
    Ok(Outcome::Left((found.len() - ended) as u32))
}
