//! Conditions of writes and deletes, judged on the key's versions as they are when the entry is applied.

use crate::command::{Condition, Refusal};
use crate::rows::VersionRow;
use types::object::{DeleteConditions, PutConditions};

use super::version::Newest;

fn etag_is(wanted: &str, row: &VersionRow) -> bool {
    row.object.as_ref().is_some_and(|o| wanted == "*" || wanted == o.etag.to_string())
}

/// Judges a write on the newest version of its key.
pub(super) fn check_put(conditions: &PutConditions, newest: &Newest) -> Result<(), Refusal> {
    let live = newest.row().filter(|row| row.object.is_some());
    if conditions.must_not_exist && live.is_some() {
        return Err(Refusal::Precondition(Condition::IfNoneMatch));
    }
    let Some(wanted) = &conditions.if_match else { return Ok(()) };
    match live {
        None => Err(Refusal::NoSuchKey(newest.row().map(VersionRow::version_id))),
        Some(row) if etag_is(wanted, row) => Ok(()),
        Some(_) => Err(Refusal::Precondition(Condition::IfMatch)),
    }
}

/// Judges a delete on the version it aims at. What is not there cannot fail a condition: deleting it succeeds. A delete marker
/// is there, so `*` holds for it, but it has neither ETag nor size.
pub(super) fn check_delete(conditions: &DeleteConditions, target: Option<&VersionRow>) -> Result<(), Refusal> {
    let Some(target) = target else { return Ok(()) };
    let failed = |condition| Err(Refusal::Precondition(condition));
    if conditions.if_match.as_ref().is_some_and(|wanted| wanted != "*" && !etag_is(wanted, target)) {
        return failed(Condition::IfMatch);
    }
    if conditions.if_match_last_modified.is_some_and(|seconds| seconds != target.modified_ms / 1000) {
        return failed(Condition::LastModified);
    }
    let size = target.object.as_ref().map(|o| o.size);
    if conditions.if_match_size.is_some() && conditions.if_match_size != size {
        return failed(Condition::Size);
    }
    Ok(())
}
