//! Condemned contents are reclaimed once no reader can need them (protocols.md 5, rule R31).
//!
//! Promises: a content is named in a `Reclaim` entry only if its own condemnation was seen applied before the reclaim epoch was
//! ended, every pin is newer than that epoch, and the delay has passed since; on a disk short of space there is no delay, but for the
//! time that an entry may be late in a cluster. The
//! rows of a manifest go by the same rule without the delay, for readers fetch them while they read. Marks live in memory: a
//! crash begins again with a later epoch. Refuses to know: extents, groups, disks.

use crate::access::Access;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::rounds::RoundReport;
use metadata::command::{Outcome, ShardCommand};
use metadata::read::{ReadError, content, shard};
use metadata::rows::{Condemned, CondemnedRow, Home};
use metadata::shard::{KeyRange, Shard, ShardId};
use metadata::tree::Read;
use object_controller::nodes::Ended;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{AttemptId, ContentId};

/// What is waiting.
#[derive(Default)]
pub(crate) struct Reclaimer {
    marks: VecDeque<Mark>,
}

/// A moment: everything condemned before it may go when its readers and the delay are over.
struct Mark {
    epoch: Ended,
    since: Duration,
    shards: BTreeMap<ShardId, Arc<ShardMark>>,
    /// The manifests it covers are expanded.
    expanded: bool,
    /// Where the reclaiming stands.
    after: Option<(ShardId, Home, ContentId)>,
}

/// A shard's position: entries applied later have at least this time.
struct ShardMark {
    last_stamp_ms: u64,
    /// Condemned at just that time before the mark; others of that time may have come later.
    at_last: BTreeSet<(Home, ContentId)>,
}

impl ShardMark {
    fn covers(&self, home: &Home, id: ContentId, row: &CondemnedRow) -> bool {
        let seen = row.condemned_ms == self.last_stamp_ms && self.at_last.contains(&(home.clone(), id));
        row.condemned_ms < self.last_stamp_ms || seen
    }
}

impl Reclaimer {
    /// Whether something waits for time or readers.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.marks.is_empty()
    }

    pub(crate) async fn work(
        &mut self,
        access: &Access,
        config: &Config,
        report: &mut RoundReport,
    ) -> Result<(), CuratorError> {
        let delay = if access.controller().is_short_of_space() { Duration::ZERO } else { config.reclaim_delay };
        // The row of a content is all that remembers that it was committed or abandoned once. Where messages may be late it stays
        // until no entry that names the content can be appended any more.
        let delay = if access.disks().is_alone() { delay } else { delay.max(config.entries_late) };
        self.mark(access, delay).await?;
        if self.expand(access, report).await? {
            // What the manifests owned is condemned now.
            self.mark(access, delay).await?;
        }
        let mut left = limits::RECLAIMS_PER_ROUND;
        while left > 0 {
            let Some(mark) = self.marks.front() else { break };
            if !mark.is_ripe(access, delay).await {
                break;
            }
            let Some(mut mark) = self.marks.pop_front() else { break };
            let result = reclaim(access, &mut mark, &mut left, report).await;
            if !matches!(result, Ok(true)) {
                self.marks.push_front(mark);
            }
            result?;
        }
        Ok(())
    }

    /// What is seen condemned now, then the end of the epoch: in this order.
    async fn mark(&mut self, access: &Access, delay: Duration) -> Result<(), CuratorError> {
        let now = access.now();
        let spacing = delay / limits::MARKS as u32;
        let soon = self.marks.back().is_some_and(|last| now < last.since + spacing);
        if soon || self.marks.len() >= limits::MARKS {
            return Ok(());
        }
        let shards = access.shards();
        let seen =
            access.read(move |read| shards.iter().map(|shard| position(read, shard)).collect::<Result<Vec<_>, _>>());
        let shards: BTreeMap<_, _> = seen.await?.into_iter().flatten().collect();
        if !shards.is_empty() {
            let epoch = access.controller().end_epoch().await?;
            self.marks.push_back(Mark { epoch, since: now, shards, expanded: false, after: None });
        }
        Ok(())
    }

    /// Condemned manifests that no reader needs lose what they own. Answers whether there were any.
    async fn expand(&mut self, access: &Access, report: &mut RoundReport) -> Result<bool, CuratorError> {
        let mut any = false;
        for mark in self.marks.iter_mut().filter(|mark| !mark.expanded) {
            if !mark.is_read(access).await {
                continue;
            }
            let count = expand(access, mark, report).await?;
            any |= count > 0;
            mark.expanded = count < limits::MANIFESTS_PER_ROUND;
        }
        Ok(any)
    }
}

impl Mark {
    /// Whether every read that began before it is over, on every node.
    async fn is_read(&self, access: &Access) -> bool {
        access.controller().is_released(&self.epoch).await
    }

    async fn is_ripe(&self, access: &Access, delay: Duration) -> bool {
        self.expanded && access.now() >= self.since + delay && self.is_read(access).await
    }
}

/// `None` if nothing is condemned in the shard.
fn position(read: &dyn Read, shard: &Shard) -> Result<Option<(ShardId, Arc<ShardMark>)>, ReadError> {
    let last_stamp_ms = shard::state(read, shard.id)?.last_stamp_ms;
    let (mut any, mut at_last) = (false, BTreeSet::new());
    for row in content::condemned(read, &shard.range, None) {
        let (home, id, row) = row?;
        any = true;
        if row.condemned_ms >= last_stamp_ms {
            at_last.insert((home, id));
        }
    }
    Ok(any.then(|| (shard.id, Arc::new(ShardMark { last_stamp_ms, at_last }))))
}

/// Condemned manifests that the mark covers lose what they own, 256 parts an entry. Answers how many were looked at, at most a
/// round's worth.
async fn expand(access: &Access, mark: &Mark, report: &mut RoundReport) -> Result<usize, CuratorError> {
    let mut count = 0;
    for shard in access.shards() {
        let Some(position) = mark.shards.get(&shard.id).cloned() else { continue };
        let (range, left) = (shard.range.clone(), limits::MANIFESTS_PER_ROUND - count);
        for (home, manifest) in access.read(move |read| manifests(read, &range, &position, left)).await? {
            count += 1;
            for _ in 0..limits::EXPANSIONS {
                let command = ShardCommand::ExpandManifest { home: home.clone(), manifest };
                report.expanded += 1;
                match access.shard(shard.id, command).await? {
                    Outcome::Left(0) => break,
                    Outcome::Left(_) => {}
                    other => return Err(CuratorError::unexpected(&other)),
                }
            }
        }
    }
    Ok(count)
}

fn manifests(
    read: &dyn Read,
    range: &KeyRange,
    mark: &ShardMark,
    most: usize,
) -> Result<Vec<(Home, AttemptId)>, ReadError> {
    let manifests = content::condemned(read, range, None).filter_map(|row| match row {
        Ok((home, id, row)) => {
            let is_manifest = matches!(row.what, Condemned::Manifest { .. });
            (is_manifest && mark.covers(&home, id, &row)).then_some(Ok((home, id)))
        }
        Err(error) => Some(Err(error)),
    });
    manifests.take(most).collect()
}

/// True if everything the mark covers is reclaimed.
async fn reclaim(
    access: &Access,
    mark: &mut Mark,
    left: &mut usize,
    report: &mut RoundReport,
) -> Result<bool, CuratorError> {
    for shard in access.shards() {
        let Some(position) = mark.shards.get(&shard.id).cloned() else { continue };
        loop {
            if *left == 0 {
                return Ok(false);
            }
            let after = mark.after.clone().filter(|(at, ..)| *at == shard.id).map(|(_, home, id)| (home, id));
            let (range, marked) = (shard.range.clone(), position.clone());
            let contents = access.read(move |read| covered(read, &range, after, &marked)).await?;
            let Some((home, id)) = contents.last().cloned() else { break };
            let count = contents.len() as u64;
            *left -= 1;
            match access.shard(shard.id, ShardCommand::Reclaim { contents }).await? {
                Outcome::Left(0) => report.reclaimed += count,
                Outcome::Left(kept) => {
                    tracing::error!(kept, "condemned contents have owners: they are kept, and this is a bug");
                    report.alarms.push(format!("{kept} condemned contents have owners"));
                    report.reclaimed += count - u64::from(kept);
                }
                other => return Err(CuratorError::unexpected(&other)),
            }
            mark.after = Some((shard.id, home, id));
        }
        mark.shards.remove(&shard.id);
        mark.after = None;
    }
    Ok(true)
}

fn covered(
    read: &dyn Read,
    range: &KeyRange,
    after: Option<(Home, ContentId)>,
    mark: &ShardMark,
) -> Result<Vec<(Home, ContentId)>, ReadError> {
    let after = after.as_ref().map(|(home, id)| (home, *id));
    let covered = content::condemned(read, range, after).filter_map(|row| match row {
        Ok((home, id, row)) => {
            (row.what == Condemned::Content && mark.covers(&home, id, &row)).then_some(Ok((home, id)))
        }
        Err(error) => Some(Err(error)),
    });
    covered.take(limits::CONTENTS_PER_ENTRY).collect()
}
