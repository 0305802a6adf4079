//! The node as the curator reaches it: reads away from the async threads, entries, disks.
//!
//! Promises: a read sees everything answered before it began; a refusal is an error. Refuses to know: what is done with it.

use crate::error::CuratorError;
use env::Env;
use extent_store::StoreSet;
use metadata::command::{Command, Outcome, RootCommand, ShardCommand};
use metadata::read::{ReadError, root};
use metadata::rows::GroupRecord;
use metadata::shard::{KeyRange, ROOT, Shard, ShardId};
use metadata::tree::{Read, Snapshot};
use object_controller::Controller;
use std::sync::Arc;
use std::time::Duration;
use types::GroupId;
use types::limits::DEADLINE_MS;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    controller: Controller,
    env: Env,
}

impl Access {
    pub(crate) fn new(controller: Controller, env: Env) -> Access {
        Access { controller, env }
    }

    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
    }

    pub(crate) fn disks(&self) -> &StoreSet {
        self.controller.disks()
    }

    /// Time since some fixed moment.
    pub(crate) fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }

    /// Wall time.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.env.clock.wall_ms()
    }

    /// Shards that hold keys.
    pub(crate) fn shards(&self) -> Vec<Shard> {
        self.controller.metadata().shards().filter(|shard| shard.id != ROOT).cloned().collect()
    }

    /// Their ranges.
    pub(crate) fn ranges(&self) -> Vec<KeyRange> {
        self.shards().into_iter().map(|shard| shard.range).collect()
    }

    /// One position, for several reads.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.controller.metadata().snapshot())
    }

    /// Reads at the newest position.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Read) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, CuratorError> {
        self.read_at(self.snapshot(), work).await
    }

    /// Reads at a position.
    pub(crate) async fn read_at<T: Send + 'static>(
        &self,
        snapshot: Arc<Snapshot>,
        work: impl FnOnce(&dyn Read) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, CuratorError> {
        Ok(self.env.tasks.run(move || work(&*snapshot)).await?)
    }

    /// The record of a group as it is now.
    pub(crate) async fn group(&self, group: GroupId) -> Result<Option<GroupRecord>, CuratorError> {
        self.read(move |read| root::group(read, group)).await
    }

    /// *Committed* when it answers.
    pub(crate) async fn root(&self, command: RootCommand) -> Result<Outcome, CuratorError> {
        self.propose(ROOT, Command::Root(command)).await
    }

    /// *Committed* when it answers.
    pub(crate) async fn shard(&self, shard: ShardId, command: ShardCommand) -> Result<Outcome, CuratorError> {
        self.propose(shard, Command::Shard(command)).await
    }

    async fn propose(&self, shard: ShardId, command: Command) -> Result<Outcome, CuratorError> {
        let metadata = self.controller.metadata();
        let deadline_ms = metadata.now_ms().saturating_add(DEADLINE_MS);
        match metadata.propose(shard, metadata.next_attempt(), deadline_ms, command).await? {
            Outcome::Refused(refusal) => Err(CuratorError::Refused(Box::new(refusal))),
            outcome => Ok(outcome),
        }
    }
}
