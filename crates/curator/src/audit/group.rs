//! One group: what contents name of it, what its record says, what stands in the files of its replicas.

use super::report::{AuditReport, DifferenceKind};
use crate::access::Access;
use crate::contents::references::Extent;
use crate::error::CuratorError;
use crate::groups::frames::{self, File, Found};
use crate::ranges::{self, FIRST, Ranges};
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState, ReplicaState};
use metadata::strip::{StripRecord, StripState, parity_content};
use std::collections::BTreeMap;
use types::GroupId;

/// What is compared.
pub(super) struct Subject<'a> {
    pub(super) id: GroupId,
    pub(super) record: &'a GroupRecord,
    pub(super) extents: &'a [Extent],
    /// Dead by the outbox, not yet by the record.
    pub(super) pending: &'a Ranges,
}

pub(super) async fn compare(access: &Access, group: Subject<'_>, report: &mut AuditReport) -> Result<(), CuratorError> {
    let found = frames::look(access, group.id, group.record).await;
    if let Some(of) = &group.record.strip {
        let id = of.strip;
        let strip = access.read(move |read| root::strip(read, id)).await?;
        if let Some(strip) = strip.filter(|strip| usize::from(of.place) >= strip.k()) {
            group.parity_against_files(&strip, usize::from(of.place), &found, report);
            return Ok(());
        }
    }
    group.record_against_extents(report);
    group.extents_against_files(&found, report);
    let (node, session) = group.record.writer;
    // Nobody else writes under a session that lives, and it seals its own.
    let live = access.read(move |read| root::session(read, node)).await? <= session;
    group.files_against_extents(&found, live, report);
    group.replicas(&found, report);
    Ok(())
}

impl Subject<'_> {
    fn record_against_extents(&self, report: &mut AuditReport) {
        for extent in self.extents {
            let bytes = extent.range().1;
            if extent.owed {
                report.pending_bytes += bytes;
                continue;
            }
            report.owned_extents += 1;
            report.owned_bytes += bytes;
            if ranges::contains(&self.record.dead, extent.offset) {
                report.differ(DifferenceKind::OwnedAndDead, bytes, self.name(extent));
            }
        }
        if self.record.settled {
            let known = self.extents.iter().map(Extent::range).chain(self.pending.iter().copied());
            let known = ranges::merge(known.chain(self.record.dead.iter().copied()));
            for (offset, bytes) in ranges::rest(FIRST, self.record.length, &known) {
                report.differ(DifferenceKind::Unaccounted, bytes, format!("group {}: {bytes} at {offset}", self.id));
            }
        }
    }

    fn extents_against_files(&self, found: &Found, report: &mut AuditReport) {
        for extent in self.extents.iter().filter(|extent| !extent.owed) {
            let standing = found.frames.get(&(extent.offset, extent.content, extent.index));
            let standing = standing.filter(|frame| frame.payload_bytes == extent.payload_bytes);
            for (place, replica) in self.record.replicas.iter().enumerate() {
                if standing.is_some_and(|frame| frame.on.contains(&place)) {
                    report.stored_bytes += extent.range().1;
                } else {
                    let what = format!("{} is not on disk {}", self.name(extent), replica.disk);
                    report.differ(DifferenceKind::Lost, extent.range().1, what);
                }
            }
        }
    }

    /// A parity group holds the frames that its strip says, and nothing else. While it is being written nothing is said of it.
    fn parity_against_files(&self, strip: &StripRecord, place: usize, found: &Found, report: &mut AuditReport) {
        if strip.state == StripState::Encoding {
            return;
        }
        let content = self.record.strip.as_ref().map(|of| parity_content(of.strip));
        let frames = strip.frames(place);
        for (index, (offset, bytes)) in (0..).zip(&frames) {
            let standing = content.and_then(|content| found.frames.get(&(*offset, content, index)));
            let standing = standing.filter(|frame| frame.frame_bytes == *bytes);
            for (place, replica) in self.record.replicas.iter().enumerate() {
                if standing.is_some_and(|frame| frame.on.contains(&place)) {
                    report.parity_bytes += bytes;
                } else {
                    let what = format!("parity {index} of group {} is not on disk {}", self.id, replica.disk);
                    report.differ(DifferenceKind::Parity, *bytes, what);
                }
            }
        }
        for ((offset, of, index), frame) in &found.frames {
            let known = frames.get(*index as usize).is_some_and(|(at, _)| at == offset) && content == Some(*of);
            if !known {
                let what = format!("group {} of parity: content {of:?} extent {index} at {offset}", self.id);
                report.differ(DifferenceKind::Leaked, frame.frame_bytes, what);
            }
        }
        self.replicas(found, report);
    }

    fn files_against_extents(&self, found: &Found, live: bool, report: &mut AuditReport) {
        let named: BTreeMap<u64, &Extent> = self.extents.iter().map(|extent| (extent.offset, extent)).collect();
        let mut unsettled = 0;
        for ((offset, content, index), frame) in &found.frames {
            let bytes = frame.frame_bytes;
            let copies = frame.on.len() as u64;
            if named.get(offset).is_some_and(|extent| extent.content == *content && extent.index == *index) {
                continue;
            }
            let frozen = self.record.strip.as_ref().is_some_and(|of| ranges::contains(&of.live, *offset));
            if frozen && ranges::contains(&self.record.dead, *offset) {
                report.frozen_bytes += bytes * copies;
            } else if ranges::contains(&self.record.dead, *offset) {
                report.unpunched_bytes += bytes * copies;
            } else if ranges::contains(self.pending, *offset) {
                // Counted with the outbox.
            } else if self.record.settled {
                let what = format!("group {}: content {content:?} extent {index} at {offset}", self.id);
                report.differ(DifferenceKind::Leaked, bytes * copies, what);
            } else if live {
                report.in_progress_bytes += bytes;
            } else {
                unsettled += bytes;
            }
        }
        if !live && !self.record.settled {
            let what = format!("group {} of an ended session: {unsettled} bytes are owned by nobody as yet", self.id);
            report.differ(DifferenceKind::Unsettled, unsettled, what);
        }
    }

    fn replicas(&self, found: &Found, report: &mut AuditReport) {
        if self.record.state != GroupState::Sealed {
            return;
        }
        for (replica, file) in self.record.replicas.iter().zip(&found.files) {
            let what = match (replica.state, file) {
                (ReplicaState::Whole, File::Walked { .. }) => continue,
                (ReplicaState::Whole, File::Missing) if self.record.length <= FIRST => continue,
                (ReplicaState::Whole, File::Missing) => "its file is not there".to_owned(),
                (_, File::NoDisk) => "the disk is not here".to_owned(),
                (_, File::Away(why)) => why.clone(),
                (_, File::Unreadable(why)) => why.clone(),
                (_, File::Short) => "too few file descriptors to read it".to_owned(),
                (ReplicaState::Holds(bytes), _) if bytes >= self.record.length => continue,
                (ReplicaState::Holds(bytes), _) => format!("it holds {bytes} of {} bytes", self.record.length),
                (ReplicaState::Open | ReplicaState::NotAnswered, _) => "it has not answered".to_owned(),
            };
            report.differ(DifferenceKind::Replica, 0, format!("group {} on disk {}: {what}", self.id, replica.disk));
        }
    }

    fn name(&self, extent: &Extent) -> String {
        format!("content {:?} extent {} in group {} at {}", extent.content, extent.index, self.id, extent.offset)
    }
}
