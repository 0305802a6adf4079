//! What shards owe to other shards and to the group records is delivered (protocols.md 5).
//!
//! Promises: at least once, in any order; a row goes only after what it asks for is committed. Refuses to know: who put it there.

use crate::access::Access;
use crate::error::CuratorError;
use crate::limits;
use crate::ranges::{self, Ranges};
use crate::rounds::RoundReport;
use metadata::command::{RootCommand, ShardCommand};
use metadata::read::shard;
use metadata::rows::{Home, OutboxRow};
use metadata::shard::ShardId;
use std::collections::BTreeMap;
use types::{ContentId, GroupId, OwnerId};

/// Rows taken together, by where they go.
#[derive(Default)]
struct Load {
    sequences: Vec<u64>,
    dead: BTreeMap<GroupId, Ranges>,
    owners: BTreeMap<ShardId, Vec<(Home, ContentId, OwnerId)>>,
}

/// Delivers what is owed, a bounded amount.
pub(crate) async fn deliver(access: &Access, report: &mut RoundReport) -> Result<(), CuratorError> {
    for owing in access.shards() {
        for _ in 0..limits::OUTBOX_DELIVERIES {
            let id = owing.id;
            let rows: Vec<_> = access
                .read(move |read| shard::outbox(read, id, 0).take(limits::OUTBOX_ROWS).collect::<Result<Vec<_>, _>>())
                .await?;
            if rows.is_empty() {
                break;
            }
            report.delivered += rows.len() as u64;
            send(access, owing.id, gather(access, rows)).await?;
        }
    }
    Ok(())
}

fn gather(access: &Access, rows: Vec<(u64, OutboxRow)>) -> Load {
    let mut load = Load::default();
    for (sequence, row) in rows {
        load.sequences.push(sequence);
        match row {
            OutboxRow::ReleaseOwner { home, content, owner } => {
                let shard = access.controller().metadata().shard_of(&home);
                load.owners.entry(shard).or_default().push((home, content, owner));
            }
            OutboxRow::Dead { runs } => {
                for run in runs {
                    load.dead.entry(run.group).or_default().push(ranges::of_run(&run));
                }
            }
        }
    }
    load
}

async fn send(access: &Access, owing: ShardId, load: Load) -> Result<(), CuratorError> {
    for (shard, owners) in load.owners {
        for owners in owners.chunks(limits::CONTENTS_PER_ENTRY) {
            access.shard(shard, ShardCommand::ReleaseOwners { owners: owners.to_vec() }).await?;
        }
    }
    let mut entry: Vec<(GroupId, Ranges)> = Vec::new();
    let mut count = 0;
    for (group, dead) in load.dead {
        for part in ranges::merge(dead).chunks(limits::RANGES_PER_ENTRY) {
            if count + part.len() > limits::RANGES_PER_ENTRY {
                access.root(RootCommand::AddDead { dead: std::mem::take(&mut entry) }).await?;
                count = 0;
            }
            count += part.len();
            entry.push((group, part.to_vec()));
        }
    }
    if !entry.is_empty() {
        access.root(RootCommand::AddDead { dead: entry }).await?;
    }
    access.shard(owing, ShardCommand::OutboxDelivered { sequences: load.sequences }).await?;
    Ok(())
}
