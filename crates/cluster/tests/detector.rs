//! The failure detector in simulated time: every node a state machine, every message at the mercy of the test.
#![allow(clippy::panic)]

use cluster::detector::{Detector, Health, Me, Verdict};
use cluster::limits::HEARTBEAT;
use cluster::wire::Heartbeat;
use env::random::{Random, SimRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::cluster::{Addresses, KeyHash, Map, Node, NodeStart, NodeState};
use types::{ClusterId, NodeId};

const CLUSTER: ClusterId = ClusterId(7);
/// The world moves in steps of this.
const STEP: Duration = Duration::from_millis(10);

fn map(nodes: u32) -> Map {
    let node = |id: NodeId| Node {
        id,
        key: KeyHash([id as u8; 32]),
        state: NodeState::Active,
        start: NodeStart {
            incarnation: 1,
            version: 1,
            addresses: Addresses { rpc: format!("n{id}:1"), ..Addresses::default() },
            rack: None,
        },
        joined_ms: 0,
    };
    let nodes = (1..=nodes).map(|id| (id, node(id))).collect();
    Map { cluster: CLUSTER, epoch: 1, version: 1, nodes, disks: BTreeMap::new() }
}

struct Sim {
    nodes: BTreeMap<NodeId, Detector>,
    /// Arrival, from, to, message, in the order of arrival.
    flying: BTreeMap<(Duration, u64), (NodeId, NodeId, Heartbeat)>,
    now: Duration,
    sent: u64,
    random: SimRandom,
    /// Stopped or dead.
    asleep: BTreeSet<NodeId>,
    /// Directions that lose everything.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Of 1,000 messages.
    loss_permille: u64,
    max_delay: Duration,
    delay_of: BTreeMap<NodeId, Duration>,
    next_tick: BTreeMap<NodeId, Duration>,
    told: Vec<(Duration, NodeId, Verdict)>,
    map: Map,
}

impl Sim {
    fn new(count: u32, seed: u64) -> Sim {
        let random = SimRandom::new(seed);
        let map = map(count);
        let mut sim = Sim {
            nodes: BTreeMap::new(),
            flying: BTreeMap::new(),
            now: Duration::from_secs(1000),
            sent: 0,
            random,
            asleep: BTreeSet::new(),
            cut: BTreeSet::new(),
            loss_permille: 0,
            max_delay: Duration::from_millis(20),
            delay_of: BTreeMap::new(),
            next_tick: BTreeMap::new(),
            told: Vec::new(),
            map,
        };
        for id in 1..=count {
            sim.start(id, 1);
        }
        sim.run(Duration::from_secs(5));
        assert_eq!(sim.told, [], "nothing is said of a healthy cluster");
        sim
    }

    /// Clocks of nodes have nothing to do with each other.
    fn clock(&self, node: NodeId) -> Duration {
        self.now + Duration::from_secs(100) * node
    }

    fn start(&mut self, id: NodeId, incarnation: u64) {
        let mut detector = Detector::new(Me { cluster: CLUSTER, node: id, incarnation });
        detector.set_map(&self.map, self.clock(id));
        self.nodes.insert(id, detector);
        let phase = Duration::from_millis(self.random.next_u64() % 250);
        self.next_tick.insert(id, self.now + phase);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let arrived: Vec<_> = self.flying.range(..(self.now, u64::MAX)).map(|(at, _)| *at).collect();
        for at in arrived {
            let (from, to, heartbeat) = self.flying[&at].clone();
            // What comes while a node is stopped waits in its socket.
            if self.asleep.contains(&to) {
                continue;
            }
            self.flying.remove(&at);
            let now = self.clock(to);
            if let Some(detector) = self.nodes.get_mut(&to) {
                detector.heard(from, heartbeat, now, 1_000_000);
            }
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.asleep.contains(&id) && self.next_tick[&id] <= self.now {
                self.tick(id);
            }
        }
    }

    fn tick(&mut self, id: NodeId) {
        let jitter = Duration::from_millis(self.random.next_u64() % 40);
        self.next_tick.insert(id, self.now + HEARTBEAT + jitter);
        let now = self.clock(id);
        let detector = self.nodes.get_mut(&id).expect("there");
        let verdicts = detector.tick(now);
        let messages: Vec<_> =
            detector.others().into_iter().map(|to| (to, detector.heartbeat(to, 1, now, 1_000_000))).collect();
        self.told.extend(verdicts.into_iter().map(|verdict| (self.now, id, verdict)));
        for (to, heartbeat) in messages {
            self.send(id, to, heartbeat);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, heartbeat: Heartbeat) {
        if self.cut.contains(&(from, to)) || self.random.next_u64() % 1000 < self.loss_permille {
            return;
        }
        let slow = |node| self.delay_of.get(node).copied().unwrap_or_default();
        let most = (self.max_delay.as_micros() as u64).max(1);
        let mut fly = |heartbeat| {
            let delay = Duration::from_micros(self.random.next_u64() % most) + slow(&from) + slow(&to);
            self.sent += 1;
            self.flying.insert((self.now + delay, self.sent), (from, to, heartbeat));
        };
        fly(heartbeat.clone());
        // Some arrive twice.
        if self.loss_permille > 0 && heartbeat.sequence.is_multiple_of(7) {
            fly(heartbeat);
        }
    }

    fn cut_off(&mut self, node: NodeId) {
        for other in self.nodes.keys().copied().filter(|other| *other != node) {
            self.cut.insert((node, other));
            self.cut.insert((other, node));
        }
    }

    fn health(&self, of: NodeId) -> BTreeMap<NodeId, Health> {
        let others = self.nodes.iter().filter(|(id, _)| **id != of);
        others.map(|(id, detector)| (*id, detector.health(of).expect("in the map"))).collect()
    }

    fn told_of(&self, about: NodeId, health: Health) -> Vec<Duration> {
        self.told.iter().filter(|(_, _, v)| v.node == about && v.health == health).map(|(at, ..)| *at).collect()
    }
}

fn all(sim: &Sim, of: NodeId, health: Health) -> bool {
    sim.health(of).iter().filter(|(id, _)| !sim.asleep.contains(id)).all(|(_, seen)| *seen == health)
}

#[test]
fn a_dead_node_is_suspected_after_two_seconds_and_declared_after_five() {
    for count in 2..=7 {
        let mut sim = Sim::new(count, u64::from(count));
        let died = sim.now;
        sim.asleep.insert(2);
        sim.run(Duration::from_secs(7));
        assert!(all(&sim, 2, Health::Down), "{count} nodes: {:?}", sim.told);
        for (health, least, most) in [(Health::Suspect, 1200, 3000), (Health::Down, 4200, 6500)] {
            let times = sim.told_of(2, health);
            assert_eq!(times.len(), count as usize - 1, "everybody says it once");
            for at in times {
                let after = (at - died).as_millis();
                assert!((least..=most).contains(&after), "{health:?} after {after} ms of {count} nodes");
            }
        }
        assert_eq!(sim.told.iter().filter(|(_, _, v)| v.node != 2).count(), 0, "of the others nothing is said");
    }
}

#[test]
fn a_node_that_was_stopped_for_a_minute_comes_back_and_blames_nobody() {
    // Of two, each is half: the one that slept has nobody but itself to be wrong with.
    for count in [2, 3, 5] {
        let mut sim = Sim::new(count, u64::from(count));
        sim.asleep.insert(2);
        sim.run(Duration::from_secs(60));
        assert!(all(&sim, 2, Health::Down));
        sim.asleep.remove(&2);
        sim.run(Duration::from_secs(1));
        assert!(all(&sim, 2, Health::Down), "one word is not enough");
        sim.run(Duration::from_secs(5));
        assert!(all(&sim, 2, Health::Up));
        let by_it: Vec<_> = sim.told.iter().filter(|(_, by, _)| *by == 2).collect();
        assert_eq!(by_it.len(), 0, "what passed was its own sleep: {by_it:?}");
    }
}

#[test]
fn a_node_that_was_stopped_while_another_died_finds_that_out_by_itself() {
    let mut sim = Sim::new(5, 2);
    sim.asleep.insert(3);
    sim.run(Duration::from_secs(30));
    sim.asleep.insert(4);
    sim.run(Duration::from_secs(10));
    sim.asleep.remove(&3);
    sim.run(Duration::from_secs(8));
    assert_eq!(sim.nodes[&3].health(4), Some(Health::Down));
    assert!(all(&sim, 3, Health::Up));
}

#[test]
fn a_link_lost_in_one_direction_makes_nobody_flap() {
    for cut in [vec![(1, 2)], vec![(2, 1)], vec![(1, 2), (2, 1)]] {
        let mut sim = Sim::new(5, 3);
        sim.cut.extend(cut.iter().copied());
        sim.run(Duration::from_secs(120));
        assert_eq!(sim.told, [], "{cut:?}: a majority hears both ends");
        let (one, two) =
            (sim.nodes[&1].is_silent_to_us(2, sim.clock(1)), sim.nodes[&2].is_silent_to_us(1, sim.clock(2)));
        assert_eq!((one, two), (true, true), "and both ends know that their link is broken");
    }
}

#[test]
fn a_node_that_hears_nobody_or_that_nobody_hears_is_down_once_and_stays_so() {
    for inbound in [true, false] {
        let mut sim = Sim::new(5, 4);
        for other in [1, 2, 3, 5] {
            sim.cut.insert(if inbound { (other, 4) } else { (4, other) });
        }
        sim.run(Duration::from_secs(120));
        assert!(all(&sim, 4, Health::Down));
        assert_eq!(sim.told_of(4, Health::Down).len(), 4, "said once by each");
        assert_eq!(sim.told.iter().filter(|(_, _, v)| v.node != 4).count(), 0, "inbound {inbound}: {:?}", sim.told);
        assert!(sim.nodes[&4].is_cut_off(sim.clock(4)) && !sim.nodes[&1].is_cut_off(sim.clock(1)));
    }
}

#[test]
fn a_minority_declares_nobody_and_the_majority_declares_it() {
    let mut sim = Sim::new(5, 5);
    for one in [4, 5] {
        for other in [1, 2, 3] {
            sim.cut.extend([(one, other), (other, one)]);
        }
    }
    sim.run(Duration::from_secs(7));
    for node in [1, 2, 3] {
        assert_eq!(sim.nodes[&node].health(4), Some(Health::Down));
        assert_eq!(sim.nodes[&4].health(node), Some(Health::Up), "two of five are no witnesses");
    }
    sim.cut.clear();
    sim.run(Duration::from_secs(5));
    for node in 1..=5 {
        assert!(all(&sim, node, Health::Up));
    }
}

#[test]
fn two_of_four_that_die_together_are_declared_by_the_other_two() {
    let mut sim = Sim::new(4, 6);
    sim.asleep.extend([3, 4]);
    sim.run(Duration::from_secs(7));
    assert!(all(&sim, 3, Health::Down) && all(&sim, 4, Health::Down));
}

#[test]
fn an_old_image_a_doubled_and_a_late_heartbeat_are_not_heard() {
    let mut sim = Sim::new(3, 7);
    let late = sim.nodes.get_mut(&2).expect("there").heartbeat(1, 1, sim.now, 0);
    sim.map.nodes.get_mut(&2).expect("there").start.incarnation = 5;
    let (map, now) = (sim.map.clone(), sim.clock(1));
    sim.nodes.get_mut(&1).expect("there").set_map(&map, now);
    // Node 2 goes on as incarnation 1, which the map knows to be old.
    sim.run(Duration::from_secs(7));
    assert!(sim.nodes[&1].is_silent_to_us(2, sim.clock(1)));
    sim.start(2, 5);
    sim.run(Duration::from_secs(6));
    assert!(!sim.nodes[&1].is_silent_to_us(2, sim.clock(1)));
    let newest = sim.nodes.get_mut(&2).expect("there").heartbeat(1, 1, sim.now, 0);
    let of_another = Heartbeat { cluster: ClusterId(8), sequence: u64::MAX, ..newest.clone() };
    sim.asleep.insert(2);
    sim.flying.clear();
    let silent_since = sim.now;
    while sim.now < silent_since + Duration::from_secs(4) {
        let now = sim.clock(1);
        let one = sim.nodes.get_mut(&1).expect("there");
        for heartbeat in [&late, &newest, &of_another] {
            one.heard(2, heartbeat.clone(), now, 0);
        }
        sim.step();
    }
    assert!(sim.nodes[&1].is_silent_to_us(2, sim.clock(1)), "the same words over and over");
}

#[test]
fn a_slow_node_is_found_by_its_peers_and_does_not_blame_them() {
    let mut sim = Sim::new(5, 8);
    sim.delay_of.insert(2, Duration::from_millis(150));
    sim.run(Duration::from_secs(20));
    let slow = |sim: &Sim, about| sim.nodes.values().filter(|d| d.is_slow(about)).count();
    assert!(slow(&sim, 2) >= 4, "{:?}", sim.told);
    assert!([1, 3, 4, 5].into_iter().all(|node| slow(&sim, node) == 0), "{:?}", sim.told);
    assert!(all(&sim, 2, Health::Up), "slow is not silent");
    sim.delay_of.clear();
    sim.run(Duration::from_secs(30));
    assert_eq!(slow(&sim, 2), 0);
}

#[test]
fn a_node_with_a_slow_disk_is_found_by_what_its_peers_wait_for_and_forgotten_when_nobody_waits() {
    let mut sim = Sim::new(4, 9);
    let work = |sim: &mut Sim| {
        for by in [1, 2, 3, 4] {
            for of in [1, 2, 3, 4].into_iter().filter(|of| *of != by) {
                let took = Duration::from_millis(if of == 3 { 800 } else { 8 });
                let now = sim.clock(by);
                sim.nodes.get_mut(&by).expect("there").observe(of, took, now);
            }
        }
    };
    for _ in 0..100 {
        work(&mut sim);
        sim.run(Duration::from_millis(100));
    }
    assert!([1, 2, 4].into_iter().all(|by| sim.nodes[&by].is_slow(3) && !sim.nodes[&3].is_slow(by)));
    sim.run(Duration::from_secs(45));
    assert!([1, 2, 4].into_iter().all(|by| !sim.nodes[&by].is_slow(3)), "nobody knows any more");
}

/// Bounded loss, delay, duplication; random cuts, sleeps and deaths. Two sentences must hold at every moment.
#[test]
fn whatever_happens_a_heard_node_is_never_declared_and_an_unheard_one_always_is() {
    for seed in 0..36 {
        let count = 3 + (seed % 5) as u32;
        let mut sim = Sim::new(count, 100 + seed);
        let chance = SimRandom::new(seed);
        sim.loss_permille = [0, 50, 150][(seed % 3) as usize];
        sim.max_delay = Duration::from_millis([5, 60, 200][(seed / 3 % 3) as usize]);
        // When each pair last could talk both ways, and since when each node can be reached by nobody.
        let mut open_since: BTreeMap<(NodeId, NodeId), Duration> = BTreeMap::new();
        let mut gone_since: BTreeMap<NodeId, Duration> = BTreeMap::new();
        let mut connected_since: BTreeMap<NodeId, Duration> = BTreeMap::new();
        let begin = sim.now;
        while sim.now < begin + Duration::from_secs(90) {
            if chance.next_u64().is_multiple_of(400) {
                disturb(&mut sim, &chance);
            }
            let before = sim.told.len();
            sim.step();
            let open = |sim: &Sim, a: NodeId, b: NodeId| {
                let awake = !sim.asleep.contains(&a) && !sim.asleep.contains(&b);
                awake && !sim.cut.contains(&(a, b)) && !sim.cut.contains(&(b, a))
            };
            for a in 1..=count {
                for b in (1..=count).filter(|b| *b != a) {
                    if open(&sim, a, b) {
                        open_since.entry((a, b)).or_insert(sim.now);
                    } else {
                        open_since.remove(&(a, b));
                    }
                }
            }
            let long = |since: Option<&Duration>, now: Duration, secs: u64| {
                since.is_some_and(|since| now - *since >= Duration::from_secs(secs))
            };
            if sim.loss_permille <= 50 {
                for (_, by, verdict) in &sim.told[before..] {
                    let hears = |a: NodeId| long(open_since.get(&(a, verdict.node)), sim.now, 12);
                    let heard_by = 1 + (1..=count).filter(|a| *a != verdict.node && hears(*a)).count();
                    let wrong = verdict.health == Health::Down && 2 * heard_by > count as usize;
                    assert!(!wrong, "seed {seed}: {by} declares {} heard by {heard_by} of {count}", verdict.node);
                }
            }
            for node in 1..=count {
                let reachable = (1..=count).any(|other| other != node && open(&sim, node, other));
                if reachable {
                    gone_since.remove(&node);
                } else {
                    gone_since.entry(node).or_insert(sim.now);
                }
                let partners = 1 + (1..=count).filter(|o| *o != node && open(&sim, node, *o)).count();
                if !sim.asleep.contains(&node) && 2 * partners > count as usize {
                    connected_since.entry(node).or_insert(sim.now);
                } else {
                    connected_since.remove(&node);
                }
            }
            // Everybody who has been well connected for so long to the same others has declared whom nobody reaches.
            let stable = |node: &NodeId| {
                (1..=count).all(|other| {
                    other == *node || open(&sim, *node, other) == long(open_since.get(&(*node, other)), sim.now, 7)
                })
            };
            for (node, since) in &gone_since {
                if sim.now - *since < Duration::from_secs(7) || sim.loss_permille > 50 {
                    continue;
                }
                for by in connected_since
                    .iter()
                    .filter(|(_, since)| sim.now - **since >= Duration::from_secs(7))
                    .map(|(by, _)| by)
                {
                    let witnesses: Vec<NodeId> = (1..=count)
                        .filter(|w| w != node && (w == by || long(open_since.get(&(*by, *w)), sim.now, 7)))
                        .collect();
                    if by != node
                        && stable(by)
                        && 2 * witnesses.len() >= count as usize
                        && witnesses.iter().all(|w| {
                            connected_since.get(w).is_some_and(|since| sim.now - *since >= Duration::from_secs(7))
                        })
                    {
                        assert_eq!(
                            sim.nodes[by].health(*node),
                            Some(Health::Down),
                            "seed {seed}: {by} of {node} of {count}"
                        );
                    }
                }
            }
        }
    }
}

fn disturb(sim: &mut Sim, chance: &SimRandom) {
    let count = sim.nodes.len() as u64;
    let node = |chance: &SimRandom| (chance.next_u64() % count + 1) as NodeId;
    match chance.next_u64() % 6 {
        0 => drop(sim.asleep.insert(node(chance))),
        1 => sim.asleep.clear(),
        2 => {
            let (from, to) = (node(chance), node(chance));
            sim.cut.insert((from, to));
        }
        3 => {
            let lonely = node(chance);
            sim.cut_off(lonely);
        }
        _ => {
            sim.cut.clear();
            sim.asleep.clear();
        }
    }
}
