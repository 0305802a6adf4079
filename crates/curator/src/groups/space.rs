//! Space of dead frames is given back; groups that are wholly dead go (protocols.md 5).
//!
//! Promises: only what the record of a sealed group calls dead, and has not frozen for a strip, is punched, in whole frames; the record
//! goes before the files.
//! A crash leaves frames that are punched again, or files that no record names, which the next start sets aside.
//! Refuses to know: why frames are dead.

use super::Patience;
use super::frames::{self, File};
use crate::access::Access;
use crate::error::CuratorError;
use crate::limits;
use crate::ranges::{self, FIRST, Ranges};
use crate::rounds::RoundReport;
use extent_store::{FileError, PunchError};
use metadata::command::RootCommand;
use metadata::read::{ReadError, root};
use metadata::rows::{GroupRecord, GroupState};
use metadata::tree::Read;
use replicas::Replica as Disk;
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, GroupId};

type FileKey = (GroupId, DiskId, u32);
type Groups = Vec<(GroupId, GroupRecord)>;

/// What is known to be holes already, so that rounds do not repeat themselves.
#[derive(Default)]
pub(crate) struct Punched {
    files: BTreeMap<FileKey, Holes>,
}

#[derive(Clone, Default)]
struct Holes {
    /// Dead ranges that are holes.
    done: Ranges,
    /// End of the file.
    end: u64,
}

impl Punched {
    /// What of the dead ranges is still to be punched; `None` if the file was not looked at yet.
    fn due(&self, key: FileKey, dead: &[(u64, u64)]) -> Option<Ranges> {
        let holes = self.files.get(&key)?;
        Some(ranges::subtract(&ranges::clamp(dead, FIRST, holes.end), &holes.done))
    }
}

pub(crate) async fn work(
    access: &Access,
    punched: &mut Punched,
    patience: &mut Patience,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    let now = access.now();
    // Lent to the read; what is lost if it fails is looked up again.
    let mut known = std::mem::take(punched);
    let (due, known) = access
        .read(move |read| {
            let (due, all) = due(read, &known)?;
            known.files.retain(|(group, ..), _| all.contains(group));
            Ok((due, known))
        })
        .await?;
    *punched = known;
    let mut looks = 0;
    for (group, record) in due {
        if patience.waits(group, now) {
            continue;
        }
        if looks >= limits::LOOKS_PER_ROUND {
            report.again += 1;
            break;
        }
        let done = punch(access, group, &record, punched, &mut looks, report).await;
        if done && is_wholly_dead(&record) {
            drop_group(access, group, &record, report).await?;
        } else if !done {
            patience.postpone(group, now);
            report.postponed += 1;
        }
    }
    Ok(())
}

/// Sealed groups with something to punch, or to drop; and the ids of all groups.
fn due(read: &dyn Read, punched: &Punched) -> Result<(Groups, BTreeSet<GroupId>), ReadError> {
    let (mut groups, mut all) = (Vec::new(), BTreeSet::new());
    for row in root::groups(read) {
        let (group, record) = row?;
        all.insert(group);
        if record.state != GroupState::Sealed {
            continue;
        }
        let is_due = |r: &metadata::rows::Replica| {
            let due = punched.due((group, r.disk, r.file_generation), &record.punchable());
            due.is_none_or(|due| !due.is_empty())
        };
        let punch = !record.punchable().is_empty() && record.replicas.iter().any(is_due);
        if (punch || is_wholly_dead(&record)) && groups.len() < 4 * limits::LOOKS_PER_ROUND {
            groups.push((group, record));
        }
    }
    Ok((groups, all))
}

fn is_wholly_dead(record: &GroupRecord) -> bool {
    // A member of a strip goes with the strip.
    record.settled && record.strip.is_none() && ranges::rest(FIRST, record.length, &record.dead).is_empty()
}

/// Punches what is dead on every replica. False if a disk failed: it is tried again later. A range that is refused, as a frame
/// reaches over its end, keeps its space and keeps nothing else from being given back.
async fn punch(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    punched: &mut Punched,
    looks: &mut usize,
    report: &mut RoundReport,
) -> bool {
    let mut all_done = true;
    let is_new = |r: &metadata::rows::Replica| !punched.files.contains_key(&(group, r.disk, r.file_generation));
    let dead = record.punchable();
    if !dead.is_empty() && record.replicas.iter().any(is_new) {
        *looks += 1;
        if !look(access, group, record, punched).await {
            // What is dead there is punched when it is back.
            all_done = false;
        }
    }
    for replica in &record.replicas {
        let key = (group, replica.disk, replica.file_generation);
        let Some(due) = punched.due(key, &dead).filter(|due| !due.is_empty()) else { continue };
        let Some(disk) = access.disks().get(replica.disk) else { continue };
        let mut left = due.clone();
        match punch_sound(&disk, key, &mut left, report).await {
            Ok(()) => {
                report.punched_bytes += ranges::bytes(&left);
                if let Some(holes) = punched.files.get_mut(&key) {
                    holes.done = ranges::merge(holes.done.iter().copied().chain(due));
                }
            }
            Err(error) => {
                tracing::warn!(%group, disk = %replica.disk, %error, "dead frames were not punched");
                all_done = false;
            }
        }
    }
    all_done
}

/// Punches the ranges, and leaves those out of them that are refused.
async fn punch_sound(
    disk: &Disk,
    (group, id, generation): FileKey,
    ranges: &mut Ranges,
    report: &mut RoundReport,
) -> Result<(), PunchError> {
    loop {
        match disk.punch(group, generation, ranges).await {
            Err(PunchError::NotWholeFrames { offset, bytes }) if ranges.contains(&(offset, bytes)) => {
                let why = format!("group {group} on disk {id}: {bytes} dead bytes at {offset} are not whole frames");
                tracing::error!(why);
                report.alarms.push(why);
                ranges.retain(|range| *range != (offset, bytes));
            }
            result => return result,
        }
    }
}

/// A file seen for the first time since the start: what is a hole needs no punching. A punch that a crash undid in part leaves
/// blocks that are not zero, and is done again. False if a node does not answer.
async fn look(access: &Access, group: GroupId, record: &GroupRecord, punched: &mut Punched) -> bool {
    let mut all = true;
    let found = frames::look(access, group, record).await;
    for (replica, file) in record.replicas.iter().zip(found.files) {
        let holes = match file {
            File::Walked { holes, end, .. } => Holes { done: holes, end },
            // Looked at again in a later round.
            File::Short => continue,
            File::Away(_) => {
                all = false;
                continue;
            }
            // Nothing to punch.
            File::Missing | File::NoDisk => Holes::default(),
            File::Unreadable(why) => {
                tracing::debug!(%group, disk = %replica.disk, why, "not looked at for holes");
                Holes::default()
            }
        };
        punched.files.insert((group, replica.disk, replica.file_generation), holes);
    }
    all
}

/// The record first, then the files, by order of the record that is gone.
async fn drop_group(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    match access.root(RootCommand::DropGroup { group, generation: record.generation }).await {
        Ok(_) => report.dropped += 1,
        Err(error) if error.is_local() => {
            report.again += 1;
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    for replica in &record.replicas {
        let Some(disk) = access.disks().get(replica.disk) else { continue };
        match disk.drop_file(group, replica.file_generation).await {
            Ok(()) => {}
            Err(FileError::Missing) => {
                disk.forget_fence(group).await;
            }
            Err(error) => tracing::warn!(%group, disk = %replica.disk, %error, "a dropped group's file is still there"),
        }
    }
    Ok(())
}
