//! Objects whose bytes are bad on every replica: named for people (rule R55).

use crate::access::Access;
use crate::contents::references::{self, Extent};
use crate::error::CuratorError;
use crate::ranges;
use metadata::read::{ReadError, content, root};
use metadata::rows::{BodyId, BodyRow, ContentBytes, Home};
use metadata::tree::Read;
use std::collections::BTreeSet;
use types::{ContentId, GroupId};

/// Whether a content that is not condemned names the extent at that place.
pub(crate) async fn is_owned(
    access: &Access,
    group: GroupId,
    offset: u64,
    home: &Home,
    id: ContentId,
) -> Result<bool, CuratorError> {
    let home = home.clone();
    access.read(move |read| owned(read, group, offset, &home, id)).await
}

fn owned(read: &dyn Read, group: GroupId, offset: u64, home: &Home, id: ContentId) -> Result<bool, ReadError> {
    if content::condemned_row(read, home, id)?.is_some() {
        return Ok(false);
    }
    let body = content::body(read, home.bucket, &home.key, BodyId::whole(id))?;
    let Some(BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. }) = body else { return Ok(false) };
    let mut frames = runs.iter().filter(|run| run.group == group).flat_map(ranges::frames);
    Ok(frames.any(|(at, _)| at == offset))
}

/// The owned extents that begin in these ranges of the group, by a walk over all contents.
pub(crate) async fn owned_in(
    access: &Access,
    group: GroupId,
    within: &[(u64, u64)],
) -> Result<Vec<(Home, Extent)>, CuratorError> {
    let (keys, within) = (access.ranges(), within.to_vec());
    access
        .read(move |read| {
            let mut named = references::of_groups(read, &keys, &BTreeSet::from([group]))?;
            let mut extents = named.remove(&group).unwrap_or_default();
            extents.retain(|(_, extent)| !extent.owed && ranges::contains(&within, extent.offset));
            Ok(extents)
        })
        .await
}

/// One line for people.
pub(crate) async fn describe(access: &Access, group: GroupId, offset: u64, home: &Home, index: u32) -> String {
    let bucket = home.bucket;
    let name = match access.read(move |read| root::bucket(read, bucket)).await {
        Ok(Some(info)) => info.name.to_string(),
        _ => bucket.to_string(),
    };
    format!("{name}/{:?} extent {index} in group {group} at {offset}", home.key.as_str())
}
