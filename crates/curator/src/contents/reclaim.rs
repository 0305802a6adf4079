//! Condemned contents are reclaimed once no reader can need them (protocols.md 5, rule R31).
//!
//! Promises: a content is named in a `Reclaim` entry only if its own condemnation was seen applied before the reclaim epoch was
//! ended, every pin is newer than that epoch, and the delay has passed since. Marks live in memory: a crash begins again with a
//! later epoch. Refuses to know: extents, groups, disks.

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
    epoch: u64,
    since: Duration,
    shards: BTreeMap<ShardId, Arc<ShardMark>>,
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
        row.what == Condemned::Content && (row.condemned_ms < self.last_stamp_ms || seen)
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
        expand(access, report).await?;
        self.mark(access, config).await?;
        let mut left = limits::RECLAIMS_PER_ROUND;
        while left > 0 && self.marks.front().is_some_and(|mark| mark.is_ripe(access, config)) {
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
    async fn mark(&mut self, access: &Access, config: &Config) -> Result<(), CuratorError> {
        let now = access.now();
        let spacing = config.reclaim_delay / limits::MARKS as u32;
        let soon = self.marks.back().is_some_and(|last| now < last.since + spacing);
        if soon || self.marks.len() >= limits::MARKS {
            return Ok(());
        }
        let shards = access.shards();
        let seen =
            access.read(move |read| shards.iter().map(|shard| position(read, shard)).collect::<Result<Vec<_>, _>>());
        let shards: BTreeMap<_, _> = seen.await?.into_iter().flatten().collect();
        if !shards.is_empty() {
            let epoch = access.controller().pins().advance();
            self.marks.push_back(Mark { epoch, since: now, shards, after: None });
        }
        Ok(())
    }
}

impl Mark {
    fn is_ripe(&self, access: &Access, config: &Config) -> bool {
        access.controller().pins().lowest_pin() > self.epoch && access.now() >= self.since + config.reclaim_delay
    }
}

/// `None` if no content is condemned in the shard.
fn position(read: &dyn Read, shard: &Shard) -> Result<Option<(ShardId, Arc<ShardMark>)>, ReadError> {
    let last_stamp_ms = shard::state(read, shard.id)?.last_stamp_ms;
    let (mut any, mut at_last) = (false, BTreeSet::new());
    for row in content::condemned(read, &shard.range, None) {
        let (home, id, row) = row?;
        if row.what == Condemned::Content {
            any = true;
            if row.condemned_ms >= last_stamp_ms {
                at_last.insert((home, id));
            }
        }
    }
    Ok(any.then(|| (shard.id, Arc::new(ShardMark { last_stamp_ms, at_last }))))
}

/// Condemned manifests lose what they own, 256 parts an entry.
async fn expand(access: &Access, report: &mut RoundReport) -> Result<(), CuratorError> {
    for shard in access.shards() {
        let range = shard.range.clone();
        for (home, manifest) in access.read(move |read| manifests(read, &range)).await? {
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
    Ok(())
}

fn manifests(read: &dyn Read, range: &KeyRange) -> Result<Vec<(Home, AttemptId)>, ReadError> {
    let manifests = content::condemned(read, range, None).filter_map(|row| match row {
        Ok((home, id, row)) => matches!(row.what, Condemned::Manifest { .. }).then_some(Ok((home, id))),
        Err(error) => Some(Err(error)),
    });
    manifests.take(limits::MANIFESTS_PER_ROUND).collect()
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
        Ok((home, id, row)) => mark.covers(&home, id, &row).then_some(Ok((home, id))),
        Err(error) => Some(Err(error)),
    });
    covered.take(limits::CONTENTS_PER_ENTRY).collect()
}
