//! Groups of ended sessions are sealed, and open ones that lost a replica; replicas that did not answer are asked again; those that
//! hold less are to be repaired. The sessions of removed nodes are fenced.
//!
//! Promises: nothing stays open after a restart (rule R23), nor with a replica on a disk that is lost: what was acknowledged there is
//! copied only once the group is sealed. To its writer, if it lives, that is a fence like any other: it goes on in another group. Where
//! copies are planned (`plan`) that is the planner's, which asks the writer first. A late answer only adds. Refuses to know: who owns
//! what.

use super::Patience;
use super::repair::Repairs;
use crate::access::Access;
use crate::error::CuratorError;
use crate::limits;
use crate::rounds::RoundReport;
use extent_store::FenceError;
use metadata::command::{Outcome, RootCommand, ShardCommand};
use metadata::read::{ReadError, root, shard};
use metadata::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use metadata::tree::Read;
use object_controller::Contents;
use replicas::{Replicas, Whereabouts};
use std::collections::BTreeSet;
use types::cluster::NodeState;
use types::{DiskId, GroupId};

/// What of the records needs a hand.
#[derive(Default)]
struct Due {
    /// Not sealed, and their writer has ended.
    unsealed: Vec<(GroupId, u32)>,
    /// Sealed, with replicas that did not answer.
    unanswered: Vec<(GroupId, GroupRecord)>,
    /// Sealed, with a replica that holds less than it should, or on a disk that is lost.
    short: Vec<(GroupId, DiskId)>,
}

pub(crate) async fn seal(
    access: &Access,
    patience: &mut Patience,
    repairs: &mut Repairs,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    fence_removed(access).await?;
    let (lost, planned) = (lost(access).await?, access.plans_copies());
    let due = access.read(move |read| due(read, &lost, planned)).await?;
    let now = access.now();
    let unsealed = due.unsealed.into_iter().filter(|(group, _)| !patience.waits(*group, now));
    for (group, generation) in unsealed.take(limits::GROUPS_PER_ROUND).collect::<Vec<_>>() {
        match access.controller().seal_group(group, generation, Contents::Unknown).await {
            Ok(record) => {
                report.sealed += 1;
                repairs.add_short(group, &record);
            }
            Err(error) => {
                tracing::warn!(%group, %error, "a group that is to be sealed is not sealed yet");
                patience.postpone(group, now);
                report.postponed += 1;
            }
        }
    }
    for (group, record) in due.unanswered.into_iter().take(limits::GROUPS_PER_ROUND) {
        if !patience.waits(group, now) && !ask_again(access, group, &record, repairs).await? {
            patience.postpone(group, now);
            report.postponed += 1;
        }
    }
    for (group, disk) in due.short {
        repairs.add(group, disk);
    }
    Ok(())
}

/// Disks named by records that will never come back. On a node alone scrub finds them.
async fn lost(access: &Access) -> Result<BTreeSet<DiskId>, CuratorError> {
    let disks: Replicas = access.disks().clone();
    if !disks.is_clustered() {
        return Ok(BTreeSet::new());
    }
    access
        .read(move |read| {
            let mut lost = BTreeSet::new();
            for row in root::groups(read) {
                let named = row?.1.replicas.into_iter().map(|replica| replica.disk);
                lost.extend(named.filter(|disk| disks.whereabouts(*disk) == Whereabouts::Lost));
            }
            Ok(lost)
        })
        .await
}

/// Where copies are planned, those of lost disks are made anew by all nodes at once; what is left here is what has no copy elsewhere.
fn due(read: &dyn Read, lost: &BTreeSet<DiskId>, planned: bool) -> Result<Due, ReadError> {
    let is_lost = |r: &Replica| lost.contains(&r.disk);
    let mut due = Due::default();
    for row in root::groups(read) {
        let (group, record) = row?;
        match record.state {
            GroupState::Open | GroupState::Sealing => {
                let (node, session) = record.writer;
                // A session that lives seals its own, unless it has nothing more to write and does not see what it lost; whoever
                // plans copies asks it first, for it knows best what is in it.
                if root::session(read, node)? > session || (!planned && record.replicas.iter().any(is_lost)) {
                    due.unsealed.push((group, record.generation));
                }
            }
            GroupState::Sealed => {
                let mine = !planned || record.replicas.iter().all(is_lost);
                let short = |r: &&Replica| {
                    (mine && is_lost(r)) || matches!(r.state, ReplicaState::Holds(bytes) if bytes < record.length)
                };
                due.short.extend(record.replicas.iter().filter(short).map(|r| (group, r.disk)));
                if record.replicas.iter().any(is_unanswered) {
                    due.unanswered.push((group, record));
                }
            }
            GroupState::Dropped => {}
        }
    }
    Ok(due)
}

/// A removed node says nothing more: its sessions ended with it, and no shard waits for what it may have proposed.
async fn fence_removed(access: &Access) -> Result<(), CuratorError> {
    let shards: Vec<_> = access.shards().iter().map(|shard| shard.id).collect();
    let removed = move |read: &dyn Read| -> Result<Vec<_>, ReadError> {
        let mut due = Vec::new();
        for node in root::nodes(read) {
            let node = node?;
            if node.state != NodeState::Removed {
                continue;
            }
            let session = root::session(read, node.id)?;
            for id in &shards {
                if shard::fence(read, *id, node.id)? < session {
                    due.push((*id, ShardCommand::Fence { node: node.id, lowest_session: session }));
                }
            }
        }
        Ok(due)
    };
    for (shard, fence) in access.read(removed).await? {
        access.shard(shard, fence).await?;
    }
    Ok(())
}

fn is_unanswered(replica: &Replica) -> bool {
    matches!(replica.state, ReplicaState::NotAnswered | ReplicaState::Open)
}

/// A late answer is an answer to the fence (protocols.md 1). False if nobody answered. A file that is damaged in its very header
/// will never answer, nor will a disk that is gone: they are to be replaced.
async fn ask_again(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    repairs: &mut Repairs,
) -> Result<bool, CuratorError> {
    let mut answers = Vec::new();
    for replica in record.replicas.iter().filter(|r| is_unanswered(r)) {
        let Some(disk) = access.disks().get(replica.disk) else {
            // A start goes on without a disk only if the operator says that it is lost, and so does the map: it will never answer.
            if !access.plans_copies() && access.disks().whereabouts(replica.disk) == Whereabouts::Lost {
                repairs.add(group, replica.disk);
            }
            continue;
        };
        if disk.is_silent() {
            continue;
        }
        match disk.fence(group, record.generation).await {
            Ok(length) => answers.push(Replica { state: ReplicaState::Holds(length), ..*replica }),
            Err(FenceError::Damaged(damage)) => {
                tracing::warn!(%group, disk = %replica.disk, %damage, "a replica will never answer the fence");
                repairs.add(group, replica.disk);
            }
            Err(error) => tracing::warn!(%group, disk = %replica.disk, %error, "a replica still does not answer"),
        }
    }
    let longest =
        answers.iter().filter_map(|r| if let ReplicaState::Holds(n) = r.state { Some(n) } else { None }).max();
    let Some(length) = longest else { return Ok(false) };
    let command = RootCommand::EndSeal {
        group,
        generation: record.generation,
        length: length.max(record.length),
        replicas: answers,
        buckets: Vec::new(),
        account: record.account.clone(),
    };
    match access.root(command).await {
        Ok(Outcome::Group(record)) => {
            repairs.add_short(group, &record);
            Ok(true)
        }
        Ok(other) => Err(CuratorError::unexpected(&other)),
        Err(error) if error.is_local() => Ok(false),
        Err(error) => Err(error),
    }
}
