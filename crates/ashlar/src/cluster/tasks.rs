//! What goes on by itself while the node runs: ticks, the map, members, the lease of buckets and accounts.
//!
//! Promises: each ends when it is told to, and is joined. Refuses to know: what others do.

use super::map::MapWatch;
use super::members::{Step, next_step};
use super::placement::Placement;
use cluster::heartbeats::Heartbeats;
use metadata::node::Metadata;
use object_controller::Controller;
use object_controller::nodes::{Link, ask_for_map};
use rpc::Transport;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often the map's row is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often leaders compare members with the map.
const MEMBERS_EVERY: Duration = Duration::from_millis(500);
/// How often it is seen to that an old map does not stay.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How often the lease is taken anew: four times before it ends.
const LEASE_EVERY: Duration = Duration::from_millis(500);

/// The tasks of a node.
pub struct Tasks {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Tasks {
    /// Ticks, and the map as the metadata has it.
    pub fn start(metadata: &Metadata, map: &MapWatch) -> Tasks {
        let (stop, _) = watch::channel(false);
        let mut tasks = Tasks { stop, running: JoinSet::new() };
        let ticking = metadata.clone();
        tasks.every(metadata::limits::TICK, move || {
            ticking.tick();
            std::future::ready(())
        });
        let (looking, map) = (metadata.clone(), map.clone());
        tasks.every(LOOK_EVERY, move || {
            map.look(&looking);
            std::future::ready(())
        });
        tasks
    }

    /// What needs a controller.
    pub fn go_on(&mut self, controller: &Controller, map: &MapWatch) {
        let fresh = controller.clone();
        self.every(LEASE_EVERY, move || {
            let fresh = fresh.clone();
            async move { fresh.keep_fresh().await }
        });
        let (metadata, map) = (controller.metadata().clone(), map.clone());
        self.every(MEMBERS_EVERY, move || {
            let (metadata, map) = (metadata.clone(), map.clone());
            async move { look_after_members(&metadata, &map).await }
        });
    }

    /// Disks and copies follow the map.
    pub fn place(&mut self, placement: Placement, map: &MapWatch) {
        let (map, mut known) = (map.clone(), None);
        self.every(LOOK_EVERY, move || {
            let now = map.now();
            let epoch = now.as_ref().map(|map| map.epoch);
            if epoch != known {
                placement.follow(now.as_deref());
                known = epoch;
            }
            std::future::ready(())
        });
    }

    /// A node that was away may not know those who would send it what it missed, the map among it: it asks whom it knows.
    pub fn follow(&mut self, heartbeats: Heartbeats, link: Link, map: &MapWatch) {
        let map = map.clone();
        self.every(FOLLOW_EVERY, move || {
            let (heartbeats, link, map) = (heartbeats.clone(), link.clone(), map.clone());
            async move {
                let known = map.now().map_or(0, |map| map.epoch);
                if heartbeats.newest_epoch() > known
                    && let Some(newer) = ask_for_map(&link).await
                {
                    map.take(newer);
                }
            }
        });
    }

    /// Heartbeats, until they are stopped.
    pub fn beat(&mut self, heartbeats: Heartbeats, transport: Arc<dyn Transport>) {
        let told = |verdict| tracing::info!(?verdict, "the cluster thinks otherwise of a node");
        self.running.spawn(heartbeats.run(transport, told));
    }

    fn every<F: Future<Output = ()> + Send>(&mut self, pause: Duration, mut work: impl FnMut() -> F + Send + 'static) {
        let mut stopped = self.stop.subscribe();
        self.running.spawn(async move {
            let mut ticks = tokio::time::interval(pause);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    // Told, or the owner is gone.
                    _ = stopped.changed() => return,
                    _ = ticks.tick() => work().await,
                }
            }
        });
    }

    /// Ends them all.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.running.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the node ended badly");
            }
        }
    }
}

async fn look_after_members(metadata: &Metadata, map: &MapWatch) {
    let Some(map) = map.now() else { return };
    let node = metadata.node();
    let shards: Vec<_> = metadata.shards().map(|shard| shard.id).collect();
    for shard in shards.into_iter().filter(|shard| metadata.leader(*shard) == Some(node)) {
        let members = metadata.members(shard);
        let Some(step) = next_step(&map, &members, node) else { continue };
        let done = match &step {
            Step::Change(change) => metadata.change_members(shard, change.clone()).await,
            Step::Transfer(to) => metadata.transfer_leader(shard, *to).await,
        };
        match done {
            Ok(()) => tracing::info!(shard = shard.0, ?step, "the members of a shard were changed"),
            Err(error) => tracing::debug!(shard = shard.0, ?step, %error, "the members of a shard stay for now"),
        }
    }
}
