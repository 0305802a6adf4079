//! What happens to extent groups: sealed, settled, punched, dropped, repaired; and the files that no record names.

pub(crate) mod files;
pub(crate) mod frames;
pub(crate) mod hurt;
pub(crate) mod repair;
pub(crate) mod seal;
pub(crate) mod settle;
pub(crate) mod space;

use crate::limits;
use std::collections::BTreeMap;
use std::time::Duration;
use types::GroupId;

/// Groups that are left alone for a while because work on them failed.
#[derive(Default)]
pub(crate) struct Patience {
    until: BTreeMap<GroupId, Duration>,
}

impl Patience {
    pub(crate) fn waits(&self, group: GroupId, now: Duration) -> bool {
        self.until.get(&group).is_some_and(|until| now < *until)
    }

    pub(crate) fn postpone(&mut self, group: GroupId, now: Duration) {
        self.until.insert(group, now + limits::PATIENCE);
        self.until.retain(|_, until| now < *until);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }
}
