//! Opening groups: how many, on which disks, record before files.
//!
//! Promises: at most one opening at a time for each requirement; the next group is opened before the last one is full; space is asked for before
//! a record is made, so that a full disk is an answer and not a trail of empty groups.
//! Refuses to know: what is appended.

use super::choose::{Candidate, choose};
use super::{Groups, OpenGroup, Requirement, State, closing};
use crate::api::StoreError;
use crate::limits;
use crate::proposer::Failed;
use env::disk::is_transient;
use extent_store::CreateError;
use futures_util::future::join_all;
use metadata::command::{Refusal, RootCommand};
use metadata::rows::{GroupRecord, GroupState, Replica as ReplicaRow, ReplicaState};
use replicas::{Replica, is_away};
use std::sync::Arc;
use tokio::sync::oneshot;
use types::{DiskId, GroupId};

/// Generation of a new group and of its files.
const FIRST_GENERATION: u32 = 1;

/// An opening under way. However it ends, a panic included, those who wait are answered and the next one may begin.
struct Opening {
    groups: Arc<Groups>,
    requirement: Requirement,
    result: Result<(), StoreError>,
}

/// A group, or word of the one that is being opened.
enum Found {
    Group(Arc<OpenGroup>),
    Wait(oneshot::Receiver<Result<(), StoreError>>),
}

impl Opening {
    fn new(groups: Arc<Groups>, requirement: Requirement) -> Opening {
        let result = Err(StoreError::Unavailable("the opening of a group ended badly".into()));
        Opening { groups, requirement, result }
    }

    async fn run(mut self) {
        let opened = self.groups.open_one(self.requirement).await;
        if let Ok(group) = &opened {
            let mut state = self.groups.state.lock();
            if !state.closed {
                state.open.push(group.clone());
            }
        }
        self.result = opened.map(|_| ());
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let waiting = self.groups.state.lock().opening.remove(&self.requirement);
        for waiter in waiting.into_iter().flatten() {
            // Whoever went away needs no group.
            let _ = waiter.send(self.result.clone());
        }
    }
}

impl Groups {
    /// A group of that requirement that takes `bytes`, the least busy one; opens one where there is none, and ahead of need.
    pub(super) async fn group_with_room(
        self: &Arc<Self>,
        requirement: Requirement,
        bytes: u64,
    ) -> Result<Arc<OpenGroup>, StoreError> {
        loop {
            let (found, opening) = self.look_for_group(requirement, bytes)?;
            if let Some(opening) = opening {
                // Without the lock: a story that is not taken is dropped at once, and then those who wait are answered.
                self.background.spawn(opening.run());
            }
            match found {
                Found::Group(group) => return Ok(group),
                Found::Wait(opened) => opened.await.map_err(|_| closing())??,
            }
        }
    }

    fn look_for_group(
        self: &Arc<Self>,
        requirement: Requirement,
        bytes: u64,
    ) -> Result<(Found, Option<Opening>), StoreError> {
        let mut state = self.state.lock();
        self.retire_full(&mut state, requirement, bytes);
        let best = of(&state, requirement).min_by_key(|g| g.in_flight_bytes()).cloned();
        let opening = self.wants_another(&state, requirement, best.as_deref()).then(|| {
            state.opening.insert(requirement, Vec::new());
            Opening::new(self.clone(), requirement)
        });
        let found = match best {
            Some(best) => Found::Group(best),
            None if state.closed => return Err(closing()),
            None => {
                let (sender, receiver) = oneshot::channel();
                // It is there: without a group one is being opened.
                state.opening.entry(requirement).or_default().push(sender);
                Found::Wait(receiver)
            }
        };
        Ok((found, opening))
    }

    /// Groups on a disk without room leave the list; sealed, what is dead in them can be given back.
    pub(super) fn leave_full_disks(self: &Arc<Self>) {
        let full = self.full_disks();
        if full.is_empty() {
            return;
        }
        let on_full = |group: &mut Arc<OpenGroup>| group.replicas().iter().any(|disk| full.contains(&disk.id()));
        let left: Vec<_> = self.state.lock().open.extract_if(.., on_full).collect();
        for group in left {
            self.close_full(group);
        }
    }

    /// Groups of that requirement without room for `bytes` leave the list.
    fn retire_full(self: &Arc<Self>, state: &mut State, requirement: Requirement, bytes: u64) {
        let is_full = |g: &mut Arc<OpenGroup>| g.requirement() == requirement && g.room_bytes(&self.config) < bytes;
        let full: Vec<_> = state.open.extract_if(.., is_full).collect();
        for group in full {
            self.close_full(group);
        }
    }

    /// One fresh group is kept in reserve; more are opened, up to the limit, while all are busy.
    fn wants_another(&self, state: &State, requirement: Requirement, best: Option<&OpenGroup>) -> bool {
        if state.closed || state.opening.contains_key(&requirement) {
            return false;
        }
        let fresh = of(state, requirement).filter(|g| g.room_bytes(&self.config) > self.config.group_bytes / 4).count();
        let busy = best.is_none_or(|g| g.in_flight_bytes() > limits::GROUP_BUSY_BYTES);
        fresh == 0 || (busy && fresh < self.disks.len())
    }

    /// A new group with files on RF disks. Tries other disks where one has no room after all.
    async fn open_one(self: &Arc<Self>, requirement: Requirement) -> Result<Arc<OpenGroup>, StoreError> {
        let mut error = StoreError::NoSpace;
        for _ in 0..=self.disks.len() {
            let replicas = self.choose_disks(requirement.rf).await?;
            let group = self.create_record(requirement, replicas).await?;
            self.state.lock().unsealed.push(group.clone());
            match self.create_files(&group).await {
                Ok(()) => return Ok(group),
                Err(e) => error = e,
            }
            // Nobody has written to it: it is sealed empty and dropped by the curator.
            group.end();
            self.spawn_seal(group);
        }
        Err(error)
    }

    /// RF disks that are sound and have room, on distinct nodes once there are several.
    async fn choose_disks(&self, rf: u8) -> Result<Vec<Replica>, StoreError> {
        let avoided = self.avoided();
        let (open, leaving): (Vec<_>, _) = {
            let state = self.state.lock();
            (state.open.iter().flat_map(|g| g.disk_ids()).collect(), state.leaving.clone())
        };
        let (mut candidates, mut disks, mut full) = (Vec::new(), Vec::new(), false);
        for (disk, space) in self.disks.ask_all(&self.env).await {
            if avoided.suspect.contains(&disk.id()) {
                continue;
            }
            if !self.takes_group(space) {
                full = true;
                continue;
            }
            candidates.push(Candidate {
                disk: disk.id(),
                node: disk.node(),
                free_bytes: space.free_bytes,
                open_groups: open.iter().filter(|id| **id == disk.id()).count(),
                slow: avoided.slow.contains(&disk.id()),
                leaving: leaving.contains(&disk.id()),
            });
            disks.push(disk);
        }
        let (rf, by_node) = (usize::from(rf), self.disks.nodes().len() > 1);
        match choose(&candidates, rf, by_node) {
            Ok(chosen) => {
                let of = |id: &DiskId| disks.iter().find(|disk| disk.id() == *id).cloned();
                Ok(chosen.iter().filter_map(of).collect())
            }
            Err(_) if full => Err(StoreError::NoSpace),
            Err(found) => {
                let what = if by_node { "nodes" } else { "disks" };
                Err(StoreError::Unavailable(format!("{found} of {rf} {what} take data")))
            }
        }
    }

    /// The record, committed before any file exists.
    async fn create_record(
        &self,
        requirement: Requirement,
        replicas: Vec<Replica>,
    ) -> Result<Arc<OpenGroup>, StoreError> {
        loop {
            let id = GroupId(self.env.random.next_u64());
            let rows = replicas.iter().map(|r| ReplicaRow {
                disk: r.id(),
                file_generation: FIRST_GENERATION,
                state: ReplicaState::Open,
            });
            let record = GroupRecord {
                state: GroupState::Open,
                generation: FIRST_GENERATION,
                rf: requirement.rf,
                replicas: rows.collect(),
                length: 0,
                writer: self.config.writer,
                settled: false,
                account: None,
                buckets: Vec::new(),
                dead: Vec::new(),
                sealed_ms: 0,
                strip: None,
            };
            match self.proposer.root(RootCommand::CreateGroup { group: id, record }).await {
                Ok(_) => return Ok(OpenGroup::new(id, FIRST_GENERATION, requirement, replicas)),
                // The id was drawn before.
                Err(Failed::Refused(Refusal::Stale(_))) => {}
                Err(failed) => return Err(failed.into()),
            }
        }
    }

    async fn create_files(&self, group: &OpenGroup) -> Result<(), StoreError> {
        let creations =
            group.replicas().iter().map(|r| r.create(group.id(), group.generation(), self.config.preallocate_bytes));
        let mut failed = None;
        for (replica, created) in group.replicas().iter().zip(join_all(creations).await) {
            let Err(error) = created else { continue };
            tracing::warn!(disk = %replica.id(), group = %group.id(), %error, "a group's file was not created");
            let failed_disk = matches!(&error, CreateError::Io(e) if !is_transient(e) && !is_away(e));
            if failed_disk || matches!(&error, CreateError::Closed) {
                self.state.lock().suspect.insert(replica.id());
            }
            failed.get_or_insert(match error {
                CreateError::NoSpace => StoreError::NoSpace,
                CreateError::Io(e) if is_transient(&e) => StoreError::Busy("file descriptors or memory"),
                other => StoreError::Unavailable(other.to_string()),
            });
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The open groups of that requirement.
fn of(state: &State, requirement: Requirement) -> impl Iterator<Item = &Arc<OpenGroup>> {
    state.open.iter().filter(move |group| group.requirement() == requirement)
}
