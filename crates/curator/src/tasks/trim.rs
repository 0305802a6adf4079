//! One copy less: a surplus one, or those on disks that are lost (rules R33, R54, R55, R58).
//!
//! Every live frame is read and verified on every copy that stays, on the nodes that have them, before a compare-and-set takes the
//! surplus one out of the record; then, and by order of a record that does not name it, its file goes to quarantine, to be kept for a
//! while. A crash in between leaves a file that no record names, which the next comparison sets aside.
//!
//! Promises: what stays was proved a moment before; a copy that holds less, has not answered or cannot be asked is no surplus and
//! keeps the others from being one; a frame that a copy which stays does not have is a finding, and nothing is trimmed. Refuses to
//! know: how long a surplus must have lasted.

use super::pace::Rate;
use super::switch::switch;
use super::{Ended, Inner};
use crate::error::CuratorError;
use crate::groups::files;
use crate::groups::frames::{self, File, Found};
use crate::groups::hurt::{self, Fate};
use crate::groups::repair::{self, Wanted};
use crate::plan::copies::Copies;
use crate::plan::{is_to_forget, surplus};
use crate::ranges;
use crate::rounds::RoundReport;
use extent_store::{Depth, Scanned};
use metadata::rows::{GroupRecord, Replica};
use object_controller::findings::{Finding, Trouble};
use std::collections::BTreeSet;
use types::{ContentId, GroupId};

/// Copies on lost disks leave the record: enough others are whole. *Committed* when it is done.
pub(super) async fn forget(inner: &Inner, group: GroupId) -> Result<Ended, CuratorError> {
    let view = inner.access.view();
    let Some((record, required)) = inner.look_up(group, &view).await? else { return Ok(Ended::NotNeeded) };
    if !is_to_forget(&record, required, &Copies::of(&view, &record)) {
        return Ok(Ended::NotNeeded);
    }
    let stay: Vec<Replica> = record.replicas.iter().filter(|r| !view.is_lost(r.disk)).copied().collect();
    let switched = switch(&inner.access, group, record.generation, stay).await?;
    let lost = record.replicas.iter().find(|r| view.is_lost(r.disk) && switched.names(r.disk, r.file_generation));
    Ok(lost.map_or(Ended::Done, |_| Ended::Waits("the record changed meanwhile".into())))
}

/// *Committed* when it is done.
pub(super) async fn trim(inner: &Inner, group: GroupId) -> Result<Ended, CuratorError> {
    let (access, view) = (&inner.access, inner.access.view());
    let Some((record, required)) = inner.look_up(group, &view).await? else { return Ok(Ended::NotNeeded) };
    let Some(disk) = surplus(&record, required, &Copies::of(&view, &record)) else { return Ok(Ended::NotNeeded) };
    let (victim, stay): (Vec<Replica>, Vec<Replica>) = record.replicas.iter().partition(|r| r.disk == disk);
    let [victim] = victim[..] else { return Ok(Ended::NotNeeded) };
    let found = frames::look(access, group, &record).await;
    if let Some(why) = unjudged(inner, group, &record, &found).await? {
        return Ok(Ended::Waits(why));
    }
    let wanted = match repair::wanted(access, group, &record, &found).await? {
        Ok(wanted) => wanted,
        Err(lost) => return Ok(Ended::Waits(format!("nobody has {}", lost.join(", ")))),
    };
    for replica in &stay {
        if let Some(why) = prove(inner, group, replica, &wanted).await? {
            return Ok(Ended::Waits(why));
        }
    }
    // Reading took a while: whoever went away meanwhile may not come back.
    let now = inner.access.view();
    if surplus(&record, required, &Copies::of(&now, &record)) != Some(disk) {
        return Ok(Ended::Waits("a disk changed meanwhile".into()));
    }
    let switched = switch(access, group, record.generation, stay).await?;
    if switched.names(victim.disk, victim.file_generation) {
        return Ok(Ended::Waits("the record changed meanwhile".into()));
    }
    tracing::info!(%group, %disk, "a surplus copy was trimmed");
    if let Some(disk) = access.disks().get(disk) {
        let mut report = RoundReport::default();
        files::quarantine(&disk, group, victim.file_generation, files::SURPLUS, &mut report).await;
    }
    Ok(Ended::Done)
}

/// Why it cannot be told what has to be on the copies that stay. Until a group is settled something beyond its length may turn out to be
/// acknowledged, where damage made the fence answer too little.
async fn unjudged(
    inner: &Inner,
    group: GroupId,
    record: &GroupRecord,
    found: &Found,
) -> Result<Option<String>, CuratorError> {
    let walked = |file: &File| matches!(file, File::Walked { .. });
    let empty = record.length <= ranges::FIRST;
    if !found.files.iter().all(|file| walked(file) || (empty && *file == File::Missing)) {
        return Ok(Some("a copy cannot be walked".into()));
    }
    if record.settled {
        return Ok(None);
    }
    let beyond = |(offset, bytes): &(u64, u64)| offset + bytes > record.length;
    let debris =
        found.files.iter().any(|file| matches!(file, File::Walked { damaged, .. } if damaged.iter().any(beyond)));
    if debris {
        return Ok(Some("it is not settled, and not all of it can be read".into()));
    }
    for ((offset, ..), frame) in found.frames.iter().filter(|((offset, ..), _)| *offset >= record.length) {
        if hurt::fate(&inner.access, group, *offset, &frame.home, frame.content).await? != Fate::Nobodys {
            return Ok(Some("it is not settled, and somebody may own what lies beyond its length".into()));
        }
    }
    Ok(None)
}

/// Reads all of a copy where it is; `None` if every wanted frame is sound on it.
async fn prove(
    inner: &Inner,
    group: GroupId,
    replica: &Replica,
    wanted: &[Wanted],
) -> Result<Option<String>, CuratorError> {
    let Some(disk) = inner.access.disks().get(replica.disk) else {
        return Ok(Some("it is not known where a copy is".into()));
    };
    let mut sound: BTreeSet<(u64, ContentId, u32, u32)> = BTreeSet::new();
    let mut from = if wanted.is_empty() { None } else { Some(0) };
    while let Some(at) = from {
        inner.check_stopping()?;
        let page = match disk.scan_page(group, replica.file_generation, Depth::Payloads, at).await {
            Ok(page) => page,
            Err(error) => return Ok(Some(format!("a copy cannot be read: {error}"))),
        };
        for item in &page.items {
            if let Scanned::Frame(header) = item {
                let origin = &header.origin;
                sound.insert((header.address.offset, origin.content, origin.index, header.payload_bytes()));
                inner.pace.take(Rate::SLOW, header.frame_bytes()).await;
            }
        }
        from = page.next;
    }
    let holds = |frame: &&Wanted| sound.contains(&(frame.offset, frame.content, frame.index, frame.payload_bytes));
    let Some(missing) = wanted.iter().find(|frame| !holds(frame)) else { return Ok(None) };
    // Dead since the record was read, or bad.
    let now = inner.access.group(group).await?;
    if now.is_some_and(|now| !ranges::contains(&now.dead, missing.offset)) {
        let (disk, offset, trouble) = (replica.disk, missing.offset, Trouble::Damaged);
        inner.access.controller().findings().report(Finding { disk, group, offset, trouble });
    }
    Ok(Some(format!("the copy on disk {} does not have all of it", replica.disk)))
}
