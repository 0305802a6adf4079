//! The audit: proves that the extents that contents name are the extents that are stored (rules R21, R53).
//!
//! Promises: reads only; one position of the metadata; every difference is counted and the first hundred are named; what is
//! explained (uploads of the live session, contents on their way to being reclaimed, holes not punched yet) is counted apart.
//! An error is an error, never "clean". Refuses to know: how to mend anything.

mod group;
pub mod report;
mod rows;

use crate::access::Access;
use crate::contents::references::{self, Page};
use crate::error::CuratorError;
use crate::groups::files;
use crate::limits;
use crate::ranges::{self, Ranges};
use metadata::read::{ReadError, root, shard};
use metadata::rows::{GroupRecord, OutboxRow};
use metadata::shard::Shard;
use metadata::strip::StripState;
use metadata::tree::{Read, Snapshot};
use object_controller::strips::Members;
use report::{AuditReport, DifferenceKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::GroupId;

/// What is dead by the outbox and not yet by the records.
type Pending = BTreeMap<GroupId, Ranges>;

/// Compares everything. Nobody punches or drops meanwhile: the caller holds the turn.
pub(crate) async fn audit(
    access: &Access,
    stopping: &AtomicBool,
    mut progress: impl FnMut(u64, u64, &str) + Send,
) -> Result<AuditReport, CuratorError> {
    let mut report = AuditReport::default();
    // Listed before the position: a file listed now has its record there.
    let mut listed = Vec::new();
    for disk in access.disks().all() {
        match disk.list_files().await {
            Ok(files) => listed.push((disk, files)),
            Err(error) => {
                let what = format!("the files of {disk:?} cannot be listed: {error}");
                report.differ(DifferenceKind::Replica, 0, what);
            }
        }
    }
    let snapshot = access.snapshot().await?;
    let shards = access.shards();
    let count = shards.len() as u64;
    for (done, shard) in (0..).zip(&shards) {
        progress(done, count, "shards");
        let (this, all) = (shard.clone(), shards.clone());
        let found = access.read_at(snapshot.clone(), move |read| rows::compare(read, &this, &all)).await?;
        report.add_rows(found);
    }
    let all = shards.clone();
    let pending = access.read_at(snapshot.clone(), move |read| pending(read, &all)).await?;
    report.pending_bytes += pending.values().map(|dead| ranges::bytes(dead)).sum::<u64>();
    groups(access, &snapshot, &pending, stopping, &mut progress, &mut report).await?;
    strips(access, &snapshot, &mut report).await?;
    let named = access.read_at(snapshot.clone(), files::named).await?;
    for (disk, there) in listed {
        let keys = there.iter().map(|file| (file.group, file.generation));
        for (group, generation) in keys.filter(|key| named.is_strange(disk.id(), *key, false)) {
            let what = format!("disk {}: group {group} generation {generation}", disk.id());
            report.differ(DifferenceKind::FileWithoutRecord, 0, what);
        }
        report.strangers += disk.strangers();
        for file in disk.quarantined().await.unwrap_or_default() {
            report.quarantined_files += 1;
            report.quarantined_bytes += file.allocated_bytes;
        }
    }
    report.ok = report.difference_count == 0;
    Ok(report)
}

/// Strips survive as many nodes as they have parity only if each member is on one of its own.
async fn strips(access: &Access, snapshot: &Arc<Snapshot>, report: &mut AuditReport) -> Result<(), CuratorError> {
    let view = access.view();
    let all = move |read: &dyn Read| {
        let mut wrong = Vec::new();
        for row in root::strips(read) {
            let (id, strip) = row?;
            if strip.state != StripState::Encoded {
                continue;
            }
            match Members::read(read, id)? {
                None => wrong.push(format!("strip {id}: a group of it has no record")),
                Some(members) => {
                    let place = crate::strips::unplaced(&members, &view);
                    wrong.extend(place.map(|place| format!("strip {id}: its member {place} has no node of its own")));
                }
            }
        }
        Ok(wrong)
    };
    for what in access.read_at(snapshot.clone(), all).await? {
        report.differ(DifferenceKind::Strip, 0, what);
    }
    Ok(())
}

fn pending(read: &dyn Read, shards: &[Shard]) -> Result<Pending, ReadError> {
    let mut pending = Pending::new();
    for of in shards {
        for row in shard::outbox(read, of.id, 0) {
            if let (_, OutboxRow::Dead { runs }) = row? {
                for run in runs {
                    pending.entry(run.group).or_default().push(ranges::of_run(&run));
                }
            }
        }
    }
    for dead in pending.values_mut() {
        *dead = ranges::merge(std::mem::take(dead));
    }
    Ok(pending)
}

/// All groups, as many at a time as their extents fit in memory.
async fn groups(
    access: &Access,
    snapshot: &Arc<Snapshot>,
    pending: &Pending,
    stopping: &AtomicBool,
    progress: &mut (impl FnMut(u64, u64, &str) + Send),
    report: &mut AuditReport,
) -> Result<(), CuratorError> {
    let total = access.read_at(snapshot.clone(), |read| Ok(root::groups(read).count() as u64)).await?;
    let mut from = Some(GroupId(0));
    while let Some(first) = from {
        let keys = access.ranges();
        let read = move |read: &dyn Read| {
            let page = references::page(read, &keys, first, limits::REFERENCES)?;
            Ok((records(read, first, page.next)?, page))
        };
        let (records, mut page): (Vec<(GroupId, GroupRecord)>, Page) = access.read_at(snapshot.clone(), read).await?;
        for (id, record) in records {
            if stopping.load(Ordering::Relaxed) {
                return Err(CuratorError::Stopping);
            }
            let extents = page.groups.remove(&id).unwrap_or_default();
            let none = Ranges::new();
            let pending = pending.get(&id).unwrap_or(&none);
            group::compare(access, group::Subject { id, record: &record, extents: &extents, pending }, report).await?;
            report.groups += 1;
            progress(report.groups, total, "groups");
        }
        for (group, extents) in page.groups {
            for extent in extents.iter().filter(|extent| !extent.owed) {
                let what = format!(
                    "content {:?} extent {} in group {group}, which has no record",
                    extent.content, extent.index
                );
                report.differ(DifferenceKind::Lost, extent.range().1, what);
            }
        }
        from = page.next;
    }
    Ok(())
}

fn records(read: &dyn Read, from: GroupId, to: Option<GroupId>) -> Result<Vec<(GroupId, GroupRecord)>, ReadError> {
    let within = |row: &Result<(GroupId, GroupRecord), ReadError>| match row {
        Ok((group, _)) => *group >= from && to.is_none_or(|to| *group < to),
        Err(_) => true,
    };
    root::groups(read).filter(within).collect()
}
