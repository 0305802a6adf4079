//! Write-cold groups become a strip (protocols.md 5; rules R44 to R49).
//!
//! The steps, and what a crash after each leaves: the headers of the groups are read (nothing); one entry freezes them and creates the
//! records of parity (a strip that is encoding, given up by the next round that finds it); parity is written (files that the giving
//! up drops); all members are read back from their disks and every data image is computed anew from two choices of the others
//! (the same); one entry makes the strip count and takes the other replicas from the records (a strip; their files are named by no
//! record any more, and each node sets aside what no record names); the files of those replicas are set aside.
//!
//! Promises: a replica goes only after that last entry; whatever goes wrong before it, all replicas stay. Refuses to know: which groups.

use super::choose::{Chosen, Member};
use super::digest::Digest;
use super::rebuild;
use crate::access::Access;
use crate::config::OfCluster;
use crate::error::CuratorError;
use crate::groups::files;
use crate::groups::frames::{self, File};
use crate::ranges::{self, FIRST};
use crate::rounds::RoundReport;
use erasure::Code;
use extent_store::{CopyError, FileError};
use metadata::command::{Outcome, Refusal, RootCommand};
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState};
use metadata::strip::{Frames, NewMember, StripState};
use metadata::tree::Read;
use object_controller::strips::{Images, Members, NoImage, parity_frame};
use replicas::ReplicaCopy;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{DiskId, GroupId, StripId};

/// Why there is no strip now. Nothing is lost by it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotEncoded {
    /// Groups are not as they were, or not as they should be.
    #[error("{0}")]
    Unfit(String),
    /// A member could not be read.
    #[error(transparent)]
    Image(#[from] NoImage),
    /// Parity could not be written.
    #[error("parity was not written: {0}")]
    Copy(#[from] CopyError),
    /// What was read back is not what was written.
    #[error("the proof failed: {0}")]
    Proof(String),
    /// The curator cannot go on.
    #[error(transparent)]
    Curator(#[from] CuratorError),
}

fn unfit(what: impl Into<String>) -> NotEncoded {
    NotEncoded::Unfit(what.into())
}

/// What is asked once more before the replicas go (rule R44).
pub(super) struct Judged<F> {
    /// The code that was chosen.
    pub(super) code: (u8, u8),
    /// What the cluster does where a bucket leaves it open.
    pub(super) of_cluster: OfCluster,
    /// Whether all the disks are in service.
    pub(super) may_end: F,
}

/// Encodes what was chosen, by the records that were judged when it was: one that changed since makes it fail.
pub(super) async fn encode(
    access: &Access,
    chosen: &Chosen,
    judged: Judged<impl Fn() -> bool + Send>,
    report: &mut RoundReport,
) -> Result<StripId, NotEncoded> {
    let mut data = Vec::new();
    for chosen in &chosen.data {
        data.push(member(access, chosen).await?);
    }
    let strip = StripId(access.random());
    let parity: Vec<(GroupId, DiskId)> = chosen.parity.iter().map(|disk| (GroupId(access.random()), *disk)).collect();
    let begin = RootCommand::BeginStrip { strip, data, parity };
    match access.root(begin).await {
        Ok(_) => {}
        Err(CuratorError::Refused(refusal)) => return Err(unfit(format!("a group changed: {refusal:?}"))),
        Err(error) => return Err(error.into()),
    }
    let done = write_and_prove(access, strip, chosen, judged, report).await;
    if let Err(error) = &done
        && !matches!(error, NotEncoded::Curator(CuratorError::Stopping))
    {
        tracing::warn!(%strip, %error, "a strip was not encoded; all replicas stay");
        give_up(access, strip, report).await?;
    }
    done.map(|()| strip)
}

/// The group as a member, by the headers in the file of the replica that stays.
async fn member(access: &Access, chosen: &Member) -> Result<NewMember, NotEncoded> {
    let Member { group, generation, disk } = *chosen;
    let record = access.group(group).await?.filter(|record| record.generation == generation);
    let record = record.ok_or_else(|| unfit(format!("group {group} changed")))?;
    let only = with_replica_on(&record, disk);
    let found = frames::look(access, group, &only).await;
    let [File::Walked { damaged, .. }] = found.files.as_slice() else {
        return Err(unfit(format!("the file of group {group} on disk {disk} cannot be walked")));
    };
    let below = ranges::clamp(damaged, FIRST, record.length);
    if record.state != GroupState::Sealed || !ranges::subtract(&below, &record.dead).is_empty() {
        return Err(unfit(format!("group {group} on disk {disk} is damaged")));
    }
    let alive = found.frames.iter().map(|((offset, ..), frame)| (*offset, frame.frame_bytes));
    let alive =
        alive.filter(|(offset, bytes)| offset + bytes <= record.length && !ranges::contains(&record.dead, *offset));
    let frames: Frames = alive.collect();
    Ok(NewMember { group, generation, frames })
}

fn with_replica_on(record: &GroupRecord, disk: DiskId) -> GroupRecord {
    let mut record = record.clone();
    record.replicas.retain(|replica| replica.disk == disk);
    record
}

/// The strip, its data groups with the replicas that stay and no other: what is encoded and proved is what will be read.
async fn members(access: &Access, strip: StripId, chosen: &Chosen) -> Result<Members, NotEncoded> {
    let members = access.read(move |read| Members::read(read, strip)).await?;
    let mut members =
        members.filter(|members| members.strip.state == StripState::Encoding).ok_or_else(|| unfit("it is gone"))?;
    for (record, of) in members.groups.iter_mut().zip(&chosen.data) {
        if record.generation != begun(of) {
            return Err(unfit(format!("group {} changed", of.group)));
        }
        *record = with_replica_on(record, of.disk);
    }
    Ok(members)
}

/// The generation that the beginning made of the one that was judged.
fn begun(of: &Member) -> u32 {
    of.generation.saturating_add(1)
}

async fn write_and_prove(
    access: &Access,
    strip: StripId,
    chosen: &Chosen,
    judged: Judged<impl Fn() -> bool + Send>,
    report: &mut RoundReport,
) -> Result<(), NotEncoded> {
    let members = members(access, strip, chosen).await?;
    let mut images = Images::new(access.disks(), &members);
    let written = write(access, &members, &mut images, chosen).await;
    rebuild::report_bad(access, &images, None);
    let mut images = Images::new(access.disks(), &members);
    let proved = prove(access, &members, &mut images, &written?).await;
    rebuild::report_bad(access, &images, None);
    let digests = proved?;
    if !(judged.may_end)() {
        return Err(unfit("a node failed meanwhile"));
    }
    let kept = chosen.data.iter().map(|of| (begun(of), of.disk)).collect();
    let (code, of_cluster, wall_ms) = (judged.code, judged.of_cluster, access.wall_ms());
    let read = move |read: &dyn Read| {
        let Some(members) = Members::read(read, strip)? else { return Ok(None) };
        let infos = root::buckets(read).map(|row| row.map(|info| (info.id, info)));
        let buckets: BTreeMap<_, _> = infos.collect::<Result<_, _>>()?;
        let mut data = members.groups.iter().take(members.strip.k());
        // A bucket that joined a group since has raised its generation: the entry below is refused.
        let is_due = data.all(|record| super::due(&buckets, record, of_cluster, wall_ms) == Some(code));
        Ok(Some((members, is_due)))
    };
    let (before, is_due) = access.read(read).await?.ok_or_else(|| unfit("it is gone"))?;
    if !is_due {
        return Err(unfit("its buckets ask for something else meanwhile"));
    }
    match access.root(RootCommand::EndStrip { strip, kept, digests }).await? {
        Outcome::Done => {}
        other => return Err(CuratorError::unexpected(&other).into()),
    }
    report.encoded += 1;
    tracing::info!(%strip, data = ?chosen.data, parity = ?chosen.parity, "groups were encoded");
    for (record, kept) in before.groups.iter().zip(&chosen.data) {
        for replica in record.replicas.iter().filter(|replica| replica.disk != kept.disk) {
            if let Some(disk) = access.disks().get(replica.disk) {
                files::quarantine(&disk, kept.group, replica.file_generation, files::SURPLUS, report).await;
            }
        }
    }
    Ok(())
}

/// Parity over all images, piece by piece; durable when it answers. The digests of all members.
async fn write(
    access: &Access,
    members: &Members,
    images: &mut Images<'_>,
    chosen: &Chosen,
) -> Result<Vec<u32>, NotEncoded> {
    let (k, m) = (members.strip.k(), members.strip.m());
    let code = Arc::new(Code::new(k, m).map_err(|error| unfit(error.to_string()))?);
    let cluster = access.controller().cluster();
    let mut copies: Vec<ReplicaCopy> = Vec::new();
    for ((group, disk), record) in members.strip.parity.iter().zip(&chosen.parity).zip(&members.groups[k..]) {
        let disk = access.disks().get(*disk).ok_or_else(|| unfit("a disk for parity is gone"))?;
        copies.push(disk.begin_copy(*group, 1, record.length).await?);
    }
    let mut digests = vec![Digest::default(); k + m];
    let places: Vec<usize> = (0..k).collect();
    for ((row, range), (offset, _)) in (0..).zip(members.rows()).zip(members.strip.frames(k)) {
        let data = images.all(&places, range).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let encoder = code.clone();
        let encoded = access.compute(move || encoder.encode(&data).map(|parity| (data, parity))).await;
        let (data, parity) = encoded.map_err(|error| unfit(error.to_string()))?;
        for (digest, piece) in digests.iter_mut().zip(data.iter().chain(&parity)) {
            digest.add(piece);
        }
        for ((copy, group), payload) in copies.iter_mut().zip(&members.strip.parity).zip(&parity) {
            let frame = parity_frame(members.id, *group, row, offset, payload, cluster);
            copy.put(frame.ok_or_else(|| unfit("no frame was made"))?).await?;
        }
    }
    for copy in copies {
        copy.finish().await?;
    }
    Ok(digests.into_iter().map(Digest::value).collect())
}

/// Reads all members back from their disks, around the page cache, and computes every data image from two choices of the others: one that
/// uses as much parity as there is, and one that does with a single piece. Each must be, byte for byte, the image that was read, whose
/// frames were verified against the checksums they came in with (rule R44). The digests, which must be those of what was written.
async fn prove(
    access: &Access,
    members: &Members,
    images: &mut Images<'_>,
    digests: &[u32],
) -> Result<Vec<u32>, NotEncoded> {
    let (k, m) = (members.strip.k(), members.strip.m());
    let code = Arc::new(Code::new(k, m).map_err(|error| unfit(error.to_string()))?);
    let choices = Arc::new(choices(k, m));
    let mut read = vec![Digest::default(); k + m];
    let places: Vec<usize> = (0..k + m).collect();
    for range in members.rows() {
        let from = range.start;
        let all = images.all(&places, range).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (digest, piece) in read.iter_mut().zip(&all) {
            digest.add(piece);
        }
        let is_zero = |piece: &Vec<u8>| piece.iter().all(|byte| *byte == 0);
        if all[k..].iter().all(is_zero) && !all[..k].iter().all(is_zero) {
            return Err(NotEncoded::Proof(format!("all parity is zeros at {from}")));
        }
        let (code, choices) = (code.clone(), choices.clone());
        access.compute(move || choices.iter().try_for_each(|lost| agree(&code, &all, lost, from))).await?;
    }
    let read: Vec<u32> = read.into_iter().map(Digest::value).collect();
    if read == digests { Ok(read) } else { Err(NotEncoded::Proof("what was read is not what was written".into())) }
}

/// Whether the data images, computed without these, are those that were read.
fn agree(code: &Code, all: &[Vec<u8>], lost: &[usize], from: u64) -> Result<(), NotEncoded> {
    let given = |(place, piece): (usize, &Vec<u8>)| (!lost.contains(&place)).then(|| piece.clone());
    let pieces = all.iter().enumerate().map(given).collect();
    let wanted: Vec<usize> = lost.iter().copied().filter(|place| *place < code.k()).collect();
    let computed = code.decode(pieces, &wanted).map_err(|error| NotEncoded::Proof(error.to_string()))?;
    match wanted.iter().zip(computed).find(|(place, piece)| *piece != all[**place]) {
        None => Ok(()),
        Some((place, _)) => Err(NotEncoded::Proof(format!("member {place} at {from}, without {lost:?}"))),
    }
}

/// Sets of m members to do without, so that each data member is in one whose rest holds all parity, and in one whose rest holds but one
/// piece of it.
fn choices(k: usize, m: usize) -> Vec<Vec<usize>> {
    let mut choices: Vec<Vec<usize>> = Vec::new();
    for first in (0..k).step_by(m) {
        let mut lost: Vec<usize> = (0..m.min(k)).map(|next| (first + next) % k).collect();
        lost.sort_unstable();
        // With fewer pieces of data than of parity some parity has to go as well.
        lost.extend(k..k + m - lost.len());
        choices.push(lost);
    }
    for place in 0..k {
        // Another piece of parity each time, so that each is used alone.
        let stays = k + place % m;
        let lost = std::iter::once(place).chain((k..k + m).filter(|parity| *parity != stays)).collect();
        choices.push(lost);
    }
    choices.dedup();
    choices
}

/// Takes back what an attempt left: the entry first, then the files of parity. A strip that counts meanwhile stays.
pub(super) async fn give_up(access: &Access, strip: StripId, report: &mut RoundReport) -> Result<(), CuratorError> {
    let Some(members) = access.read(move |read| Members::read(read, strip)).await? else { return Ok(()) };
    if members.strip.state != StripState::Encoding {
        return Ok(());
    }
    match access.root(RootCommand::AbortStrip { strip }).await {
        Ok(_) => {}
        // It counts: whoever ended it was faster.
        Err(CuratorError::Refused(refusal)) if matches!(*refusal, Refusal::Stale(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    report.strips_given_up += 1;
    drop_parity(access, &members).await;
    Ok(())
}

/// Drops the files of parity that never counted and whose records are gone, by order of those records.
async fn drop_parity(access: &Access, members: &Members) {
    for (group, record) in members.strip.parity.iter().zip(&members.groups[members.strip.k()..]) {
        for replica in &record.replicas {
            let Some(disk) = access.disks().get(replica.disk) else { continue };
            match disk.drop_file(*group, replica.file_generation).await {
                Ok(()) | Err(FileError::Missing) => {}
                Err(error) => tracing::warn!(%group, disk = %replica.disk, %error, "parity of no strip is still there"),
            }
        }
    }
}

/// Strips that are encoding although nobody is at it: this node would be, and it holds the turn.
pub(super) async fn given_up(access: &Access) -> Result<Vec<StripId>, CuratorError> {
    access
        .read(|read| {
            let encoding = root::strips(read)
                .filter(|row| row.as_ref().is_ok_and(|(_, row)| row.state == StripState::Encoding) || row.is_err());
            encoding.map(|row| row.map(|(id, _)| id)).collect()
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::choices;

    #[test]
    fn each_image_is_computed_with_all_parity_and_with_one_piece() {
        for (k, m) in [(4, 2), (2, 1), (3, 2), (6, 3), (2, 3), (16, 4)] {
            let choices = choices(k, m);
            assert!(choices.iter().all(|lost| lost.len() == m), "{k}+{m}: {choices:?}");
            for place in 0..k {
                let without: Vec<_> = choices.iter().filter(|lost| lost.contains(&place)).collect();
                let parity = |lost: &Vec<usize>| (k..k + m).filter(|parity| !lost.contains(parity)).count();
                assert!(without.iter().any(|lost| parity(lost) == m.min(k)), "{k}+{m}: {place} in {choices:?}");
                assert!(without.iter().any(|lost| parity(lost) == 1), "{k}+{m}: {place} in {choices:?}");
                assert!(m == 1 || without.len() >= 2, "{k}+{m}: {place} in {choices:?}");
            }
        }
    }
}
