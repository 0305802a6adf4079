//! Records of extent groups: every change is a compare-and-set on the generation (protocols.md 1; rules R22, R25).

use super::{dead, strip};
use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::{Outcome, Refusal};
use crate::format::key;
use crate::read::root;
use crate::rows::{GroupRecord, GroupState, Home, Replica, ReplicaState};
use types::limits::BLOCK_BYTES;
use types::{BucketId, ContentId, GroupId};

/// Where the first frame may begin: behind the file's header, which is never dead.
pub(super) const FIRST_FRAME_OFFSET: u64 = BLOCK_BYTES as u64;

pub(super) fn stale(record: GroupRecord) -> Refusal {
    Refusal::Stale(Some(Box::new(record)))
}

/// The record, if its generation is the one expected.
pub(super) fn expect(work: &Work<'_>, group: GroupId, generation: u32) -> Decision<GroupRecord> {
    let record = root::group(&work.draft, group)?.ok_or(Refusal::Stale(None))?;
    if record.generation == generation { Ok(record) } else { Err(stale(record).into()) }
}

fn put(work: &mut Work<'_>, group: GroupId, record: GroupRecord) -> Decision {
    work.draft.put(key::group(group), &record);
    Ok(Outcome::Group(Box::new(record)))
}

pub(super) fn create(work: &mut Work<'_>, group: GroupId, record: &GroupRecord) -> Decision {
    match root::group(&work.draft, group)? {
        Some(present) if present == *record => Ok(Outcome::Group(Box::new(present))),
        Some(present) => Err(stale(present).into()),
        None if record.state != GroupState::Open || record.replicas.is_empty() || record.strip.is_some() => {
            Err(Refusal::Invalid("a group is created open, with replicas".into()).into())
        }
        None => put(work, group, record.clone()),
    }
}

pub(super) fn begin_seal(work: &mut Work<'_>, group: GroupId, generation: u32) -> Decision {
    let mut record = expect(work, group, generation)?;
    if record.state != GroupState::Open {
        return Err(stale(record).into());
    }
    record.state = GroupState::Sealing;
    record.generation += 1;
    put(work, group, record)
}

/// What the listed replicas answered to the fence.
pub(super) struct Answers<'a> {
    pub(super) length: u64,
    pub(super) replicas: &'a [Replica],
    pub(super) buckets: &'a [BucketId],
    pub(super) account: &'a Option<Vec<(Home, ContentId)>>,
}

/// The first answers make it sealed; late ones may raise the length until the group is settled, and complete what is known of
/// the replicas. No replica leaves the list and none loses what it is known to hold. A late answer that says something new raises
/// the generation: whoever is about to switch replicas or to settle by what the record said before has to look again.
pub(super) fn end_seal(work: &mut Work<'_>, group: GroupId, generation: u32, answers: &Answers<'_>) -> Decision {
    let mut record = expect(work, group, generation)?;
    let first = record.state == GroupState::Sealing;
    if !first && record.state != GroupState::Sealed {
        return Err(stale(record).into());
    }
    if record.settled && answers.length > record.length {
        return Err(stale(record).into());
    }
    if !answers.replicas.iter().any(|r| holds(r.state, answers.length).is_some()) {
        return Err(Refusal::Invalid("at least one replica must answer".into()).into());
    }
    let before = record.clone();
    let known_length = if first { 0 } else { record.length };
    record.length = known_length.max(answers.length);
    for replica in &mut record.replicas {
        let answer = answers.replicas.iter().find(|a| a.disk == replica.disk);
        let late = answer.and_then(|a| holds(a.state, answers.length));
        let known = if first { None } else { holds(replica.state, known_length) };
        replica.state = state(known.max(late), record.length);
    }
    record.buckets.extend(answers.buckets);
    record.buckets.sort_unstable();
    record.buckets.dedup();
    if first {
        record.state = GroupState::Sealed;
        record.sealed_ms = work.now_ms;
        record.account = answers.account.clone();
    } else if record != before {
        record.generation += 1;
    }
    put(work, group, record)
}

/// Bytes that a replica is known to hold; `None` if it has not answered.
fn holds(state: ReplicaState, length: u64) -> Option<u64> {
    match state {
        ReplicaState::Whole => Some(length),
        ReplicaState::Holds(bytes) => Some(bytes),
        ReplicaState::Open | ReplicaState::NotAnswered => None,
    }
}

fn state(holds: Option<u64>, length: u64) -> ReplicaState {
    match holds {
        None => ReplicaState::NotAnswered,
        Some(bytes) if bytes >= length => ReplicaState::Whole,
        Some(bytes) => ReplicaState::Holds(bytes),
    }
}

pub(super) fn settle(work: &mut Work<'_>, group: GroupId, generation: u32, dead: &[(u64, u64)]) -> Decision {
    let mut record = expect(work, group, generation)?;
    let answered = record.replicas.iter().all(|r| holds(r.state, record.length).is_some());
    if record.state != GroupState::Sealed || !answered {
        return Err(stale(record).into());
    }
    record.settled = true;
    record.dead = dead::merge(&record.dead, dead);
    put(work, group, record)
}

pub(super) fn set_replicas(work: &mut Work<'_>, group: GroupId, generation: u32, replicas: &[Replica]) -> Decision {
    let mut record = expect(work, group, generation)?;
    if record.state != GroupState::Sealed || replicas.is_empty() || strip::is_encoding(&work.draft, &record)? {
        return Err(stale(record).into());
    }
    record.replicas = replicas.to_vec();
    record.generation += 1;
    put(work, group, record)
}

/// Not bound to a generation: what is dead is dead in every one. A group that is gone has nothing left to die.
pub(super) fn add_dead(work: &mut Work<'_>, dead: &[(GroupId, Vec<(u64, u64)>)]) -> Decision {
    for (group, ranges) in dead {
        if let Some(mut record) = root::group(&work.draft, *group)? {
            record.dead = dead::merge(&record.dead, ranges);
            work.draft.put(key::group(*group), &record);
        }
    }
    Ok(Outcome::Done)
}

/// Not bound to a generation: sets only grow, and the seal unites what it knows with what is there. The copy that asks for it has not
/// begun to own anything.
pub(super) fn add_bucket(work: &mut Work<'_>, groups: &[GroupId], bucket: BucketId) -> Decision {
    if root::bucket(&work.draft, bucket)?.is_none() {
        return Err(Refusal::NoSuchBucket.into());
    }
    for group in groups {
        let Some(mut record) = root::group(&work.draft, *group)? else { continue };
        let Err(place) = record.buckets.binary_search(&bucket) else { continue };
        record.buckets.insert(place, bucket);
        if record.state == GroupState::Sealed {
            record.generation += 1;
        }
        work.draft.put(key::group(*group), &record);
    }
    Ok(Outcome::Done)
}

pub(super) fn drop_group(work: &mut Work<'_>, group: GroupId, generation: u32) -> Decision {
    let record = expect(work, group, generation)?;
    let empty = dead::covers(&record.dead, FIRST_FRAME_OFFSET, record.length);
    if record.state != GroupState::Sealed || !record.settled || !empty || record.strip.is_some() {
        return Err(stale(record).into());
    }
    work.draft.remove(key::group(group));
    Ok(Outcome::Done)
}
