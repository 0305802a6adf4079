//! One more copy of a sealed group, beside those there are (protocols.md 2; rules R26, R50, R52).
//!
//! 1. *Claim.* A compare-and-set raises the record's generation, from g to g + 1, and changes nothing else. The copy to be made is file
//!    generation g + 2, which no other attempt can have: another claim makes it g + 2 first, and then the switch of step 3 is refused.
//! 2. *Copy.* Every live frame, verified when it is read, goes to its own offset in a new file on the other disk, which reads it back
//!    around its page cache before the file gets its name.
//! 3. *Switch.* A compare-and-set from g + 1 to g + 2 appends the copy to the list. Nothing leaves the list: a copy on a node that is
//!    down counts again when it is back.
//!
//! A crash after 1 leaves a higher generation; after 2 a file that no record names, set aside once the record has passed its generation;
//! a switch that is applied late names a whole copy of what the group was, and is, for the bytes at an offset never change. What dies
//! meanwhile is in the record's dead set, and is punched in the new file as in the others. A longer length, or another list, would have
//! raised the generation.
//!
//! Promises: see above. Refuses to know: which groups need a copy.

use super::pace::Rate;
use super::switch::switch;
use super::{Ended, Inner};
use crate::error::CuratorError;
use crate::groups::frames::{self, File};
use crate::groups::hurt::{self, Fate};
use crate::groups::repair::{self, Wanted};
use crate::groups::{files, settle};
use crate::limits;
use crate::plan::copies::{self, Copies};
use crate::plan::place::targets;
use crate::plan::{Task, is_short};
use crate::ranges;
use crate::rounds::RoundReport;
use extent_store::Frame;
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use object_controller::findings::{Finding, Trouble};
use replicas::Replica as Disk;
use std::io::ErrorKind;
use types::{DiskId, GroupId};

/// The group, and where it is read, the nearest copy first.
struct Source<'a> {
    inner: &'a Inner,
    group: GroupId,
    record: GroupRecord,
    copies: Vec<Replica>,
    /// Another copy is listed that cannot be asked: what nobody else has may be there.
    some_away: bool,
}

/// What became of one frame.
enum Found {
    Frame(Frame),
    /// Nobody will miss it.
    Dead,
    /// It cannot be had now; why.
    Waits(String),
}

pub(super) async fn add(inner: &Inner, task: &Task) -> Result<Ended, CuratorError> {
    let (access, group, view) = (&inner.access, task.group, inner.access.view());
    let Some((record, required)) = inner.look_up(group, &view).await? else { return Ok(Ended::NotNeeded) };
    let copies = Copies::of(&view, &record);
    if !is_short(&record, required, &copies) {
        return Ok(Ended::NotNeeded);
    }
    let (bytes, under_way) = (copies::live_bytes(&record), inner.board.lock().copies());
    let to = targets(&view, &record, &copies, bytes, &under_way, &*inner.config.env.random);
    let able = |disk: &Disk| !disk.is_silent() && !disk.is_suspect();
    let to: Vec<Disk> = to.into_iter().filter_map(|disk| access.disks().get(disk)).filter(able).collect();
    if to.is_empty() {
        return Ok(Ended::Waits("no disk in another place has room for a copy".into()));
    }
    let found = frames::look(access, group, &record).await;
    if found.files.contains(&File::Short) {
        return Err(CuratorError::Short(ErrorKind::OutOfMemory.into()));
    }
    if let Some(length) = repair::owned_beyond(access, group, &record, &found).await? {
        settle::raise(access, group, &record, &found, length).await?;
        return Ok(Ended::Waits("its length was too low".into()));
    }
    let wanted = match repair::wanted(access, group, &record, &found).await? {
        Ok(wanted) => wanted,
        Err(lost) => return Ok(Ended::Waits(format!("nobody has {}", lost.join(", ")))),
    };
    let record = repair::claim(access, group, &record).await?;
    let source = Source::new(inner, group, record, &copies);
    let mut why = String::new();
    for disk in to.into_iter().take(limits::TARGETS_TRIED) {
        let _counted = Counted::new(inner, disk.id());
        match source.copy_to(&disk, &wanted, Rate::of(task)).await? {
            Ok(()) => return source.name(&disk).await,
            Err(reason) => {
                tracing::warn!(%group, disk = %disk.id(), reason, "a copy was not made");
                why = reason;
            }
        }
    }
    Ok(Ended::Waits(why))
}

impl<'a> Source<'a> {
    fn new(inner: &'a Inner, group: GroupId, record: GroupRecord, copies: &Copies) -> Source<'a> {
        let readable = |replica: &&Replica| copies.sources.contains(&replica.disk);
        let mut from: Vec<Replica> = record.replicas.iter().filter(readable).copied().collect();
        from.sort_by_key(|replica| (inner.access.disks().here(replica.disk).is_none(), replica.disk));
        let some_away = from.len() + copies.gone.len() < record.replicas.len();
        Source { inner, group, record, copies: from, some_away }
    }

    fn generation(&self) -> u32 {
        self.record.generation + 1
    }

    /// *Durable* on the other disk when it answers, and named by no record yet. `Err`: why this disk does not have it.
    async fn copy_to(&self, disk: &Disk, wanted: &[Wanted], rate: Rate) -> Result<Result<(), String>, CuratorError> {
        let mut copy = match disk.begin_copy(self.group, self.generation(), self.record.length).await {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error.to_string())),
        };
        for frame in wanted {
            self.inner.check_stopping()?;
            let sound = match self.read(frame).await? {
                Found::Frame(sound) => sound,
                Found::Dead => continue,
                Found::Waits(why) => return Ok(Err(why)),
            };
            self.inner.pace.take(rate, sound.end() - sound.address().offset).await;
            if let Err(error) = copy.put(sound).await {
                return Ok(Err(error.to_string()));
            }
        }
        Ok(copy.finish().await.map_err(|error| error.to_string()))
    }

    /// From the nearest copy that has it sound. One that does not is a finding.
    async fn read(&self, wanted: &Wanted) -> Result<Found, CuratorError> {
        let access = &self.inner.access;
        let mut away = self.some_away;
        for replica in &self.copies {
            match repair::read(access, self.group, replica, wanted).await {
                Ok(Some(frame)) => return Ok(Found::Frame(frame)),
                Ok(None) if self.is_dead(wanted).await? => return Ok(Found::Dead),
                Ok(None) => {
                    let (disk, group, offset) = (replica.disk, self.group, wanted.offset);
                    let trouble = Trouble::Damaged;
                    access.controller().findings().report(Finding { disk, group, offset, trouble });
                }
                Err(CuratorError::Away(_)) => away = true,
                Err(error) => return Err(error),
            }
        }
        if away {
            return Ok(Found::Waits("a node with a copy does not answer".into()));
        }
        Ok(match hurt::fate(access, self.group, wanted.offset, &wanted.home, wanted.content).await? {
            Fate::Nobodys => Found::Dead,
            Fate::Undecided => Found::Waits("an upload that may still be committed has bytes in it".into()),
            Fate::Owned => {
                let what = hurt::describe(access, self.group, wanted.offset, &wanted.home, wanted.index).await;
                Found::Waits(format!("{what} is bad on every copy"))
            }
        })
    }

    /// Whether it died since the work began.
    async fn is_dead(&self, wanted: &Wanted) -> Result<bool, CuratorError> {
        let now = self.inner.access.group(self.group).await?;
        Ok(now.is_none_or(|now| ranges::contains(&now.dead, wanted.offset)))
    }

    /// *Committed* when it answers that it is done.
    async fn name(&self, disk: &Disk) -> Result<Ended, CuratorError> {
        let (group, generation) = (self.group, self.generation());
        let mut replicas = self.record.replicas.clone();
        replicas.push(Replica { disk: disk.id(), file_generation: generation, state: ReplicaState::Whole });
        let switched = switch(&self.inner.access, group, self.record.generation, replicas).await?;
        if switched.names(disk.id(), generation) {
            tracing::info!(%group, disk = %disk.id(), generation, "a copy was added");
            return Ok(Ended::Done);
        }
        // Its generation has been passed: no record will ever name it.
        let mut report = RoundReport::default();
        files::quarantine(disk, group, generation, "the record changed meanwhile", &mut report).await;
        Ok(Ended::Waits("the record changed meanwhile".into()))
    }
}

/// A copy that is on its way to a disk.
struct Counted<'a> {
    inner: &'a Inner,
    disk: DiskId,
}

impl<'a> Counted<'a> {
    fn new(inner: &'a Inner, disk: DiskId) -> Counted<'a> {
        inner.board.lock().copy_begins(disk);
        Counted { inner, disk }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inner.board.lock().copy_ended(self.disk);
    }
}
