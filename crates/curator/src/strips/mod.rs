//! Erasure-coded strips: made of write-cold groups, kept whole, and turned back into replicas (protocols.md 5 and 12, rules R44 to R49).
//!
//! Promises: nothing is done, and next to nothing read, where no policy asks for a code and there is no strip; one strip at a time is
//! encoded, and none while anything is not as it should be; what is done about lost members comes before that. Refuses to know: how bytes
//! are read and computed.

mod choose;
mod digest;
mod dissolve;
mod encode;
pub(crate) mod rebuild;

use crate::access::Access;
use crate::config::{Config, OfCluster};
use crate::error::CuratorError;
use crate::groups::repair::{Repaired, Repairs};
use crate::limits;
use crate::policy;
use crate::ranges::{self, FIRST};
use crate::rounds::RoundReport;
use crate::view::{DiskState, Health, View};
use choose::{Candidate, Target};
use metadata::read::{ReadError, root};
use metadata::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use metadata::strip::{self, StripState};
use metadata::tree::Read;
use object_controller::strips::Members;
use std::collections::BTreeMap;
use std::time::Duration;
use types::bucket::{BucketInfo, Erasure};
use types::{BucketId, DiskId, GroupId, StripId};

/// What is remembered between rounds.
#[derive(Default)]
pub(crate) struct Strips {
    /// When all of them were last looked at.
    looked: Option<Duration>,
    /// Left alone for a while, because something failed.
    until: BTreeMap<StripId, Duration>,
    /// Since when there is no node for a lost member.
    homeless: BTreeMap<StripId, Duration>,
    /// Groups left alone for a while, because a strip of them was not made.
    failed: BTreeMap<GroupId, Duration>,
}

/// What the rows say, at one position.
struct Seen {
    buckets: BTreeMap<BucketId, BucketInfo>,
    strips: Vec<Members>,
    candidates: BTreeMap<(u8, u8), Vec<Candidate>>,
    /// What is not as it should be; nothing is encoded meanwhile.
    hindrance: Option<String>,
}

/// Keeps strips, and makes one more if it is time.
pub(crate) async fn work(
    access: &Access,
    config: &Config,
    strips: &mut Strips,
    repairs: &Repairs,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    let now = access.now();
    if !access.disks().is_clustered() || strips.looked.is_some_and(|at| now < at + limits::STRIPS_EVERY) {
        return Ok(());
    }
    strips.looked = Some(now);
    // As far as this node knows: what it does not know yet it sees the next time.
    let (view, default) = (access.view(), config.erasure);
    let code = default(&view);
    if code.0.is_none() && !access.peek(is_asked_for).await? {
        return Ok(());
    }
    for strip in encode::given_up(access).await? {
        encode::give_up(access, strip, report).await?;
    }
    let (of_view, wall_ms, group_bytes) = (view.clone(), access.wall_ms(), access.controller().group_bytes());
    let mut seen = access.read(move |read| look(read, &of_view, code, wall_ms, group_bytes)).await?;
    // Those with the fewest members left first.
    seen.strips.sort_by_key(|members| (sound(members, &view), members.id));
    strips.until.retain(|_, until| now < *until);
    strips.homeless.retain(|id, _| seen.strips.iter().any(|members| members.id == *id));
    let mut changed = 0;
    for members in seen.strips.iter().filter(|members| !strips.until.contains_key(&members.id)).collect::<Vec<_>>() {
        if changed >= limits::STRIPS_PER_ROUND {
            report.again += 1;
            break;
        }
        match keep(access, strips, members, &seen.buckets, &view, report).await {
            Ok(did) => changed += usize::from(did),
            Err(error) if error.is_local() || matches!(error, CuratorError::Short(_) | CuratorError::Away(_)) => {
                tracing::warn!(strip = %members.id, %error, "a strip waits");
                strips.until.insert(members.id, now + limits::PATIENCE);
                report.postponed += 1;
            }
            Err(error) => return Err(error),
        }
    }
    if changed > 0 {
        // Looked at again at once: one thing at a time.
        strips.looked = None;
        return Ok(());
    }
    if let Some(why) = seen.hindrance.filter(|_| !seen.candidates.is_empty()) {
        tracing::debug!(why, "nothing is encoded for now");
        return Ok(());
    }
    strips.failed.retain(|_, until| now < *until);
    for candidates in seen.candidates.values_mut() {
        candidates.retain(|candidate| !strips.failed.contains_key(&candidate.group));
    }
    if repairs.len() == 0 && encode_one(access, config, strips, &seen.candidates, &view, report).await? {
        strips.looked = None;
    }
    Ok(())
}

/// Encodes the first strip that can be made.
async fn encode_one(
    access: &Access,
    config: &Config,
    strips: &mut Strips,
    candidates: &BTreeMap<(u8, u8), Vec<Candidate>>,
    view: &View,
    report: &mut RoundReport,
) -> Result<bool, CuratorError> {
    let target = |(disk, of): (&DiskId, &crate::view::DiskView)| Target {
        disk: *disk,
        node: of.node,
        rack: of.rack.clone(),
        used_percent: of.used_percent(),
    };
    let room = view.disks.iter().filter(|(_, of)| of.takes_copies() && of.used_percent() < limits::ENCODE_PERCENT);
    let targets: Vec<Target> = room.map(target).collect();
    for ((k, m), of_code) in candidates {
        let Some(chosen) = choose::choose(of_code.clone(), &targets, (usize::from(*k), usize::from(*m))) else {
            continue;
        };
        let disks: Vec<DiskId> =
            chosen.data.iter().map(|member| member.disk).chain(chosen.parity.iter().copied()).collect();
        let may_end = || {
            let now = access.view();
            disks.iter().all(|disk| now.disk(*disk).is_some_and(crate::view::DiskView::takes_copies))
        };
        let judged = encode::Judged { code: (*k, *m), of_cluster: (config.erasure)(&access.view()), may_end };
        let done = encode::encode(access, &chosen, judged, report).await;
        if done.is_err() {
            let until = access.now() + limits::PATIENCE;
            strips.failed.extend(chosen.data.iter().map(|member| (member.group, until)));
        }
        return match done {
            Ok(_) => Ok(true),
            Err(encode::NotEncoded::Curator(error)) if !error.is_local() => Err(error),
            // Looked at again when it is due.
            Err(error) => {
                tracing::debug!(%error, "nothing was encoded");
                Ok(false)
            }
        };
    }
    Ok(false)
}

/// Whether a bucket asks for a code, or there is a strip.
fn is_asked_for(read: &dyn Read) -> Result<bool, ReadError> {
    if let Some(row) = root::strips(read).next() {
        return row.map(|_| true);
    }
    for info in root::buckets(read) {
        if matches!(info?.durability.erasure, Erasure::Code { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn look(read: &dyn Read, view: &View, default: OfCluster, wall_ms: u64, group_bytes: u64) -> Result<Seen, ReadError> {
    let buckets: BTreeMap<_, _> =
        root::buckets(read).map(|row| row.map(|info| (info.id, info))).collect::<Result<_, _>>()?;
    let ids: Vec<StripId> = root::strips(read).map(|row| row.map(|(id, _)| id)).collect::<Result<_, _>>()?;
    let mut seen = Seen { buckets, strips: Vec::new(), candidates: BTreeMap::new(), hindrance: None };
    for id in ids {
        seen.strips.extend(Members::read(read, id)?.filter(|members| members.strip.state == StripState::Encoded));
    }
    if let Some((disk, _)) = view.disks.iter().find(|(_, of)| of.state == DiskState::Active && of.health != Health::Up)
    {
        seen.hindrance = Some(format!("disk {disk} does not answer"));
    }
    for row in root::groups(read) {
        let (group, record) = row?;
        if record.state != GroupState::Sealed || record.strip.is_some() {
            continue;
        }
        let required = policy::required_rf(&seen.buckets, &record, view.default_rf);
        let copies: Vec<_> = record.replicas.iter().filter_map(|replica| in_service(view, replica)).collect();
        let is_dead = ranges::rest(FIRST, record.length, &record.dead).is_empty();
        if !is_dead && copies.len() < usize::from(required) {
            seen.hindrance.get_or_insert_with(|| format!("group {group} has too few replicas"));
        }
        let Some((k, m)) = due(&seen.buckets, &record, default, wall_ms) else { continue };
        let live = strip::without(&[(FIRST, record.length.saturating_sub(FIRST))], &record.dead);
        let whole = record.settled && copies.len() == record.replicas.len() && copies.len() >= usize::from(required);
        // A group that is less than half full would cost more parity than it saves.
        if whole && ranges::bytes(&live) >= group_bytes / 2 {
            let (generation, length) = (record.generation, strip::end_of(&live));
            let candidate = Candidate { group, generation, length, copies };
            seen.candidates.entry((k, m)).or_default().push(candidate);
        }
    }
    Ok(seen)
}

/// The code by which the group is to be encoded, if it is time.
fn due(
    buckets: &BTreeMap<BucketId, BucketInfo>,
    record: &GroupRecord,
    default: OfCluster,
    wall_ms: u64,
) -> Option<(u8, u8)> {
    let (k, m, after_ms) = policy::erasure_of(buckets, record, default)?;
    let is_cold = record.sealed_ms.saturating_add(after_ms) <= wall_ms;
    (is_cold && is_enough(buckets, record, m)).then_some((k, m))
}

/// Whether so much parity stands for the replicas that the group's buckets set, where they leave the code to the cluster. A bucket that
/// asks for a code knows what it gets.
fn is_enough(buckets: &BTreeMap<BucketId, BucketInfo>, record: &GroupRecord, m: u8) -> bool {
    let owners = record.buckets.iter().filter_map(|bucket| buckets.get(bucket));
    let by_cluster = owners.map(|bucket| bucket.durability).filter(|of| of.erasure == Erasure::ByCluster);
    by_cluster.filter_map(|of| of.rf).all(|rf| rf <= m.saturating_add(1))
}

/// A whole replica on a disk that is in service, and its node.
fn in_service(view: &View, replica: &Replica) -> Option<(DiskId, types::NodeId)> {
    let of = view.disk(replica.disk).filter(|of| of.health == Health::Up && of.state == DiskState::Active)?;
    (replica.state == ReplicaState::Whole).then_some((replica.disk, of.node))
}

/// Members with a replica that can be read, as far as the view knows.
fn sound(members: &Members, view: &View) -> usize {
    members.groups.iter().filter(|record| !is_lost(record, view)).count()
}

/// No replica can be read, and none is expected back.
fn is_lost(record: &GroupRecord, view: &View) -> bool {
    record.replicas.iter().all(|replica| is_gone(replica, view))
}

fn is_gone(replica: &Replica, view: &View) -> bool {
    view.disks.get(&replica.disk).is_some_and(|of| !of.is_readable() && !of.awaited)
}

/// A member without a copy on a node that no other member needs.
pub(crate) fn unplaced(members: &Members, view: &View) -> Option<usize> {
    let placed = |(place, record): (u32, &GroupRecord)| {
        let there = record.replicas.iter().filter(|replica| !is_gone(replica, view));
        // Of a disk that is not known nothing may be concluded: it has a node of its own.
        let node = |replica: &Replica| view.disks.get(&replica.disk).map_or(u32::MAX - place, |of| of.node);
        let copies = there.map(|replica| (replica.disk, node(replica))).collect();
        Candidate { group: GroupId(place.into()), generation: 0, length: 0, copies }
    };
    choose::first_unplaced(&(0..).zip(&members.groups).map(placed).collect::<Vec<_>>())
}

/// The disk of the replica that is to be replaced.
fn worst(record: &GroupRecord, view: &View) -> Option<DiskId> {
    let gone = record.replicas.iter().find(|replica| is_gone(replica, view));
    gone.or(record.replicas.first()).map(|replica| replica.disk)
}

/// The disk of a member that is to be moved: it leaves the cluster.
fn leaving(record: &GroupRecord, view: &View) -> Option<DiskId> {
    let leaves = |replica: &&Replica| view.disk(replica.disk).is_some_and(|of| of.state == DiskState::Draining);
    record.replicas.iter().find(leaves).map(|replica| replica.disk)
}

/// Does what is first to be done about a strip; whether there was anything.
async fn keep(
    access: &Access,
    strips: &mut Strips,
    members: &Members,
    buckets: &BTreeMap<BucketId, BucketInfo>,
    view: &View,
    report: &mut RoundReport,
) -> Result<bool, CuratorError> {
    let now = access.now();
    if is_unwanted(members, buckets) || is_mostly_dead(members) {
        return dissolve::dissolve(access, members, buckets, view, report).await;
    }
    let gone = unplaced(members, view);
    let leaves = || members.groups.iter().enumerate().find_map(|(place, record)| Some((place, leaving(record, view)?)));
    let to_make = gone.map(|place| (place, worst(&members.groups[place], view)));
    if let Some((place, old)) = to_make.or_else(|| leaves().map(|(place, disk)| (place, Some(disk)))) {
        match rebuild::replace(access, members, place, old, report).await? {
            Repaired::Sound | Repaired::Replaced(_) => {
                strips.homeless.remove(&members.id);
                return Ok(true);
            }
            Repaired::Waits(why) => {
                tracing::warn!(strip = %members.id, place, why, "a member of a strip is not made anew");
                strips.until.insert(members.id, now + limits::PATIENCE);
                let since = *strips.homeless.entry(members.id).or_insert(now);
                if now < since + limits::HOMELESS || gone.is_none() {
                    return Ok(false);
                }
                strips.until.remove(&members.id);
            }
            Repaired::Hurt(lines) => {
                tracing::error!(strip = %members.id, place, first = ?lines.first(), "extents are bad on all members of a strip");
                for line in lines.into_iter().take(limits::NAMED) {
                    report.alarms.push(format!("bad in every member of its strip: {line}"));
                }
                strips.until.insert(members.id, now + limits::PATIENCE);
                return Ok(false);
            }
        }
        return dissolve::dissolve(access, members, buckets, view, report).await;
    }
    strips.homeless.remove(&members.id);
    Ok(false)
}

/// A bucket with bytes in it does not want this code (any more). That the cluster would not encode by itself is no reason.
fn is_unwanted(members: &Members, buckets: &BTreeMap<BucketId, BucketInfo>) -> bool {
    let (k, m) = (members.strip.k() as u8, members.strip.m() as u8);
    members.groups.iter().take(members.strip.k()).any(|record| {
        let owned = record.buckets.iter().any(|bucket| buckets.contains_key(bucket));
        let code = policy::erasure_of(buckets, record, (Some((k, m)), 0));
        owned && (code.map(|(k, m, _)| (k, m)) != Some((k, m)) || !is_enough(buckets, record, m))
    })
}

/// Less than half of what was frozen lives.
fn is_mostly_dead(members: &Members) -> bool {
    let (mut frozen, mut live) = (0, 0);
    for (member, record) in members.strip.data.iter().zip(&members.groups) {
        frozen += ranges::bytes(&member.frames);
        live += ranges::bytes(&strip::without(&member.frames, &record.dead));
    }
    live < frozen / 2
}
