//! One writer and several nodes with a disk each, what the cluster thinks of them, and a bucket that may ask for a code.
#![allow(clippy::panic, dead_code)]

use crate::ask;
use crate::net::{CLUSTER, DiskNode, Net, disk_of};
use curator::view::{DiskState, DiskView, Health, View};
use curator::{AuditReport, Config, CuratorError, Difference, DifferenceKind, RoundReport, Rounds, ScrubReport};
use env::buf::BufPool;
use env::disk::{Caching, Disk, Open};
use env::sim_disk::{CrashPolicy, SimDisk};
use env::world::SimWorld;
use extent_store::FrameAddress;
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use metadata::read::{content, root};
use metadata::rows::{BodyRow, ContentBytes, GroupRecord, GroupState};
use metadata::shard::KeyRange;
use metadata::strip::{self, StripRecord};
use object_controller::api::{Account, BucketChange, BucketInfo, Credential, ObjectStore};
use object_controller::{Controller, ControllerConfig};
use parking_lot::Mutex;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use types::bucket::{Durability, Erasure};
use types::{BucketName, DiskId, GroupId, NodeId, StripId};

pub const MIB: u64 = 1 << 20;
pub const WRITER: NodeId = 1;

pub struct Cluster {
    pub world: SimWorld,
    pub net: Arc<Net>,
    pub nodes: BTreeMap<NodeId, DiskNode>,
    pub writer: Writer,
    pub bucket: Arc<BucketInfo>,
    seed: u64,
    rf: u8,
    view: Arc<Mutex<View>>,
    /// Objects that are there: number and length.
    objects: BTreeMap<u64, usize>,
}

/// Of a round: nothing yet, dropped, or what it answered.
type Answer = Arc<Mutex<Option<Option<Result<RoundReport, CuratorError>>>>>;

pub struct Writer {
    replicas: Replicas,
    metadata: Metadata,
    controller: Controller,
    rounds: Arc<Rounds>,
}

impl Cluster {
    pub fn born(seed: u64, nodes: NodeId, rf: u8) -> Cluster {
        let world = SimWorld::new(seed);
        let net = Net::new(&world);
        let (mut all, mut view) = (BTreeMap::new(), View { default_rf: rf, ..View::default() });
        for node in 1..=nodes {
            let env = world.node(node.into());
            let disks = DiskNode::born(node, &env, seed);
            if node != WRITER {
                disks.serve(&net, &env);
            }
            all.insert(node, disks);
            let disk = DiskView {
                node,
                rack: None,
                health: Health::Up,
                state: DiskState::Active,
                awaited: false,
                free_bytes: 512 * MIB,
                total_bytes: 512 * MIB,
            };
            view.disks.insert(disk_of(node), disk);
        }
        let view = Arc::new(Mutex::new(view));
        let writer = start(&world, &net, &all, rf, &view, true);
        let controller = writer.controller.clone();
        let bucket = world.block_on(async move { ask::make_bucket(&controller, "bucket").await });
        Cluster { world, net, nodes: all, writer, bucket, seed, rf, view, objects: BTreeMap::new() }
    }

    pub fn controller(&self) -> Controller {
        self.writer.controller.clone()
    }

    pub fn others(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|node| *node != WRITER).collect()
    }

    /// Power goes at the writer; it comes back with what was durable.
    pub fn restart(&mut self) {
        self.world.kill(WRITER.into());
        let disk = self.nodes[&WRITER].disk.crash(CrashPolicy::KeepNone);
        let env = self.world.node(WRITER.into());
        self.nodes.insert(WRITER, DiskNode::start(WRITER, &env, disk));
        self.writer = start(&self.world, &self.net, &self.nodes, self.rf, &self.view, false);
    }

    pub fn set_erasure(&mut self, erasure: Erasure) {
        self.bucket = self.change_erasure(erasure);
    }

    /// The same, for whoever only looks; the bucket as it is then.
    pub fn change_erasure(&self, erasure: Erasure) -> Arc<BucketInfo> {
        let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
        let durability = Durability { rf: Some(self.rf), erasure, erasure_after_ms: Some(0) };
        self.world.block_on(async move {
            controller.change_bucket(&bucket, BucketChange::Durability(durability)).await.expect("a change");
            let name = BucketName::new("bucket").expect("valid");
            controller.bucket(&name).expect("there")
        })
    }

    /// Changes what the cluster thinks of a node's disk.
    pub fn view(&self, node: NodeId, change: impl FnOnce(&mut DiskView)) {
        change(self.view.lock().disks.get_mut(&disk_of(node)).expect("a disk"));
    }

    /// Puts so many objects and lets all groups be sealed.
    pub fn put(&mut self, count: u64, bytes: usize) {
        let first = self.objects.len() as u64;
        for number in first..first + count {
            let len = bytes + (number * 7919 % 60_000) as usize;
            let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
            self.world.block_on(async move {
                ask::put(&controller, &bucket, &format!("k{number}"), ask::content(number, len)).await.expect("a put");
            });
            self.objects.insert(number, len);
            // Long enough for what is known of the disks to be asked for again: groups go to the emptiest.
            self.world.run_for(Duration::from_secs(6));
            self.tend();
        }
        self.restart();
    }

    /// Deletes objects.
    pub fn delete(&mut self, which: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self.objects.keys().copied().filter(|number| which(*number)).collect();
        for number in gone {
            let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
            self.world.block_on(async move {
                ask::delete(&controller, &bucket, &format!("k{number}"), None).await.expect("a delete");
            });
            self.objects.remove(&number);
        }
    }

    pub fn round(&self) -> Result<RoundReport, CuratorError> {
        let rounds = self.writer.rounds.clone();
        self.world.block_on(async move { rounds.round().await })
    }

    /// A round that is looked at while it works.
    pub fn round_watched(&self, mut look: impl FnMut(&Cluster)) -> Result<RoundReport, CuratorError> {
        let answer = self.begin_round(u64::MAX);
        while answer.lock().is_none() {
            self.world.run_for(Duration::from_micros(20));
            look(self);
        }
        let result = answer.lock().take();
        result.expect("an answer").expect("it was not dropped")
    }

    /// A round that is dropped when it was polled so often; `None` if it was. What it waited for comes and finds nobody.
    pub fn round_cut(&self, polls: u64) -> Option<Result<RoundReport, CuratorError>> {
        let answer = self.begin_round(polls);
        while answer.lock().is_none() {
            self.world.run_for(Duration::from_millis(1));
        }
        let result = answer.lock().take().expect("an answer");
        if result.is_none() {
            self.world.run_for(Duration::from_secs(5));
        }
        result
    }

    fn begin_round(&self, polls: u64) -> Answer {
        let rounds = self.writer.rounds.clone();
        let answer = Answer::default();
        let (told, mut left) = (answer.clone(), polls);
        let mut round = Some(Box::pin(async move { rounds.round().await }));
        drop(self.world.spawn_on(WRITER.into(), async move {
            let result = poll_fn(move |context| match round.as_mut().map(|round| round.as_mut().poll(context)) {
                Some(Poll::Ready(result)) => Poll::Ready(Some(result)),
                _ if left <= 1 => {
                    round = None;
                    Poll::Ready(None)
                }
                _ => {
                    left -= 1;
                    Poll::Pending
                }
            });
            *told.lock() = Some(result.await);
        }));
        answer
    }

    /// Rounds until there is nothing to do.
    pub fn rest(&self) {
        let mut idle = 0;
        for _ in 0..200 {
            let report = self.round();
            idle = if report.as_ref().is_ok_and(RoundReport::is_idle) { idle + 1 } else { 0 };
            if idle >= 8 {
                return;
            }
            self.world.run_for(Duration::from_secs(6));
        }
        panic!("seed {}: no rest: {:?} {:#?}", self.seed, self.round(), self.writer.rounds.status());
    }

    pub fn tend(&self) {
        let replicas = self.writer.replicas.clone();
        self.world.block_on(async move { replicas.tend().await });
    }

    pub fn records(&self) -> Vec<(GroupId, GroupRecord)> {
        root::groups(&self.writer.metadata.snapshot()).collect::<Result<_, _>>().expect("records")
    }

    pub fn record(&self, group: GroupId) -> GroupRecord {
        root::group(&self.writer.metadata.snapshot(), group).expect("readable").expect("a record")
    }

    pub fn strips(&self) -> Vec<(StripId, StripRecord)> {
        root::strips(&self.writer.metadata.snapshot()).collect::<Result<_, _>>().expect("strips")
    }

    /// Of the first replica.
    pub fn node_of(&self, group: GroupId) -> NodeId {
        let disk = self.record(group).replicas[0].disk;
        (disk.0 - disk_of(0).0) as NodeId
    }

    pub fn audit(&self) -> AuditReport {
        let rounds = self.writer.rounds.clone();
        self.world.block_on(async move { rounds.audit(|_, _, _| {}).await }).expect("an audit")
    }

    pub fn scrub(&self) -> ScrubReport {
        let rounds = self.writer.rounds.clone();
        self.world.block_on(async move { rounds.scrub(|_, _, _| {}).await }).expect("a scrub")
    }

    pub fn assert_readable(&self, when: &str) {
        let (controller, bucket) = (self.writer.controller.clone(), self.bucket.clone());
        let (objects, what) = (self.objects.clone(), format!("seed {}: {when}", self.seed));
        self.world.block_on(async move {
            for (number, len) in objects {
                match ask::get(&controller, &bucket, &format!("k{number}"), None).await {
                    Ok((_, bytes)) => assert!(bytes == ask::content(number, len), "{what}: k{number} is other bytes"),
                    Err(error) => panic!("{what}: k{number}: {error}"),
                }
            }
        });
    }

    /// Those objects whose bytes are all in the data groups of that strip.
    pub fn assert_strip_readable(&mut self, of: &StripRecord, when: &str) {
        let groups: BTreeSet<GroupId> = of.data.iter().map(|member| member.group).collect();
        let mut inside = BTreeSet::new();
        for row in content::bodies(&self.writer.metadata.snapshot(), &KeyRange::ALL) {
            let (home, _, body) = row.expect("readable");
            let BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. } = body else { continue };
            if runs.iter().all(|run| groups.contains(&run.group)) {
                inside.insert(home.key.as_str()[1..].parse::<u64>().expect("a number"));
            }
        }
        let all = self.objects.clone();
        self.objects.retain(|number, _| inside.contains(number));
        assert!(!self.objects.is_empty(), "{when}: nothing is in the strip");
        self.assert_readable(when);
        self.objects = all;
    }

    /// Readable, an audit without a difference, rows that agree.
    pub fn assert_sound(&self, when: &str) -> AuditReport {
        self.assert_readable(when);
        let audit = self.audit();
        // A node that did not hear the order to drop a file sets it aside itself, when it next compares.
        let left = |difference: &Difference| difference.kind != DifferenceKind::FileWithoutRecord;
        let differs = audit.differences.iter().any(left);
        assert!(!differs && audit.unpunched_bytes == 0, "seed {}: {when}: {audit:#?}", self.seed);
        let wrong = metadata::apply::check_invariants(&self.writer.metadata.snapshot(), &KeyRange::ALL);
        assert_eq!(wrong.expect("readable"), Vec::<String>::new(), "{when}");
        audit
    }

    /// What a sealed record lists is a file; parity that is being written is not judged.
    pub fn assert_files_of_records(&self, when: &str) {
        for (group, record) in self.records() {
            let encoding = record.strip.as_ref().is_some_and(|of| {
                let strip = self.strips().into_iter().find(|(id, _)| *id == of.strip).expect("its strip").1;
                strip.state == strip::StripState::Encoding && usize::from(of.place) >= strip.k()
            });
            if record.state != GroupState::Sealed || record.length <= 4096 || encoding {
                continue;
            }
            for replica in &record.replicas {
                let there = self.files_of(replica.disk).contains(&(group, replica.file_generation));
                assert!(there, "seed {}: {when}: {group} on {}", self.seed, replica.disk);
            }
        }
    }

    fn files_of(&self, disk: DiskId) -> BTreeSet<(GroupId, u32)> {
        let node = &self.nodes[&((disk.0 - disk_of(0).0) as NodeId)];
        node.store().list_files().into_iter().map(|file| (file.group, file.generation)).collect()
    }

    /// All files of groups, by disk.
    pub fn data_files(&self) -> BTreeMap<NodeId, BTreeSet<(GroupId, u32)>> {
        self.nodes.keys().map(|node| (*node, self.files_of(disk_of(*node)))).collect()
    }

    pub fn has_file(&self, group: GroupId) -> bool {
        let replica = self.record(group).replicas[0];
        self.files_of(replica.disk).contains(&(group, replica.file_generation)) && self.path_of(group).is_some()
    }

    fn path_of(&self, group: GroupId) -> Option<(SimDisk, String)> {
        let replica = self.record(group).replicas[0];
        let disk = &self.nodes[&self.node_of(group)].disk;
        let name = format!("{group}.{:08x}", replica.file_generation);
        for dir in disk.list("extents").expect("a listing") {
            for file in disk.list(&format!("extents/{dir}")).expect("a listing") {
                if file == name {
                    return Some((disk.clone(), format!("extents/{dir}/{file}")));
                }
            }
        }
        None
    }

    /// Flips a bit of what stands in the first frame of the group's file.
    pub fn damage(&self, group: GroupId) {
        let (disk, path) = self.path_of(group).expect("a file");
        disk.flip_bit(&path, 4096 + 4096 + 77, 3).expect("a fault");
    }

    /// Whether every frame that the group's strip froze can be read from its file.
    pub fn is_whole(&self, group: GroupId) -> bool {
        let record = self.record(group);
        let strips = self.strips();
        let (_, strip) =
            strips.iter().find(|(_, strip)| strip.groups().any(|member| member == group)).expect("a strip");
        let place = strip.groups().position(|member| member == group).expect("a place");
        let replica = record.replicas[0];
        let store = self.nodes[&self.node_of(group)].store();
        let frames = strip.frames(place);
        self.world.block_on(async move {
            for (offset, _) in frames {
                let address = FrameAddress { group, generation: replica.file_generation, offset };
                if store.read_frame(address).await.is_err() {
                    return false;
                }
            }
            true
        })
    }

    /// Does something while these nodes are away.
    pub fn without(&mut self, nodes: &[NodeId], then: impl FnOnce(&mut Cluster)) {
        // The writer's own disk cannot be away; its files are hidden instead.
        let away: Vec<NodeId> = nodes.iter().copied().filter(|node| *node != WRITER).collect();
        for node in &away {
            self.net.set_down(*node, true);
        }
        then(self);
        for node in &away {
            self.net.set_down(*node, false);
        }
        self.tend();
    }

    pub fn allocated_bytes(&self) -> u64 {
        let mut bytes = 0;
        for node in self.nodes.values() {
            for dir in node.disk.list("extents").expect("a listing") {
                for name in node.disk.list(&format!("extents/{dir}")).expect("a listing") {
                    let path = format!("extents/{dir}/{name}");
                    let file = node.disk.open(&path, Open::Read, Caching::Buffered).expect("a file");
                    bytes += file.allocated_bytes().expect("a size");
                }
            }
        }
        bytes
    }
}

fn start(
    world: &SimWorld,
    net: &Arc<Net>,
    nodes: &BTreeMap<NodeId, DiskNode>,
    rf: u8,
    view: &Arc<Mutex<View>>,
    create: bool,
) -> Writer {
    let env = world.node(WRITER.into());
    let node = &nodes[&WRITER];
    let replicas = Replicas::new(node.stores.clone(), CLUSTER, net.door(WRITER, &env), env.clone());
    let others = nodes.keys().filter(|node| **node != WRITER).map(|node| (disk_of(*node), *node)).collect();
    replicas.set_remote(&others, BTreeSet::new());
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
    let view = view.clone();
    config.view = Arc::new(move || view.lock().clone());
    let rounds = Arc::new(Rounds::new(controller.clone(), config));
    Writer { replicas, metadata, controller, rounds }
}
