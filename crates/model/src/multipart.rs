//! Multipart uploads: begun, filled, completed, aborted, listed.

use bytes::{Bytes, BytesMut};
use object_controller::api::{
    BodySummary, BucketInfo, CompleteUpload, CopySource, CreateUpload, PartEntry, PartInfo, PartPage, PutOutcome,
    StoreError, UploadId, UploadInfo,
};
use std::collections::BTreeMap;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ObjectKey, VersionId, limits};

use crate::checksum::{checksum_of, checksum_of_parts, md5_of};
use crate::conditions::check_put;
use crate::objects::{Draft, copy_source, insert};
use crate::state::{Bucket, Completed, Part, State, Upload};

/// Begins an upload.
pub fn create(state: &mut State, request: CreateUpload, now_ms: u64) -> Result<UploadId, StoreError> {
    let id = UploadId(state.mint());
    let bucket = state.bucket_mut(&request.bucket)?;
    let info = UploadInfo { object: request.object, checksum: request.checksum, initiated_ms: now_ms };
    let upload = Upload { info, parts: BTreeMap::new(), completed: None };
    bucket.uploads.insert((request.key.as_str().to_owned(), id), upload);
    Ok(id)
}

/// The upload, if it is in progress.
pub fn open<'a>(bucket: &'a Bucket, key: &ObjectKey, id: &UploadId) -> Result<&'a Upload, StoreError> {
    let found = bucket.uploads.get(&(key.as_str().to_owned(), *id));
    found.filter(|u| u.completed.is_none()).ok_or(StoreError::NoSuchUpload)
}

fn open_mut<'a>(bucket: &'a mut Bucket, key: &ObjectKey, id: &UploadId) -> Result<&'a mut Upload, StoreError> {
    let found = bucket.uploads.get_mut(&(key.as_str().to_owned(), *id));
    found.filter(|u| u.completed.is_none()).ok_or(StoreError::NoSuchUpload)
}

/// Stores a received part.
pub fn put_part(
    state: &mut State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    id: &UploadId,
    number: u32,
    body: Bytes,
    summary: BodySummary,
    now_ms: u64,
) -> Result<PartEntry, StoreError> {
    let upload = open_mut(state.bucket_mut(bucket)?, key, id)?;
    let checksum = upload.info.checksum.map(|(algorithm, _)| match summary.checksum {
        Some(sent) if sent.algorithm == algorithm => sent,
        _ => part_checksum(algorithm, &body),
    });
    let size = body.len() as u64;
    let entry = PartEntry { number, etag: ETag::Md5(summary.md5), size, modified_ms: now_ms, checksum };
    upload.parts.insert(number, Part { entry: entry.clone(), body });
    Ok(entry)
}

fn part_checksum(algorithm: ChecksumAlgorithm, body: &[u8]) -> Checksum {
    Checksum { algorithm, kind: ChecksumKind::FullObject, digest: checksum_of(algorithm, body) }
}

/// Stores a part from a range of an object.
pub fn copy_part(
    state: &mut State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    id: &UploadId,
    number: u32,
    source: &CopySource,
    range: Option<(u64, u64)>,
    now_ms: u64,
) -> Result<(PartEntry, Option<VersionId>), StoreError> {
    open(state.bucket(bucket)?, key, id)?;
    let from = copy_source(state, source, u64::MAX)?;
    let (offset, len) = range.unwrap_or((0, from.info.size));
    if len > limits::CONTENT_MAX_BYTES {
        return Err(StoreError::TooLarge);
    }
    if offset.checked_add(len).is_none_or(|end| end > from.info.size) {
        return Err(StoreError::InvalidState("the range is not within the source".into()));
    }
    let body = from.object.body.slice(offset as usize..(offset + len) as usize);
    let summary = BodySummary { size: len, md5: md5_of(&body), checksum: None };
    let entry = put_part(state, bucket, key, id, number, body, summary, now_ms)?;
    Ok((entry, from.info.version))
}

/// Makes the object of the listed parts; the same list again gets the same answer while that version lives.
pub fn complete(state: &mut State, request: CompleteUpload, now_ms: u64) -> Result<PutOutcome, StoreError> {
    let bucket = state.bucket(&request.bucket)?;
    if let Some(outcome) = repeated(bucket, &request) {
        return Ok(outcome);
    }
    let upload = open(bucket, &request.key, &request.upload)?;
    let chosen = chosen_parts(upload, &request)?;
    let draft = assemble(upload, &chosen);
    check_declared(&request, &draft)?;
    check_put(&request.conditions, bucket.newest(request.key.as_str()))?;
    let outcome = insert(state, &request.bucket, &request.key, draft, now_ms)?;
    let bucket = state.bucket_mut(&request.bucket)?;
    let made = bucket.newest(request.key.as_str()).expect("inserted above").attempt;
    let upload = open_mut(bucket, &request.key, &request.upload)?;
    upload.parts.clear();
    upload.completed = Some(Completed { parts: listed(&request), attempt: made, outcome: outcome.clone() });
    Ok(outcome)
}

fn listed(request: &CompleteUpload) -> Vec<(u32, String)> {
    request.parts.iter().map(|p| (p.number, p.etag.clone())).collect()
}

fn repeated(bucket: &Bucket, request: &CompleteUpload) -> Option<PutOutcome> {
    let key = request.key.as_str();
    let done = bucket.uploads.get(&(key.to_owned(), request.upload))?.completed.as_ref()?;
    let lives = bucket.keys.get(key)?.iter().any(|v| v.attempt == done.attempt);
    (lives && done.parts == listed(request)).then(|| done.outcome.clone())
}

fn chosen_parts<'a>(upload: &'a Upload, request: &CompleteUpload) -> Result<Vec<&'a Part>, StoreError> {
    let mut chosen = Vec::new();
    for wanted in &request.parts {
        let invalid = StoreError::InvalidPart { number: wanted.number };
        let Some(part) = upload.parts.get(&wanted.number) else { return Err(invalid) };
        let same_checksum = wanted.checksum.as_ref().is_none_or(|(algorithm, digest)| {
            part.entry.checksum.as_ref().is_none_or(|c| c.algorithm == *algorithm && c.digest == *digest)
        });
        if wanted.etag != part.entry.etag.to_string() || !same_checksum {
            return Err(invalid);
        }
        chosen.push(part);
    }
    let small = chosen.iter().rev().skip(1).rev().find(|p| p.entry.size < limits::PART_MIN_BYTES);
    match small {
        Some(part) => Err(StoreError::PartTooSmall { number: part.entry.number, size: part.entry.size }),
        None => Ok(chosen),
    }
}

fn assemble(upload: &Upload, chosen: &[&Part]) -> Draft {
    let mut body = BytesMut::new();
    let mut md5s = Vec::new();
    let mut parts = Vec::new();
    for part in chosen {
        let (number, size) = (part.entry.number, part.entry.size);
        parts.push(PartInfo { number, offset: body.len() as u64, size, checksum: part.entry.checksum.clone() });
        md5s.extend_from_slice(&md5_of(&part.body));
        body.extend_from_slice(&part.body);
    }
    let checksum = upload
        .info
        .checksum
        .map(|(algorithm, kind)| checksum_of_parts(algorithm, kind, chosen.iter().map(|p| p.body.as_ref())));
    Draft {
        etag: ETag::Multipart { md5: md5_of(&md5s), parts: chosen.len() as u32 },
        body: body.freeze(),
        meta: upload.info.object.meta.clone(),
        tags: upload.info.object.tags.clone(),
        checksum,
        parts,
    }
}

fn check_declared(request: &CompleteUpload, draft: &Draft) -> Result<(), StoreError> {
    if request.size.is_some_and(|size| size != draft.body.len() as u64) {
        return Err(StoreError::BadDigest("the object has another size".into()));
    }
    if let Some((algorithm, digest)) = &request.checksum {
        let same = |c: &Checksum| c.algorithm == *algorithm && c.digest == *digest;
        let computed = match (&draft.checksum, algorithm) {
            (Some(known), a) if known.algorithm == *a => known.clone(),
            (_, a) => part_checksum(*a, &draft.body),
        };
        if !same(&computed) {
            return Err(StoreError::BadDigest(format!("the {} of the object differs", algorithm.name())));
        }
    }
    Ok(())
}

/// Ends an upload.
pub fn abort(state: &mut State, bucket: &BucketInfo, key: &ObjectKey, id: &UploadId) -> Result<(), StoreError> {
    let bucket = state.bucket_mut(bucket)?;
    open(bucket, key, id)?;
    bucket.uploads.remove(&(key.as_str().to_owned(), *id));
    Ok(())
}

/// Parts with numbers above `after`.
pub fn list_parts(
    state: &State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    id: &UploadId,
    after: u32,
    max: u32,
) -> Result<PartPage, StoreError> {
    let upload = open(state.bucket(bucket)?, key, id)?;
    let mut rest = upload.parts.values().map(|p| p.entry.clone()).filter(|p| p.number > after);
    let parts = rest.by_ref().take(max as usize).collect();
    Ok(PartPage { parts, truncated: max > 0 && rest.next().is_some() })
}
