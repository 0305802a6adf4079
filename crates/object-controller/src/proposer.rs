//! Proposing entries: attempt ids, deadlines, shards.
//!
//! Promises: an answer is final for its attempt except `Moved` and `Refetch`; what was not proposed is told apart from what may
//! still be applied. Refuses to know: what the commands mean.

use crate::api::{BucketInfo, StoreError};
use crate::controller::Controller;
use crate::limits;
use crate::nodes::Nodes;
use crate::refusal;
use metadata::command::{Command, KeyCommand, KeyOp, Outcome, Refusal, RootCommand, ShardCommand};
use metadata::node::{Metadata, ProposeError};
use metadata::rows::Home;
use metadata::shard::{ROOT, ShardId};
use types::limits::DEADLINE_MS;
use types::{AttemptId, BucketId, ObjectKey};

/// Proposes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Proposer {
    metadata: Metadata,
    nodes: Nodes,
}

/// Why a proposal has no outcome to go on with.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Apply refused.
    Refused(Refusal),
    /// It was never proposed and never will be.
    NotProposed(StoreError),
    /// It may have been applied, or may still be until its deadline.
    Unknown(String),
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> StoreError {
        match failed {
            Failed::Refused(refusal) => refusal::store_error(refusal),
            Failed::NotProposed(error) => error,
            Failed::Unknown(why) => StoreError::Unavailable(why),
        }
    }
}

impl From<ProposeError> for Failed {
    fn from(error: ProposeError) -> Failed {
        match error {
            ProposeError::Busy => Failed::NotProposed(StoreError::Busy("metadata")),
            ProposeError::NoSpace => Failed::NotProposed(StoreError::NoSpace),
            ProposeError::TooLarge => Failed::NotProposed(StoreError::TooLarge),
            ProposeError::TooLate
            | ProposeError::NoSuchShard
            | ProposeError::ReadOnly(_)
            | ProposeError::NotLeader(_)
            | ProposeError::Refused(_) => Failed::NotProposed(StoreError::Unavailable(error.to_string())),
            ProposeError::Failed(why) => Failed::Unknown(why),
        }
    }
}

impl Proposer {
    pub(crate) fn new(metadata: Metadata, nodes: Nodes) -> Proposer {
        Proposer { metadata, nodes }
    }

    /// A new attempt id of this session.
    pub(crate) fn attempt(&self) -> AttemptId {
        self.metadata.next_attempt()
    }

    /// About the cluster, under a new attempt.
    pub(crate) async fn root(&self, command: RootCommand) -> Result<Outcome, Failed> {
        self.propose(ROOT, self.attempt(), Command::Root(command)).await
    }

    /// About one key.
    pub(crate) async fn key(&self, attempt: AttemptId, command: KeyCommand) -> Result<Outcome, Failed> {
        let shard = self.metadata.shard_of(&Home { bucket: command.bucket, key: command.key.clone() });
        self.propose(shard, attempt, Command::Key(command)).await
    }

    /// About several homes of one shard.
    pub(crate) async fn shard(
        &self,
        shard: ShardId,
        attempt: AttemptId,
        command: ShardCommand,
    ) -> Result<Outcome, Failed> {
        self.propose(shard, attempt, Command::Shard(command)).await
    }

    /// The shard of a key.
    pub(crate) fn shard_of(&self, home: &Home) -> ShardId {
        self.metadata.shard_of(home)
    }

    /// The shard of a bucket's keys from `from` on; `None`: from its first.
    pub(crate) fn shard_at(&self, bucket: BucketId, from: Option<&ObjectKey>) -> ShardId {
        let key = match from {
            Some(key) => key.clone(),
            None => ObjectKey::new("\u{1}").expect("one character that is not NUL is a key, and the first of all"),
        };
        self.metadata.shard_of(&Home { bucket, key })
    }

    /// All shards that hold keys.
    pub(crate) fn data_shards(&self) -> Vec<ShardId> {
        self.metadata.shards().map(|shard| shard.id).filter(|id| *id != ROOT).collect()
    }

    /// Under this attempt.
    pub(crate) async fn propose(
        &self,
        shard: ShardId,
        attempt: AttemptId,
        command: Command,
    ) -> Result<Outcome, Failed> {
        let deadline_ms = self.metadata.now_ms().saturating_add(DEADLINE_MS);
        match self.nodes.propose(shard, attempt, deadline_ms, command).await? {
            Outcome::Refused(refusal) => Err(Failed::Refused(refusal)),
            outcome => Ok(outcome),
        }
    }
}

impl Controller {
    /// A mutation of one key, proposed again with what the directory says now where apply asks for it.
    pub(crate) async fn propose(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        attempt: AttemptId,
        op: KeyOp,
    ) -> Result<Outcome, Failed> {
        for _ in 1..limits::REFETCH_ATTEMPTS {
            match self.propose_once(bucket, key, attempt, op.clone()).await {
                Err(Failed::Refused(Refusal::Refetch | Refusal::Moved)) => {}
                decided => return decided,
            }
        }
        self.propose_once(bucket, key, attempt, op).await
    }

    async fn propose_once(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        attempt: AttemptId,
        op: KeyOp,
    ) -> Result<Outcome, Failed> {
        let generation = self.current_bucket(bucket).map_err(Failed::NotProposed)?.generation;
        self.proposer().key(attempt, KeyCommand { bucket: bucket.id, generation, key: key.clone(), op }).await
    }
}
