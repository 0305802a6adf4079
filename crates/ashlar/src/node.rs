//! A running node, as the admin port sees it.

use crate::cluster::{Curators, Gate, MapWatch, Running, Viewer};
use crate::manage::Manager;
use admin::operations::{Answer, Manage, Managed, Progress};
use admin::{CuratorAsk, Operations};
use cluster::operator::make_token;
use curator::Curator;
use env::Env;
use metadata::node::Metadata;
use metadata::shard::ROOT;
use object_controller::Controller;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{ClusterId, DiskId};

/// A token that is not used within a week is forgotten by its operator, too.
const TOKEN_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// How often the metadata is asked whether it failed.
const FAILURE_CHECK: Duration = Duration::from_millis(200);

/// Everything that runs.
pub struct Node {
    cluster: ClusterId,
    env: Env,
    /// When it was put together, on the monotonic clock.
    started: Duration,
    metadata: Metadata,
    /// Lost disks, as of the start.
    missing: Vec<DiskId>,
    controller: Arc<Controller>,
    curator: Arc<Curator>,
    curators: Curators,
    /// What its operator should change, as of the start.
    warnings: Vec<String>,
    /// Among the others; taken at the end.
    running: Mutex<Option<Running>>,
    map: MapWatch,
    gate: Gate,
    manager: Manager,
}

impl Node {
    /// Of parts that are open.
    pub fn new(
        cluster: ClusterId,
        env: Env,
        metadata: Metadata,
        missing: Vec<DiskId>,
        controller: Controller,
        curators: Curators,
        warnings: Vec<String>,
        (running, viewer): (Running, Arc<Viewer>),
    ) -> Node {
        let (started, controller) = (env.clock.monotonic(), Arc::new(controller));
        let manager = Manager {
            controller: controller.clone(),
            metadata: metadata.clone(),
            env: env.clone(),
            gate: running.gate(),
            heartbeats: running.heartbeats(),
            viewer,
            erasure: curator::Config::new(env.clone()).erasure,
        };
        let (map, gate, running) = (running.map().clone(), running.gate(), Mutex::new(Some(running)));
        let curator = curators.own();
        Node {
            cluster,
            env,
            started,
            metadata,
            missing,
            controller,
            curator,
            curators,
            warnings,
            running,
            map,
            gate,
            manager,
        }
    }

    /// Its controller.
    pub fn controller(&self) -> Arc<Controller> {
        self.controller.clone()
    }

    /// Its world.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// For `x-amz-id-2` and logs.
    pub fn name(&self) -> String {
        crate::server::describe(self.cluster)
    }

    /// Waits until the metadata has failed; says why.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(reason) = self.metadata.failure() {
                return reason;
            }
            tokio::time::sleep(FAILURE_CHECK).await;
        }
    }

    /// Ends the curator, seals what is open, marks the log as clean.
    pub async fn close(&self) -> Result<(), crate::server::Failure> {
        self.curator.stop().await;
        self.controller.close().await;
        let running = self.running.lock().take();
        if let Some(running) = running {
            running.end().await;
        }
        if let Some(reason) = self.metadata.failure() {
            return Err(reason.into());
        }
        self.metadata.mark().await;
        let (metadata, disks) = (self.metadata.clone(), self.controller.disks().clone());
        tokio::task::spawn_blocking(move || {
            metadata.close();
            for disk in disks.local().iter() {
                disk.close();
            }
        })
        .await?;
        Ok(())
    }

    /// How far the wall clock is behind the newest stamp in the metadata.
    fn clock_behind_seconds(&self) -> u64 {
        (self.metadata.now_ms().saturating_sub(self.env.clock.wall_ms())) / 1000
    }

    /// The nodes of the map.
    fn nodes(&self) -> Vec<Value> {
        let map = self.map.now();
        let describe = |node: &types::cluster::Node| {
            json!({
                "node": node.id,
                "state": format!("{:?}", node.state).to_lowercase(),
                "rpc": node.start.addresses.rpc,
                "s3": node.start.addresses.s3,
                "admin": node.start.addresses.admin,
            })
        };
        map.iter().flat_map(|map| map.trusted()).map(describe).collect()
    }

    fn disks(&self) -> Vec<Value> {
        let describe = |disk: &extent_store::DiskStore| {
            let (identity, health) = (disk.identity(), disk.health());
            let space = disk.space().ok();
            json!({
                "disk": identity.disk.to_string(),
                "incarnation": identity.incarnation,
                "total_bytes": space.map(|s| s.total_bytes),
                "free_bytes": space.map(|s| s.free_bytes),
                "files": disk.list_files().len(),
                "suspect": health.suspect,
                "appends": health.appends,
                "appended_bytes": health.appended_bytes,
                "syncs": health.syncs,
                "data_reads": health.data_reads,
                "damaged_reads": health.damaged_reads,
            })
        };
        self.controller.disks().local().iter().map(describe).collect()
    }
}

impl Operations for Node {
    fn ready(&self) -> bool {
        self.metadata.failure().is_none()
    }

    fn info(&self) -> Value {
        let stats = self.metadata.stats();
        let log_syncs: u64 = stats.logs.values().map(|log| log.syncs).sum();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cluster": self.cluster.to_string(),
            "node": self.metadata.node(),
            "epoch": self.map.now().map(|map| map.epoch),
            "nodes": self.nodes(),
            "rf": self.controller.rf(),
            "session": self.controller.session().1,
            "uptime_seconds": self.env.clock.monotonic().saturating_sub(self.started).as_secs(),
            "disks": self.disks(),
            "warnings": self.warnings,
            "disks_missing": self.missing.iter().map(DiskId::to_string).collect::<Vec<_>>(),
            "metadata_folders_in_set": stats.logs.len(),
            "metadata_folders_wanted": self.controller.rf(),
            "clock_behind_seconds": self.clock_behind_seconds(),
            "metadata": {
                "entries": stats.entries,
                "appends": stats.appends,
                "log_syncs": log_syncs,
                "flushes": stats.flushes,
                "failure": stats.failure,
                "root_leader": self.metadata.leader(ROOT),
            },
            "curator": self.curator.status(),
        })
    }

    fn audit(&self, progress: mpsc::Sender<Progress>) -> Answer<'_> {
        Box::pin(async move {
            let report =
                |done, total, unit: &str| _ = progress.try_send(Progress { done, total, unit: unit.to_owned() });
            let audit = self.curator.audit(report).await.map_err(|e| e.to_string())?;
            serde_json::to_value(audit).map_err(|e| e.to_string())
        })
    }

    fn scrub(&self, progress: mpsc::Sender<Progress>) -> Answer<'_> {
        Box::pin(async move {
            let report =
                |done, total, unit: &str| _ = progress.try_send(Progress { done, total, unit: unit.to_owned() });
            let scrub = self.curator.scrub(report).await.map_err(|e| e.to_string())?;
            serde_json::to_value(scrub).map_err(|e| e.to_string())
        })
    }

    fn flush_caches(&self) -> Answer<'_> {
        Box::pin(async move {
            self.metadata.empty_cache().await?;
            let disks = self.controller.disks().clone();
            // Log and tables of the metadata lie on the same disks as the groups.
            let dropped =
                tokio::task::spawn_blocking(move || disks.local().iter().try_for_each(|disk| disk.drop_cached()));
            dropped.await.map_err(|e| e.to_string())?.map_err(|e| format!("the page cache: {e}"))?;
            Ok(json!({ "ok": true }))
        })
    }

    fn cluster(&self) -> Value {
        let map = self.map.now();
        let disk = |disk: &types::cluster::Disk| {
            json!({
                "disk": disk.id.to_string(),
                "node": disk.node,
                "state": format!("{:?}", disk.state).to_lowercase(),
                "total_bytes": disk.total_bytes,
            })
        };
        let members = self.metadata.members(ROOT);
        json!({
            "cluster": self.cluster.to_string(),
            "epoch": map.as_ref().map(|map| map.epoch),
            "nodes": self.nodes(),
            "disks": map.iter().flat_map(|map| map.disks.values()).map(disk).collect::<Vec<_>>(),
            "root": {
                "leader": self.metadata.leader(ROOT),
                "voters": members.voters,
                "learners": members.learners,
            },
        })
    }

    fn join_token(&self, valid_seconds: u64) -> Answer<'_> {
        Box::pin(async move {
            if !(1..=TOKEN_SECONDS_MAX).contains(&valid_seconds) {
                return Err(format!("a token admits for one second to {TOKEN_SECONDS_MAX} seconds"));
            }
            let valid = Some(Duration::from_secs(valid_seconds));
            let token = make_token(&self.gate, &self.env, valid).await.map_err(|e| e.to_string())?;
            Ok(json!({ "token": token.to_text(), "expires_in_seconds": valid_seconds }))
        })
    }

    fn manage(&self, wanted: Manage) -> Managed<'_> {
        Box::pin(self.manager.manage(wanted))
    }

    fn curator(&self, ask: CuratorAsk) -> Answer<'_> {
        Box::pin(self.curators.answer(ask))
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let stats = self.metadata.stats();
        let mut free = 0;
        let mut total = 0;
        let mut health = extent_store::DiskHealth::default();
        for disk in self.controller.disks().local().iter() {
            let h = disk.health();
            health.syncs += h.syncs;
            health.data_reads += h.data_reads;
            health.inline_reads += h.inline_reads;
            health.appended_bytes += h.appended_bytes;
            health.damaged_reads += h.damaged_reads;
            if let Ok(space) = disk.space() {
                free += space.free_bytes;
                total += space.total_bytes;
            }
        }
        let log_syncs: u64 = stats.logs.values().map(|log| log.syncs).sum();
        let mut gauges = vec![
            ("disk_free_bytes", "Free bytes of all data folders", free as f64),
            ("disk_total_bytes", "Bytes of all data folders", total as f64),
            ("data_syncs", "fdatasync calls on extent groups since the start", health.syncs as f64),
            ("log_syncs", "fdatasync calls on the Raft log since the start", log_syncs as f64),
            ("data_reads", "Reads of extent groups for clients since the start", health.data_reads as f64),
            ("data_appended_bytes", "Bytes appended to extent groups since the start", health.appended_bytes as f64),
            ("damaged_reads", "Reads that met damage since the start", health.damaged_reads as f64),
            ("log_entries", "Raft entries appended since the start", stats.entries as f64),
            ("metadata_flushes", "Flushes of the metadata tree since the start", stats.flushes as f64),
            ("disks_missing", "Lost disks on which data was, as of the start", self.missing.len() as f64),
            ("metadata_folders_in_set", "Data folders that hold the metadata", stats.logs.len() as f64),
            ("metadata_folders_wanted", "Data folders that should hold the metadata", f64::from(self.controller.rf())),
            (
                "clock_behind_seconds",
                "How far the wall clock is behind the newest stamp in the metadata",
                self.clock_behind_seconds() as f64,
            ),
            ("findings_waiting", "Replicas that wait for repair", self.controller.findings().waiting() as f64),
            (
                "metadata_cache_hits_total",
                "Blocks of the metadata tree that its cache had, since the start",
                stats.tree.cache_hits as f64,
            ),
            (
                "metadata_cache_misses_total",
                "Blocks of the metadata tree that had to be read, since the start",
                stats.tree.cache_misses as f64,
            ),
            ("metadata_cache_bytes", "Bytes of the metadata tree's cache in use", stats.tree.cache_bytes as f64),
            (
                "object_cache_hits_total",
                "Readers of current objects that found all they wanted in memory, since the start",
                stats.objects.hits as f64,
            ),
            (
                "object_cache_misses_total",
                "Readers of current objects that had to read the metadata tree, since the start",
                stats.objects.misses as f64,
            ),
            ("object_cache_bytes", "Bytes of the cache of current objects in use", stats.objects.bytes as f64),
            (
                "data_cache_hits_total",
                "Reads of extent groups that the page cache answered without waiting, since the start",
                health.inline_reads as f64,
            ),
            (
                "data_cache_misses_total",
                "Reads of extent groups that waited for a disk, since the start",
                health.data_reads.saturating_sub(health.inline_reads) as f64,
            ),
            (
                "panicked_stories",
                "Pieces of background work that panicked since the start: each is a bug to be reported",
                self.controller.panicked_stories() as f64,
            ),
        ];
        gauges.extend(self.curators.gauges());
        gauges
    }
}
