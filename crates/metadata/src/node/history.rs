//! What the log says of the past: entries, states, where each shard's log begins.
//!
//! Promises: only what is known committed is applied at a start; with other voters the end of the log may still be replaced. A log that
//! does not know of an installed snapshot yet is made to, before anything is answered. Refuses to know: trees' folders, workers.

use super::open::Found;
use super::open::StartError;
use crate::log::format::{HardState, Item, LogEntry};
use crate::log::{LogSet, OpenedSet, Recovered};
use crate::shard::group::{Committed, FoundGroup, What, raft_entry};
use crate::shard::members::{Members, read_members};
use crate::shard::rows::Applied;
use crate::shard::{Shard, ShardId};
use crate::tree::{Snapshot, Tree};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::NodeId;

/// What the log held when it was opened.
pub(super) struct History {
    pub(super) entries: BTreeMap<ShardId, VecDeque<LogEntry>>,
    pub(super) hard_states: BTreeMap<ShardId, HardState>,
    /// Index and term after which each shard's log begins, in the folder that goes back the furthest.
    before: BTreeMap<ShardId, Applied>,
}

impl History {
    pub(super) fn new(opened: &OpenedSet) -> History {
        let mut before: BTreeMap<ShardId, Applied> = BTreeMap::new();
        for (shard, mark) in opened.truncated.values().flatten() {
            let lowest = before.entry(*shard).or_insert(*mark);
            *lowest = (*lowest).min(*mark);
        }
        let Recovered { entries, state, .. } = &opened.recovered;
        for (shard, entries) in entries {
            // A folder without a mark of the shard holds it from its first entry on.
            if entries.front().is_some_and(|first| first.index == 1) {
                before.insert(*shard, (0, 0));
            }
        }
        History { entries: entries.clone(), hard_states: state.hard_states.clone(), before }
    }

    /// Lets the log follow trees that came by a snapshot: it begins behind that, and what it held is gone.
    pub(super) fn catch_up(&mut self, found: &[Found], set: &mut LogSet) -> Result<(), StartError> {
        let ahead: BTreeMap<ShardId, Applied> = found.iter().flat_map(|folder| folder.ahead.clone()).collect();
        let mut items = Vec::new();
        for (shard, at) in ahead {
            let last = self.entries.remove(&shard).and_then(|entries| entries.back().map(|last| last.index));
            let state = self.hard_states.entry(shard).or_default();
            (state.term, state.commit) = (state.term.max(at.1), state.commit.max(at.0));
            // As in a group: the first mark removes all, the log goes on behind the second.
            items.push(Item::Truncated(shard, last.unwrap_or(0).max(at.0), at.1));
            items.push(Item::Truncated(shard, at.0, at.1));
            items.push(Item::HardState(shard, *state));
            self.before.insert(shard, at);
        }
        if !items.is_empty() {
            set.append(&items)?;
        }
        Ok(())
    }

    /// How far each shard may be replayed: to its end where this node alone decides, and always did since what the trees hold; else
    /// as far as it is known committed.
    pub(super) fn ends(&self, node: NodeId, found: &[Found]) -> BTreeMap<ShardId, u64> {
        let mut ends = BTreeMap::new();
        for (shard, entries) in &self.entries {
            let applied = || found.iter().filter_map(|folder| folder.shards.get(shard).map(|(_, at)| at.0));
            let (lowest, highest) = (applied().min().unwrap_or(0), applied().max().unwrap_or(0));
            let alone = found.iter().all(|folder| folder.members.get(shard).is_some_and(|m| m.decides(node)));
            let changes = entries.iter().any(|entry| entry.index > lowest && entry.kind != 0);
            let committed = self.hard_states.get(shard).map_or(0, |state| state.commit).max(highest);
            ends.insert(*shard, if alone && !changes { u64::MAX } else { committed });
        }
        ends
    }

    /// What the log holds beyond a folder's tree, up to `ends`. Shard by shard: entries of different shards read nothing of each other.
    pub(super) fn missing(
        &self,
        shards: &BTreeMap<ShardId, (Shard, Applied)>,
        members: &BTreeMap<ShardId, Members>,
        ends: &BTreeMap<ShardId, u64>,
    ) -> Result<Vec<Committed>, String> {
        let mut missing = Vec::new();
        for (shard, (_, applied)) in shards {
            let mut members = members.get(shard).cloned().unwrap_or_default();
            let end = ends.get(shard).copied().unwrap_or(0);
            for entry in self.entries.get(shard).into_iter().flatten() {
                if entry.index <= applied.0 || entry.index > end {
                    continue;
                }
                let what = match entry.kind {
                    0 => What::Data(entry.data.clone()),
                    _ => {
                        members = members.after(&raft_entry(entry.clone()))?;
                        What::Members(members.clone())
                    }
                };
                missing.push(Committed { shard: *shard, index: entry.index, term: entry.term, what, waiting: None });
            }
        }
        Ok(missing)
    }

    /// The groups of this node: those with rows, and those of which only the term and the vote are known.
    pub(super) fn groups(
        mut self,
        node: NodeId,
        tree: &Arc<dyn Tree>,
        applied: &BTreeMap<ShardId, Applied>,
    ) -> Result<Vec<FoundGroup>, StartError> {
        let rows = Snapshot::published(tree);
        let mut groups = Vec::new();
        for (shard, at) in applied {
            let members = read_members(&rows, *shard)?.unwrap_or_else(|| Members::single(node));
            groups.push(FoundGroup {
                shard: *shard,
                state: self.hard_states.remove(shard).unwrap_or_default(),
                applied: *at,
                members,
                before: self.before.get(shard).copied().unwrap_or_default(),
                entries: self.entries.remove(shard).unwrap_or_default().into(),
            });
        }
        groups.extend(
            self.hard_states.into_iter().map(|(shard, state)| FoundGroup { state, ..FoundGroup::unknown(shard) }),
        );
        Ok(groups)
    }
}

/// Index and term of the shard's last entry in the log.
pub(super) fn last_entry(recovered: &Recovered, shard: ShardId) -> Applied {
    let last = recovered.entries.get(&shard).and_then(VecDeque::back);
    let truncated = recovered.state.truncated.get(&shard).copied().unwrap_or_default();
    last.map_or(truncated, |entry| (entry.index, entry.term))
}
