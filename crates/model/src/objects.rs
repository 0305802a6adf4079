//! Objects: put, looked up, copied, deleted, tagged.

use bytes::Bytes;
use object_controller::api::{
    BodySource, BodySummary, BucketInfo, CopyObject, CopyOutcome, CopySource, DeleteObject, DeleteOutcome, ObjectInfo,
    ObjectMeta, PartInfo, PutObject, PutOutcome, StoreError, Tag, Versioning,
};
use std::sync::Arc;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ObjectKey, VersionId, limits};

use crate::checksum::checksum_of;
use crate::conditions::{check_delete, check_put, check_source};
use crate::read::Handle;
use crate::state::{Bucket, Object, State, Version};

/// Headers of a source that a copy never inherits.
const NEVER_COPIED: [&str; 2] = ["x-amz-storage-class", "x-amz-website-redirect-location"];

/// All of a body, and what it was.
pub async fn receive(body: &mut dyn BodySource) -> Result<(Bytes, BodySummary), StoreError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > limits::CONTENT_MAX_BYTES {
            return Err(StoreError::TooLarge);
        }
    }
    Ok((Bytes::from(bytes), body.finish()?))
}

/// A version about to be made.
pub struct Draft {
    pub etag: ETag,
    pub body: Bytes,
    pub meta: ObjectMeta,
    pub tags: Vec<Tag>,
    pub checksum: Option<Checksum>,
    pub parts: Vec<PartInfo>,
}

/// Stores a received body as the newest version.
pub fn put(
    state: &mut State,
    request: PutObject,
    body: Bytes,
    summary: BodySummary,
    now_ms: u64,
) -> Result<PutOutcome, StoreError> {
    let draft = Draft {
        etag: ETag::Md5(summary.md5),
        body,
        meta: request.object.meta,
        tags: request.object.tags,
        checksum: summary.checksum,
        parts: Vec::new(),
    };
    check_put(&request.conditions, state.bucket(&request.bucket)?.newest(request.key.as_str()))?;
    insert(state, &request.bucket, &request.key, draft, now_ms)
}

/// Makes `draft` the newest version of `key`, replacing the null version unless versioning is on.
pub fn insert(
    state: &mut State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    draft: Draft,
    now_ms: u64,
) -> Result<PutOutcome, StoreError> {
    let next = next_version(state, bucket, key, now_ms)?;
    let bucket = state.bucket_mut(bucket)?;
    let shown = shown_version(bucket, next.id);
    let info = ObjectInfo {
        version: Some(next.id),
        etag: draft.etag,
        size: draft.body.len() as u64,
        modified_ms: next.modified_ms,
        meta: draft.meta,
        tags: draft.tags,
        checksum: draft.checksum.clone(),
        parts: (!draft.parts.is_empty()).then_some(draft.parts.len() as u32),
    };
    let outcome = PutOutcome {
        version: shown,
        etag: info.etag,
        size: info.size,
        checksum: draft.checksum,
        modified_ms: next.modified_ms,
    };
    let object = Arc::new(Object { info, body: draft.body, parts: draft.parts });
    push(bucket, key, Version { object: Some(object), ..next });
    Ok(outcome)
}

/// The next version of `key`, a delete marker so far.
fn next_version(state: &mut State, bucket: &BucketInfo, key: &ObjectKey, now_ms: u64) -> Result<Version, StoreError> {
    let attempt = state.mint();
    let bucket = state.bucket(bucket)?;
    let newest = bucket.newest(key.as_str());
    let sequence = newest.map_or(1, |v| v.sequence + 1);
    let modified_ms = newest.map_or(now_ms, |v| now_ms.max(v.modified_ms + 1));
    let id = match bucket.info.versioning {
        Versioning::Enabled => VersionId::Id { sequence, attempt },
        Versioning::Off | Versioning::Suspended => VersionId::Null,
    };
    Ok(Version { id, attempt, sequence, modified_ms, object: None })
}

fn push(bucket: &mut Bucket, key: &ObjectKey, version: Version) {
    let versions = bucket.keys.entry(key.as_str().to_owned()).or_default();
    if version.id == VersionId::Null {
        versions.retain(|v| v.id != VersionId::Null);
    }
    versions.push(version);
}

/// `None` in a bucket that never had versioning.
fn shown_version(bucket: &Bucket, id: VersionId) -> Option<VersionId> {
    (bucket.info.versioning != Versioning::Off).then_some(id)
}

/// The current version, or the one of that id.
pub fn lookup(
    state: &State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    version: Option<VersionId>,
) -> Result<Handle, StoreError> {
    let bucket = state.bucket(bucket)?;
    let found = bucket.find(key.as_str(), version)?;
    let object = found.object().ok_or(StoreError::NoSuchVersion)?;
    let mut info = object.info.clone();
    info.version = shown_version(bucket, found.id);
    Ok(Handle { info, object: Arc::clone(object) })
}

/// The source of a copy: conditions judged, size checked against what one copy may take.
pub fn copy_source(state: &State, source: &CopySource, max_bytes: u64) -> Result<Handle, StoreError> {
    let bucket = state.bucket(&source.bucket)?;
    let found = bucket.find(source.key.as_str(), source.version)?;
    check_source(&source.conditions, found)?;
    let handle = lookup(state, &source.bucket, &source.key, source.version)?;
    if handle.info.size > max_bytes {
        return Err(StoreError::TooLarge);
    }
    Ok(handle)
}

/// Copies a version: same bytes, same ETag, same parts, as a copy that moves no data must.
pub fn copy(state: &mut State, source: CopySource, target: CopyObject, now_ms: u64) -> Result<CopyOutcome, StoreError> {
    let from = copy_source(state, &source, limits::COPY_MAX_BYTES)?;
    check_put(&target.conditions, state.bucket(&target.bucket)?.newest(target.key.as_str()))?;
    let meta = target.meta.unwrap_or_else(|| inherited(&from.info.meta, target.always));
    let draft = Draft {
        etag: from.info.etag,
        body: from.object.body.clone(),
        meta,
        tags: target.tags.unwrap_or_else(|| from.info.tags.clone()),
        checksum: copied_checksum(&from, target.checksum),
        parts: from.object.parts.clone(),
    };
    let put = insert(state, &target.bucket, &target.key, draft, now_ms)?;
    Ok(CopyOutcome { put, source_version: from.info.version })
}

fn inherited(meta: &ObjectMeta, always: Vec<(String, String)>) -> ObjectMeta {
    let mut meta = meta.clone();
    meta.headers.retain(|(name, _)| !NEVER_COPIED.contains(&name.as_str()));
    meta.headers.extend(always);
    meta
}

fn copied_checksum(from: &Handle, wanted: Option<ChecksumAlgorithm>) -> Option<Checksum> {
    match (wanted, &from.info.checksum) {
        (None, present) => present.clone(),
        (Some(algorithm), Some(present)) if present.algorithm == algorithm => Some(present.clone()),
        (Some(algorithm), _) => Some(Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            digest: checksum_of(algorithm, &from.object.body),
        }),
    }
}

/// Removes a version, or makes the key unreadable as the bucket's versioning says.
pub fn delete(state: &mut State, request: DeleteObject, now_ms: u64) -> Result<DeleteOutcome, StoreError> {
    let key = request.key.as_str();
    let bucket = state.bucket(&request.bucket)?;
    let target = match request.version {
        Some(id) => bucket.version(key, id),
        None => bucket.newest(key),
    };
    check_delete(&request.conditions, target)?;
    match (request.version, bucket.info.versioning) {
        (Some(id), _) => {
            let delete_marker = target.is_some_and(|v| v.object.is_none());
            remove(state.bucket_mut(&request.bucket)?, key, id);
            Ok(DeleteOutcome { version: Some(id), delete_marker })
        }
        (None, Versioning::Off) => {
            remove(state.bucket_mut(&request.bucket)?, key, VersionId::Null);
            Ok(DeleteOutcome::default())
        }
        (None, Versioning::Enabled | Versioning::Suspended) => {
            let marker = next_version(state, &request.bucket, &request.key, now_ms)?;
            let id = marker.id;
            push(state.bucket_mut(&request.bucket)?, &request.key, marker);
            Ok(DeleteOutcome { version: Some(id), delete_marker: true })
        }
    }
}

fn remove(bucket: &mut Bucket, key: &str, id: VersionId) {
    if let Some(versions) = bucket.keys.get_mut(key) {
        versions.retain(|v| v.id != id);
        if versions.is_empty() {
            bucket.keys.remove(key);
        }
    }
}

/// Replaces the tags of a version; the answer names the version.
pub fn put_tags(
    state: &mut State,
    bucket: &BucketInfo,
    key: &ObjectKey,
    version: Option<VersionId>,
    tags: Vec<Tag>,
) -> Result<Option<VersionId>, StoreError> {
    let bucket = state.bucket_mut(bucket)?;
    let id = bucket.find(key.as_str(), version)?.id;
    let versions = bucket.keys.get_mut(key.as_str()).into_iter().flatten();
    for found in versions.filter(|v| v.id == id) {
        if let Some(old) = &found.object {
            let info = ObjectInfo { tags: tags.clone(), ..old.info.clone() };
            found.object = Some(Arc::new(Object { info, body: old.body.clone(), parts: old.parts.clone() }));
        }
    }
    Ok(shown_version(bucket, id))
}
