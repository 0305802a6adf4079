//! A replica that is damaged, short or gone is replaced by a new copy (protocols.md 2; rules R50, R52, R55, R66b).
//!
//! Promises: every frame of the new file was verified when it was read from the best replica, and again when the file was read
//! back; the record is switched by compare-and-set before the bad file is set aside; nothing is overwritten. If an owned frame is
//! bad everywhere, every file stays where it is and the objects are named; a frame is left out of a copy only if its content is
//! proved to be nobody's (protocols.md 4), and not because the process lacks descriptors just now. Refuses to know: how the damage
//! was found.

use super::files;
use super::frames::{self, File, Found};
use super::hurt::{self, Fate};
use super::settle;
use crate::access::Access;
use crate::error::CuratorError;
use crate::ranges::{self, FIRST};
use crate::rounds::RoundReport;
use crate::strips::rebuild;
use crate::view::DiskView;
use env::disk::is_transient;
use extent_store::{CopyError, Frame, FrameAddress, ReadError};
use metadata::command::{Outcome, RootCommand};
use metadata::rows::{GroupRecord, GroupState, Home, Replica, ReplicaState};
use object_controller::Contents;
use replicas::{Replica as Disk, Whereabouts, is_away};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use types::{ContentId, DiskId, GroupId};

/// Replicas to be looked at closely, by group.
#[derive(Default)]
pub(crate) struct Repairs {
    queue: BTreeMap<GroupId, BTreeSet<DiskId>>,
    /// Those that were tried before.
    tried: BTreeSet<GroupId>,
}

impl Repairs {
    pub(crate) fn add(&mut self, group: GroupId, disk: DiskId) {
        self.queue.entry(group).or_default().insert(disk);
    }

    /// Those that hold less than they should.
    pub(crate) fn add_short(&mut self, group: GroupId, record: &GroupRecord) {
        for replica in record.replicas.iter().filter(|r| is_short(record, r)) {
            self.add(group, replica.disk);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.queue.keys().copied().collect()
    }

    pub(crate) fn suspects(&self, group: GroupId) -> BTreeSet<DiskId> {
        self.queue.get(&group).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&mut self, group: GroupId) {
        self.queue.remove(&group);
        self.tried.remove(&group);
    }

    /// Notes a try; whether it is not the first.
    pub(crate) fn is_again(&mut self, group: GroupId) -> bool {
        !self.tried.insert(group)
    }
}

fn is_short(record: &GroupRecord, replica: &Replica) -> bool {
    matches!(replica.state, ReplicaState::Holds(bytes) if bytes < record.length)
}

/// How a repair ended.
#[derive(Debug)]
pub(crate) enum Repaired {
    /// Nothing is wrong (any more).
    Sound,
    /// So many replicas were replaced.
    Replaced(u64),
    /// It cannot be done now; why.
    Waits(String),
    /// These owned extents are bad on every replica.
    Hurt(Vec<String>),
}

/// A frame that the copy must have.
pub(crate) struct Wanted {
    pub(crate) offset: u64,
    pub(crate) home: Home,
    pub(crate) content: ContentId,
    pub(crate) index: u32,
    pub(crate) payload_bytes: u32,
}

/// Replaces what is bad of the group on these disks. A group that is still open is sealed if it is tried `again`: until then its
/// writer has time to seal it, who knows best what is in it.
pub(crate) async fn repair(
    access: &Access,
    group: GroupId,
    suspects: &BTreeSet<DiskId>,
    again: bool,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    match replace_bad(access, group, suspects, again, report).await {
        Err(error) if error.is_local() || matches!(error, CuratorError::Short(_) | CuratorError::Away(_)) => {
            Ok(Repaired::Waits(error.to_string()))
        }
        result => result,
    }
}

async fn replace_bad(
    access: &Access,
    group: GroupId,
    suspects: &BTreeSet<DiskId>,
    again: bool,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let mut replaced = 0;
    loop {
        let Some(record) = access.group(group).await? else { return Ok(Repaired::Sound) };
        if record.state != GroupState::Sealed && !again {
            return Ok(Repaired::Waits("it is not sealed yet".into()));
        }
        if record.state != GroupState::Sealed {
            // Its writer, if it lives, may have nothing more to write for days: what is known to be damaged does not wait for that. To
            // the writer it is a fence like any other.
            match access.controller().seal_group(group, record.generation, Contents::Unknown).await {
                Ok(record) if record.state == GroupState::Sealed => continue,
                Ok(_) => return Ok(Repaired::Waits("it is not sealed yet".into())),
                Err(error) => return Ok(Repaired::Waits(format!("it is not sealed yet: {error}"))),
            }
        }
        if let Some(place) = &record.strip {
            // Also what is dead in it must be whole, and what its file does not give the other members do.
            return rebuild::repair(access, group, place.strip, suspects, report).await;
        }
        let found = frames::look(access, group, &record).await;
        if found.files.contains(&File::Short) {
            return Err(CuratorError::Short(ErrorKind::OutOfMemory.into()));
        }
        if let Some(length) = owned_beyond(access, group, &record, &found).await? {
            // What a copy would leave out is acknowledged: the group gets its true length first.
            settle::raise(access, group, &record, &found, length).await?;
            continue;
        }
        let wanted = match wanted(access, group, &record, &found).await? {
            Ok(wanted) => wanted,
            // What looks lost may be on a node that does not answer.
            Err(_) if found.files.iter().any(|file| matches!(file, File::Away(_))) => {
                return Ok(Repaired::Waits("a node with a copy does not answer".into()));
            }
            Err(hurt) => return Ok(Repaired::Hurt(hurt)),
        };
        let Some(bad) = first_bad(access, group, &record, &found, suspects, &wanted).await? else {
            return Ok(if replaced == 0 { Repaired::Sound } else { Repaired::Replaced(replaced) });
        };
        if replaced == record.replicas.len() as u64 {
            return Ok(Repaired::Waits("its new copies are bad again".into()));
        }
        match replace(access, group, &record, bad, &wanted, report).await? {
            Ok(()) => replaced += 1,
            Err(other) => return Ok(other),
        }
    }
}

/// Until a group is settled damage may have made the fence answer too little. The end of what is owned beyond, if anything is.
pub(crate) async fn owned_beyond(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    found: &Found,
) -> Result<Option<u64>, CuratorError> {
    if record.settled {
        return Ok(None);
    }
    let mut end = None;
    for ((offset, ..), frame) in found.frames.iter().filter(|((offset, ..), _)| *offset >= record.length) {
        if hurt::fate(access, group, *offset, &frame.home, frame.content).await? == Fate::Owned {
            end = end.max(Some(offset + frame.frame_bytes));
        }
    }
    let beyond = |(offset, bytes): &(u64, u64)| offset + bytes > record.length;
    let unexplained = found.files.iter().any(|file| match file {
        File::Walked { damaged, .. } => damaged.iter().any(beyond),
        _ => false,
    });
    if unexplained {
        let owned = hurt::owned_in(access, group, &[(record.length, u64::MAX - record.length)]).await?;
        end = end.max(owned.iter().map(|(_, extent)| extent.offset + extent.range().1).max());
    }
    Ok(end)
}

/// What stands below the length and is not dead. `Err`: owned extents for which no replica has even a header.
pub(crate) async fn wanted(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    found: &Found,
) -> Result<Result<Vec<Wanted>, Vec<String>>, CuratorError> {
    let known = ranges::merge(found.ranges().into_iter().chain(record.dead.iter().copied()));
    let gap = ranges::rest(FIRST, record.length, &known);
    if !gap.is_empty() {
        // What nobody here has a header for may stand on a node that does not answer, and may be committed yet: a copy without it
        // would pass for whole.
        if let Some(why) = found.files.iter().find_map(|file| if let File::Away(why) = file { Some(why) } else { None })
        {
            return Err(CuratorError::Away(std::io::Error::other(why.clone())));
        }
        let lost = hurt::owned_in(access, group, &gap).await?;
        if !lost.is_empty() {
            let mut lines = Vec::new();
            for (home, extent) in &lost {
                lines.push(hurt::describe(access, group, extent.offset, home, extent.index).await);
            }
            return Ok(Err(lines));
        }
    }
    let live = found.frames.iter().filter(|((offset, ..), frame)| {
        offset + frame.frame_bytes <= record.length && !ranges::contains(&record.dead, *offset)
    });
    let wanted = live.map(|((offset, ..), frame)| Wanted {
        offset: *offset,
        home: frame.home.clone(),
        content: frame.content,
        index: frame.index,
        payload_bytes: frame.payload_bytes,
    });
    Ok(Ok(wanted.collect()))
}

/// Place of the first suspect replica that is not as it should be. All of it is read. That no replica can give a frame that
/// nobody owns (yet) is no reason for a new copy: it would not have it either.
async fn first_bad(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    found: &Found,
    suspects: &BTreeSet<DiskId>,
    wanted: &[Wanted],
) -> Result<Option<usize>, CuratorError> {
    let mut away = None;
    for (place, replica) in record.replicas.iter().enumerate() {
        if !suspects.contains(&replica.disk) {
            continue;
        }
        if let Some(File::Away(why)) = found.files.get(place) {
            // Not lost: only the map says that. It is looked at when it is back.
            away.get_or_insert_with(|| why.clone());
            continue;
        }
        if is_short(record, replica) || found.files.get(place).is_some_and(|f| matches!(f, File::NoDisk)) {
            return Ok(Some(place));
        }
        for frame in wanted {
            if read(access, group, replica, frame).await?.is_some() {
                continue;
            }
            let elsewhere = best(access, group, record, place, frame).await?.is_some();
            let fate = hurt::fate(access, group, frame.offset, &frame.home, frame.content).await?;
            if elsewhere || fate == Fate::Owned {
                return Ok(Some(place));
            }
        }
        if wanted.is_empty() && matches!(found.files.get(place), Some(File::Unreadable(_))) {
            return Ok(Some(place));
        }
    }
    away.map_or(Ok(None), |why| Err(CuratorError::Away(std::io::Error::other(why))))
}

/// The frame, verified in full, from that replica; `None` if it does not have it. An error if that cannot be told just now.
pub(crate) async fn read(
    access: &Access,
    group: GroupId,
    replica: &Replica,
    wanted: &Wanted,
) -> Result<Option<Frame>, CuratorError> {
    let Some(disk) = access.disks().get(replica.disk) else {
        return match access.disks().whereabouts(replica.disk) {
            Whereabouts::Lost => Ok(None),
            _ => Err(CuratorError::Away(std::io::Error::other("it is not known where the disk is"))),
        };
    };
    let address = FrameAddress { group, generation: replica.file_generation, offset: wanted.offset };
    let frame = match disk.read_frame(address).await {
        Ok(frame) => frame,
        Err(ReadError::Io(error)) if is_transient(&error) => return Err(CuratorError::Short(error)),
        Err(ReadError::Io(error)) if is_away(&error) => return Err(CuratorError::Away(error)),
        Err(_) => return Ok(None),
    };
    let header = frame.header();
    let same = header.origin.content == wanted.content
        && header.origin.index == wanted.index
        && header.payload_bytes() == wanted.payload_bytes;
    Ok(same.then_some(frame))
}

/// Writes the new copy, switches the record, sets the old file aside.
async fn replace(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    bad: usize,
    wanted: &[Wanted],
    report: &mut RoundReport,
) -> Result<Result<(), Repaired>, CuratorError> {
    let Some(old) = record.replicas.get(bad).copied() else { return Ok(Err(Repaired::Sound)) };
    let mut why = "no other disk may take the copy".to_owned();
    let targets = targets(access, record, &old).await;
    let claimed;
    let record = match access.disks().is_clustered() && !targets.is_empty() {
        false => record,
        true => {
            claimed = claim(access, group, record).await?;
            &claimed
        }
    };
    let generation = record.generation + 1;
    for disk in targets {
        match write_copy(access, group, record, bad, wanted, &disk, generation).await? {
            Ok(()) => return switch(access, group, record, bad, &disk, report).await,
            Err(Failed::Hurt(lines)) => return Ok(Err(Repaired::Hurt(lines))),
            Err(Failed::Undecided(home)) => {
                let why = format!("an upload to {:?} that may still be committed has bytes in it", home.key.as_str());
                return Ok(Err(Repaired::Waits(why)));
            }
            Err(Failed::Copy(CopyError::Exists)) => {
                // Left by a crash between copy and switch, or by a switch that lost: named by no record, and by none to come, as
                // whoever has the turn has seen every switch that was begun before.
                files::quarantine(&disk, group, generation, "an unused copy", report).await;
                why = "an unused copy was in the way".into();
            }
            Err(Failed::Copy(error)) => {
                tracing::warn!(%group, disk = %disk.id(), %error, "a copy was not made");
                why = error.to_string();
            }
        }
    }
    Ok(Err(Repaired::Waits(why)))
}

/// Raises the record's generation, so that the file to come has a name that no attempt used before: an order about an earlier attempt
/// that a network delivers late finds no other file under its name.
pub(crate) async fn claim(access: &Access, group: GroupId, record: &GroupRecord) -> Result<GroupRecord, CuratorError> {
    let (generation, replicas) = (record.generation, record.replicas.clone());
    match access.root(RootCommand::SetReplicas { group, generation, replicas }).await? {
        Outcome::Group(record) => Ok(*record),
        other => Err(CuratorError::unexpected(&other)),
    }
}

/// Disks that may take the copy: the old one first, if it is sound, then those without a replica, the emptiest first; never one on
/// the node of another replica (rule R26), unless the old one was there too and no better is found.
async fn targets(access: &Access, record: &GroupRecord, old: &Replica) -> Vec<Disk> {
    let disks = access.disks();
    let others = record.replicas.iter().filter(|r| r.disk != old.disk);
    let taken: BTreeSet<_> = others.filter_map(|r| disks.get(r.disk)).map(|disk| disk.node()).collect();
    let several = disks.nodes().len() > 1;
    let shared_before = disks.get(old.disk).is_some_and(|disk| taken.contains(&disk.node()));
    let view = access.view();
    let takes = |disk: &Disk| view.disks.is_empty() || view.disk(disk.id()).is_some_and(DiskView::takes_copies);
    let mut others = Vec::new();
    let free = |disk: &Disk| takes(disk) && !record.replicas.iter().any(|r| r.disk == disk.id());
    for disk in disks.all().into_iter().filter(free) {
        let shares = several && taken.contains(&disk.node());
        if disk.is_silent() || (shares && !shared_before) {
            continue;
        }
        let free = disk.known_space().map_or(0, |space| space.free_bytes);
        others.push((shares, disk.is_suspect(), Reverse(free), disk));
    }
    others.sort_by_key(|(shares, suspect, free, disk)| (*shares, *suspect, *free, disk.id()));
    let same = disks.get(old.disk).filter(|disk| !disk.is_silent() && takes(disk));
    let others = others.into_iter().map(|(.., disk)| disk);
    match same {
        Some(disk) if disk.is_suspect() => others.chain([disk]).collect(),
        Some(disk) => [disk].into_iter().chain(others).collect(),
        None => others.collect(),
    }
}

enum Failed {
    Copy(CopyError),
    Hurt(Vec<String>),
    /// No replica can give a frame of which it is not known yet whether somebody will own it.
    Undecided(Home),
}

async fn write_copy(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    bad: usize,
    wanted: &[Wanted],
    disk: &Disk,
    generation: u32,
) -> Result<Result<(), Failed>, CuratorError> {
    let mut copy = match disk.begin_copy(group, generation, record.length).await {
        Ok(copy) => copy,
        Err(error) => return Ok(Err(Failed::Copy(error))),
    };
    let mut lost = Vec::new();
    for frame in wanted {
        if let Some(sound) = best(access, group, record, bad, frame).await? {
            if lost.is_empty()
                && let Err(error) = copy.put(sound).await
            {
                return Ok(Err(Failed::Copy(error)));
            }
            continue;
        }
        match hurt::fate(access, group, frame.offset, &frame.home, frame.content).await? {
            Fate::Owned => lost.push(hurt::describe(access, group, frame.offset, &frame.home, frame.index).await),
            Fate::Undecided => return Ok(Err(Failed::Undecided(frame.home.clone()))),
            // Nobody will ask for it.
            Fate::Nobodys => {}
        }
    }
    if !lost.is_empty() {
        return Ok(Err(Failed::Hurt(lost)));
    }
    Ok(copy.finish().await.map_err(Failed::Copy))
}

/// From a replica beside the bad one, or even from that, frame by frame.
async fn best(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    bad: usize,
    wanted: &Wanted,
) -> Result<Option<Frame>, CuratorError> {
    let others = record.replicas.iter().enumerate().filter(|(place, _)| *place != bad).map(|(_, replica)| replica);
    let mut away = None;
    for replica in others.chain(record.replicas.get(bad)) {
        match read(access, group, replica, wanted).await {
            Ok(Some(frame)) => return Ok(Some(frame)),
            Ok(None) => {}
            // Another may have it; if none does, this one still may.
            Err(CuratorError::Away(error)) => away = Some(error),
            Err(error) => return Err(error),
        }
    }
    away.map_or(Ok(None), |error| Err(CuratorError::Away(error)))
}

async fn switch(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    bad: usize,
    disk: &Disk,
    report: &mut RoundReport,
) -> Result<Result<(), Repaired>, CuratorError> {
    let old = record.replicas[bad];
    let generation = record.generation + 1;
    let mut replicas = record.replicas.clone();
    replicas[bad] = Replica { disk: disk.id(), file_generation: generation, state: ReplicaState::Whole };
    match access.root(RootCommand::SetReplicas { group, generation: record.generation, replicas }).await {
        Ok(_) => {}
        Err(error) if error.is_local() => {
            files::quarantine(disk, group, generation, "the record changed meanwhile", report).await;
            return Ok(Err(Repaired::Waits("the record changed meanwhile".into())));
        }
        Err(error) => return Err(error),
    }
    tracing::info!(%group, old = %old.disk, new = %disk.id(), generation, "a replica was replaced");
    report.repaired += 1;
    if let Some(old_disk) = access.disks().get(old.disk) {
        files::quarantine(&old_disk, group, old.file_generation, "replaced by a new copy", report).await;
    }
    Ok(Ok(()))
}
