//! Each sealed group is settled once: from then on every extent of it is owned, condemned or dead (protocols.md 4).
//!
//! Promises: a frame is called dead only if the content it names was looked up, at a position that follows the seal and the
//! fence of the session that wrote it, and does not have it. Where headers alone do not explain what is in the file, all
//! contents are asked which of it they name. What cannot be read postpones the group (rule R30). More dead than crashes explain
//! stops all settling until the next start (rule R34). Refuses to know: why uploads died.

use super::Patience;
use super::frames::{self, File, Found};
use crate::access::Access;
use crate::config::Config;
use crate::contents::references;
use crate::error::CuratorError;
use crate::limits;
use crate::ranges::{self, FIRST, Ranges};
use crate::rounds::RoundReport;
use metadata::command::{Outcome, RootCommand};
use metadata::read::{ReadError, content, root, shard};
use metadata::rows::{BodyId, BodyRow, ContentBytes, GroupRecord, GroupState, Home, Replica, ReplicaState};
use metadata::shard::ShardId;
use metadata::tree::Read;
use std::collections::{BTreeMap, BTreeSet};
use types::{ContentId, GroupId};

/// Stops settling when more is found without an owner than crashes explain.
#[derive(Default)]
pub(crate) struct Breaker {
    unexplained_bytes: u64,
    pub(crate) tripped: Option<String>,
}

/// What became of one group.
pub(crate) enum Step {
    /// Settled.
    Settled,
    /// The record changed or the length was raised: the next round goes on.
    Again,
    /// It cannot be judged now.
    Postponed(String),
}

pub(crate) async fn settle(
    access: &Access,
    config: &Config,
    breaker: &mut Breaker,
    patience: &mut Patience,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    if breaker.tripped.is_some() {
        return Ok(());
    }
    let shards: Vec<_> = access.shards().iter().map(|shard| shard.id).collect();
    let (due, stored) = access.read(move |read| due(read, &shards)).await?;
    let allowed = config.unexplained_floor_bytes.max(stored / 100 * limits::UNEXPLAINED_PERCENT);
    let now = access.now();
    let due = due.into_iter().filter(|(group, _)| !patience.waits(*group, now)).take(limits::GROUPS_PER_ROUND);
    for (group, record) in due.collect::<Vec<_>>() {
        match settle_one(access, group, &record, breaker, allowed, report).await {
            Ok(Step::Settled) => report.settled += 1,
            Ok(Step::Again) => report.again += 1,
            Ok(Step::Postponed(why)) => {
                tracing::warn!(%group, why, "a sealed group is not settled yet");
                patience.postpone(group, now);
                report.postponed += 1;
            }
            Err(error) if error.is_local() => report.again += 1,
            Err(error) => return Err(error),
        }
        if let Some(why) = &breaker.tripped {
            report.alarms.push(why.clone());
            break;
        }
    }
    Ok(())
}

/// Groups that may be judged, and the bytes of all sealed ones.
fn due(read: &dyn Read, shards: &[ShardId]) -> Result<(Vec<(GroupId, GroupRecord)>, u64), ReadError> {
    let (mut due, mut stored) = (Vec::new(), 0);
    for row in root::groups(read) {
        let (group, record) = row?;
        stored += record.length;
        if may_be_judged(read, shards, &record)? {
            due.push((group, record));
        }
    }
    Ok((due, stored))
}

/// Sealed, every replica has answered, and nothing can arrive any more that would own what is in it.
fn may_be_judged(read: &dyn Read, shards: &[ShardId], record: &GroupRecord) -> Result<bool, ReadError> {
    let answered = |r: &Replica| matches!(r.state, ReplicaState::Whole | ReplicaState::Holds(_));
    if record.state != GroupState::Sealed || record.settled || !record.replicas.iter().all(answered) {
        return Ok(false);
    }
    if is_vouched(record) {
        return Ok(true);
    }
    let (node, session) = record.writer;
    if root::session(read, node)? <= session {
        return Ok(false);
    }
    for id in shards {
        if shard::fence(read, *id, node)? <= session {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Its own writer sealed it and every content in it was committed or condemned then.
fn is_vouched(record: &GroupRecord) -> bool {
    record.account.as_ref().is_some_and(Vec::is_empty)
}

async fn settle_one(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    breaker: &mut Breaker,
    allowed: u64,
    report: &mut RoundReport,
) -> Result<Step, CuratorError> {
    let found = frames::look(access, group, record).await;
    if let Some(why) = unjudgeable(record, &found) {
        return Ok(Step::Postponed(why));
    }
    // Looked up after the files were read, and long after the fence: what is absent stays absent.
    let (asked, expected) = (found.clone(), record.clone());
    let mut live = access.read(move |read| owned(read, group, &asked, &expected)).await?;
    if is_unexplained(record, &found, &live) {
        let (keys, groups) = (access.ranges(), BTreeSet::from([group]));
        let named = access.read(move |read| references::of_groups(read, &keys, &groups)).await?;
        let named = named.into_values().flatten().map(|(_, extent)| extent.range());
        live = ranges::merge(live.into_iter().chain(named));
        if found.files.iter().all(|file| *file == File::Missing) && !live.is_empty() {
            return Ok(Step::Postponed("contents name extents in it, and no replica has a file".into()));
        }
    }
    let live_end = live.last().map_or(0, |(offset, length)| offset + length);
    if live_end > record.length {
        return raise(access, group, record, &found, live_end).await;
    }
    let dead = dead_of(record, &found, &live);
    let unexplained = ranges::bytes(&ranges::subtract(&dead, &record.dead));
    if !is_vouched(record) {
        if breaker.unexplained_bytes + unexplained > allowed {
            let why = format!(
                "settling stopped: {} bytes without an owner, more than the {allowed} that crashes explain",
                breaker.unexplained_bytes + unexplained
            );
            tracing::error!(%group, why);
            breaker.tripped = Some(why);
            return Ok(Step::Postponed("stopped".into()));
        }
        breaker.unexplained_bytes += ranges::bytes(&ranges::clamp(&dead, FIRST, record.length));
    }
    report.found_dead_bytes += unexplained;
    access.root(RootCommand::Settle { group, generation: record.generation, dead }).await?;
    if !is_vouched(record) {
        give_back_reservation(access, group, record, &found).await;
    }
    Ok(Step::Settled)
}

/// Why the group's files do not allow a judgement, if they do not.
fn unjudgeable(record: &GroupRecord, found: &Found) -> Option<String> {
    let walked = |file: &File| matches!(file, File::Walked { .. });
    let whole = record.replicas.iter().zip(&found.files).filter(|(r, _)| r.state == ReplicaState::Whole);
    let bad = found.files.iter().find_map(|file| match file {
        File::Unreadable(why) => Some(why.clone()),
        File::NoDisk => Some("a disk is not here".to_owned()),
        File::Away(why) => Some(why.clone()),
        File::Short => Some("too few file descriptors".to_owned()),
        File::Walked { .. } | File::Missing => None,
    });
    if record.length > FIRST && !whole.clone().any(|(_, file)| walked(file)) {
        return Some(bad.unwrap_or_else(|| "no whole replica has its file".into()));
    }
    bad.filter(|_| !whole.clone().any(|(_, file)| walked(file)))
}

/// Which of the frames that stand there a content names, by looking up the contents they name. Condemned ones count: they die by
/// being reclaimed.
fn owned(read: &dyn Read, group: GroupId, found: &Found, expected: &GroupRecord) -> Result<Ranges, ReadError> {
    if root::group(read, group)?.is_none_or(|now| now.generation != expected.generation) {
        // Somebody else changed it: the entry would be refused. Everything counts as owned.
        return Ok(found.ranges());
    }
    let mut known: BTreeMap<(&Home, ContentId), BTreeSet<(u64, u32)>> = BTreeMap::new();
    let mut live = Vec::new();
    for ((offset, ..), frame) in &found.frames {
        let key = (&frame.home, frame.content);
        if let std::collections::btree_map::Entry::Vacant(entry) = known.entry(key) {
            entry.insert(named(read, group, &frame.home, frame.content)?);
        }
        if known.get(&key).is_some_and(|named| named.contains(&(*offset, frame.payload_bytes))) {
            live.push((*offset, frame.frame_bytes));
        }
    }
    Ok(ranges::merge(live))
}

/// The extents of a content in that group.
fn named(read: &dyn Read, group: GroupId, home: &Home, id: ContentId) -> Result<BTreeSet<(u64, u32)>, ReadError> {
    let body = content::body(read, home.bucket, &home.key, BodyId::whole(id))?;
    let Some(BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. }) = body else {
        return Ok(BTreeSet::new());
    };
    Ok(runs.iter().filter(|run| run.group == group).flat_map(ranges::frames).collect())
}

/// Whether something may be (or have been) there that no sound header speaks for.
fn is_unexplained(record: &GroupRecord, found: &Found, live: &Ranges) -> bool {
    let live_end = live.last().map_or(0, |(offset, length)| offset + length);
    let explained = ranges::merge(found.ranges().into_iter().chain(record.dead.iter().copied()));
    let gap = !ranges::rest(FIRST, record.length.max(live_end), &explained).is_empty();
    let damaged = found.files.iter().any(|file| match file {
        File::Walked { damaged, .. } => !ranges::subtract(damaged, &explained).is_empty(),
        _ => false,
    });
    gap || damaged || found.files.iter().all(|file| *file == File::Missing)
}

/// Everything below the length that nobody names, and what stands beyond it.
fn dead_of(record: &GroupRecord, found: &Found, live: &Ranges) -> Ranges {
    let mut dead = ranges::rest(FIRST, record.length, live);
    let debris = found.files.iter().flat_map(|file| match file {
        File::Walked { damaged, .. } => damaged.clone(),
        _ => Vec::new(),
    });
    let beyond: Ranges = ranges::merge(found.ranges().into_iter().chain(debris));
    dead.extend(ranges::clamp(&beyond, record.length.max(FIRST), u64::MAX));
    ranges::merge(dead)
}

/// A content names extents beyond the length: damage before them made the fence answer too little. They were acknowledged, so
/// the length is raised as by a late answer (protocols.md 1); scrub finds the damage.
pub(crate) async fn raise(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    found: &Found,
    length: u64,
) -> Result<Step, CuratorError> {
    tracing::error!(%group, sealed = record.length, length, "acknowledged extents lie beyond the sealed length");
    let reaching = |place: usize| {
        found.frames.iter().any(|((offset, ..), f)| offset + f.frame_bytes == length && f.on.contains(&place))
    };
    let mut replicas: Vec<Replica> =
        record.replicas.iter().enumerate().filter(|(p, _)| reaching(*p)).map(|(_, r)| *r).collect();
    if replicas.is_empty() {
        let there = record.replicas.iter().zip(&found.files).filter(|(_, f)| matches!(f, File::Walked { .. }));
        replicas = there.map(|(r, _)| *r).collect();
    }
    for replica in &mut replicas {
        replica.state = ReplicaState::Whole;
    }
    let (buckets, account) = (Vec::new(), record.account.clone());
    let command = RootCommand::EndSeal { group, generation: record.generation, length, replicas, buckets, account };
    match access.root(command).await? {
        Outcome::Group(_) => Ok(Step::Again),
        other => Err(CuratorError::unexpected(&other)),
    }
}

/// What a killed writer had reserved behind its tail. Only a hint: a crash right here leaves it allocated until the group goes.
async fn give_back_reservation(access: &Access, group: GroupId, record: &GroupRecord, found: &Found) {
    for (replica, file) in record.replicas.iter().zip(&found.files) {
        let (Some(disk), File::Walked { holes, .. }) = (access.disks().get(replica.disk), file) else { continue };
        let reserved = ranges::clamp(holes, record.length.max(FIRST), u64::MAX);
        if reserved.is_empty() {
            continue;
        }
        if let Err(error) = disk.punch(group, replica.file_generation, &reserved).await {
            tracing::debug!(%group, disk = %replica.disk, %error, "a reservation was not given back");
        }
    }
}
