//! A cluster of simulated nodes with a network of its own, in one thread, as a function of a seed.
//!
//! Every node has a scheduler, a clock and a disk for itself, so that one can lose its power alone. Messages are lost, doubled, late and out
//! of order as the seed says. Every state machine writes what it applies into one book: two nodes (or two runs of one) that apply
//! different entries at the same place are found at once.
#![allow(dead_code)] // Each test binary uses its part.

use bytes::{Buf, Bytes};
use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use env::{Env, SimEnv};
use metadata::command::{Command, Entry, Outcome, RootCommand};
use metadata::node::{Birth, Boxed, FolderConfig, Metadata, MetadataConfig, Peers, ProposeError};
use metadata::shard::{DRIVER_FAMILY, MemberChange, Members, Shard, ShardId, Spans, StateMachine};
use metadata::tree::{Read, TreeError, WriteBatch};
use parking_lot::Mutex;
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::{AttemptId, NodeId};

const FAMILY: u8 = 200;
pub const SHARDS: [ShardId; 2] = [ShardId(0), ShardId(1)];
pub const TICK: Duration = metadata::limits::TICK;

/// What was applied at each place of each shard, by anybody, ever: the first to come writes, the others compare.
#[derive(Default)]
pub struct Book {
    places: BTreeMap<(ShardId, u64), u64>,
    /// Which node leads a term.
    leaders: BTreeMap<(ShardId, u64), NodeId>,
    /// A violation.
    pub broken: Option<String>,
}

impl Book {
    fn applied(&mut self, shard: ShardId, place: u64, hash: u64) {
        let first = *self.places.entry((shard, place)).or_insert(hash);
        if first != hash {
            self.broken.get_or_insert(format!("place {place} of shard {} holds two entries", shard.0));
        }
    }

    fn leads(&mut self, shard: ShardId, term: u64, node: NodeId) {
        let first = *self.leaders.entry((shard, term)).or_insert(node);
        if first != node {
            self.broken.get_or_insert(format!("nodes {first} and {node} lead shard {} in term {term}", shard.0));
        }
    }

    pub fn digest(&self) -> u64 {
        self.places
            .iter()
            .fold(7, |sum, ((shard, place), hash)| mix(sum ^ mix(u64::from(shard.0) << 40 ^ place) ^ hash))
    }
}

pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Numbers of a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = mix(self.0);
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// In so many of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.next() % 1000 < permille
    }
}

/// An entry sets a register: "key=anything". Its row gets the entry's place among the shard's entries.
pub struct Registers {
    book: Arc<Mutex<Book>>,
}

pub fn count_key(shard: ShardId) -> Vec<u8> {
    vec![FAMILY, shard.0 as u8, 0]
}

fn register_key(shard: ShardId, key: &str) -> Vec<u8> {
    [&[FAMILY, shard.0 as u8, 1], key.as_bytes()].concat()
}

fn word_key(shard: ShardId, word: &str) -> Vec<u8> {
    [&[FAMILY, shard.0 as u8, 2], word.as_bytes()].concat()
}

fn number(bytes: Option<Bytes>) -> u64 {
    bytes.and_then(|bytes| bytes.get(..8)?.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Entries applied to the shard, and a hash of all of them.
pub fn state(read: &dyn Read, shard: ShardId) -> (u64, u64) {
    let row = read.get(&count_key(shard)).expect("reads");
    (number(row.clone()), number(row.map(|row| row.slice(8..))))
}

/// Place of the last entry that set the register.
pub fn register(read: &dyn Read, shard: ShardId, key: &str) -> u64 {
    number(read.get(&register_key(shard, key)).expect("reads"))
}

/// Place of the entry with this text.
pub fn place_of(read: &dyn Read, shard: ShardId, word: &str) -> Option<u64> {
    read.get(&word_key(shard, word)).expect("reads").map(|row| number(Some(row)))
}

impl StateMachine for Registers {
    fn apply(
        &mut self,
        shard: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError> {
        let Command::Root(RootCommand::DeleteUser(word)) = &entry.command else { return Ok(Outcome::Session(7)) };
        let row = read.get(&count_key(shard.id))?;
        let place = number(row.clone()) + 1;
        let mut hash = number(row.map(|row| row.slice(8..)));
        for byte in word
            .as_bytes()
            .iter()
            .take(16)
            .chain(&entry.stamp_ms.to_le_bytes())
            .chain(&entry.attempt.sequence.to_le_bytes())
        {
            hash = mix(hash ^ u64::from(*byte));
        }
        self.book.lock().applied(shard.id, place, hash);
        batch.put(count_key(shard.id), [place.to_le_bytes(), hash.to_le_bytes()].concat());
        let (key, _) = word.split_once('=').unwrap_or((word, ""));
        batch.put(register_key(shard.id, key), place.to_le_bytes().to_vec());
        batch.put(word_key(shard.id, word.trim_end_matches('.')), place.to_le_bytes().to_vec());
        Ok(Outcome::Left(place as u32))
    }

    fn keeps(&self) -> fn(&[u8]) -> bool {
        |key| key.len() == 3 && key[0] == FAMILY
    }

    fn spans(&self) -> Spans {
        |shard| vec![(vec![FAMILY, shard.id.0 as u8], vec![FAMILY, shard.id.0 as u8 + 1])]
    }
}

/// What may happen to messages.
#[derive(Clone, Copy, Default, Debug)]
pub struct Weather {
    /// Of a thousand.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

struct Letter {
    due: u64,
    from: NodeId,
    to: NodeId,
    batch: Bytes,
}

/// The network.
pub struct Net {
    now: u64,
    letters: Vec<Letter>,
    dice: Dice,
    pub weather: Weather,
    /// From, to.
    cut: BTreeSet<(NodeId, NodeId)>,
    nodes: BTreeMap<NodeId, Metadata>,
    book: Arc<Mutex<Book>>,
    pub fetched: u64,
}

impl Net {
    fn post(&mut self, from: NodeId, to: NodeId, batch: Bytes) {
        self.watch(from, batch.clone());
        if self.cut.contains(&(from, to)) || self.dice.chance(self.weather.lost) {
            return;
        }
        let copies = 1 + usize::from(self.dice.chance(self.weather.doubled));
        for _ in 0..copies {
            let late = if self.dice.chance(self.weather.late) { 1 + self.dice.below(25) as u64 } else { 0 };
            self.letters.push(Letter { due: self.now + late, from, to, batch: batch.clone() });
        }
    }

    fn watch(&mut self, from: NodeId, mut batch: Bytes) {
        batch.advance(1);
        while batch.len() > 8 {
            let (shard, len) = (ShardId(batch.get_u32_le()), batch.get_u32_le() as usize);
            let mut message = Message::default();
            message.merge_from_bytes(&batch.split_to(len)).expect("a message");
            if matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat) {
                self.book.lock().leads(shard, message.term, from);
            }
        }
    }
}

struct Wire {
    node: NodeId,
    net: Arc<Mutex<Net>>,
}

impl Peers for Wire {
    fn send(&self, to: NodeId, batch: Bytes) {
        self.net.lock().post(self.node, to, batch);
    }

    fn fetch(&self, from: NodeId, request: Bytes) -> Boxed<Result<Bytes, String>> {
        let mut net = self.net.lock();
        let lost = net.weather.lost;
        if net.cut.contains(&(self.node, from)) || net.cut.contains(&(from, self.node)) || net.dice.chance(lost) {
            return Box::pin(std::future::ready(Err("cut".to_owned())));
        }
        net.fetched += 1;
        match net.nodes.get(&from).cloned() {
            Some(metadata) => {
                drop(net);
                metadata.serve(self.node, request)
            }
            None => Box::pin(std::future::ready(Err("down".to_owned()))),
        }
    }
}

pub struct Running {
    pub metadata: Metadata,
    sim: SimEnv,
}

/// All nodes.
pub struct World {
    pub net: Arc<Mutex<Net>>,
    pub book: Arc<Mutex<Book>>,
    pub disks: BTreeMap<NodeId, SimDisk>,
    pub running: BTreeMap<NodeId, Running>,
    pub dice: Dice,
    starts: u64,
    pub ticks: u64,
    /// Nodes whose disks are failing.
    pub may_fail: BTreeSet<NodeId>,
}

impl World {
    pub fn new(seed: u64, disks: BTreeMap<NodeId, SimDisk>) -> World {
        let book = Arc::new(Mutex::new(Book::default()));
        let net = Net {
            now: 0,
            letters: Vec::new(),
            dice: Dice::new(seed ^ 1),
            weather: Weather::default(),
            cut: BTreeSet::new(),
            nodes: BTreeMap::new(),
            book: book.clone(),
            fetched: 0,
        };
        let net = Arc::new(Mutex::new(net));
        World {
            net,
            book,
            disks,
            running: BTreeMap::new(),
            dice: Dice::new(seed),
            starts: seed << 16,
            ticks: 0,
            may_fail: BTreeSet::new(),
        }
    }

    /// Starts a node on its disk.
    pub fn start(&mut self, node: NodeId) {
        if let Err(e) = self.open(node) {
            unreachable!("node {node} does not start: {e}");
        }
    }

    /// Starts a node whose disk may fail meanwhile.
    pub fn try_start(&mut self, node: NodeId) {
        // Then it does not run, and its disk is what counts.
        let _ = self.open(node);
    }

    /// Ticks for a while, or until a node whose disk fails says so.
    pub fn run_while_failing(&mut self, node: NodeId, ticks: u64) {
        self.may_fail.insert(node);
        for _ in 0..ticks {
            if self.running.get(&node).is_none_or(|running| running.metadata.failure().is_some()) {
                break;
            }
            self.tick();
        }
        self.may_fail.remove(&node);
    }

    fn open(&mut self, node: NodeId) -> Result<(), metadata::node::StartError> {
        self.starts += 1;
        let sim = Env::simulated(mix(self.starts));
        sim.clock.advance(TICK * self.ticks as u32);
        let disk = self.disks.entry(node).or_insert_with(|| SimDisk::new(u64::from(node), 64 << 20));
        let folder = FolderConfig { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, dir: "m".to_owned() };
        let config = MetadataConfig::small(sim.env.clone(), node, vec![folder]);
        let config = MetadataConfig {
            create: true,
            birth: if node == 1 { Birth::First } else { Birth::Joining },
            peers: Some(Arc::new(Wire { node, net: self.net.clone() })),
            segment_bytes: 64 << 10,
            memtable_bytes: 4 << 10,
            log_bytes: 192 << 10,
            ..config
        };
        let metadata = Metadata::open(config, Box::new(Registers { book: self.book.clone() }))?;
        self.net.lock().nodes.insert(node, metadata.clone());
        self.running.insert(node, Running { metadata, sim });
        Ok(())
    }

    /// Cuts the power of a node: its disk keeps what the policy says.
    pub fn kill(&mut self, node: NodeId, policy: CrashPolicy) {
        let disk = self.disks[&node].crash(policy);
        if let Some(running) = self.running.remove(&node) {
            self.net.lock().nodes.remove(&node);
            running.sim.scheduler.abandon();
        }
        self.disks.insert(node, disk);
    }

    pub fn stop_all(&mut self) {
        let nodes: Vec<NodeId> = self.running.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.kill(node, CrashPolicy::KeepNone));
    }

    /// Nobody of `side` hears anybody else, and the other way round; or only one way.
    pub fn cut(&mut self, side: &BTreeSet<NodeId>, one_way: bool) {
        let mut net = self.net.lock();
        let nodes: Vec<NodeId> = self.disks.keys().copied().collect();
        for a in side {
            for b in nodes.iter().filter(|b| !side.contains(b)) {
                net.cut.insert((*a, *b));
                if !one_way {
                    net.cut.insert((*b, *a));
                }
            }
        }
    }

    pub fn heal(&mut self) {
        self.net.lock().cut.clear();
    }

    /// A tenth of a second: messages, workers in an order of the seed, then a tick for everybody.
    pub fn tick(&mut self) {
        let nodes: Vec<NodeId> = self.running.keys().copied().collect();
        for round in 0..10 {
            self.net.lock().now += 1;
            loop {
                let moved = self.deliver() | self.work(&nodes);
                // Some of the work is left for the next round.
                if !moved || (round < 9 && self.dice.chance(300)) {
                    break;
                }
            }
        }
        self.ticks += 1;
        for running in self.running.values() {
            running.sim.clock.advance(TICK);
            running.metadata.tick();
        }
        if let Some(broken) = &self.book.lock().broken {
            unreachable!("{broken}");
        }
        for (node, running) in &self.running {
            let failure = running.metadata.failure().filter(|_| !self.may_fail.contains(node));
            assert_eq!(failure, None, "node {node}");
        }
    }

    fn deliver(&mut self) -> bool {
        let mut due = Vec::new();
        {
            let mut net = self.net.lock();
            let now = net.now;
            let (ready, later) = std::mem::take(&mut net.letters).into_iter().partition(|letter| letter.due <= now);
            net.letters = later;
            due.extend::<Vec<Letter>>(ready);
        }
        let any = !due.is_empty();
        for letter in due {
            if let Some(running) = self.running.get(&letter.to) {
                running.metadata.receive(letter.from, letter.batch);
            }
        }
        any
    }

    fn work(&mut self, nodes: &[NodeId]) -> bool {
        let mut moved = false;
        for _ in 0..nodes.len() {
            let Some(running) = self.running.get(&nodes[self.dice.below(nodes.len())]) else { continue };
            for _ in 0..=self.dice.below(6) {
                moved |= running.sim.scheduler.step();
            }
        }
        moved
    }

    /// Ticks until `done` says so; asserts that it does within so many.
    pub fn run_until(&mut self, ticks: u64, what: &str, mut done: impl FnMut(&mut World) -> bool) {
        for _ in 0..ticks {
            if done(self) {
                return;
            }
            self.tick();
        }
        assert!(done(self), "{what}: not within {ticks} ticks");
    }

    /// Runs a future to its end.
    pub fn block<T>(&mut self, ticks: u64, what: &str, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        let mut result = None;
        self.run_until(ticks, what, |_| {
            if result.is_none() {
                result = poll(future.as_mut());
            }
            result.is_some()
        });
        result.expect("just seen")
    }

    pub fn metadata(&self, node: NodeId) -> Metadata {
        self.running[&node].metadata.clone()
    }

    /// A node that believes it leads.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.running.iter().find(|(node, r)| r.metadata.leader(shard) == Some(**node)).map(|(node, _)| *node)
    }

    /// Asks for a change of members until it is made.
    pub fn change(&mut self, shard: ShardId, change: &MemberChange) {
        for _ in 0..50 {
            self.run_until(100, "a leader", |world| world.leader(shard).is_some());
            let Some(leader) = self.leader(shard) else { continue };
            let metadata = self.metadata(leader);
            let change = change.clone();
            let result =
                self.block(300, "a change of members", async move { metadata.change_members(shard, change).await });
            match result {
                Ok(()) => return,
                Err(ProposeError::Busy | ProposeError::NotLeader(_) | ProposeError::Failed(_)) => {}
                Err(e) => unreachable!("{change:?}: {e}", change = "refused"),
            }
            (0..5).for_each(|_| self.tick());
        }
        unreachable!("the members do not change");
    }

    /// Whether all running nodes hold the same rows of all shards, and everything that is committed.
    pub fn is_level(&self) -> bool {
        SHARDS.iter().all(|shard| {
            let rows = |running: &Running| dump(&running.metadata.snapshot(), *shard);
            let mut all = self.running.values().map(rows);
            let first = all.next();
            all.all(|rows| Some(rows) == first) && self.leader(*shard).is_some()
        })
    }
}

/// All rows of a shard, those of the driver too.
pub fn dump(read: &dyn Read, shard: ShardId) -> Vec<(Bytes, Bytes)> {
    let mut rows: Vec<_> =
        read.range(&[FAMILY, shard.0 as u8], &[FAMILY, shard.0 as u8 + 1]).map(|row| row.expect("reads")).collect();
    for kind in [b's', b'a', b'm'] {
        let key = [&[DRIVER_FAMILY, kind], &shard.0.to_be_bytes()[..]].concat();
        rows.extend(read.get(&key).expect("reads").map(|value| (key.into(), value)));
    }
    rows
}

pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

pub fn command(word: &str) -> Command {
    Command::Root(RootCommand::DeleteUser(word.to_owned()))
}

pub fn attempt(node: NodeId, sequence: u64) -> AttemptId {
    AttemptId { node, session: 1, sequence }
}

/// Disks of a cluster of `n` nodes, all of them voters of both shards.
pub fn born(n: u32) -> BTreeMap<NodeId, SimDisk> {
    let disks = (1..=n).map(|node| (node, SimDisk::new(u64::from(node), 64 << 20))).collect();
    let mut world = World::new(99, disks);
    (1..=n).for_each(|node| world.start(node));
    for shard in SHARDS {
        for node in 2..=n {
            world.change(shard, &MemberChange::AddLearner(node));
        }
        world.change(shard, &MemberChange::SetVoters((1..=n).collect()));
    }
    world.run_until(200, "all nodes are level", |world| world.is_level());
    let voters: Members = world.metadata(n).members(SHARDS[1]);
    assert_eq!(voters, Members { voters: (1..=n).collect(), ..Members::default() });
    world.stop_all();
    world.disks
}
