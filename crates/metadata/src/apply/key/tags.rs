//! Tags of a version: replaced, never merged; the version's time and order stay.

use super::{Decision, Target};
use crate::apply::draft::Work;
use crate::apply::version::shown;
use crate::command::{Outcome, Refusal};
use crate::read::object::{Lookup, lookup};
use types::VersionId;
use types::bucket::Versioning;
use types::object::Tag;

pub(super) fn put_tags(work: &mut Work<'_>, target: &Target<'_>, id: Option<VersionId>, tags: &[Tag]) -> Decision {
    let versioned = target.bucket.versioning != Versioning::Off;
    let mut row = match lookup(&work.draft, target.at.bucket, &target.at.key, id, versioned)? {
        Lookup::Live(row) => row,
        Lookup::NoSuchKey(marker) => return Err(Refusal::NoSuchKey(marker).into()),
        Lookup::NoSuchVersion => return Err(Refusal::NoSuchVersion.into()),
        Lookup::DeleteMarker(id, modified_ms) => return Err(Refusal::IsDeleteMarker(id, modified_ms).into()),
    };
    if let Some(object) = &mut row.object {
        object.tags = tags.to_vec();
    }
    work.rewrite_version(target.at, &row)?;
    Ok(Outcome::Tagged(shown(target.bucket, row.version_id())))
}
