//! DeleteObject: a version goes, or a marker comes.

use super::{Decision, Target};
use crate::apply::conditions::check_delete;
use crate::apply::draft::Work;
use crate::apply::version::Newest;
use crate::command::Outcome;
use crate::read::object;
use types::VersionId;
use types::bucket::Versioning;
use types::object::DeleteConditions;

pub(super) fn delete(
    work: &mut Work<'_>,
    target: &Target<'_>,
    newest: Newest,
    version: Option<VersionId>,
    conditions: &DeleteConditions,
) -> Decision {
    match version {
        Some(id) => delete_version(work, target, id, conditions),
        None => {
            check_delete(conditions, newest.row())?;
            delete_newest(work, target, newest)
        }
    }
}

fn delete_newest(work: &mut Work<'_>, target: &Target<'_>, newest: Newest) -> Decision {
    if target.bucket.versioning != Versioning::Off {
        let version = work.insert_marker(target.at, target.bucket, newest)?;
        return Ok(Outcome::Deleted { version: Some(version), delete_marker: true });
    }
    if let Newest::Live(row) = newest {
        work.remove_only_version(target.at, &row)?;
    }
    Ok(Outcome::Deleted { version: None, delete_marker: false })
}

/// Deleting what is not there succeeds.
fn delete_version(work: &mut Work<'_>, target: &Target<'_>, id: VersionId, conditions: &DeleteConditions) -> Decision {
    let found = object::version(&work.draft, target.at.bucket, &target.at.key, id)?;
    check_delete(conditions, found.as_ref())?;
    let Some(row) = found else { return Ok(Outcome::Deleted { version: Some(id), delete_marker: false }) };
    work.remove_version(target.at, &row)?;
    Ok(Outcome::Deleted { version: Some(id), delete_marker: row.object.is_none() })
}
