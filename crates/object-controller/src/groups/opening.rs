//! Opening groups: how many, on which disks, record before files.
//!
//! Promises: at most one opening at a time; the next group is opened before the last one is full; space is asked for before
//! a record is made, so that a full disk is an answer and not a trail of empty groups.
//! Refuses to know: what is appended.

use super::choose::{Candidate, choose};
use super::{Groups, OpenGroup, State, closing};
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
    result: Result<(), StoreError>,
}

/// A group, or word of the one that is being opened.
enum Found {
    Group(Arc<OpenGroup>),
    Wait(oneshot::Receiver<Result<(), StoreError>>),
}

impl Opening {
    fn new(groups: Arc<Groups>) -> Opening {
        Opening { groups, result: Err(StoreError::Unavailable("the opening of a group ended badly".into())) }
    }

    async fn run(mut self) {
        let opened = self.groups.open_one().await;
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
        let waiting = {
            let mut state = self.groups.state.lock();
            state.opening = false;
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting {
            // Whoever went away needs no group.
            let _ = waiter.send(self.result.clone());
        }
    }
}

impl Groups {
    /// A group that takes `bytes`, the least busy one; opens one where there is none, and ahead of need.
    pub(super) async fn group_with_room(self: &Arc<Self>, bytes: u64) -> Result<Arc<OpenGroup>, StoreError> {
        loop {
            let (found, opening) = self.look_for_group(bytes)?;
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

    fn look_for_group(self: &Arc<Self>, bytes: u64) -> Result<(Found, Option<Opening>), StoreError> {
        let mut state = self.state.lock();
        self.retire_full(&mut state, bytes);
        let best = state.open.iter().min_by_key(|g| g.in_flight_bytes()).cloned();
        let opening = self.wants_another(&state, best.as_deref()).then(|| {
            state.opening = true;
            Opening::new(self.clone())
        });
        let found = match best {
            Some(best) => Found::Group(best),
            None if state.closed => return Err(closing()),
            None => {
                let (sender, receiver) = oneshot::channel();
                state.waiting.push(sender);
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

    /// Groups without room for `bytes` leave the list.
    fn retire_full(self: &Arc<Self>, state: &mut State, bytes: u64) {
        let full: Vec<_> = state.open.extract_if(.., |g| g.room_bytes(&self.config) < bytes).collect();
        for group in full {
            self.close_full(group);
        }
    }

    /// One fresh group is kept in reserve; more are opened, up to the limit, while all are busy.
    fn wants_another(&self, state: &State, best: Option<&OpenGroup>) -> bool {
        if state.opening || state.closed {
            return false;
        }
        let fresh = state.open.iter().filter(|g| g.room_bytes(&self.config) > self.config.group_bytes / 4).count();
        let busy = best.is_none_or(|g| g.in_flight_bytes() > limits::GROUP_BUSY_BYTES);
        fresh == 0 || (busy && fresh < self.disks.len())
    }

    /// A new group with files on RF disks. Tries other disks where one has no room after all.
    async fn open_one(self: &Arc<Self>) -> Result<Arc<OpenGroup>, StoreError> {
        let mut error = StoreError::NoSpace;
        for _ in 0..=self.disks.len() {
            let replicas = self.choose_disks().await?;
            let group = self.create_record(replicas).await?;
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
    async fn choose_disks(&self) -> Result<Vec<Replica>, StoreError> {
        let avoided = self.avoided();
        let open: Vec<_> = self.state.lock().open.iter().flat_map(|g| g.disk_ids()).collect();
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
            });
            disks.push(disk);
        }
        let (rf, by_node) = (usize::from(self.config.rf.get()), self.disks.nodes().len() > 1);
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
    async fn create_record(&self, replicas: Vec<Replica>) -> Result<Arc<OpenGroup>, StoreError> {
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
                // As many as were chosen: what is wanted may have changed since.
                rf: u8::try_from(replicas.len()).unwrap_or(u8::MAX),
                replicas: rows.collect(),
                length: 0,
                writer: self.config.writer,
                settled: false,
                account: None,
                buckets: Vec::new(),
                dead: Vec::new(),
            };
            match self.proposer.root(RootCommand::CreateGroup { group: id, record }).await {
                Ok(_) => return Ok(OpenGroup::new(id, FIRST_GENERATION, replicas)),
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
