//! Multipart uploads: begun, filled, aborted; Complete in its own file. Decided by log order (rule R42).

mod complete;
mod digest;

use super::Decision;
use super::draft::Work;
use super::key::Target;
use super::version::Newest;
use crate::command::{KeyOp, Outcome, PartBytes, Refusal};
use crate::format::value::RowValue;
use crate::format::{family, key};
use crate::read::{ReadError, rows, upload};
use crate::rows::{BodyId, CompletedUpload, ContentBytes, Home, ManifestPart, PartRow, Reference, UploadRow};
use std::collections::BTreeMap;
use types::limits::PART_NUMBER_MAX;
use types::object::{ObjectMeta, Tag};
use types::{AttemptId, BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, ObjectKey};

pub(super) fn decide(work: &mut Work<'_>, target: &Target<'_>, newest: Newest, op: &KeyOp) -> Decision {
    match op {
        KeyOp::CreateUpload { meta, tags, checksum } => create(work, target.at, meta, tags, *checksum),
        KeyOp::PutPart { upload, number, size, md5, checksum, bytes } => {
            let row = PartRow {
                body: work.attempt,
                size: *size,
                md5: *md5,
                checksum: checksum.clone(),
                modified_ms: work.now_ms,
            };
            put_part(work, target.at, *upload, *number, row, bytes)
        }
        KeyOp::AbortUpload { upload } => {
            open(work, target.at, *upload)?;
            end_upload(work, target.at, *upload)?;
            Ok(Outcome::Done)
        }
        KeyOp::CompleteUpload { upload, parts, conditions, checksum, size } => {
            let asked = complete::Asked { upload: *upload, parts, checksum: checksum.as_ref(), size: *size };
            complete::complete(work, target, newest, &asked, conditions)
        }
        _ => Err(Refusal::Invalid("not about an upload".into()).into()),
    }
}

fn create(
    work: &mut Work<'_>,
    at: &Home,
    meta: &ObjectMeta,
    tags: &[Tag],
    checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
) -> Decision {
    if checksum.is_some_and(|(algorithm, kind)| !digest::possible(algorithm, kind)) {
        return Err(Refusal::Invalid("this checksum algorithm cannot be of that type".into()).into());
    }
    let row = key::of_id(family::UPLOADS, at.bucket, &at.key, work.attempt);
    if work.draft.row::<UploadRow>(&row)?.is_none() {
        let upload = UploadRow { meta: meta.clone(), tags: tags.to_vec(), checksum, initiated_ms: work.now_ms };
        work.draft.put(row, &upload);
    }
    Ok(Outcome::Done)
}

/// The upload, if it is in progress.
fn open(work: &Work<'_>, at: &Home, id: AttemptId) -> Decision<UploadRow> {
    let found = upload::upload(&work.draft, at.bucket, &at.key, id)?;
    found.ok_or_else(|| Refusal::NoSuchUpload.into())
}

fn put_part(
    work: &mut Work<'_>,
    at: &Home,
    upload: AttemptId,
    number: u32,
    row: PartRow,
    bytes: &PartBytes,
) -> Decision {
    if !(1..=PART_NUMBER_MAX).contains(&number) {
        return Err(Refusal::Invalid(format!("part number {number}")).into());
    }
    let former = upload::part(&work.draft, at.bucket, &at.key, upload, number)?;
    if let Some(known) = former.as_ref().filter(|part| part.body == work.attempt) {
        return Ok(Outcome::Part { modified_ms: known.modified_ms });
    }
    create_part_body(work, at, row.size, bytes)?;
    open(work, at, upload)?;
    if let Some(former) = former {
        work.release_body(at.bucket, &at.key, BodyId::whole(former.body))?;
    }
    let modified_ms = row.modified_ms;
    work.draft.put(key::part(at.bucket, &at.key, upload, number), &row);
    Ok(Outcome::Part { modified_ms })
}

fn create_part_body(work: &mut Work<'_>, at: &Home, size: u64, bytes: &PartBytes) -> Decision<()> {
    match bytes {
        PartBytes::New(bytes) => work.create_content(at, size, ContentBytes::clone(bytes)),
        PartBytes::Copied(reference) => work.refer(at, BodyId::whole(work.attempt), &Reference::clone(reference)),
    }
}

/// All parts of an upload by number.
fn all_parts(work: &Work<'_>, at: &Home, upload: AttemptId) -> Result<BTreeMap<u32, PartRow>, ReadError> {
    let page = upload::parts(&work.draft, at.bucket, &at.key, upload, 0, PART_NUMBER_MAX as usize)?;
    Ok(page.parts.into_iter().collect())
}

/// The upload and its parts go; what they own is condemned. Answers how many parts that were.
pub(super) fn end_upload(work: &mut Work<'_>, at: &Home, upload: AttemptId) -> Result<u32, ReadError> {
    let parts = all_parts(work, at, upload)?;
    remove_rows(work, at, upload, parts.keys());
    let count = parts.len() as u32;
    let orphans = parts.into_iter().map(|(number, part)| manifest_part(number, 0, part)).collect();
    // The upload's id is no manifest's and no content's.
    work.condemn_parts(at, upload, orphans);
    Ok(count)
}

fn remove_rows<'a>(work: &mut Work<'_>, at: &Home, upload: AttemptId, numbers: impl Iterator<Item = &'a u32>) {
    work.draft.remove(key::of_id(family::UPLOADS, at.bucket, &at.key, upload));
    for number in numbers {
        work.draft.remove(key::part(at.bucket, &at.key, upload, *number));
    }
}

fn manifest_part(number: u32, offset: u64, part: PartRow) -> ManifestPart {
    ManifestPart { number, offset, size: part.size, checksum: part.checksum, body: part.body }
}

impl Work<'_> {
    /// The version that a Complete made is gone: its answer need not be repeated any more.
    pub(super) fn forget_completed_by(
        &mut self,
        bucket: BucketId,
        at: &ObjectKey,
        attempt: AttemptId,
    ) -> Result<(), ReadError> {
        let from = key::of_key(family::COMPLETED, bucket, at);
        let to = key::successor(from.clone());
        let done = rows(&self.draft, &from, &to, |row| Ok((row.0.to_vec(), CompletedUpload::decode(&row.1)?)));
        let done: Vec<_> = done.collect::<Result<_, _>>()?;
        for (row, _) in done.into_iter().filter(|(_, done)| done.attempt == attempt) {
            self.draft.remove(row);
        }
        Ok(())
    }

    fn remember_completed(&mut self, at: &Home, upload: AttemptId, done: &CompletedUpload) {
        self.draft.put(key::of_id(family::COMPLETED, at.bucket, &at.key, upload), done);
    }
}

/// A checksum of the right algorithm.
fn of_algorithm(checksum: Option<&Checksum>, algorithm: ChecksumAlgorithm) -> Option<&Checksum> {
    checksum.filter(|c| c.algorithm == algorithm)
}
