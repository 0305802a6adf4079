//! Conditions of writes, deletes and copy sources, judged on one version.

use object_controller::api::{DeleteConditions, PutConditions, ReadConditions, StoreError};

use crate::state::Version;

fn etag_is(wanted: &str, version: &Version) -> bool {
    version.object().is_some_and(|o| wanted == "*" || wanted == o.info.etag.to_string())
}

/// Judges a write on the newest version of its key.
pub fn check_put(conditions: &PutConditions, newest: Option<&Version>) -> Result<(), StoreError> {
    let live = newest.filter(|v| v.object().is_some());
    if conditions.must_not_exist && live.is_some() {
        return Err(StoreError::PreconditionFailed("If-None-Match"));
    }
    if let Some(wanted) = &conditions.if_match {
        let marker = newest.filter(|v| v.object().is_none()).map(|v| v.id);
        let live = live.ok_or(StoreError::NoSuchKey { delete_marker: marker })?;
        if !etag_is(wanted, live) {
            return Err(StoreError::PreconditionFailed("If-Match"));
        }
    }
    Ok(())
}

/// Judges a delete on the version it aims at. What is not there cannot fail a condition: deleting it succeeds. A delete marker is
/// there, so `*` holds for it, but it has neither ETag nor size.
pub fn check_delete(conditions: &DeleteConditions, target: Option<&Version>) -> Result<(), StoreError> {
    let Some(target) = target else { return Ok(()) };
    if conditions.if_match.as_ref().is_some_and(|wanted| wanted != "*" && !etag_is(wanted, target)) {
        return Err(StoreError::PreconditionFailed("If-Match"));
    }
    if conditions.if_match_last_modified.is_some_and(|seconds| seconds != target.modified_ms / 1000) {
        return Err(StoreError::PreconditionFailed("x-amz-if-match-last-modified-time"));
    }
    let size = target.object().map(|o| o.info.size);
    if conditions.if_match_size.is_some() && conditions.if_match_size != size {
        return Err(StoreError::PreconditionFailed("x-amz-if-match-size"));
    }
    Ok(())
}

/// Judges a copy on its source; an ETag condition that holds outweighs the date condition beside it.
pub fn check_source(conditions: &ReadConditions, source: &Version) -> Result<(), StoreError> {
    let seconds = source.modified_ms / 1000;
    let any = |etags: &[String]| etags.iter().any(|e| etag_is(e, source));
    match (&conditions.if_match, conditions.if_unmodified_since) {
        (Some(etags), _) if !any(etags) => return Err(StoreError::PreconditionFailed("x-amz-copy-source-if-match")),
        (None, Some(since)) if seconds > since => {
            return Err(StoreError::PreconditionFailed("x-amz-copy-source-if-unmodified-since"));
        }
        _ => {}
    }
    match (&conditions.if_none_match, conditions.if_modified_since) {
        (Some(etags), _) if any(etags) => Err(StoreError::PreconditionFailed("x-amz-copy-source-if-none-match")),
        (None, Some(since)) if seconds <= since => {
            Err(StoreError::PreconditionFailed("x-amz-copy-source-if-modified-since"))
        }
        _ => Ok(()),
    }
}
