//! Strips begin, end, are given up and dissolved, each by one entry that changes all of their groups or none (protocols.md 5, rule R65).
//!
//! What a strip freezes is decided here, at the moment the entry is applied: a frame that died a moment before is not in it. So is, where
//! there is a cluster map, whether the copies that something else is given up for are on disks that are there and on nodes of their own:
//! whoever proposes has looked at the map before.

use super::dead;
use super::group::{FIRST_FRAME_OFFSET, expect, stale};
use crate::apply::Decision;
use crate::apply::draft::{Draft, Work};
use crate::command::{Outcome, Refusal};
use crate::format::key;
use crate::read::{ReadError, root};
use crate::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use crate::strip::{self, NewMember, StripMember, StripPlace, StripRecord, StripState};
use std::collections::BTreeSet;
use types::{DiskId, GroupId, NodeId, StripId};

/// Members that a strip may have; the field of the code has 256 elements.
const MEMBERS_MAX: usize = 32;

/// Whether the group is in a strip that is being encoded: until that ends nothing else may change where its bytes are.
pub(super) fn is_encoding(draft: &Draft<'_>, record: &GroupRecord) -> Result<bool, ReadError> {
    let Some(place) = &record.strip else { return Ok(false) };
    Ok(root::strip(draft, place.strip)?.is_none_or(|strip| strip.state == StripState::Encoding))
}

pub(super) fn begin(work: &mut Work<'_>, strip: StripId, data: &[NewMember], parity: &[(GroupId, DiskId)]) -> Decision {
    let ids: BTreeSet<GroupId> = data.iter().map(|d| d.group).chain(parity.iter().map(|(group, _)| *group)).collect();
    let members = data.len() + parity.len();
    if data.len() < 2 || parity.is_empty() || members > MEMBERS_MAX || ids.len() != members {
        return Err(Refusal::Invalid("a strip has at least two data groups and one of parity".into()).into());
    }
    if root::strip(&work.draft, strip)?.is_some() {
        return Err(Refusal::Stale(None).into());
    }
    let length = data.iter().map(|member| strip::end_of(&member.frames)).max().unwrap_or(0);
    for (place, member) in (0..).zip(data) {
        let record = freeze(work, strip, place, member)?;
        work.draft.put(key::group(member.group), &record);
    }
    for ((group, disk), place) in parity.iter().zip(data.len()..) {
        if let Some(present) = root::group(&work.draft, *group)? {
            return Err(stale(present).into());
        }
        let place = u8::try_from(place).unwrap_or(u8::MAX);
        work.draft.put(key::group(*group), &parity_record(strip, place, *disk, length, work.now_ms));
    }
    let member = |member: &NewMember| StripMember { group: member.group, frames: member.frames.clone() };
    let record = StripRecord {
        state: StripState::Encoding,
        length,
        data: data.iter().map(member).collect(),
        parity: parity.iter().map(|(group, _)| *group).collect(),
        digests: Vec::new(),
    };
    work.draft.put(key::strip(strip), &record);
    Ok(Outcome::Done)
}

/// The data group's record as a member, if it is as expected and the frames are exactly what is not dead in it now.
fn freeze(work: &Work<'_>, strip: StripId, place: u8, member: &NewMember) -> Decision<GroupRecord> {
    let mut record = expect(work, member.group, member.generation)?;
    let whole = record.replicas.iter().all(|replica| replica.state == ReplicaState::Whole);
    if record.state != GroupState::Sealed || !record.settled || !whole || record.strip.is_some() {
        return Err(stale(record).into());
    }
    let alive = strip::without(&[(FIRST_FRAME_OFFSET, record.length.saturating_sub(FIRST_FRAME_OFFSET))], &record.dead);
    let live = strip::united(&member.frames).filter(|live| !live.is_empty() && *live == alive);
    let Some(live) = live else { return Err(stale(record).into()) };
    record.generation += 1;
    record.strip = Some(StripPlace { strip, place, live });
    Ok(record)
}

fn parity_record(strip: StripId, place: u8, disk: DiskId, length: u64, now_ms: u64) -> GroupRecord {
    let frames = strip::parity_frames(length);
    GroupRecord {
        state: GroupState::Sealed,
        generation: 1,
        rf: 1,
        replicas: vec![Replica { disk, file_generation: 1, state: ReplicaState::Whole }],
        length: strip::end_of(&frames),
        writer: (0, 0),
        settled: true,
        account: Some(Vec::new()),
        buckets: Vec::new(),
        dead: Vec::new(),
        sealed_ms: now_ms,
        strip: Some(StripPlace { strip, place, live: strip::united(&frames).unwrap_or_default() }),
    }
}

/// The strip, if it is in that state.
fn expect_strip(work: &Work<'_>, strip: StripId, state: StripState) -> Decision<StripRecord> {
    let found = root::strip(&work.draft, strip)?.filter(|record| record.state == state);
    found.ok_or_else(|| Refusal::Stale(None).into())
}

pub(super) fn end(work: &mut Work<'_>, strip: StripId, kept: &[(u32, DiskId)], digests: &[u32]) -> Decision {
    let mut row = expect_strip(work, strip, StripState::Encoding)?;
    if kept.len() != row.k() || digests.len() != row.k() + row.m() {
        return Err(Refusal::Invalid("one replica for each data group, one digest for each member".into()).into());
    }
    for (member, (generation, disk)) in row.data.iter().zip(kept) {
        let mut record = expect(work, member.group, *generation)?;
        record.replicas.retain(|replica| replica.disk == *disk && replica.state == ReplicaState::Whole);
        if record.replicas.len() != 1 {
            return Err(Refusal::Stale(None).into());
        }
        record.generation += 1;
        work.draft.put(key::group(member.group), &record);
    }
    if !is_spread(work, &row, kept)? {
        return Err(Refusal::Stale(None).into());
    }
    row.state = StripState::Encoded;
    row.digests = digests.to_vec();
    work.draft.put(key::strip(strip), &row);
    Ok(Outcome::Done)
}

/// Whether all members, data on the disks that are kept, are on nodes of their own and on disks that are here.
fn is_spread(work: &Work<'_>, row: &StripRecord, kept: &[(u32, DiskId)]) -> Decision<bool> {
    if root::cluster(&work.draft)?.is_none() {
        return Ok(true);
    }
    let mut disks: Vec<DiskId> = kept.iter().map(|(_, disk)| *disk).collect();
    for group in &row.parity {
        let record = root::group(&work.draft, *group)?;
        disks.extend(record.iter().flat_map(|record| &record.replicas).map(|replica| replica.disk));
    }
    Ok(disks.len() == row.k() + row.m() && nodes_of(work, &disks)?.len() == disks.len())
}

/// The nodes of those of the disks that are neither lost nor removed.
fn nodes_of(work: &Work<'_>, disks: &[DiskId]) -> Decision<BTreeSet<NodeId>> {
    let mut nodes = BTreeSet::new();
    for disk in disks {
        nodes.extend(root::disk(&work.draft, *disk)?.filter(|disk| disk.state.is_here()).map(|disk| disk.node));
    }
    Ok(nodes)
}

pub(super) fn abort(work: &mut Work<'_>, strip: StripId) -> Decision {
    match root::strip(&work.draft, strip)? {
        None => Ok(Outcome::Done),
        Some(row) if row.state == StripState::Encoding => clear(work, strip, &row),
        Some(_) => Err(Refusal::Stale(None).into()),
    }
}

pub(super) fn dissolve(work: &mut Work<'_>, strip: StripId, data: &[(u32, u8)]) -> Decision {
    let row = expect_strip(work, strip, StripState::Encoded)?;
    if data.len() != row.k() {
        return Err(Refusal::Invalid("a generation for each data group".into()).into());
    }
    let has_map = root::cluster(&work.draft)?.is_some();
    for (member, (generation, required)) in row.data.iter().zip(data) {
        let record = expect(work, member.group, *generation)?;
        let whole = record.replicas.iter().filter(|replica| replica.state == ReplicaState::Whole);
        let disks: Vec<DiskId> = whole.map(|replica| replica.disk).collect();
        // Two on one node stand for one.
        let whole = if has_map { nodes_of(work, &disks)?.len() } else { disks.len() };
        let is_dead = dead::covers(&record.dead, FIRST_FRAME_OFFSET, record.length);
        if !is_dead && whole < usize::from((*required).max(1)) {
            return Err(stale(record).into());
        }
    }
    clear(work, strip, &row)
}

/// The data groups leave the strip; its parity groups and the strip itself are gone.
fn clear(work: &mut Work<'_>, strip: StripId, row: &StripRecord) -> Decision {
    for member in &row.data {
        // Its members cannot be dropped, so it is there.
        if let Some(mut record) = root::group(&work.draft, member.group)? {
            record.strip = None;
            record.generation += 1;
            work.draft.put(key::group(member.group), &record);
        }
    }
    for group in &row.parity {
        work.draft.remove(key::group(*group));
    }
    work.draft.remove(key::strip(strip));
    Ok(Outcome::Done)
}
