//! Work on several homes of one shard: owners, reclaiming, fences, buckets.

mod bucket;
mod forget;
mod reclaim;

use super::draft::Work;
use super::{Decision, judge_fence, judge_time};
use crate::command::{Entry, Outcome, Refusal, ShardCommand};
use crate::format::key;
use crate::format::value::Counter;
use crate::read;
use crate::rows::Home;
use types::{ContentId, NodeId, OwnerId};

pub(super) fn decide(work: &mut Work<'_>, entry: &Entry, command: &ShardCommand) -> Decision {
    judge_time(work, entry)?;
    match command {
        ShardCommand::AddOwners { contents, destination } => {
            judge_fence(work, entry)?;
            add_owners(work, contents, destination)
        }
        ShardCommand::ReleaseOwners { owners } => release_owners(work, owners),
        ShardCommand::ExpandManifest { home, manifest } => reclaim::expand(work, home, *manifest),
        ShardCommand::Reclaim { contents } => reclaim::reclaim(work, contents),
        ShardCommand::OutboxDelivered { sequences } => {
            for sequence in sequences {
                work.draft.remove(key::outbox(work.shard.id, *sequence));
            }
            Ok(Outcome::Done)
        }
        ShardCommand::Fence { node, lowest_session } => fence(work, *node, *lowest_session),
        ShardCommand::RaiseBucket { bucket, row } => bucket::raise(work, *bucket, row),
        ShardCommand::AbortUploads { bucket, max } => bucket::abort_uploads(work, *bucket, *max),
        ShardCommand::Forget { completed_before_ms } => forget::forget(work, *completed_before_ms),
    }
}

/// All or none: a refusal undoes what was added.
fn add_owners(work: &mut Work<'_>, contents: &[(Home, ContentId)], destination: &Home) -> Decision {
    for (home, content) in contents {
        work.require(home.bucket, &home.key)?;
        work.add_owner(home, *content, work.attempt, destination)?;
    }
    Ok(Outcome::Done)
}

fn release_owners(work: &mut Work<'_>, owners: &[(Home, ContentId, OwnerId)]) -> Decision {
    for (home, content, owner) in owners {
        work.require(home.bucket, &home.key)?;
        if owner == content {
            // The writer owns by its version, which lets go by itself.
            return Err(Refusal::Invalid("a writer is not released by name".into()).into());
        }
        work.release_owner(home.clone(), *content, *owner);
    }
    Ok(Outcome::Done)
}

fn fence(work: &mut Work<'_>, node: NodeId, lowest: u32) -> Decision {
    let present = read::shard::fence(&work.draft, work.shard.id, node)?;
    if lowest > present {
        work.draft.put(key::fence(work.shard.id, node), &Counter(lowest.into()));
    }
    Ok(Outcome::Done)
}
