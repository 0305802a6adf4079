//! What reads and writes saw wrong with a replica, kept for the curator.
//!
//! Promises: bounded; the same finding is kept once until it is taken. Losing one loses no data: scrub finds it again.
//! Refuses to know: how anything is repaired.

use crate::limits;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{DiskId, GroupId};

/// What was wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trouble {
    /// The bytes do not match their checksums, or the frame is another's.
    Damaged,
    /// The file, or the frame in it, is not there.
    Missing,
    /// The disk answered with an error.
    Unreadable,
    /// An append or its sync failed; the group was sealed.
    Unwritable,
}

/// One thing that was wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Where.
    pub disk: DiskId,
    /// In which group.
    pub group: GroupId,
    /// At which frame.
    pub offset: u64,
    /// What.
    pub trouble: Trouble,
}

/// The queue. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Arc<Mutex<BTreeSet<Finding>>>,
}

impl Findings {
    /// Records one.
    pub fn report(&self, finding: Finding) {
        let mut kept = self.kept.lock();
        if kept.len() < limits::FINDINGS_MAX && kept.insert(finding) {
            drop(kept);
            tracing::warn!(?finding, "a replica is not as it should be");
        }
    }

    /// Takes all that were recorded.
    pub fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.kept.lock()).into_iter().collect()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.kept.lock().len()
    }
}
