//! Five nodes with disks in a simulated world; the first has the metadata and the clients. Redundancy is planned and executed for each
//! of them, in the first one's process, as of a view that the test changes.
#![allow(clippy::panic, dead_code)]

#[path = "../../../object-controller/tests/fixture/ask.rs"]
pub mod ask;
#[path = "../../../replicas/tests/net/mod.rs"]
pub mod net;

use curator::view::{DiskState, DiskView, Health};
use curator::{AuditReport, Config, Redundancy, Rounds, View};
use env::buf::BufPool;
use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use env::world::SimWorld;
use extent_store::{Depth, DiskStore, Scanned};
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState, ReplicaState};
use net::{CLUSTER, DiskNode, Net, disk_of};
use object_controller::api::{Account, BucketInfo, Credential};
use object_controller::{Controller, ControllerConfig};
use parking_lot::Mutex;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::{DiskId, GroupId, NodeId};

const MIB: u64 = 1 << 20;
pub const FIRST: NodeId = 1;
pub const OTHERS: [NodeId; 4] = [2, 3, 4, 5];

pub struct Cluster {
    pub world: SimWorld,
    pub net: Arc<Net>,
    pub seed: u64,
    pub others: BTreeMap<NodeId, DiskNode>,
    pub view: Arc<Mutex<View>>,
    pub first: First,
    pub bucket: Arc<BucketInfo>,
    pub acknowledged: Arc<Mutex<BTreeMap<String, (u64, usize)>>>,
    disk: SimDisk,
    rf: u8,
    next: u64,
}

/// What runs on the first node.
pub struct First {
    pub node: DiskNode,
    pub replicas: Replicas,
    pub metadata: Metadata,
    pub controller: Controller,
    pub rounds: Arc<Rounds>,
    pub config: Config,
    pub redundancy: Vec<Redundancy>,
}

pub fn node_of(disk: DiskId) -> NodeId {
    (disk.0 - 0xD0) as NodeId
}

impl Cluster {
    pub fn born(seed: u64, rf: u8) -> Cluster {
        let world = SimWorld::new(seed);
        let net = Net::new(&world);
        let mut others = BTreeMap::new();
        for node in OTHERS {
            let env = world.node(node.into());
            let disks = DiskNode::born(node, &env, seed);
            disks.serve(&net, &env);
            others.insert(node, disks);
        }
        let view = Arc::new(Mutex::new(all_up(rf)));
        let node = DiskNode::born(FIRST, &world.node(FIRST.into()), seed);
        let disk = node.disk.clone();
        let first = start(&world, &net, node, rf, &view, true);
        let controller = first.controller.clone();
        let bucket = world.block_on(async move { ask::make_bucket(&controller, "bucket").await });
        let acknowledged = Arc::default();
        Cluster { world, net, seed, others, view, first, bucket, acknowledged, disk, rf, next: 0 }
    }

    /// Some clients put objects, one after the other each, until all are done.
    pub fn put(&mut self, clients: u64, each: u64) {
        let done = self.acknowledged.lock().len() as u64 + clients * each;
        self.begin_puts(clients, each);
        let acknowledged = self.acknowledged.clone();
        let all = || acknowledged.lock().len() as u64 == done;
        assert!(self.world.run_until(all, Duration::from_secs(600)), "seed {}: puts hang", self.seed);
    }

    pub fn begin_puts(&mut self, clients: u64, each: u64) {
        for client in 0..clients {
            let first = self.next + client * each;
            let (controller, bucket) = (self.first.controller.clone(), self.bucket.clone());
            let acknowledged = self.acknowledged.clone();
            drop(self.world.spawn_on(FIRST.into(), async move {
                for number in first..first + each {
                    let len = 20_000 + (number * 79_190 % 600_000) as usize;
                    let key = format!("k{number}");
                    if ask::put(&controller, &bucket, &key, ask::content(number, len)).await.is_ok() {
                        acknowledged.lock().insert(key, (number, len));
                    }
                }
            }));
        }
        self.next += clients * each;
    }

    /// Redundancy is looked after from now on, on every node once, or more often.
    pub fn look_after(&mut self, times: usize) {
        // As rounds do.
        let (controller, timers) = (self.first.controller.clone(), self.first.config.env.timers.clone());
        drop(self.world.spawn_on(FIRST.into(), async move {
            loop {
                controller.tend().await;
                timers.sleep(Duration::from_secs(5)).await;
            }
        }));
        for _ in 0..times {
            for node in [FIRST].into_iter().chain(OTHERS) {
                let redundancy = Redundancy::new(node, self.first.controller.clone(), self.first.config.clone());
                drop(self.world.spawn_on(FIRST.into(), redundancy.clone().run()));
                self.first.redundancy.push(redundancy);
            }
        }
    }

    /// Everything sealed and settled: the first node was restarted.
    pub fn settled(&mut self) {
        self.restart(CrashPolicy::KeepAll);
        self.rounds();
    }

    /// Power goes at the first node; it comes back, and nobody looks after redundancy.
    pub fn restart(&mut self, policy: CrashPolicy) {
        self.world.kill(FIRST.into());
        self.disk = self.disk.crash(policy);
        let node = DiskNode::start(FIRST, &self.world.node(FIRST.into()), self.disk.clone());
        self.first = start(&self.world, &self.net, node, self.rf, &self.view, false);
    }

    /// Power goes at another node; it comes back with what was durable.
    pub fn cut_power(&mut self, node: NodeId, policy: CrashPolicy) {
        self.world.kill(node.into());
        let disk = self.others[&node].disk.crash(policy);
        let env = self.world.node(node.into());
        let disks = DiskNode::start(node, &env, disk);
        disks.serve(&self.net, &env);
        self.others.insert(node, disks);
    }

    pub fn change(&self, node: NodeId, change: impl Fn(&mut DiskView)) {
        self.view.lock().disks.values_mut().filter(|disk| disk.node == node).for_each(change);
    }

    /// The node is away, and everybody thinks so.
    pub fn down(&self, node: NodeId) {
        self.net.set_down(node, true);
        self.change(node, |disk| disk.health = Health::Down);
    }

    pub fn up(&self, node: NodeId) {
        self.net.set_down(node, false);
        self.first.replicas.set_silent(node, false);
        self.change(node, |disk| disk.health = Health::Up);
    }

    pub fn round(&self) -> Result<curator::RoundReport, curator::CuratorError> {
        let rounds = self.first.rounds.clone();
        self.world.block_on(async move { rounds.round().await })
    }

    /// Until nothing is left to do.
    pub fn rounds(&self) {
        for _ in 0..60 {
            let idle = self.round().is_ok_and(|report| report.is_idle());
            if idle && self.first.rounds.status().repairs_waiting == 0 {
                return;
            }
            self.world.run_for(Duration::from_secs(31));
        }
        panic!("the curator never comes to rest: {:?} {:#?}", self.first.rounds.status(), self.records());
    }

    pub fn records(&self) -> Vec<(GroupId, GroupRecord)> {
        root::groups(&self.first.metadata.snapshot()).collect::<Result<_, _>>().expect("records")
    }

    /// Nodes with a whole copy, of each sealed group that is not empty.
    pub fn whole(&self) -> BTreeMap<GroupId, Vec<NodeId>> {
        let sealed = self.records().into_iter().filter(|(_, r)| r.state == GroupState::Sealed && r.length > 4096);
        let whole = |record: GroupRecord| {
            let whole = record.replicas.iter().filter(|r| r.state == ReplicaState::Whole);
            whole.map(|replica| node_of(replica.disk)).collect()
        };
        sealed.map(|(group, record)| (group, whole(record))).collect()
    }

    pub fn on(&self, node: NodeId) -> usize {
        self.records().iter().filter(|(_, r)| r.replicas.iter().any(|r| node_of(r.disk) == node)).count()
    }

    /// Runs until every group has so many whole copies on nodes that are up and in service, no more and no fewer if `exactly`.
    pub fn until_redundant(&self, copies: usize, exactly: bool, limit: Duration) -> bool {
        let able = |node: &NodeId| {
            let view = self.view.lock();
            view.disks.values().any(|d| d.node == *node && d.health == Health::Up && d.state == DiskState::Active)
        };
        let enough = || {
            let unsealed = self
                .records()
                .iter()
                .any(|(_, r)| r.state != GroupState::Sealed && r.replicas.iter().any(|r| !able(&node_of(r.disk))));
            let count = |nodes: &Vec<NodeId>| nodes.iter().filter(|node| able(node)).count();
            let right = |nodes: &Vec<NodeId>| {
                if exactly { nodes.len() == copies && count(nodes) == copies } else { count(nodes) >= copies }
            };
            !unsealed && self.whole().values().all(right)
        };
        self.world.run_until(enough, limit)
    }

    pub fn assert_redundant(&self, copies: usize, exactly: bool, limit: Duration) {
        let reached = self.until_redundant(copies, exactly, limit);
        let status = || self.first.redundancy.iter().map(|r| format!("{:?}", r.status())).collect::<Vec<_>>();
        let view = self.view.lock().clone();
        assert!(reached, "seed {}: {:#?} {:#?} {view:#?}", self.seed, self.records(), status());
    }

    /// Reads back what was acknowledged.
    pub fn assert_readable(&self, when: &str) {
        let (controller, bucket) = (self.first.controller.clone(), self.bucket.clone());
        let (acknowledged, what) = (self.acknowledged.lock().clone(), format!("seed {}: {when}", self.seed));
        assert!(!acknowledged.is_empty(), "{what}: nothing was acknowledged");
        self.world.block_on(async move {
            for (key, (number, len)) in acknowledged {
                match ask::get(&controller, &bucket, &key, None).await {
                    Ok((_, bytes)) => {
                        assert!(bytes == ask::content(number, len), "{what}: {key} is not what was written")
                    }
                    Err(error) => panic!("{what}: {key}: {error}"),
                }
            }
        });
    }

    /// Also without any other node, one at a time.
    pub fn assert_readable_without_any(&self, when: &str) {
        for node in OTHERS {
            self.net.set_down(node, true);
            self.assert_readable(&format!("{when}, without node {node}"));
            self.net.set_down(node, false);
        }
        let replicas = self.first.replicas.clone();
        self.world.block_on(async move { replicas.tend().await });
    }

    pub fn store(&self, node: NodeId) -> DiskStore {
        if node == FIRST { self.first.node.store() } else { self.others[&node].store() }
    }

    pub fn sim_disk(&self, node: NodeId) -> &SimDisk {
        if node == FIRST { &self.first.node.disk } else { &self.others[&node].disk }
    }

    /// Copies lie on distinct nodes, and what a sealed record says of them is what stands in their files.
    pub fn assert_copies(&self) {
        for (group, record) in self.records() {
            let what = format!("seed {}: {group}: {record:#?}", self.seed);
            let nodes: BTreeSet<NodeId> = record.replicas.iter().map(|r| node_of(r.disk)).collect();
            assert_eq!(nodes.len(), record.replicas.len(), "copies share a node: {what}");
            let sealed = record.state == GroupState::Sealed && record.length > 4096;
            for replica in record.replicas.iter().filter(|r| sealed && r.state == ReplicaState::Whole) {
                let store = self.store(node_of(replica.disk));
                let scan = store.scan(group, replica.file_generation, Depth::Payloads);
                let scan = scan.unwrap_or_else(|error| panic!("disk {}: {error}: {what}", replica.disk));
                let end = scan.filter_map(|item| match item {
                    Scanned::Frame(header) => Some(header.address.offset + header.frame_bytes()),
                    Scanned::Hole { .. } => None,
                    Scanned::Damaged { offset, .. } if offset >= record.length => None,
                    damaged => panic!("disk {}: {damaged:?}: {what}", replica.disk),
                });
                let dead_to_the_end = record.dead.last().is_some_and(|(at, bytes)| at + bytes >= record.length);
                let end = end.max();
                assert!(end >= Some(record.length) || dead_to_the_end, "disk {}: {end:?}: {what}", replica.disk);
            }
        }
    }

    pub fn audit(&self) -> AuditReport {
        let rounds = self.first.rounds.clone();
        self.world.block_on(async move { rounds.audit(|_, _, _| {}).await }).expect("an audit")
    }
}

fn all_up(rf: u8) -> View {
    let disk = |node: NodeId| DiskView {
        node,
        rack: None,
        health: Health::Up,
        state: DiskState::Active,
        awaited: false,
        free_bytes: 500 * MIB,
        total_bytes: 512 * MIB,
    };
    let disks = [FIRST].into_iter().chain(OTHERS).map(|node| (disk_of(node), disk(node)));
    View { disks: disks.collect(), default_rf: rf }
}

fn start(world: &SimWorld, net: &Arc<Net>, node: DiskNode, rf: u8, view: &Arc<Mutex<View>>, create: bool) -> First {
    let env = world.node(FIRST.into());
    let replicas = Replicas::new(node.stores.clone(), CLUSTER, net.door(FIRST, &env), env.clone());
    replicas.set_remote(&OTHERS.map(|node| (disk_of(node), node)).into(), BTreeSet::new());
    let folder = FolderConfig { disk: Arc::new(node.disk.clone()) as Arc<dyn Disk>, dir: "meta".into() };
    let mut config = MetadataConfig::small(env.clone(), FIRST, vec![folder]);
    (config.create, config.segment_bytes, config.log_bytes) = (create, 1 << 20, 4 << 20);
    let directory = Arc::new(Directory::default());
    let machine = Box::new(metadata::apply::Schema::new(directory.clone()));
    let metadata = Metadata::open(config, machine).expect("sound metadata");
    let account =
        Account { canonical_id: "a".repeat(64), display_name: "root".into(), email: String::new(), is_root: true };
    let config = ControllerConfig {
        env: env.clone(),
        metadata: metadata.clone(),
        directory,
        disks: replicas.clone(),
        cluster: CLUSTER,
        rf: rf.into(),
        nodes: None,
        write_buffers: BufPool::new(ControllerConfig::MIN_WRITE_BYTES),
        read_buffers: BufPool::new(16 << 20),
        inline_bytes: types::limits::INLINE_BYTES,
        group_bytes: 2 * MIB,
        preallocate_bytes: MIB / 2,
        root: Credential { access_key: "ROOT".into(), secret_key: "secret-secret".into(), account },
    };
    let controller = world.block_on(Controller::open(config)).expect("the controller opens");
    let mut config = Config::new(env);
    (config.reclaim_delay, config.entries_late, config.scrub_bytes) = (Duration::ZERO, Duration::ZERO, 0);
    let seen = view.clone();
    config.view = Arc::new(move || seen.lock().clone());
    let rounds = Arc::new(Rounds::new(controller.clone(), config.clone()));
    First { node, replicas, metadata, controller, rounds, config, redundancy: Vec::new() }
}
