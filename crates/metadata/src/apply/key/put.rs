//! The two ends of an upload: commit or abandon; the first applied is the outcome.

use super::{Decision, Target};
use crate::apply::conditions::check_put;
use crate::apply::draft::Work;
use crate::apply::version::Newest;
use crate::command::{NewVersion, Outcome, Refusal};
use crate::format::key;
use crate::rows::{BodyId, ContentBytes, DataRef, Home, Run};
use crate::tree::Read;
use types::limits::EXTENT_BYTES;
use types::object::PutConditions;

pub(super) fn put(
    work: &mut Work<'_>,
    target: &Target<'_>,
    newest: Newest,
    object: &NewVersion,
    bytes: &ContentBytes,
    conditions: &PutConditions,
) -> Decision {
    // Before the conditions: what is committed or condemned already must not be condemned by their refusal.
    work.create_content(target.at, object.size, bytes.clone())?;
    check_put(conditions, &newest)?;
    let data = DataRef::Body(work.attempt);
    let outcome = work.insert_version(target.at, target.bucket, newest, object, data)?;
    Ok(Outcome::Put(outcome))
}

/// The content was written and will not be named. Not bound by the bucket's state: the extents are there.
pub(super) fn abandon(work: &mut Work<'_>, at: &Home, runs: &[Run]) -> Decision {
    let body = key::body(at.bucket, &at.key, BodyId::whole(work.attempt));
    if work.draft.get(&body)?.is_some() {
        return Err(Refusal::ContentTaken.into());
    }
    let bytes = ContentBytes::Extents { runs: runs.to_vec(), locations: Vec::new() };
    work.create_condemned(at, runs.iter().map(run_bytes).sum(), &bytes)?;
    Ok(Outcome::Done)
}

fn run_bytes(run: &Run) -> u64 {
    u64::from(run.extents.saturating_sub(1)) * EXTENT_BYTES as u64 + u64::from(run.last_bytes)
}
