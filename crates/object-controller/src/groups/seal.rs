//! Sealing a group, by its writer or, for groups of an ended session, by the curator (protocols.md 1).
//!
//! Promises: (a) the record goes Open → Sealing, (b) every listed replica is fenced under the new generation and answers with
//! its durable length, (c) the record goes Sealing → Sealed with the largest answer and what each replica holds. A crash
//! anywhere leaves a record from which the same call goes on; nothing is removed. Refuses to know: who owns what is in it.

use crate::api::StoreError;
use crate::limits;
use crate::proposer::{Failed, Proposer};
use env::timers::Timers;
use extent_store::{Depth, ReadError, Scanned};
use futures_util::future::join_all;
use metadata::command::{Outcome, Refusal, RootCommand};
use metadata::rows::{GroupRecord, GroupState, Home, Replica, ReplicaState};
use replicas::{Replica as Disk, Replicas};
use std::collections::BTreeSet;
use types::{BucketId, ContentId, GroupId};

/// What is known of a group's contents when it is sealed.
#[derive(Clone, Debug)]
pub enum Contents {
    /// By its writer.
    Known {
        /// Buckets with bytes in it.
        buckets: Vec<BucketId>,
        /// What it cannot vouch for as committed or condemned, or extents of it that do not count.
        account: Vec<(Home, ContentId)>,
    },
    /// By somebody else: the frames are read for the buckets, and every content must be asked for.
    Unknown,
}

/// Seals; answers the record. `generation` is that of the record as the caller knows it. *Committed*.
pub(crate) async fn seal_group(
    proposer: &Proposer,
    (disks, timers): (&Replicas, &Timers),
    group: GroupId,
    generation: u32,
    contents: Contents,
) -> Result<GroupRecord, StoreError> {
    let record = begin(proposer, group, generation).await?;
    if record.state != GroupState::Sealing {
        return Ok(record);
    }
    let (replicas, length) = fence_all(disks, timers, group, &record).await?;
    let (buckets, account) = match contents {
        Contents::Known { buckets, account } => (buckets, Some(account)),
        Contents::Unknown => (buckets_of(disks, group, &replicas, length).await?, None),
    };
    let generation = record.generation;
    let command = RootCommand::EndSeal { group, generation, length, replicas, buckets, account };
    ended(proposer.root(command).await)
}

/// Step (a). The loser of the compare-and-set reads the record and goes on.
async fn begin(proposer: &Proposer, group: GroupId, generation: u32) -> Result<GroupRecord, StoreError> {
    ended(proposer.root(RootCommand::BeginSeal { group, generation }).await)
}

fn ended(answer: Result<Outcome, Failed>) -> Result<GroupRecord, StoreError> {
    match answer {
        Ok(Outcome::Group(record)) => Ok(*record),
        Err(Failed::Refused(Refusal::Stale(Some(record)))) => Ok(*record),
        Err(Failed::Refused(Refusal::Stale(None))) => Err(StoreError::Internal("the group has no record".into())),
        Ok(other) => Err(StoreError::Internal(format!("an unexpected answer to a seal: {other:?}"))),
        Err(failed) => Err(failed.into()),
    }
}

/// Step (b). At least one must answer. In a cluster nobody is waited for longer than the patience of a fence: whoever answers
/// later is asked again by the curator, and its answer only adds.
async fn fence_all(
    disks: &Replicas,
    timers: &Timers,
    group: GroupId,
    record: &GroupRecord,
) -> Result<(Vec<Replica>, u64), StoreError> {
    let answers = join_all(record.replicas.iter().map(|replica| async move {
        let disk = disks.get(replica.disk)?;
        let fenced = disk.fence(group, record.generation);
        let answer = match disks.is_alone() {
            true => Some(fenced.await),
            false => timers.timeout(limits::FENCE_PATIENCE, fenced).await,
        };
        let why = match answer {
            Some(Ok(length)) => return Some(length),
            Some(Err(error)) => error.to_string(),
            None => "it takes too long".to_owned(),
        };
        tracing::warn!(%group, disk = %replica.disk, why, "a replica did not answer the fence");
        None
    }))
    .await;
    let Some(length) = answers.iter().flatten().max().copied() else {
        return Err(StoreError::Unavailable(format!("no replica of group {group} answered the fence")));
    };
    let judged = record.replicas.iter().zip(answers).map(|(replica, answer)| Replica {
        state: match answer {
            None => ReplicaState::NotAnswered,
            Some(held) if held == length => ReplicaState::Whole,
            Some(held) => ReplicaState::Holds(held),
        },
        ..*replica
    });
    Ok((judged.collect(), length))
}

/// The buckets named by the frames of a longest replica.
async fn buckets_of(
    disks: &Replicas,
    group: GroupId,
    replicas: &[Replica],
    length: u64,
) -> Result<Vec<BucketId>, StoreError> {
    if length <= extent_store::limits::FIRST_FRAME_OFFSET {
        return Ok(Vec::new());
    }
    for replica in replicas.iter().filter(|r| r.state == ReplicaState::Whole) {
        let Some(disk) = disks.get(replica.disk) else { continue };
        match scan_buckets(&disk, group, replica.file_generation).await {
            Ok(buckets) => return Ok(buckets),
            Err(error) => tracing::warn!(%group, disk = %replica.disk, %error, "a replica cannot be scanned"),
        }
    }
    Err(StoreError::Unavailable(format!("no whole replica of group {group} can be scanned")))
}

async fn scan_buckets(disk: &Disk, group: GroupId, generation: u32) -> Result<Vec<BucketId>, ReadError> {
    let mut buckets = BTreeSet::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let page = disk.scan_page(group, generation, Depth::Headers, at).await?;
        buckets.extend(page.items.iter().filter_map(|item| match item {
            Scanned::Frame(header) => Some(header.origin.bucket),
            _ => None,
        }));
        from = page.next;
    }
    Ok(buckets.into_iter().collect())
}
