//! The small part of a log that every segment repeats at its beginning, so that older ones can go.

use super::format::{HardState, Item, LogSetRecord};
use crate::shard::ShardId;
use std::collections::BTreeMap;

/// What the log says beside entries and local records.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LogState {
    /// Newest hard state of each shard.
    pub hard_states: BTreeMap<ShardId, HardState>,
    /// Index and term after which each shard's log begins.
    pub truncated: BTreeMap<ShardId, (u64, u64)>,
    /// Which folders have to hold an entry for it to count.
    pub log_set: LogSetRecord,
}

impl LogState {
    /// Takes an item in, if it is part of this.
    pub(super) fn absorb(&mut self, item: &Item) {
        match item {
            Item::HardState(shard, state) => drop(self.hard_states.insert(*shard, *state)),
            Item::Truncated(shard, index, term) => drop(self.truncated.insert(*shard, (*index, *term))),
            Item::LogSet(set) => self.log_set = set.clone(),
            Item::Entry(_) | Item::Oldest(_) | Item::Local(..) | Item::End(_) => {}
        }
    }

    /// The items that make this again.
    pub(super) fn items(&self) -> Vec<Item> {
        let hard_states = self.hard_states.iter().map(|(shard, state)| Item::HardState(*shard, *state));
        let truncated = self.truncated.iter().map(|(shard, (index, term))| Item::Truncated(*shard, *index, *term));
        hard_states.chain(truncated).chain([Item::LogSet(self.log_set.clone())]).collect()
    }

    /// Whether everything up to these indices is truncated.
    pub(super) fn covers(&self, highest: &BTreeMap<ShardId, u64>) -> bool {
        highest.iter().all(|(shard, index)| self.truncated.get(shard).is_some_and(|(through, _)| index <= through))
    }
}
