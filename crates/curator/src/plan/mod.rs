//! What the records of groups and the state of the disks ask for: more copies, fewer copies, seals (rules R26, R51, R54, R58, R62).
//!
//! A copy is *sound* if all of it is there on a disk in service whose node answers. Copies count by the domain they lie in, so two on
//! one node are one. Too few: a copy is added beside those there are; the copy on a node that is down stays in the record, for what it
//! holds counts again when the node is back. Too many, and every listed copy can be asked: one is trimmed, slowly. A copy on a disk
//! that is lost leaves the record when enough others are sound.
//!
//! **It comes to rest.** An added copy raises the number of sound domains by one and is asked for only while that is below what is
//! required; a trimmed one lowers the number of copies and leaves at least what is required; so in a world that stands still nothing
//! is done twice. In one that does not, a node that comes and goes costs at most one copy of each group: once it is there, the node's
//! absence leaves enough others, and while the node is away nothing is trimmed.
//!
//! Promises: a pure function of records, view and what is required; never asks for a second copy in a domain, never for a trim below
//! what is required, nor while one copy cannot be asked. Refuses to know: clocks, budgets, how a task is done.

pub(crate) mod census;
pub(crate) mod copies;
pub(crate) mod place;
#[cfg(test)]
mod tests;

use crate::limits;
use crate::view::View;
use census::Census;
use copies::Copies;
use metadata::rows::{GroupRecord, GroupState};
use serde::{Deserialize, Serialize};
use types::{DiskId, GroupId, NodeId};

/// What is done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its writer's node is down: it is sealed, so that it can be copied.
    Seal,
    /// It is open on a disk that is down or lost: its writer goes on in another.
    Leave,
    /// One more copy.
    Add,
    /// Copies on lost disks leave the record.
    Forget,
    /// One copy less.
    Trim,
}

/// One thing to do to one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) group: GroupId,
    pub(crate) kind: Kind,
    /// 1 is the most urgent.
    pub(crate) priority: u8,
    /// Domains in which the group can be read now.
    pub(crate) readable: usize,
    /// Bytes of a copy.
    pub(crate) bytes: u64,
    /// Only worth its while if it is still so after some time.
    pub(crate) patient: bool,
    /// The node that should do it.
    pub(crate) executor: NodeId,
}

impl Task {
    /// Whether no other copy can be read: nothing slows it down (rule R51).
    pub(crate) fn is_last_copy(&self) -> bool {
        self.priority == 1 && self.readable <= 1
    }

    fn rank(&self) -> (u8, usize, GroupId) {
        (self.priority, self.readable, self.group)
    }
}

/// What there is to do for one node, and how things stand for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The most urgent first; not all of them if there are very many.
    pub(crate) tasks: Vec<Task>,
    pub(crate) census: Census,
}

/// A group with what its buckets require.
pub(crate) type Group<'a> = (GroupId, &'a GroupRecord, usize);

impl Plan {
    /// Takes a group up.
    pub(crate) fn add(&mut self, view: &View, me: NodeId, (group, record, required): Group<'_>) {
        let copies = Copies::of(view, record);
        let task = decide(view, (group, record, required), &copies);
        self.census.add(record, required, &copies, task.as_ref());
        self.tasks.extend(task.filter(|task| task.executor == me));
        if self.tasks.len() >= 2 * limits::PLANNED_TASKS {
            self.keep_most_urgent();
        }
    }

    /// All groups are in it.
    pub(crate) fn finish(mut self) -> Plan {
        self.keep_most_urgent();
        self.census.sort();
        self
    }

    fn keep_most_urgent(&mut self) {
        self.tasks.sort_by_key(Task::rank);
        self.tasks.truncate(limits::PLANNED_TASKS);
    }
}

/// What this group needs, if anything.
pub(crate) fn decide(view: &View, (group, record, required): Group<'_>, copies: &Copies) -> Option<Task> {
    let (kind, priority, patient) = match record.state {
        GroupState::Open | GroupState::Sealing => unsealed(view, record, copies)?,
        GroupState::Sealed => sealed(record, required, copies)?,
        GroupState::Dropped => return None,
    };
    let executor = if kind == Kind::Leave { record.writer.0 } else { copies.executor(view, group)? };
    let (readable, bytes) = (copies.readable.len(), copies::live_bytes(record));
    Some(Task { group, kind, priority, readable, bytes, patient, executor })
}

/// That a group was sealed while its writer lives does no harm: what it acknowledges, all replicas have acknowledged, and one that was
/// fenced acknowledges nothing more (protocols.md 1).
fn unsealed(view: &View, record: &GroupRecord, copies: &Copies) -> Option<(Kind, u8, bool)> {
    if view.is_down(record.writer.0) {
        return copies.uncertain_readable.then_some((Kind::Seal, 1, false));
    }
    // Writers leave disks that drain by themselves.
    let hurt = !copies.away.is_empty() || !copies.gone.is_empty();
    hurt.then_some((Kind::Leave, 1, false))
}

/// Members of strips are kept by those who keep strips: what is dead in them may be needed still.
fn sealed(record: &GroupRecord, required: usize, copies: &Copies) -> Option<(Kind, u8, bool)> {
    if record.strip.is_some() {
        return None;
    }
    if copies.counted() < required {
        if copies.sources.is_empty() {
            return None;
        }
        let (lost, uncertain) = (copies.has_lost_some(), copies.uncertain_readable);
        // One that has not answered the seal yet, or holds less, is mended where it is within a round or two, if it can be.
        return Some((Kind::Add, if lost || uncertain { 1 } else { 2 }, uncertain && !lost));
    }
    if copies.sound.len() < required {
        return None;
    }
    if !copies.gone.is_empty() {
        return Some((Kind::Forget, 2, false));
    }
    let victim = copies.victim(record, required)?;
    let leaves = copies.leaving.contains(&victim);
    Some((Kind::Trim, if leaves { 2 } else { 5 }, !leaves))
}

/// The disk whose copy goes, if one is to go.
pub(crate) fn surplus(record: &GroupRecord, required: usize, copies: &Copies) -> Option<DiskId> {
    match sealed(record, required, copies) {
        Some((Kind::Trim, ..)) => copies.victim(record, required),
        _ => None,
    }
}

/// Whether a copy is to be added.
pub(crate) fn is_short(record: &GroupRecord, required: usize, copies: &Copies) -> bool {
    matches!(sealed(record, required, copies), Some((Kind::Add, ..)))
}

/// Whether copies on lost disks are to leave the record.
pub(crate) fn is_to_forget(record: &GroupRecord, required: usize, copies: &Copies) -> bool {
    matches!(sealed(record, required, copies), Some((Kind::Forget, ..)))
}
