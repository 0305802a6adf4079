//! One writer and three nodes with disks, through a network that delays, doubles and loses, with nodes that stop, die and come back:
//! what was acknowledged is there, from any replicas but RF − 1, and sealed lengths are right.
#![allow(clippy::panic, dead_code)]

#[path = "../../object-controller/tests/fixture/ask.rs"]
mod ask;
#[path = "../../replicas/tests/net/mod.rs"]
mod net;

use curator::{Barrier, Config, DifferenceKind, Rounds};
use env::buf::BufPool;
use env::disk::Disk;
use env::random::{Random, SimRandom};
use env::sim_disk::{CrashPolicy, SimDisk};
use env::world::SimWorld;
use extent_store::{Depth, Scanned};
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState, ReplicaState};
use net::{CLUSTER, DiskNode, Faults, Net, disk_of};
use object_controller::api::{Account, BucketInfo, Credential};
use object_controller::{Controller, ControllerConfig};
use parking_lot::Mutex;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{DiskId, GroupId, NodeId};

const MIB: u64 = 1 << 20;
const WRITER: NodeId = 1;
const OTHERS: [NodeId; 3] = [2, 3, 4];

/// Keys whose PUT was acknowledged: seed and length of their bytes.
type Acknowledged = Arc<Mutex<BTreeMap<String, (u64, usize)>>>;

struct Cluster {
    world: SimWorld,
    net: Arc<Net>,
    seed: u64,
    rf: u8,
    others: BTreeMap<NodeId, DiskNode>,
    disk: SimDisk,
    writer: Writer,
    bucket: Arc<BucketInfo>,
    acknowledged: Acknowledged,
    next: u64,
}

struct Writer {
    node: DiskNode,
    replicas: Replicas,
    metadata: Metadata,
    controller: Controller,
    rounds: Arc<Rounds>,
    behind: Arc<AtomicBool>,
}

impl Cluster {
    fn born(seed: u64, rf: u8) -> Cluster {
        let world = SimWorld::new(seed);
        let net = Net::new(&world);
        let mut others = BTreeMap::new();
        for node in OTHERS {
            let env = world.node(node.into());
            let disks = DiskNode::born(node, &env, seed);
            disks.serve(&net, &env);
            others.insert(node, disks);
        }
        let env = world.node(WRITER.into());
        let node = DiskNode::born(WRITER, &env, seed);
        let disk = node.disk.clone();
        let writer = start_writer(&world, &net, node, rf, true);
        let controller = writer.controller.clone();
        let bucket = world.block_on(async move { ask::make_bucket(&controller, "bucket").await });
        let acknowledged = Acknowledged::default();
        Cluster { world, net, seed, rf, others, disk, writer, bucket, acknowledged, next: 0 }
    }

    /// Some clients put objects, one after the other each.
    fn begin_puts(&mut self, clients: u64, each: u64) {
        for client in 0..clients {
            let first = self.next + client * each;
            let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
            let acknowledged = self.acknowledged.clone();
            drop(self.world.spawn_on(WRITER.into(), async move {
                for number in first..first + each {
                    let len = 20_000 + (number * 7919 % 600_000) as usize;
                    let key = format!("k{number}");
                    if ask::put(&controller, &bucket, &key, ask::content(number, len)).await.is_ok() {
                        acknowledged.lock().insert(key, (number, len));
                    }
                }
            }));
        }
        self.next += clients * each;
    }

    /// Power goes at a node with disks; it comes back with what was durable.
    fn cut_power(&mut self, node: NodeId, policy: CrashPolicy) {
        self.world.kill(node.into());
        let disk = self.others[&node].disk.crash(policy);
        let env = self.world.node(node.into());
        let disks = DiskNode::start(node, &env, disk);
        disks.serve(&self.net, &env);
        self.others.insert(node, disks);
    }

    /// Power goes at the writer.
    fn cut_writer(&mut self, policy: CrashPolicy) {
        self.world.kill(WRITER.into());
        self.disk = self.disk.crash(policy);
        let env = self.world.node(WRITER.into());
        let node = DiskNode::start(WRITER, &env, self.disk.clone());
        self.writer = start_writer(&self.world, &self.net, node, self.rf, false);
    }

    fn heal(&mut self) {
        self.net.set_faults(Faults::default());
        for node in OTHERS {
            self.net.set_down(node, false);
            self.net.set_deaf(node, false);
            self.net.set_late(node, None);
        }
        self.world.run_for(Duration::from_secs(10));
    }

    fn round(&self) -> Result<curator::RoundReport, curator::CuratorError> {
        let rounds = self.writer.rounds.clone();
        self.world.block_on(async move { rounds.round().await })
    }

    fn rounds(&self) {
        for _ in 0..60 {
            let idle = self.round().is_ok_and(|report| report.is_idle());
            let settled = self.records().iter().all(|(_, record)| {
                record.state == GroupState::Open || record.replicas.iter().all(|r| r.state == ReplicaState::Whole)
            });
            if idle && settled && self.writer.rounds.status().repairs_waiting == 0 {
                return;
            }
            self.world.run_for(Duration::from_secs(31));
        }
        panic!("the curator never comes to rest: {:?} {:#?}", self.writer.rounds.status(), self.records());
    }

    fn records(&self) -> Vec<(GroupId, GroupRecord)> {
        root::groups(&self.writer.metadata.snapshot()).collect::<Result<_, _>>().expect("records")
    }

    /// Reads back what was acknowledged.
    fn assert_readable(&self, when: &str) {
        let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
        let (acknowledged, what) = (self.acknowledged.lock().clone(), format!("seed {}: {when}", self.seed));
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

    /// Every RF − 1 of the other nodes are lost, in turn.
    fn assert_readable_without_any(&self, when: &str) {
        for first in OTHERS {
            for second in OTHERS {
                let lost: BTreeSet<NodeId> = if self.rf > 2 { [first, second].into() } else { [first].into() };
                for node in &lost {
                    self.net.set_down(*node, true);
                }
                self.assert_readable(&format!("{when}, without {lost:?}"));
                for node in &lost {
                    self.net.set_down(*node, false);
                }
            }
        }
        let replicas = self.writer.replicas.clone();
        self.world.block_on(async move { replicas.tend().await });
    }

    /// What a sealed record says of its replicas is what stands on their disks.
    fn assert_lengths(&self) {
        for (group, record) in self.records() {
            let nodes: BTreeSet<NodeId> = record.replicas.iter().map(|r| node_of(r.disk)).collect();
            assert_eq!(nodes.len(), record.replicas.len(), "seed {}: replicas of {group} share a node", self.seed);
            if record.state != GroupState::Sealed {
                continue;
            }
            for replica in &record.replicas {
                let holds = match replica.state {
                    ReplicaState::Whole => record.length,
                    ReplicaState::Holds(bytes) => bytes,
                    ReplicaState::Open | ReplicaState::NotAnswered => continue,
                };
                let store = match node_of(replica.disk) {
                    WRITER => self.writer.node.store(),
                    other => self.others[&other].store(),
                };
                if holds <= 4096 {
                    continue;
                }
                let scan = store.scan(group, replica.file_generation, Depth::Payloads);
                let scan =
                    scan.unwrap_or_else(|error| panic!("seed {}: {group} on {}: {error}", self.seed, replica.disk));
                let end = scan
                    .filter_map(|item| match item {
                        Scanned::Frame(header) => Some(header.address.offset + header.frame_bytes()),
                        Scanned::Hole { .. } => None,
                        Scanned::Damaged { offset, .. } if offset >= holds => None,
                        damaged => panic!("seed {}: {group} on {}: {damaged:?}", self.seed, replica.disk),
                    })
                    .max();
                let dead_to_the_end = record.dead.last().is_some_and(|(offset, bytes)| offset + bytes >= holds);
                assert!(
                    end >= Some(holds) || dead_to_the_end,
                    "seed {}: {group} on {}: {end:?} of {holds}: {record:#?}",
                    self.seed,
                    replica.disk
                );
            }
        }
    }
}

fn node_of(disk: DiskId) -> NodeId {
    (disk.0 - 0xD0) as NodeId
}

fn start_writer(world: &SimWorld, net: &Arc<Net>, node: DiskNode, rf: u8, create: bool) -> Writer {
    let env = world.node(WRITER.into());
    let replicas = Replicas::new(node.stores.clone(), CLUSTER, net.door(WRITER, &env), env.clone());
    replicas.set_remote(&OTHERS.map(|node| (disk_of(node), node)).into(), BTreeSet::new());
    let folder = FolderConfig { disk: Arc::new(node.disk.clone()) as Arc<dyn Disk>, dir: "meta".into() };
    let mut config = MetadataConfig::small(env.clone(), WRITER, vec![folder]);
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
    let behind = Arc::new(AtomicBool::new(false));
    config.barrier = Some(Arc::new(Behind(behind.clone())));
    let rounds = Arc::new(Rounds::new(controller.clone(), config));
    Writer { node, replicas, metadata, controller, rounds, behind }
}

/// A node that may not know the newest entries.
struct Behind(Arc<AtomicBool>);

impl Barrier for Behind {
    fn pass(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        let behind = self.0.load(Ordering::Relaxed);
        Box::pin(ready(if behind { Err("no leader answers".into()) } else { Ok(()) }))
    }
}

/// What happens next, drawn by the seed.
fn trouble(cluster: &mut Cluster, random: &SimRandom) {
    let draw = |below: u64| random.next_u64() % below;
    let node = OTHERS[draw(3) as usize];
    match draw(8) {
        0 => cluster.net.set_down(node, true),
        1 => cluster.net.set_deaf(node, true),
        2 => cluster.net.set_late(node, Some(Duration::from_millis(200 + draw(6000)))),
        3 => {
            let policy = CrashPolicy::RandomSubset(draw(1 << 32));
            cluster.cut_power(node, policy);
        }
        4 => {
            let of_writer = draw(3) == 0;
            let policy = CrashPolicy::RandomSubset(draw(1 << 32));
            if of_writer {
                cluster.cut_writer(policy);
                cluster.begin_puts(2, 4);
            }
        }
        _ => {
            cluster.net.set_down(node, false);
            cluster.net.set_deaf(node, false);
            cluster.net.set_late(node, None);
        }
    }
}

fn run(seed: u64, rf: u8, faults: Faults) {
    let mut cluster = Cluster::born(seed, rf);
    let random = SimRandom::new(seed ^ 0x5eed);
    cluster.net.set_faults(faults);
    cluster.begin_puts(4, 6);
    for step in 0..14 {
        cluster.world.run_for(Duration::from_millis(20 + random.next_u64() % 700));
        trouble(&mut cluster, &random);
        if step % 5 == 4 {
            cluster.begin_puts(2, 3);
            // A round in the middle of trouble; that it ends early is no wonder.
            let _ = cluster.round();
        }
    }
    cluster.heal();
    cluster.assert_readable("after the faults");
    cluster.assert_readable_without_any("after the faults");
    cluster.assert_lengths();
    // Nothing of a session that lives is left open by its end.
    cluster.cut_writer(CrashPolicy::KeepNone);
    cluster.rounds();
    cluster.assert_lengths();
    cluster.assert_readable_without_any("after the curator");
    let rounds = cluster.writer.rounds.clone();
    let audit = cluster.world.block_on(async move { rounds.audit(|_, _, _| {}).await }).expect("an audit");
    // A node that was away when a group was dropped sets the file aside itself, when it next compares.
    let left = |difference: &curator::Difference| difference.kind != DifferenceKind::FileWithoutRecord;
    assert!(!audit.differences.iter().any(left), "seed {seed}: {audit:#?}");
    assert!(!cluster.acknowledged.lock().is_empty(), "seed {seed}: nothing was ever acknowledged");
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_a_node_whatever_the_network_did() {
    for seed in seeds(12) {
        run(seed, 2, Faults { lose_question: 1, lose_answer: 1, double: 10, delay_ms: 20 });
    }
}

#[test]
fn three_replicas_survive_the_loss_of_two_nodes() {
    for seed in seeds(6) {
        run(1000 + seed, 3, Faults { lose_question: 0, lose_answer: 1, double: 10, delay_ms: 5 });
    }
}

/// As many as are wanted, or the one that `ASHLAR_SEED` names.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ASHLAR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..count).collect(),
    }
}

#[test]
fn writing_goes_on_without_a_node_and_its_answer_to_the_seal_comes_late() {
    let mut cluster = Cluster::born(77, 2);
    cluster.begin_puts(3, 6);
    cluster.world.run_for(Duration::from_millis(200));
    cluster.net.set_deaf(2, true);
    cluster.begin_puts(3, 6);
    cluster.world.run_for(Duration::from_secs(60));
    assert_eq!(cluster.acknowledged.lock().len(), 36, "two of the three others are enough");
    let unanswered = |cluster: &Cluster| {
        let not = |r: &metadata::rows::Replica| r.state == ReplicaState::NotAnswered;
        cluster.records().iter().filter(|(_, record)| record.replicas.iter().any(not)).count()
    };
    assert!(unanswered(&cluster) > 0, "{:#?}", cluster.records());
    let none =
        cluster.records().iter().filter(|(_, r)| r.settled && r.replicas.iter().any(|r| r.disk == disk_of(2))).count();
    let _ = cluster.round();
    assert_eq!(none, 0, "nothing is settled that a replica has not answered for");
    cluster.heal();
    cluster.rounds();
    assert_eq!(unanswered(&cluster), 0);
    cluster.assert_lengths();
    cluster.assert_readable_without_any("after the late answers");
}

#[test]
fn a_lost_disk_is_replaced_on_another_node_and_a_silent_one_is_not() {
    let mut cluster = Cluster::born(78, 2);
    cluster.begin_puts(3, 6);
    cluster.world.run_for(Duration::from_secs(30));
    cluster.cut_writer(CrashPolicy::KeepAll);
    cluster.rounds();
    let on_two = |cluster: &Cluster| {
        cluster.records().iter().flat_map(|(_, r)| r.replicas.clone()).filter(|r| r.disk == disk_of(2)).count()
    };
    let before = on_two(&cluster);
    assert!(before > 0);
    cluster.net.set_down(2, true);
    for _ in 0..5 {
        let _ = cluster.round();
        cluster.world.run_for(Duration::from_secs(60));
    }
    assert_eq!(on_two(&cluster), before, "it may come back");
    cluster.writer.replicas.set_remote(&[3, 4].map(|node| (disk_of(node), node)).into(), [disk_of(2)].into());
    for _ in 0..20 {
        let _ = cluster.round();
        cluster.world.run_for(Duration::from_secs(31));
    }
    assert_eq!(on_two(&cluster), 0);
    cluster.net.set_down(3, true);
    cluster.assert_readable("one node lost, another down");
    cluster.net.set_down(3, false);
    cluster.assert_lengths();
}

#[test]
fn what_an_idle_writer_has_open_is_copied_when_a_disk_of_it_is_lost() {
    let mut cluster = Cluster::born(82, 2);
    cluster.begin_puts(3, 2);
    cluster.world.run_for(Duration::from_secs(30));
    let on_two = |cluster: &Cluster| {
        cluster.records().iter().flat_map(|(_, r)| r.replicas.clone()).filter(|r| r.disk == disk_of(2)).count()
    };
    assert!(on_two(&cluster) > 0 && cluster.records().iter().all(|(_, r)| r.state == GroupState::Open));
    cluster.net.set_down(2, true);
    cluster.writer.replicas.set_remote(&[3, 4].map(|node| (disk_of(node), node)).into(), [disk_of(2)].into());
    for _ in 0..20 {
        let _ = cluster.round();
        cluster.world.run_for(Duration::from_secs(31));
    }
    assert_eq!(on_two(&cluster), 0, "the writer lives and has nothing to write: {:#?}", cluster.records());
    cluster.begin_puts(3, 2);
    cluster.world.run_for(Duration::from_secs(30));
    assert_eq!(cluster.acknowledged.lock().len(), 12, "and it goes on elsewhere");
    cluster.assert_readable("after the loss of a disk");
}

#[test]
fn a_node_that_is_much_later_than_the_others_is_left_at_once() {
    let mut cluster = Cluster::born(79, 2);
    cluster.begin_puts(3, 2);
    cluster.world.run_for(Duration::from_secs(10));
    let done = cluster.acknowledged.lock().len();
    assert_eq!(done, 6);
    cluster.net.set_late(3, Some(Duration::from_millis(4500)));
    cluster.begin_puts(3, 4);
    let acknowledged = cluster.acknowledged.clone();
    let all = cluster.world.run_until(|| acknowledged.lock().len() == done + 12, Duration::from_secs(4));
    assert!(all, "{} of 12 within less time than the late node needs for one", acknowledged.lock().len() - done);
}

#[test]
fn a_read_that_is_late_is_asked_for_elsewhere() {
    let mut cluster = Cluster::born(80, 2);
    cluster.begin_puts(3, 4);
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!(cluster.acknowledged.lock().len(), 12);
    // The writer's own copies are out of the way.
    for late in OTHERS {
        let net = cluster.net.clone();
        net.set_late(late, Some(Duration::from_secs(4)));
        let (key, (number, len)) =
            cluster.acknowledged.lock().first_key_value().map(|(k, v)| (k.clone(), *v)).expect("one");
        let (controller, bucket, began) =
            (cluster.writer.controller.clone(), cluster.bucket.clone(), cluster.world.now());
        let (_, bytes) =
            cluster.world.block_on(async move { ask::get(&controller, &bucket, &key, None).await }).expect("sound");
        assert!(bytes == ask::content(number, len));
        let took = cluster.world.now() - began;
        assert!(took < Duration::from_secs(1), "without node {late}: {took:?}");
        net.set_late(late, None);
    }
}

#[test]
fn files_are_not_judged_by_a_node_that_may_be_behind() {
    let cluster = Cluster::born(81, 2);
    let (store, strange) = (cluster.writer.node.store(), GroupId(0x5157));
    let create = store.clone();
    cluster.world.block_on(async move { create.create(strange, 1, 0).await }).expect("a file");
    let files = || store.list_files().iter().filter(|file| file.group == strange).count();
    cluster.writer.behind.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(cluster.round().is_err());
        assert_eq!(files(), 1, "its record may have been committed by another node");
    }
    cluster.writer.behind.store(false, Ordering::Relaxed);
    cluster.round().expect("a round");
    assert_eq!(files(), 0);
}
