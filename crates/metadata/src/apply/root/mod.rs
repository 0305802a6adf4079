//! The cluster's own rows: buckets, accounts, sessions, records of extent groups, the cluster map.

mod bucket;
mod cluster;
mod dead;
mod group;
mod strip;
mod user;

use super::Decision;
use super::draft::Work;
use crate::command::{Outcome, RootCommand};
use crate::format::key;
use crate::format::value::Counter;
use crate::read;
use types::NodeId;

pub(super) fn decide(work: &mut Work<'_>, command: &RootCommand) -> Decision {
    match command {
        RootCommand::CreateBucket { name, owner, location } => bucket::create(work, name, owner, location),
        RootCommand::ChangeBucket { bucket, change } => bucket::change(work, *bucket, change),
        RootCommand::RaiseGeneration { bucket } => bucket::raise_generation(work, *bucket),
        RootCommand::BucketRaised { bucket, generation } => bucket::raised(work, *bucket, *generation),
        RootCommand::DeleteBucket { bucket, generation } => bucket::delete(work, *bucket, *generation),
        RootCommand::CreateUser(user) => user::create(work, user),
        RootCommand::DeleteUser(name) => user::delete(work, name),
        RootCommand::NewSession { node } => new_session(work, *node),
        RootCommand::CreateGroup { group, record } => group::create(work, *group, record),
        RootCommand::BeginSeal { group, generation } => group::begin_seal(work, *group, *generation),
        RootCommand::EndSeal { group, generation, length, replicas, buckets, account } => {
            let answers = group::Answers { length: *length, replicas, buckets, account };
            group::end_seal(work, *group, *generation, &answers)
        }
        RootCommand::Settle { group, generation, dead } => group::settle(work, *group, *generation, dead),
        RootCommand::SetReplicas { group, generation, replicas } => {
            group::set_replicas(work, *group, *generation, replicas)
        }
        RootCommand::AddDead { dead } => group::add_dead(work, dead),
        RootCommand::DropGroup { group, generation } => group::drop_group(work, *group, *generation),
        RootCommand::Cluster(command) => cluster::decide(work, command),
        RootCommand::AddBucket { groups, bucket } => group::add_bucket(work, groups, *bucket),
        RootCommand::BeginStrip { strip, data, parity } => strip::begin(work, *strip, data, parity),
        RootCommand::EndStrip { strip, kept, digests } => strip::end(work, *strip, kept, digests),
        RootCommand::AbortStrip { strip } => strip::abort(work, *strip),
        RootCommand::DissolveStrip { strip, data } => strip::dissolve(work, *strip, data),
    }
}

/// Session numbers of a node only grow; the newest is the only one that has not ended.
fn new_session(work: &mut Work<'_>, node: NodeId) -> Decision {
    let session = read::root::session(&work.draft, node)? + 1;
    work.draft.put(key::session(node), &Counter(session.into()));
    Ok(Outcome::Session(session))
}
