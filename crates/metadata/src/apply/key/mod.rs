//! Mutations of one key: what comes before each is judged in one place.

mod copy;
mod delete;
mod put;
mod tags;

use super::draft::Work;
use super::version::Newest;
use super::{Decision, judge_fence, judge_time, multipart};
use crate::command::{Entry, KeyCommand, KeyOp, Outcome, PartBytes, Refusal};
use crate::read::{self, ReadError};
use crate::rows::{BucketRow, ContentBytes, Home};

/// A key's command with what was found before it.
pub(super) struct Target<'a> {
    pub(super) at: &'a Home,
    pub(super) bucket: &'a BucketRow,
}

pub(super) fn decide(work: &mut Work<'_>, entry: &Entry, command: &KeyCommand) -> Decision {
    work.require(command.bucket, &command.key)?;
    let at = Home { bucket: command.bucket, key: command.key.clone() };
    let bucket = read::shard::bucket_row(&work.draft, work.shard.id, command.bucket)?;
    let newest = match &bucket {
        Some(bucket) if asks_newest(&command.op) => Newest::read(work, &at, bucket)?,
        _ => Newest::None,
    };
    if let Some(known) = bucket.as_ref().and_then(|bucket| newest.known(entry.attempt, bucket)) {
        return Ok(known);
    }
    judge_fence(work, entry)?;
    if let KeyOp::Abandon { runs } = &command.op {
        // Nobody waits for it and nobody sees it: better late than never.
        return put::abandon(work, &at, runs);
    }
    judge_time(work, entry)?;
    let bucket = admit(bucket, command.generation)?;
    let target = Target { at: &at, bucket: &bucket };
    match &command.op {
        KeyOp::Put { object, bytes, conditions } => put::put(work, &target, newest, object, bytes, conditions),
        KeyOp::Abandon { .. } => Ok(Outcome::Done),
        KeyOp::Delete { version, conditions } => delete::delete(work, &target, newest, *version, conditions),
        KeyOp::PutTags { version, tags } => tags::put_tags(work, &target, *version, tags),
        KeyOp::Copy { object, data, conditions } => copy::copy(work, &target, newest, object, data, conditions),
        KeyOp::CreateUpload { .. }
        | KeyOp::PutPart { .. }
        | KeyOp::AbortUpload { .. }
        | KeyOp::CompleteUpload { .. } => multipart::decide(work, &target, newest, &command.op),
    }
}

/// Operations that make a version, and so may have done it already under this attempt.
fn asks_newest(op: &KeyOp) -> bool {
    matches!(op, KeyOp::Put { .. } | KeyOp::Delete { .. } | KeyOp::CompleteUpload { .. } | KeyOp::Copy { .. })
}

fn admit(bucket: Option<BucketRow>, generation: u64) -> Result<BucketRow, Refusal> {
    let bucket = bucket.ok_or(Refusal::NoSuchBucket)?;
    if generation < bucket.generation {
        return Err(Refusal::Refetch);
    }
    if bucket.deleting {
        return Err(Refusal::NoSuchBucket);
    }
    Ok(bucket)
}

/// The bytes of an upload that was refused for good are condemned: nobody else will name them.
pub(super) fn condemn_uploaded(work: &mut Work<'_>, command: &KeyCommand) -> Result<(), ReadError> {
    let (size, bytes): (u64, &ContentBytes) = match &command.op {
        KeyOp::Put { object, bytes, .. } => (object.size, bytes),
        KeyOp::PutPart { size, bytes: PartBytes::New(bytes), .. } => (*size, bytes),
        _ => return Ok(()),
    };
    work.create_condemned(&Home { bucket: command.bucket, key: command.key.clone() }, size, bytes)
}
