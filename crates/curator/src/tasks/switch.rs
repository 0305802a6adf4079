//! The compare-and-set that makes another list of copies the group's.
//!
//! Promises: what is answered is what the record says: of two deliveries of one proposal one is refused, so a refusal alone does not
//! say that the list is not ours. Refuses to know: why the list changes.

use crate::access::Access;
use crate::error::CuratorError;
use metadata::command::{Outcome, Refusal, RootCommand};
use metadata::rows::{GroupRecord, Replica};
use types::{DiskId, GroupId};

/// What became of it.
pub(super) enum Switched {
    /// The record as it is now, by this switch or in spite of it.
    Record(Box<GroupRecord>),
    /// The group is gone.
    NoGroup,
}

/// *Committed* when it answers. An error leaves it open whether the entry is applied later: then nothing may be concluded.
pub(super) async fn switch(
    access: &Access,
    group: GroupId,
    generation: u32,
    replicas: Vec<Replica>,
) -> Result<Switched, CuratorError> {
    match access.root(RootCommand::SetReplicas { group, generation, replicas }).await {
        Ok(Outcome::Group(record)) => Ok(Switched::Record(record)),
        Ok(other) => Err(CuratorError::unexpected(&other)),
        Err(CuratorError::Refused(refusal)) => match *refusal {
            Refusal::Stale(Some(record)) => Ok(Switched::Record(record)),
            Refusal::Stale(None) => Ok(Switched::NoGroup),
            other => Err(CuratorError::Refused(Box::new(other))),
        },
        Err(error) => Err(error),
    }
}

impl Switched {
    /// Whether the record names that file.
    pub(super) fn names(&self, disk: DiskId, file_generation: u32) -> bool {
        let named = |replica: &Replica| replica.disk == disk && replica.file_generation == file_generation;
        match self {
            Switched::Record(record) => record.replicas.iter().any(named),
            Switched::NoGroup => false,
        }
    }
}
