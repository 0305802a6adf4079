//! A member of a strip is made anew, from its own file where that is sound, else from any k others (rules R45, R50, R52, R66b).
//!
//! Promises: every frame of the new file was verified against its own header and checksums, and the whole image against the strip's digest,
//! before the file got its name; it is read back before it does; the record is switched by compare-and-set, then the bad file is set
//! aside; a new file never shares a node with another member unless it did before, or the members are to stand for themselves. What cannot
//! be made stays as it is; what is met that is bad in other members is reported. Refuses to know: how the damage was found.

use super::digest::Digest;
use crate::access::Access;
use crate::error::CuratorError;
use crate::groups::repair::{self, Repaired};
use crate::groups::{files, hurt};
use crate::ranges;
use crate::rounds::RoundReport;
use crate::view::View;
use extent_store::CopyError;
use metadata::command::RootCommand;
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use metadata::strip::StripState;
use object_controller::strips::{Images, Members, NoImage, frame_at, parity_frame};
use replicas::{Replica as Disk, ReplicaCopy};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use types::{DiskId, GroupId, NodeId, StripId};

/// Looks at the suspect replicas of a group that is in a strip, and replaces what is bad.
pub(crate) async fn repair(
    access: &Access,
    group: GroupId,
    strip: StripId,
    suspects: &BTreeSet<DiskId>,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let Some((members, place)) = of_group(access, group, strip).await? else { return Ok(Repaired::Sound) };
    if members.strip.state != StripState::Encoded {
        return Ok(Repaired::Waits("it is being encoded".into()));
    }
    for replica in members.groups[place].replicas.iter().filter(|replica| suspects.contains(&replica.disk)) {
        if is_sound(access, &members, place, replica).await? {
            continue;
        }
        return replace(access, &members, place, Some(replica.disk), report).await;
    }
    Ok(Repaired::Sound)
}

/// The strip as it is now, and the group's place in it.
pub(super) async fn of_group(
    access: &Access,
    group: GroupId,
    strip: StripId,
) -> Result<Option<(Members, usize)>, CuratorError> {
    let members = access.read(move |read| Members::read(read, strip)).await?;
    Ok(members.and_then(|members| {
        let place = members.strip.groups().position(|member| member == group)?;
        Some((members, place))
    }))
}

/// Whether all that was frozen stands in that replica's file.
async fn is_sound(access: &Access, members: &Members, place: usize, replica: &Replica) -> Result<bool, CuratorError> {
    let mut only = members.clone();
    only.groups[place].replicas = vec![*replica];
    let mut images = Images::new(access.disks(), &only);
    for range in only.rows() {
        match images.own(place, range).await {
            Ok(_) => {}
            Err(NoImage::Bad(_)) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(true)
}

/// Whether all that lives of what was frozen stands in that replica's file: what a group that stands for itself must have.
pub(super) async fn stands(
    access: &Access,
    members: &Members,
    place: usize,
    replica: &Replica,
) -> Result<bool, CuratorError> {
    let mut only = members.clone();
    only.groups[place].replicas = vec![*replica];
    let mut images = Images::new(access.disks(), &only);
    for (offset, bytes) in members.strip.frames(place) {
        if ranges::contains(&members.groups[place].dead, offset) {
            continue;
        }
        match images.own(place, offset..offset + bytes).await {
            Ok(_) => {}
            Err(NoImage::Bad(_)) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(true)
}

/// What was bad of the members but the one at that place, so that it is looked at.
pub(super) fn report_bad(access: &Access, images: &Images<'_>, but: Option<GroupId>) {
    for finding in images.bad().into_iter().filter(|finding| Some(finding.group) != but) {
        access.controller().findings().report(finding);
    }
}

fn failed(error: NoImage) -> CuratorError {
    match error {
        NoImage::Short(error) => CuratorError::Short(error),
        NoImage::Away(what) | NoImage::Bad(what) => CuratorError::Away(std::io::Error::other(what)),
    }
}

/// Makes a new copy of the member and names it instead of the replica on `old`, on a node without another member of the strip.
pub(super) async fn replace(
    access: &Access,
    members: &Members,
    place: usize,
    old: Option<DiskId>,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let listed = |(member, record): (usize, &GroupRecord)| {
        let stays = move |replica: &&Replica| member != place || Some(replica.disk) != old;
        record.replicas.iter().filter(stays).map(|replica| replica.disk).collect::<Vec<_>>()
    };
    let taken = members.groups.iter().enumerate().flat_map(listed).collect();
    make(access, members, place, old, targets(access, &taken, old), report).await
}

/// Makes one more copy of the member, on a node without a copy of it: it is to stand for itself.
pub(super) async fn add(
    access: &Access,
    members: &Members,
    place: usize,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let taken = members.groups[place].replicas.iter().map(|replica| replica.disk).collect();
    make(access, members, place, None, targets(access, &taken, None), report).await
}

/// Makes a copy of the member instead of that one, which is to stand for itself: on a node without another copy of it.
pub(super) async fn mend(
    access: &Access,
    members: &Members,
    place: usize,
    old: DiskId,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let others = members.groups[place].replicas.iter().map(|replica| replica.disk).filter(|disk| *disk != old);
    make(access, members, place, Some(old), targets(access, &others.collect(), Some(old)), report).await
}

async fn make(
    access: &Access,
    members: &Members,
    place: usize,
    old: Option<DiskId>,
    targets: Vec<Disk>,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let Some(group) = members.strip.group(place) else { return Ok(Repaired::Sound) };
    if targets.is_empty() {
        return Ok(Repaired::Waits("no other node may take the copy".into()));
    }
    // A name that no attempt used before.
    let record = repair::claim(access, group, &members.groups[place]).await?;
    let generation = record.generation + 1;
    let mut why = String::new();
    for disk in targets {
        let mut images = Images::new(access.disks(), members);
        let written = write(access, members, &mut images, place, &disk, (group, generation)).await;
        report_bad(access, &images, Some(group));
        match written {
            Ok(()) => return switch(access, group, &record, old, &disk, report).await,
            Err(NotWritten::Copy(CopyError::Exists)) => {
                files::quarantine(&disk, group, generation, "an unused copy", report).await;
            }
            Err(NotWritten::Copy(error)) => why = format!("disk {}: {error}", disk.id()),
            Err(NotWritten::Image(range, NoImage::Bad(what))) => {
                return lost(access, members, place, range, what).await;
            }
            Err(NotWritten::Image(_, error)) => return Err(failed(error)),
        }
        tracing::warn!(%group, disk = %disk.id(), why, "a member of a strip was not made anew there");
    }
    Ok(Repaired::Waits(why))
}

/// What is owned in a piece that neither its file nor the other members give.
async fn lost(
    access: &Access,
    members: &Members,
    place: usize,
    (from, to): (u64, u64),
    what: String,
) -> Result<Repaired, CuratorError> {
    let group = members.strip.group(place).unwrap_or(GroupId(0));
    if place >= members.strip.k() {
        return Ok(Repaired::Waits(format!("parity cannot be computed: {what}")));
    }
    let mut lines = Vec::new();
    let within = members.strip.data[place].frames.iter().filter(|(at, bytes)| *at < to && at + bytes > from);
    for (home, extent) in hurt::owned_in(access, group, &within.copied().collect::<Vec<_>>()).await? {
        lines.push(hurt::describe(access, group, extent.offset, &home, extent.index).await);
    }
    // Only what nobody owns any more is bad: the strip will be dissolved, until then the others have one less to be computed from.
    Ok(if lines.is_empty() { Repaired::Waits(what) } else { Repaired::Hurt(lines) })
}

/// Disks that may take a member: of nodes with none of the disks taken, the emptiest first, the old one's disk last. What is not in
/// service takes nothing.
fn targets(access: &Access, taken: &BTreeSet<DiskId>, old: Option<DiskId>) -> Vec<Disk> {
    let (disks, view) = (access.disks(), access.view());
    let nodes: BTreeSet<NodeId> = taken.iter().filter_map(|disk| node_of(access, &view, *disk)).collect();
    let mut free: Vec<Disk> = disks.all();
    free.retain(|disk| {
        let serves = view.disk(disk.id()).is_none_or(|of| of.takes_copies() && of.used_percent() < REBUILD_PERCENT);
        !nodes.contains(&disk.node()) && !disk.is_silent() && !disk.is_suspect() && serves
    });
    free.sort_by_cached_key(|disk| {
        let free_bytes = disk.known_space().map_or(0, |space| space.free_bytes);
        (Some(disk.id()) == old, Reverse(free_bytes), disk.id())
    });
    free
}

/// Nothing is rebuilt onto a disk that is fuller (rule R67).
const REBUILD_PERCENT: u64 = 90;

fn node_of(access: &Access, view: &View, disk: DiskId) -> Option<NodeId> {
    let known = view.disks.get(&disk).map(|of| of.node);
    known.or_else(|| access.disks().get(disk).map(|disk| disk.node()))
}

/// Why a copy was not written.
enum NotWritten {
    Copy(CopyError),
    /// The piece, and why.
    Image((u64, u64), NoImage),
}

impl From<CopyError> for NotWritten {
    fn from(error: CopyError) -> Self {
        NotWritten::Copy(error)
    }
}

/// Writes the member as a new file: *durable*, read back and named when it answers.
async fn write(
    access: &Access,
    members: &Members,
    images: &mut Images<'_>,
    place: usize,
    disk: &Disk,
    (group, generation): (GroupId, u32),
) -> Result<(), NotWritten> {
    let mut copy = disk.begin_copy(group, generation, members.groups[place].length).await?;
    let (mut digest, mut is_away) = (Digest::default(), false);
    let all = members.strip.frames(place);
    let mut frames = Frames { access, members, place, group, all, next: 0, row: 0, tail: Vec::new(), tail_at: 0 };
    for range in members.rows() {
        let of_own = match is_away {
            true => Err(NoImage::Away("its own node".into())),
            false => images.own(place, range.clone()).await,
        };
        let missing = |error| NotWritten::Image((range.start, range.end), error);
        let piece = match of_own {
            Ok(piece) => piece,
            Err(NoImage::Short(error)) => return Err(missing(NoImage::Short(error))),
            Err(error) => {
                // It would be waited for each time.
                is_away = matches!(error, NoImage::Away(_));
                images.decoded(place, range.clone()).await.map_err(missing)?
            }
        };
        digest.add(&piece);
        frames.put(&mut copy, range.start, piece).await?;
    }
    let all = (metadata::strip::FIRST, members.strip.length);
    let unsound = |what: &str| NotWritten::Image(all, NoImage::Bad(what.to_owned()));
    if !frames.is_complete() {
        return Err(unsound("the image ends within a frame"));
    }
    if members.strip.digests.get(place) != Some(&digest.value()) {
        return Err(unsound("the image is not the one that was encoded"));
    }
    Ok(copy.finish().await?)
}

/// Frames as they come to their end while the image goes by.
struct Frames<'a> {
    access: &'a Access,
    members: &'a Members,
    place: usize,
    group: GroupId,
    all: metadata::strip::Frames,
    /// The next frame.
    next: usize,
    row: u32,
    /// The image from there on, as far as it was seen.
    tail: Vec<u8>,
    tail_at: u64,
}

impl Frames<'_> {
    async fn put(&mut self, copy: &mut ReplicaCopy, at: u64, piece: Vec<u8>) -> Result<(), NotWritten> {
        let cluster = self.access.controller().cluster();
        let bad =
            |at: u64, to: u64| NotWritten::Image((at, to), NoImage::Bad("what was decoded is no sound frame".into()));
        let end = at + piece.len() as u64;
        if self.place >= self.members.strip.k() {
            let offset = self.all.get(self.row as usize).map_or(0, |(offset, _)| *offset);
            let frame = parity_frame(self.members.id, self.group, self.row, offset, &piece, cluster);
            self.row += 1;
            self.next += 1;
            return Ok(copy.put(frame.ok_or_else(|| bad(at, end))?).await?);
        }
        if self.tail.is_empty() {
            self.tail_at = at;
        }
        self.tail.extend_from_slice(&piece);
        while let Some((offset, bytes)) = self.all.get(self.next).copied() {
            let to = offset + bytes;
            if to > end {
                break;
            }
            let canonical = self.tail[(offset - self.tail_at) as usize..(to - self.tail_at) as usize].to_vec();
            let frame = frame_at(canonical, self.group, offset, cluster).ok_or_else(|| bad(offset, to))?;
            copy.put(frame).await?;
            self.next += 1;
        }
        // What begins later needs nothing of before.
        let keep = self.all.get(self.next).map_or(end, |(offset, _)| (*offset).clamp(self.tail_at, end));
        self.tail.drain(..(keep - self.tail_at) as usize);
        self.tail_at = keep;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.next == self.all.len()
    }
}

async fn switch(
    access: &Access,
    group: GroupId,
    record: &GroupRecord,
    old: Option<DiskId>,
    disk: &Disk,
    report: &mut RoundReport,
) -> Result<Repaired, CuratorError> {
    let generation = record.generation + 1;
    let mut replicas: Vec<Replica> = record.replicas.clone();
    let replaced = replicas.iter().find(|replica| Some(replica.disk) == old).copied();
    replicas.retain(|replica| Some(replica.disk) != old);
    replicas.push(Replica { disk: disk.id(), file_generation: generation, state: ReplicaState::Whole });
    match access.root(RootCommand::SetReplicas { group, generation: record.generation, replicas }).await {
        Ok(_) => {}
        Err(error) if error.is_local() => {
            files::quarantine(disk, group, generation, "the record changed meanwhile", report).await;
            return Ok(Repaired::Waits("the record changed meanwhile".into()));
        }
        Err(error) => return Err(error),
    }
    report.repaired += 1;
    tracing::info!(%group, new = %disk.id(), generation, "a member of a strip was made anew");
    if let Some(replaced) = replaced
        && let Some(old) = access.disks().get(replaced.disk)
    {
        files::quarantine(&old, group, replaced.file_generation, "replaced by a new copy", report).await;
    }
    Ok(Repaired::Replaced(1))
}
