//! Owner rows of copies that died between their two steps are taken back (protocols.md 4).
//!
//! Promises: a row goes only if its session is fenced in the destination's shard and nothing there refers to the content under
//! that owner id: then nothing ever will. Refuses to know: why the copy died.

use crate::access::Access;
use crate::error::CuratorError;
use crate::limits;
use crate::rounds::RoundReport;
use metadata::command::ShardCommand;
use metadata::read::{ReadError, content, shard};
use metadata::rows::{BodyRow, Home};
use metadata::shard::{KeyRange, Shard, ShardId};
use metadata::tree::Read;
use types::{ContentId, OwnerId};

/// One pass over all owner rows; true if it found nothing (left) to do. Within one shard a copy is one entry, and has nothing
/// to take back.
pub(crate) async fn settle(access: &Access, report: &mut RoundReport) -> Result<bool, CuratorError> {
    let shards = access.shards();
    if shards.len() < 2 {
        return Ok(true);
    }
    let mut found = 0;
    for home_shard in &shards {
        let (all, this) = (shards.clone(), home_shard.clone());
        let orphans = access.read(move |read| orphans(read, &this, &all)).await?;
        found += orphans.len();
        for owners in orphans.chunks(limits::CONTENTS_PER_ENTRY) {
            access.shard(home_shard.id, ShardCommand::ReleaseOwners { owners: owners.to_vec() }).await?;
            report.owners_released += owners.len() as u64;
        }
    }
    Ok(found == 0)
}

fn orphans(read: &dyn Read, shard: &Shard, all: &[Shard]) -> Result<Vec<(Home, ContentId, OwnerId)>, ReadError> {
    let mut orphans = Vec::new();
    for row in content::all_owners(read, &shard.range) {
        let (home, content, owner, row) = row?;
        let there = shard_of(all, &row.destination);
        if owner == content || there == Some(shard.id) {
            continue;
        }
        let Some(there) = there else { continue };
        let fenced = owner.session < shard::fence(read, there, owner.node)?;
        if fenced && !refers(read, &row.destination, owner)? {
            orphans.push((home, content, owner));
            if orphans.len() == limits::CONTENTS_PER_ENTRY * limits::RECLAIMS_PER_ROUND {
                break;
            }
        }
    }
    Ok(orphans)
}

fn shard_of(all: &[Shard], home: &Home) -> Option<ShardId> {
    all.iter().find(|shard| shard.range.contains(home.bucket, &home.key)).map(|shard| shard.id)
}

/// Whether a version or part at `destination` refers to something under that owner id.
pub(crate) fn refers(read: &dyn Read, destination: &Home, owner: OwnerId) -> Result<bool, ReadError> {
    let from = KeyRange { from: Some(destination.clone()), to: None };
    for row in content::bodies(read, &from) {
        let (home, id, body) = row?;
        if home != *destination {
            break;
        }
        if id.id == owner && matches!(body, BodyRow::Reference(_)) {
            return Ok(true);
        }
    }
    Ok(false)
}
