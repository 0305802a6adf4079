//! Files compared with records: what no record names is set aside, what a record names and is not there is to be repaired.
//!
//! Promises: nothing is deleted on local evidence (rules R24, R58); if suspiciously many files are unnamed, nothing is even set
//! aside. Quarantined files are purged after their days. Refuses to know: what is in the files.

use super::repair::Repairs;
use crate::access::Access;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::ranges::FIRST;
use crate::rounds::RoundReport;
use extent_store::{DiskStore, FileError, Quarantined};
use metadata::read::{ReadError, root};
use metadata::rows::{GroupState, ReplicaState};
use metadata::tree::Read;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{DiskId, GroupId};

/// Group and file generation.
type FileKey = (GroupId, u32);

/// The files of one disk that records name, and whether anything must be in them.
type Named = BTreeMap<FileKey, bool>;

/// Compares every disk's files with the records; at the start, for later files are made and dropped by record.
pub(crate) async fn compare(
    access: &Access,
    repairs: &mut Repairs,
    report: &mut RoundReport,
) -> Result<(), CuratorError> {
    // Listed first: whatever is there has its record already, for the record is committed before the file is made.
    let listed: Vec<_> = access.disks().iter().map(|disk| (disk.clone(), listing(disk))).collect();
    let mut named = access.read(named).await?;
    for (disk, there) in listed {
        let named = named.remove(&disk.id()).unwrap_or_default();
        let unnamed: Vec<FileKey> = there.iter().filter(|key| !named.contains_key(key)).copied().collect();
        set_aside(&disk, there.len(), &unnamed, report).await;
        for ((group, generation), needed) in named {
            if needed && !there.contains(&(group, generation)) {
                tracing::warn!(%group, generation, disk = %disk.id(), "a group's file is not there");
                repairs.add(group, disk.id());
            }
        }
    }
    Ok(())
}

/// The files on a disk.
pub(crate) fn listing(disk: &DiskStore) -> BTreeSet<FileKey> {
    disk.list_files().into_iter().map(|file| (file.group, file.generation)).collect()
}

/// By disk, what the records name.
pub(crate) fn named(read: &dyn Read) -> Result<BTreeMap<DiskId, Named>, ReadError> {
    let mut named: BTreeMap<DiskId, Named> = BTreeMap::new();
    for row in root::groups(read) {
        let (group, record) = row?;
        for replica in &record.replicas {
            let holds = match replica.state {
                ReplicaState::Whole => record.length,
                ReplicaState::Holds(bytes) => bytes,
                ReplicaState::Open | ReplicaState::NotAnswered => 0,
            };
            let needed = record.state == GroupState::Sealed && holds > FIRST;
            named.entry(replica.disk).or_default().insert((group, replica.file_generation), needed);
        }
    }
    Ok(named)
}

async fn set_aside(disk: &DiskStore, files: usize, unnamed: &[FileKey], report: &mut RoundReport) {
    let allowed = limits::STRANGERS_FLOOR.max(files * limits::STRANGERS_PERCENT / 100);
    if unnamed.len() > allowed {
        let why = format!("disk {}: no record names {} of {files} files; none is set aside", disk.id(), unnamed.len());
        tracing::error!(why);
        report.alarms.push(why);
        return;
    }
    for (group, generation) in unnamed {
        quarantine(disk, *group, *generation, "no record names this file", report).await;
    }
}

/// Sets a file aside. One that is gone needs nothing.
pub(crate) async fn quarantine(
    disk: &DiskStore,
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
    for disk in access.disks().iter() {
        let files = match disk.quarantined().await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(disk = %disk.id(), %error, "the quarantine cannot be listed");
                continue;
            }
        };
        watched.forget_others(disk.id(), &files);
        for file in files {
            if !watched.is_over(disk.id(), &file, now, config.quarantine) {
                continue;
            }
            match disk.purge(&file.name).await {
                Ok(()) => tracing::info!(disk = %disk.id(), file = file.name, "purged from quarantine"),
                Err(error) => tracing::warn!(disk = %disk.id(), file = file.name, %error, "not purged"),
            }
        }
    }
}
