//! A strip becomes replicas again (protocols.md 12).
//!
//! Promises: parity goes only after every copy that is counted was read, frame by frame, on the disk it is on, whatever number of copies is
//! asked for; what is bad is computed anew while there still is something to compute it from; copies on one node count as one; the files of
//! parity are set aside, not dropped. The generations that were looked at are those of the entry: whoever changed a group meanwhile makes
//! it fail, and it is looked at again. Refuses to know: why.

use super::rebuild;
use crate::access::Access;
use crate::error::CuratorError;
use crate::groups::files;
use crate::groups::repair::Repaired;
use crate::limits;
use crate::policy;
use crate::ranges::{self, FIRST};
use crate::rounds::RoundReport;
use crate::view::View;
use metadata::command::{Refusal, RootCommand};
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use object_controller::strips::Members;
use std::collections::{BTreeMap, BTreeSet};
use types::bucket::BucketInfo;
use types::{BucketId, NodeId};

/// Brings a strip one step nearer to being replicas again: one copy, or its end.
pub(super) async fn dissolve(
    access: &Access,
    members: &Members,
    buckets: &BTreeMap<BucketId, BucketInfo>,
    view: &View,
    report: &mut RoundReport,
) -> Result<bool, CuratorError> {
    let mut data = Vec::new();
    let mut counted = Vec::new();
    for (place, record) in members.groups.iter().enumerate().take(members.strip.k()) {
        let required = policy::required_rf(buckets, record, view.default_rf);
        data.push((record.generation, required));
        if ranges::rest(FIRST, record.length, &record.dead).is_empty() {
            // Nothing in it is anybody's.
            continue;
        }
        let copies = readable(record, view);
        if nodes(&copies).len() < usize::from(required) {
            let added = rebuild::add(access, members, place, report).await?;
            return step(added, report);
        }
        counted.push((place, required, copies));
    }
    for (place, required, copies) in counted {
        let mut sound = BTreeSet::new();
        for (replica, node) in copies {
            match rebuild::stands(access, members, place, &replica).await {
                Ok(true) => {
                    sound.insert(node);
                }
                Ok(false) => {
                    let mended = rebuild::mend(access, members, place, replica.disk, report).await?;
                    return step(mended, report);
                }
                // Others may be enough.
                Err(CuratorError::Away(error)) => {
                    tracing::debug!(strip = %members.id, place, %error, "a copy that cannot be read does not count");
                }
                Err(error) => return Err(error),
            }
        }
        if sound.len() < usize::from(required) {
            return Err(waits("a node with a copy does not answer"));
        }
    }
    match access.root(RootCommand::DissolveStrip { strip: members.id, data }).await {
        Ok(_) => {}
        Err(CuratorError::Refused(refusal)) if matches!(*refusal, Refusal::Stale(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    report.strips_dissolved += 1;
    tracing::info!(strip = %members.id, "a strip is replicas again");
    for (group, record) in members.strip.parity.iter().zip(&members.groups[members.strip.k()..]) {
        for replica in &record.replicas {
            if let Some(disk) = access.disks().get(replica.disk) {
                files::quarantine(&disk, *group, replica.file_generation, "its strip was dissolved", report).await;
            }
        }
    }
    Ok(true)
}

/// What one step came to.
fn step(done: Repaired, report: &mut RoundReport) -> Result<bool, CuratorError> {
    match done {
        Repaired::Replaced(_) => Ok(true),
        Repaired::Sound => Ok(false),
        Repaired::Waits(why) => Err(waits(why)),
        Repaired::Hurt(lines) => {
            report.alarms.extend(lines.into_iter().take(limits::NAMED));
            Err(waits("extents are bad on all members of a strip"))
        }
    }
}

fn waits(why: impl Into<String>) -> CuratorError {
    CuratorError::Away(std::io::Error::other(why.into()))
}

/// Whole replicas that can be read, as far as the view knows, and their nodes.
fn readable(record: &GroupRecord, view: &View) -> Vec<(Replica, NodeId)> {
    let whole = record.replicas.iter().filter(|replica| replica.state == ReplicaState::Whole);
    let readable = whole.filter_map(|replica| {
        let of = view.disk(replica.disk).filter(|of| of.is_readable())?;
        Some((*replica, of.node))
    });
    readable.collect()
}

fn nodes(copies: &[(Replica, NodeId)]) -> BTreeSet<NodeId> {
    copies.iter().map(|(_, node)| *node).collect()
}
