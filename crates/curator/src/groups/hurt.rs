//! Frames that no replica can give: whether anybody will miss them, and the objects' names for people (rule R55).

use crate::access::Access;
use crate::contents::references::{self, Extent};
use crate::error::CuratorError;
use crate::ranges;
use metadata::read::{ReadError, content, root, shard};
use metadata::rows::{BodyId, BodyRow, ContentBytes, Home};
use metadata::shard::ShardId;
use metadata::tree::Read;
use std::collections::BTreeSet;
use types::{ContentId, GroupId};

/// Who will miss a frame that stands at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A content that is not condemned names it.
    Owned,
    /// Nobody does, and nobody ever will.
    Nobodys,
    /// Its upload may still be committed: that there is no such content yet is no proof (protocols.md 4).
    Undecided,
}

/// The fate of the extent at that place, which says that it is of content `id`, written by `home`.
pub(crate) async fn fate(
    access: &Access,
    group: GroupId,
    offset: u64,
    home: &Home,
    id: ContentId,
) -> Result<Fate, CuratorError> {
    let (home, shard) = (home.clone(), access.controller().metadata().shard_of(home));
    access.read(move |read| judge(read, shard, group, offset, &home, id)).await
}

fn judge(
    read: &dyn Read,
    of: ShardId,
    group: GroupId,
    offset: u64,
    home: &Home,
    id: ContentId,
) -> Result<Fate, ReadError> {
    if content::condemned_row(read, home, id)?.is_some() {
        return Ok(Fate::Nobodys);
    }
    match content::body(read, home.bucket, &home.key, BodyId::whole(id))? {
        Some(BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. }) => {
            let mut frames = runs.iter().filter(|run| run.group == group).flat_map(ranges::frames);
            Ok(if frames.any(|(at, _)| at == offset) { Fate::Owned } else { Fate::Nobodys })
        }
        // Written once, and not in extents.
        Some(_) => Ok(Fate::Nobodys),
        None => {
            let ended = shard::fence(read, of, id.node)? > id.session;
            Ok(if ended { Fate::Nobodys } else { Fate::Undecided })
        }
    }
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
