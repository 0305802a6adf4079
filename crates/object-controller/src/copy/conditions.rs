//! The conditions of a copy on its source, judged on the very version that is copied.

use crate::api::{ReadConditions, StoreError};
use types::ETag;

/// Judges. A condition on the ETag that holds outweighs the one on the date beside it; a failure is always a failed
/// precondition, also where GET would answer "not modified".
pub(crate) fn check_source(conditions: &ReadConditions, etag: ETag, modified_ms: u64) -> Result<(), StoreError> {
    let text = etag.to_string();
    let any = |etags: &[String]| etags.iter().any(|e| e == "*" || *e == text);
    let seconds = modified_ms / 1000;
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
