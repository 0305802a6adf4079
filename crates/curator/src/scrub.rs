//! Every extent that a content owns is read from every replica, around the page cache, and compared with what the metadata
//! names (rule R66): content, place, length, checksums. What is bad is repaired at once.
//!
//! Promises: bounded memory and pace; the turn is given back between groups, so nothing waits for a whole pass. A frame that died
//! meanwhile is no damage: the record is read again. In a cluster each node scrubs its own disks. Refuses to know: how a repair is
//! done.

use crate::access::Access;
use crate::contents::references::{self, Extent, Page};
use crate::error::CuratorError;
use crate::groups::repair::Repairs;
use crate::limits;
use crate::ranges;
use env::disk::is_transient;
use extent_store::{FrameAddress, ReadError};
use metadata::read::{ReadError as RowError, root};
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use metadata::shard::KeyRange;
use metadata::strip::{Frames, StripState};
use metadata::tree::Read;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use types::GroupId;

/// What a full pass found and did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScrubReport {
    /// No damage is left.
    pub ok: bool,
    /// Groups with owned extents.
    pub groups: u64,
    /// Frames verified, all replicas together.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that were bad or missing on a replica.
    pub damaged: u64,
    /// Replicas replaced by sound copies.
    pub repaired: u64,
    /// Groups whose repair waits for something.
    pub waiting: u64,
    /// Extents that are bad on every replica; the first hundred of them by name in `hurt`.
    pub hurt_extents: u64,
    /// Bucket, key and place of hurt extents.
    pub hurt: Vec<String>,
}

/// A pass over all groups, a piece at a time.
#[derive(Default)]
pub(crate) struct Pass {
    page: BTreeMap<GroupId, Vec<Extent>>,
    next: Option<GroupId>,
}

/// What verifying one group gave.
#[derive(Clone, Copy, Default)]
pub(crate) struct Verified {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) damaged: u64,
}

impl Pass {
    /// From the first group on.
    pub(crate) fn new() -> Pass {
        Pass { page: BTreeMap::new(), next: Some(GroupId(0)) }
    }

    /// The next group with its extents; `None` at the end.
    pub(crate) async fn next(&mut self, access: &Access) -> Result<Option<(GroupId, Vec<Extent>)>, CuratorError> {
        loop {
            if let Some(group) = self.page.pop_first() {
                return Ok(Some(group));
            }
            let Some(from) = self.next else { return Ok(None) };
            let keys = access.ranges();
            let page = access.read(move |read| page(read, &keys, from)).await?;
            (self.page, self.next) = (page.groups, page.next);
        }
    }
}

/// Groups with owned extents, and those of strips, which others are computed from.
fn page(read: &dyn Read, keys: &[KeyRange], from: GroupId) -> Result<Page, RowError> {
    let mut page = references::page(read, keys, from, limits::REFERENCES)?;
    for row in root::strips(read) {
        let (_, strip) = row?;
        for group in strip.groups().filter(|group| *group >= from && page.next.is_none_or(|next| *group < next)) {
            page.groups.entry(group).or_default();
        }
    }
    Ok(page)
}

/// Bytes a full pass reads at most.
pub(crate) async fn total_bytes(access: &Access) -> Result<u64, CuratorError> {
    access
        .read(|read| {
            let mut total = 0;
            for row in root::groups(read) {
                let (_, record) = row?;
                let dead = ranges::bytes(&ranges::clamp(&record.dead, 0, record.length));
                total += record.length.saturating_sub(dead) * record.replicas.len() as u64;
            }
            Ok(total)
        })
        .await
}

/// Verifies what contents own of one group on every replica; what is bad goes to `repairs`.
pub(crate) async fn verify(
    access: &Access,
    group: GroupId,
    extents: &[Extent],
    repairs: &mut Repairs,
) -> Result<Verified, CuratorError> {
    let mut verified = Verified::default();
    let Some(record) = access.group(group).await? else {
        // Dropped meanwhile; if not, it is the audit that proves it.
        return Ok(verified);
    };
    let clustered = access.disks().is_clustered();
    let owned: BTreeSet<u64> = extents.iter().filter(|extent| !extent.owed).map(|extent| extent.offset).collect();
    let mut frozen = frozen(access, group, &record).await?;
    frozen.retain(|(offset, _)| !owned.contains(offset));
    for replica in record.replicas.iter().filter(|r| !clustered || access.disks().here(r.disk).is_some()) {
        for extent in extents.iter().filter(|extent| !extent.owed && should_hold(&record, replica, extent)) {
            verified.frames += 1;
            verified.bytes += extent.range().1;
            if is_bad(access, group, replica, extent).await? {
                verified.damaged += 1;
                repairs.add(group, replica.disk);
            }
        }
        for (offset, bytes) in &frozen {
            verified.frames += 1;
            verified.bytes += bytes;
            if is_frozen_bad(access, group, &record, replica, (*offset, *bytes)).await? {
                verified.damaged += 1;
                repairs.add(group, replica.disk);
            }
        }
    }
    Ok(verified)
}

/// What the group's strip needs of it: all that was frozen, whoever owns it.
async fn frozen(access: &Access, group: GroupId, record: &GroupRecord) -> Result<Frames, CuratorError> {
    let Some(of) = &record.strip else { return Ok(Frames::new()) };
    let (id, place) = (of.strip, usize::from(of.place));
    let strip = access.read(move |read| root::strip(read, id)).await?;
    let strip = strip.filter(|strip| strip.state == StripState::Encoded && strip.group(place) == Some(group));
    Ok(strip.map_or_else(Frames::new, |strip| strip.frames(place)))
}

/// A frame that nobody may own, but that others are computed with.
async fn is_frozen_bad(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    replica: &Replica,
    (offset, bytes): (u64, u64),
) -> Result<bool, CuratorError> {
    let address = FrameAddress { group, generation: replica.file_generation, offset };
    let error = match access.disks().here(replica.disk) {
        None => "the disk is not here".to_owned(),
        Some(disk) => match disk.read_frame(address).await {
            Ok(frame) if frame.bytes().len() as u64 == bytes => return Ok(false),
            Ok(_) => "another frame stands there".to_owned(),
            Err(ReadError::Io(error)) if is_transient(&error) => return Ok(false),
            Err(error) => error.to_string(),
        },
    };
    let now = access.group(group).await?;
    let listed = now.is_some_and(|now| {
        let same = now.replicas.iter().any(|r| r.disk == replica.disk && r.file_generation == replica.file_generation);
        same && now.strip == record.strip
    });
    if listed {
        tracing::warn!(%group, disk = %replica.disk, offset, error, "scrub found a bad frame of a strip");
    }
    Ok(listed)
}

fn should_hold(record: &GroupRecord, replica: &Replica, extent: &Extent) -> bool {
    let holds = match replica.state {
        ReplicaState::Whole | ReplicaState::Open => true,
        ReplicaState::Holds(bytes) => extent.offset < bytes,
        // It has not answered: the seal asks again.
        ReplicaState::NotAnswered => false,
    };
    holds && !ranges::contains(&record.dead, extent.offset)
}

async fn is_bad(access: &Access, group: GroupId, replica: &Replica, extent: &Extent) -> Result<bool, CuratorError> {
    let address = FrameAddress { group, generation: replica.file_generation, offset: extent.offset };
    let error = match access.disks().here(replica.disk) {
        None => "the disk is not here".to_owned(),
        Some(disk) => match disk.verify_frame(address, extent.content, extent.index, extent.payload_bytes).await {
            Ok(_) => return Ok(false),
            // Says nothing of the frame; the next pass asks again.
            Err(ReadError::Io(error)) if is_transient(&error) => return Ok(false),
            Err(error) => error.to_string(),
        },
    };
    // Dead, dropped or moved since it was collected?
    let now = access.group(group).await?;
    let listed = now.is_some_and(|now| {
        let same = now.replicas.iter().any(|r| r.disk == replica.disk && r.file_generation == replica.file_generation);
        same && !ranges::contains(&now.dead, extent.offset)
    });
    if listed {
        tracing::warn!(%group, disk = %replica.disk, offset = extent.offset, error, "scrub found a bad frame");
    }
    Ok(listed)
}
