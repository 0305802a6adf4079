//! The node as the curator reaches it: reads away from the async threads, entries, disks.
//!
//! Promises: a read sees everything that was answered before the last barrier, and on a node alone before it began; a refusal is an
//! error. Refuses to know: what is done with it.

use crate::config::{Barrier, Config};
use crate::error::CuratorError;
use crate::view::View;
use env::Env;
use metadata::command::{Command, Outcome, RootCommand, ShardCommand};
use metadata::read::{ReadError, root};
use metadata::rows::GroupRecord;
use metadata::shard::{KeyRange, ROOT, Shard, ShardId};
use metadata::tree::{Read, Snapshot};
use object_controller::Controller;
use replicas::Replicas;
use std::sync::Arc;
use std::time::Duration;
use types::GroupId;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    controller: Controller,
    env: Env,
    barrier: Option<Arc<dyn Barrier>>,
    view: Arc<dyn Fn() -> View + Send + Sync>,
}

impl Access {
    pub(crate) fn new(controller: Controller, config: &Config) -> Access {
        let Config { env, barrier, view, .. } = config.clone();
        Access { controller, env, barrier, view }
    }

    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
    }

    pub(crate) fn disks(&self) -> &Replicas {
        self.controller.disks()
    }

    /// The disks of the cluster just now.
    pub(crate) fn view(&self) -> View {
        (self.view)()
    }

    /// Whether it is known which disks there are, so that copies are planned.
    pub(crate) fn plans_copies(&self) -> bool {
        !self.view().disks.is_empty()
    }

    /// What is read after this is no older than this call: whatever was committed before it, by any node, is applied here.
    pub(crate) async fn barrier(&self) -> Result<(), CuratorError> {
        match &self.barrier {
            None => Ok(()),
            Some(barrier) => barrier.pass().await.map_err(CuratorError::Behind),
        }
    }

    /// Time since some fixed moment.
    pub(crate) fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }

    /// A number that nobody drew before.
    pub(crate) fn random(&self) -> u64 {
        self.env.random.next_u64()
    }

    /// Computes away from the async threads.
    pub(crate) async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.env.tasks.run(work).await
    }

    /// Wall time.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.env.clock.wall_ms()
    }

    /// Shards that hold keys.
    pub(crate) fn shards(&self) -> Vec<Shard> {
        self.controller.metadata().shards().filter(|shard| shard.id != ROOT).collect()
    }

    /// Their ranges.
    pub(crate) fn ranges(&self) -> Vec<KeyRange> {
        self.shards().into_iter().map(|shard| shard.range).collect()
    }

    /// One position, for several reads. It follows what any node was answered before.
    pub(crate) async fn snapshot(&self) -> Result<Arc<Snapshot>, CuratorError> {
        Ok(self.controller.position().await?)
    }

    /// Reads at the newest position.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Read) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, CuratorError> {
        self.read_at(self.snapshot().await?, work).await
    }

    /// Reads what this node knows, which may not be the newest.
    pub(crate) async fn peek<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Read) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, CuratorError> {
        let snapshot = self.controller.metadata().snapshot();
        Ok(self.env.tasks.run(move || work(&snapshot)).await?)
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
        match self.controller.decide(shard, command).await.map_err(CuratorError::Propose)? {
            Ok(outcome) => Ok(outcome),
            Err(refusal) => Err(CuratorError::Refused(Box::new(refusal))),
        }
    }
}
