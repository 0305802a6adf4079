//! Where the entries of each shard are in the log, so that those of long ago can be read again.
//!
//! Promises: what is found here is what a replay of the log would find: an entry that was replaced is not. One run a frame and shard, about
//! 30 bytes for at least 4 KiB of log. Refuses to know: files.

use super::format::{Item, Position};
use crate::shard::ShardId;
use std::collections::{BTreeMap, VecDeque};

/// Entries of one shard, one after the other, that stand in one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The frame.
    pub(super) at: Position,
    /// Its length.
    pub(super) frame_bytes: u32,
}

/// The runs of all shards, each by ascending index.
#[derive(Default, Debug)]
pub(super) struct Runs(BTreeMap<ShardId, VecDeque<Run>>);

impl Runs {
    /// Takes note of an item in the frame at `at`.
    pub(super) fn note(&mut self, item: &Item, at: Position, frame_bytes: u32) {
        match item {
            Item::Entry(entry) => {
                let runs = self.0.entry(entry.shard).or_default();
                match runs.back_mut() {
                    Some(last) if last.at == at && last.last + 1 == entry.index => last.last = entry.index,
                    _ => {
                        cut(runs, entry.index);
                        runs.push_back(Run { first: entry.index, last: entry.index, at, frame_bytes });
                    }
                }
            }
            Item::Truncated(shard, index, _) => {
                let Some(runs) = self.0.get_mut(shard) else { return };
                while runs.front().is_some_and(|run| run.last <= *index) {
                    runs.pop_front();
                }
            }
            _ => {}
        }
    }

    /// Index of the shard's last entry; 0: none.
    pub(super) fn last(&self, shard: ShardId) -> u64 {
        self.0.get(&shard).and_then(VecDeque::back).map_or(0, |run| run.last)
    }

    /// The run that holds this entry.
    pub(super) fn find(&self, shard: ShardId, index: u64) -> Option<Run> {
        let runs = self.0.get(&shard)?;
        let at = runs.partition_point(|run| run.last < index);
        runs.get(at).filter(|run| run.first <= index).copied()
    }

    /// First entry of the shard that stands at `from` or behind.
    pub(super) fn first_behind(&self, shard: ShardId, from: Position) -> Option<u64> {
        let runs = self.0.get(&shard)?;
        runs.get(runs.partition_point(|run| run.at < from)).map(|run| run.first)
    }
}

/// An entry of this index replaces those from there on.
fn cut(runs: &mut VecDeque<Run>, index: u64) {
    while runs.back().is_some_and(|run| run.first >= index) {
        runs.pop_back();
    }
    if let Some(last) = runs.back_mut() {
        last.last = last.last.min(index - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, Runs};
    use crate::log::format::{Item, LogEntry, Position};
    use crate::shard::ShardId;
    use bytes::Bytes;

    #[test]
    fn replaced_and_truncated_entries_are_not_found() {
        let mut runs = Runs::default();
        let entry = |index| Item::Entry(LogEntry { shard: ShardId(1), index, term: 1, kind: 0, data: Bytes::new() });
        let frame = |segment| Position { segment, offset: 8192 };
        for (index, segment) in [(5, 1), (6, 1), (7, 1), (8, 2), (9, 2), (7, 3), (8, 4)] {
            runs.note(&entry(index), frame(segment), 4096);
        }
        let run = |first, last, segment| Some(Run { first, last, at: frame(segment), frame_bytes: 4096 });
        assert_eq!(runs.find(ShardId(1), 6), run(5, 6, 1));
        assert_eq!(runs.find(ShardId(1), 7), run(7, 7, 3));
        assert_eq!((runs.find(ShardId(1), 8), runs.find(ShardId(1), 9)), (run(8, 8, 4), None));
        assert_eq!(runs.first_behind(ShardId(1), frame(2)), Some(7));
        runs.note(&Item::Truncated(ShardId(1), 7, 1), frame(5), 4096);
        assert_eq!((runs.find(ShardId(1), 7), runs.find(ShardId(1), 8)), (None, run(8, 8, 4)));
    }
}
