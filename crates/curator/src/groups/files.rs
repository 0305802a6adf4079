//! Files compared with records: what no record names is set aside, what a record names and is not there is to be repaired.
//!
//! Promises: nothing is deleted on local evidence (rules R24, R58); if suspiciously many files are unnamed, nothing is even set
//! aside. The records are read after the files were listed, behind a barrier: a file's record is committed before the file is made, so
//! a view of the records that is not older than the listing names every file that any record will ever name, but for copies that are
//! being made. A copy has a generation above the record's until the record names it, so in a cluster such files are let alone for an
//! hour, and then the record is led past them; one that is not above can never be named any more. Only the node that has a disk judges
//! its files. Quarantined files are purged after their days, surplus copies after an hour or when space is short.
//! Refuses to know: what is in the files.

use super::repair::{self, Repairs};
use crate::access::Access;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::ranges::FIRST;
use crate::rounds::RoundReport;
use extent_store::{DiskStore, FileError, Quarantined};
use metadata::read::{ReadError, root};
use metadata::rows::{GroupRecord, GroupState, ReplicaState};
use metadata::strip::StripState;
use metadata::tree::Read;
use replicas::Replica;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{DiskId, GroupId};

/// Why the file of a copy that nobody needs was set aside.
pub(crate) const SURPLUS: &str = "a surplus copy";

/// Group and file generation.
type FileKey = (GroupId, u32);

/// The files of one disk that records name, and whether anything must be in them.
type Named = BTreeMap<FileKey, bool>;

/// What the records say of files.
#[derive(Default)]
pub(crate) struct Names {
    disks: BTreeMap<DiskId, Named>,
    /// Generations of the records.
    generations: BTreeMap<GroupId, u32>,
}

impl Names {
    /// The files of a disk that are named, and whether anything must be in them.
    fn of(&self, disk: DiskId) -> impl Iterator<Item = (&FileKey, bool)> {
        self.disks.get(&disk).into_iter().flatten().map(|(key, needed)| (key, *needed))
    }

    /// Whether no record names the file and, if copies may be under way, none ever will.
    pub(crate) fn is_strange(&self, disk: DiskId, (group, generation): FileKey, copies: bool) -> bool {
        let named = self.disks.get(&disk).is_some_and(|named| named.contains_key(&(group, generation)));
        let to_come = copies && self.generations.get(&group).is_some_and(|record| generation > *record);
        !named && !to_come
    }

    /// Whether the file is a copy that its record does not name yet.
    fn is_to_come(&self, disk: DiskId, key: FileKey) -> bool {
        let named = self.disks.get(&disk).is_some_and(|named| named.contains_key(&key));
        !named && !self.is_strange(disk, key, true)
    }
}

/// Copies that no record names yet, and since when they are there. Whoever made one switches the record within seconds, or died.
#[derive(Default)]
pub(crate) struct ToCome {
    since: BTreeMap<(DiskId, FileKey), Duration>,
}

impl ToCome {
    /// Takes up what is there now; gives the groups whose copies have waited too long.
    fn note(&mut self, now: Duration, there: BTreeSet<(DiskId, FileKey)>) -> BTreeSet<GroupId> {
        self.since.retain(|file, _| there.contains(file));
        let mut old = BTreeSet::new();
        for file in there {
            let since = *self.since.entry(file).or_insert(now);
            if now.saturating_sub(since) >= limits::UNNAMED_KEPT {
                old.insert(file.1.0);
            }
        }
        old
    }
}

/// Compares every disk's files with the records; at the start, for later files are made and dropped by record.
pub(crate) async fn compare(
    access: &Access,
    repairs: &mut Repairs,
    to_come: &mut ToCome,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    // Listed first: whatever is there has its record already, for the record is committed before the file is made.
    let listed: Vec<_> = access.disks().local().iter().map(|disk| (disk.clone(), listing(disk))).collect();
    access.barrier().await?;
    let named = access.read(named).await?;
    // On a node alone whoever has the turn has seen every copy that was begun before.
    let copies = access.disks().is_clustered();
    let mut unnamed_yet = BTreeSet::new();
    for (disk, there) in listed {
        let waits = there.iter().filter(|key| copies && named.is_to_come(disk.id(), **key));
        unnamed_yet.extend(waits.map(|key| (disk.id(), *key)));
        let strange = |key: &&FileKey| named.is_strange(disk.id(), **key, copies);
        let unnamed: Vec<FileKey> = there.iter().filter(strange).copied().collect();
        set_aside(&disk, there.len(), &unnamed, report).await;
        for ((group, generation), needed) in named.of(disk.id()) {
            let (group, generation) = (*group, *generation);
            if needed && !there.contains(&(group, generation)) {
                tracing::warn!(%group, generation, disk = %disk.id(), "a group's file is not there");
                repairs.add(group, disk.id());
            }
        }
    }
    for group in to_come.note(access.now(), unnamed_yet) {
        pass_by(access, group).await?;
    }
    Ok(())
}

/// Raises a record's generation, so that it can never come to name a copy whose maker died: the next comparison sets the file aside.
async fn pass_by(access: &Access, group: GroupId) -> Result<(), CuratorError> {
    match access.group(group).await? {
        Some(record) if record.state == GroupState::Sealed => match repair::claim(access, group, &record).await {
            Err(error) if !error.is_local() => Err(error),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The files on a disk.
pub(crate) fn listing(disk: &DiskStore) -> BTreeSet<FileKey> {
    disk.list_files().into_iter().map(|file| (file.group, file.generation)).collect()
}

/// By disk, what the records name.
pub(crate) fn named(read: &dyn Read) -> Result<Names, ReadError> {
    let mut named = Names::default();
    for row in root::groups(read) {
        let (group, record) = row?;
        named.generations.insert(group, record.generation);
        for replica in &record.replicas {
            let holds = match replica.state {
                ReplicaState::Whole => record.length,
                ReplicaState::Holds(bytes) => bytes,
                ReplicaState::Open | ReplicaState::NotAnswered => 0,
            };
            let needed = record.state == GroupState::Sealed && holds > FIRST && !is_being_written(read, &record)?;
            named.disks.entry(replica.disk).or_default().insert((group, replica.file_generation), needed);
        }
    }
    Ok(named)
}

/// Whether it is parity that is not in its place yet.
fn is_being_written(read: &dyn Read, record: &GroupRecord) -> Result<bool, ReadError> {
    let Some(of) = &record.strip else { return Ok(false) };
    let strip = root::strip(read, of.strip)?;
    Ok(strip.is_some_and(|strip| strip.state == StripState::Encoding && usize::from(of.place) >= strip.k()))
}

async fn set_aside(disk: &DiskStore, files: usize, unnamed: &[FileKey], report: &mut RoundReport) {
    let allowed = limits::STRANGERS_FLOOR.max(files * limits::STRANGERS_PERCENT / 100);
    if unnamed.len() > allowed {
        let why = format!("disk {}: no record names {} of {files} files; none is set aside", disk.id(), unnamed.len());
        tracing::error!(why);
        report.alarms.push(why);
        return;
    }
    let disk = &Replica::Local(disk.clone());
    for (group, generation) in unnamed {
        quarantine(disk, *group, *generation, "no record names this file", report).await;
    }
}

/// Sets a file aside. One that is gone needs nothing.
pub(crate) async fn quarantine(
    disk: &Replica,
    group: GroupId,
    generation: u32,
    reason: &str,
    report: &mut RoundReport,
) {
    match disk.quarantine(group, generation, reason).await {
        Ok(_) => report.quarantined += 1,
        Err(FileError::Missing) => {}
        Err(error) => tracing::warn!(%group, generation, disk = %disk.id(), %error, "a file was not set aside"),
    }
}

/// When this process first saw each quarantined file, by its own clock, and how old the file was then by the wall clock.
#[derive(Default)]
pub(crate) struct Watched {
    seen: BTreeMap<(DiskId, String), (Duration, Duration)>,
}

impl Watched {
    /// Whether the file has been in quarantine for `kept`. What the wall clock did since it was first seen does not count, and
    /// whatever it said then, there is a while in which an operator can notice that it is wrong (rule R74).
    fn is_over(&mut self, disk: DiskId, file: &Quarantined, (now, wall_ms): (Duration, u64), kept: Duration) -> bool {
        let age = Duration::from_millis(wall_ms.saturating_sub(file.since_ms));
        let (since, age) = *self.seen.entry((disk, file.name.clone())).or_insert((now, age));
        let watched = now.saturating_sub(since);
        watched >= limits::WATCHED_LEAST.min(kept) && age.saturating_add(watched) >= kept
    }

    fn forget_others(&mut self, disk: DiskId, files: &[Quarantined]) {
        self.seen.retain(|(at, name), _| *at != disk || files.iter().any(|file| file.name == *name));
    }
}

/// Removes what has been in quarantine for its days (rule R33).
pub(crate) async fn purge(access: &Access, config: &Config, watched: &mut Watched) {
    let now = (access.now(), access.wall_ms());
    for disk in access.disks().local().iter() {
        let files = match disk.quarantined().await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(disk = %disk.id(), %error, "the quarantine cannot be listed");
                continue;
            }
        };
        watched.forget_others(disk.id(), &files);
        for file in files {
            let kept =
                if file.reason == SURPLUS { limits::SURPLUS_KEPT.min(config.quarantine) } else { config.quarantine };
            if watched.is_over(disk.id(), &file, now, kept) {
                purge_one(disk, &file).await;
            }
        }
    }
}

async fn purge_one(disk: &DiskStore, file: &Quarantined) {
    match disk.purge(&file.name).await {
        Ok(()) => tracing::info!(disk = %disk.id(), file = file.name, "purged from quarantine"),
        Err(error) => tracing::warn!(disk = %disk.id(), file = file.name, %error, "not purged"),
    }
}

/// On a disk that gets full, what surplus copies left is not kept any longer: those that stayed were proved (rule R33).
pub(crate) async fn make_room(access: &Access) {
    for disk in access.disks().local().iter() {
        let is_full = disk.space().is_ok_and(|space| space.free_bytes < space.total_bytes / 10);
        let files = if is_full { disk.quarantined().await.unwrap_or_default() } else { Vec::new() };
        for file in files.iter().filter(|file| file.reason == SURPLUS) {
            purge_one(disk, file).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;
    use types::{DiskId, GroupId};

    #[test]
    fn a_copy_that_its_record_may_still_name_is_not_strange_in_a_cluster() {
        let (disk, other, group) = (DiskId(1), DiskId(2), GroupId(7));
        let mut names = Names::default();
        names.disks.entry(disk).or_default().insert((group, 1), true);
        names.generations.insert(group, 3);
        assert!(!names.is_strange(disk, (group, 1), true));
        assert!(names.is_strange(other, (group, 1), true), "no record ever names a generation that it has passed");
        assert!(names.is_strange(disk, (group, 3), true));
        assert!(!names.is_strange(disk, (group, 4), true), "a copy is being made");
        assert!(names.is_strange(disk, (group, 4), false), "on a node alone none is");
        assert!(names.is_strange(disk, (GroupId(8), 1), true), "dropped, or never committed");
    }
}
