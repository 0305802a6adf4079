//! Clusters of three and five nodes under lost, doubled and late messages, partitions, power cuts and changes of leaders.
//!
//! Seen: one leader a term; what is applied at a place stays there, on every node and over restarts; an answered proposal is in every later
//! state; one that did not happen never does; reads that were proved are linearizable; in the end all nodes hold the same rows.

mod raft_support;

use env::sim_disk::{CrashPolicy, SimDisk};
use metadata::command::Outcome;
use metadata::node::ProposeError;
use metadata::shard::{MemberChange, ShardId};
use raft_support::{Dice, SHARDS, Weather, World, attempt, born, command, dump, place_of, poll, register, state};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use types::NodeId;

const KEYS: usize = 3;
const NEVER: u64 = u64::MAX;

type Op<T> = Pin<Box<dyn Future<Output = T>>>;

struct Write {
    shard: ShardId,
    key: String,
    word: String,
    begun: u64,
    answer: Op<Result<Outcome, ProposeError>>,
}

struct Reading {
    shard: ShardId,
    key: String,
    begun: u64,
    /// Highest place of the key that a write or read had seen before this began.
    at_least: u64,
    answer: Op<Result<u64, ProposeError>>,
}

/// What the clients know.
#[derive(Default)]
struct Clients {
    writes: Vec<Write>,
    reads: Vec<Reading>,
    next: u64,
    /// Answered: shard, word, place.
    done: Vec<(ShardId, String, u64)>,
    /// Did not happen.
    refused: Vec<(ShardId, String)>,
    unknown: u64,
    seen: BTreeMap<(ShardId, String), u64>,
    read: u64,
}

impl Clients {
    fn begin(&mut self, world: &mut World) {
        let nodes: Vec<NodeId> = world.running.keys().copied().collect();
        if nodes.is_empty() {
            return;
        }
        let shard = SHARDS[world.dice.below(2)];
        let key = format!("k{}", world.dice.below(KEYS));
        let leader = world.leader(shard).filter(|_| !world.dice.chance(100));
        let asked = leader.unwrap_or_else(|| nodes[world.dice.below(nodes.len())]);
        let metadata = world.metadata(asked);
        if self.writes.len() < 6 && world.dice.chance(600) {
            self.next += 1;
            let padding = if world.dice.chance(300) { world.dice.below(3000) } else { 0 };
            let word = format!("{key}={}", self.next);
            let (padded, sequence) = (format!("{word}{}", ".".repeat(padding)), self.next);
            let answer =
                async move { metadata.propose(shard, attempt(asked, sequence), NEVER, command(&padded)).await };
            self.writes.push(Write { shard, key, word, begun: world.ticks, answer: Box::pin(answer) });
        } else if self.reads.len() < 6 {
            let here = nodes[world.dice.below(nodes.len())];
            let here = world.metadata(here);
            let wanted = key.clone();
            let answer = async move {
                let index = metadata.read_index(shard).await?;
                here.applied(shard, index).await?;
                Ok(register(&here.snapshot(), shard, &wanted))
            };
            let at_least = self.seen.get(&(shard, key.clone())).copied().unwrap_or(0);
            self.reads.push(Reading { shard, key, begun: world.ticks, at_least, answer: Box::pin(answer) });
        }
    }

    fn look(&mut self, now: u64) {
        let mut writes = Vec::new();
        for mut write in self.writes.drain(..) {
            let answer = match poll(write.answer.as_mut()) {
                None if write.begun + 60 > now => {
                    writes.push(write);
                    continue;
                }
                None => Err(ProposeError::Failed("given up".to_owned())),
                Some(answer) => answer,
            };
            match answer {
                Ok(Outcome::Left(place)) => {
                    let seen = self.seen.entry((write.shard, write.key)).or_default();
                    *seen = (*seen).max(u64::from(place));
                    self.done.push((write.shard, write.word, u64::from(place)));
                }
                Ok(other) => unreachable!("{other:?}"),
                Err(ProposeError::Failed(_)) => self.unknown += 1,
                Err(_) => self.refused.push((write.shard, write.word)),
            }
        }
        self.writes = writes;
        let mut reads = Vec::new();
        let mut found = Vec::new();
        for mut reading in self.reads.drain(..) {
            match poll(reading.answer.as_mut()) {
                None if reading.begun + 60 > now => reads.push(reading),
                Some(Ok(place)) => {
                    self.read += 1;
                    let Reading { shard, key, at_least, .. } = reading;
                    assert!(
                        place >= at_least,
                        "a read of {key} in shard {} saw place {place}, {at_least} was seen before",
                        shard.0
                    );
                    found.push(((shard, key), place));
                }
                None | Some(Err(_)) => {}
            }
        }
        self.reads = reads;
        // Only now: those polled above ran at the same time.
        for (register, place) in found {
            let seen = self.seen.entry(register).or_default();
            *seen = (*seen).max(place);
        }
    }

    /// Every answer against the state of one node that has everything.
    fn check(&self, world: &World) {
        for (node, running) in &world.running {
            let rows = running.metadata.snapshot();
            for (shard, word, place) in &self.done {
                assert_eq!(
                    place_of(&rows, *shard, word),
                    Some(*place),
                    "node {node}: the answered {word} of {shard:?}"
                );
            }
            for (shard, word) in &self.refused {
                assert_eq!(place_of(&rows, *shard, word), None, "node {node}: {word} of {shard:?} did not happen");
            }
        }
    }
}

fn policy(dice: &mut Dice) -> CrashPolicy {
    match dice.below(4) {
        0 => CrashPolicy::KeepNone,
        1 => CrashPolicy::KeepAll,
        2 => CrashPolicy::RandomSubset(dice.next()),
        _ => CrashPolicy::RandomWithGarbage(dice.next()),
    }
}

/// What happens in one tenth of a second.
fn trouble(world: &mut World, down: &mut BTreeMap<NodeId, u64>, calm: bool) {
    let all: Vec<NodeId> = world.disks.keys().copied().collect();
    let back: Vec<NodeId> =
        down.iter().filter(|(_, until)| **until <= world.ticks || calm).map(|(node, _)| *node).collect();
    for node in back {
        down.remove(&node);
        if world.may_fail.remove(&node) {
            let policy = policy(&mut world.dice);
            world.kill(node, policy);
        }
        world.start(node);
    }
    if calm {
        return;
    }
    if world.dice.chance(40) {
        let victims = if world.dice.chance(100) { all.clone() } else { vec![all[world.dice.below(all.len())]] };
        let away = if world.dice.chance(250) { 60 } else { 12 };
        for node in victims {
            if !world.running.contains_key(&node) || world.may_fail.contains(&node) {
                continue;
            }
            down.insert(node, world.ticks + 5 + world.dice.below(away) as u64);
            if world.dice.chance(500) {
                let policy = policy(&mut world.dice);
                world.kill(node, policy);
            } else {
                // In the middle of something: after a few more writes and syncs.
                let disk = world.disks[&node].clone();
                disk.crash_after(disk.mutations() + world.dice.below(12) as u64);
                world.may_fail.insert(node);
            }
        }
    }
    if world.dice.chance(40) {
        let side: BTreeSet<NodeId> = all.iter().copied().filter(|_| world.dice.chance(400)).collect();
        let one_way = world.dice.chance(300);
        world.cut(&side, one_way);
    }
    if world.dice.chance(80) {
        world.heal();
    }
    if world.dice.chance(30) {
        let (shard, to) = (SHARDS[world.dice.below(2)], all[world.dice.below(all.len())]);
        if let Some(leader) = world.leader(shard) {
            let metadata = world.metadata(leader);
            // Whether it is done shows in who leads: nobody waits for the answer.
            let _ = poll(Box::pin(async move { metadata.transfer_leader(shard, to).await }).as_mut());
        }
    }
}

#[derive(Default, Debug)]
struct Sum {
    answered: u64,
    unknown: u64,
    refused: u64,
    read: u64,
    fetched: u64,
    digest: u64,
}

fn run(seed: u64, born: &BTreeMap<NodeId, SimDisk>, ticks: u64) -> Sum {
    let disks = born.iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(seed, disks);
    let nodes: Vec<NodeId> = world.disks.keys().copied().collect();
    nodes.iter().for_each(|node| world.start(*node));
    let worse = |dice: &mut Dice| [0, 30, 150][dice.below(3)];
    let weather =
        Weather { lost: worse(&mut world.dice), doubled: worse(&mut world.dice), late: worse(&mut world.dice) };
    world.net.lock().weather = weather;
    let (mut clients, mut down) = (Clients::default(), BTreeMap::new());
    for tick in 0..ticks {
        // At first a leader is found in peace: else nothing is at stake.
        if tick > 15 {
            trouble(&mut world, &mut down, false);
        }
        (0..3).for_each(|_| clients.begin(&mut world));
        clients.look(world.ticks);
        world.tick();
        clients.look(world.ticks);
    }
    world.net.lock().weather = Weather::default();
    world.heal();
    trouble(&mut world, &mut down, true);
    world.run_until(80, "the clients' end", |world| {
        clients.look(world.ticks);
        clients.writes.is_empty() && clients.reads.is_empty()
    });
    for shard in SHARDS {
        last_word(&mut world, shard);
    }
    world.run_until(400, "all nodes are level", |world| world.is_level());
    clients.check(&world);
    let digest = world.book.lock().digest();
    let fetched = world.net.lock().fetched;
    let (answered, refused) = (clients.done.len() as u64, clients.refused.len() as u64);
    Sum { answered, unknown: clients.unknown, refused, read: clients.read, fetched, digest }
}

/// A proposal is answered again, within the time that an election takes.
fn last_word(world: &mut World, shard: ShardId) {
    let mut last = None;
    for n in 0..20 {
        world.run_until(100, "a leader", |world| world.leader(shard).is_some());
        let Some(leader) = world.leader(shard) else { continue };
        let metadata = world.metadata(leader);
        let word = format!("last={n}");
        let proposal = async move { metadata.propose(shard, attempt(leader, 1 << 40), NEVER, command(&word)).await };
        match world.block(100, "the last word", proposal) {
            Ok(_) => return,
            Err(e) => last = Some(e),
        }
        world.tick();
    }
    let leader = world.leader(shard).map(|leader| world.metadata(leader));
    let stats = leader.map(|leader| (leader.is_behind(), leader.stats()));
    unreachable!("nothing can be proposed any more: {last:?}, behind {stats:?}");
}

fn three() -> &'static BTreeMap<NodeId, SimDisk> {
    static BORN: OnceLock<BTreeMap<NodeId, SimDisk>> = OnceLock::new();
    BORN.get_or_init(|| born(3))
}

fn seeds(nodes: &BTreeMap<NodeId, SimDisk>, from: u64, count: u64, ticks: u64) -> Sum {
    let (from, count) = match std::env::var("RAFT_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (from, count),
    };
    let mut sum = Sum::default();
    for seed in from..from + count {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, nodes, ticks)));
        let one = result.unwrap_or_else(|panic| {
            eprintln!("seed {seed}: run again with RAFT_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        sum.answered += one.answered;
        sum.unknown += one.unknown;
        sum.refused += one.refused;
        sum.read += one.read;
        sum.fetched += one.fetched;
    }
    eprintln!("{sum:?}");
    sum
}

#[test]
fn three_nodes_lose_nothing_answered_and_read_nothing_old_whatever_befalls_them() {
    let sum = seeds(three(), 0, 160, 120);
    assert!(sum.answered > 1000 && sum.read > 1000 && sum.unknown > 10 && sum.refused > 10, "{sum:?}");
}

#[test]
fn five_nodes_lose_nothing_answered_and_read_nothing_old_whatever_befalls_them() {
    let sum = seeds(&born(5), 10_000, 40, 120);
    assert!(sum.answered > 200 && sum.read > 200, "{sum:?}");
}

#[test]
fn a_learner_beside_one_voter_applies_nothing_that_the_voter_may_still_lose() {
    let disks = (1..=2).map(|node| (node, SimDisk::new(u64::from(node), 64 << 20))).collect();
    let mut world = World::new(98, disks);
    (1..=2).for_each(|node| world.start(node));
    SHARDS.iter().for_each(|shard| world.change(*shard, &MemberChange::AddLearner(2)));
    world.run_until(100, "all nodes are level", |world| world.is_level());
    world.stop_all();
    let sum = seeds(&world.disks, 20_000, 40, 120);
    assert!(sum.answered > 500 && sum.read > 500, "{sum:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let digests = [5, 5, 6].map(|seed| run(seed, three(), 60).digest);
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn a_node_that_was_away_for_long_gets_a_snapshot_and_one_that_was_away_shortly_gets_entries() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(1, disks);
    (1..=3).for_each(|node| world.start(node));
    world.run_until(100, "a leader", |world| world.leader(SHARDS[1]).is_some());
    let away = (1..=3).find(|node| Some(*node) != world.leader(SHARDS[1])).expect("a follower");
    for (words, by_snapshot) in [(8, false), (200, true)] {
        world.kill(away, CrashPolicy::KeepNone);
        for n in 0..words {
            fill(&mut world, SHARDS[1], n);
        }
        let before = world.net.lock().fetched;
        world.start(away);
        world.run_until(400, "all nodes are level", |world| world.is_level());
        assert_eq!(world.net.lock().fetched > before, by_snapshot, "{words} words");
    }
    // And after another power cut right then it is all there.
    world.kill(away, CrashPolicy::KeepNone);
    world.start(away);
    let (count, _) = state(&world.metadata(away).snapshot(), SHARDS[1]);
    assert!(count > 0);
    world.run_until(400, "all nodes are level", |world| world.is_level());
}

fn fill(world: &mut World, shard: ShardId, n: u32) {
    let word = format!("fill={n}{}", ".".repeat(2000));
    for _ in 0..30 {
        world.run_until(100, "a leader", |world| world.leader(shard).is_some());
        let Some(leader) = world.leader(shard) else { continue };
        let (metadata, word) = (world.metadata(leader), word.clone());
        let proposal =
            async move { metadata.propose(shard, attempt(leader, u64::from(n)), NEVER, command(&word)).await };
        if world.block(200, "a proposal", proposal).is_ok() {
            return;
        }
        world.tick();
    }
    unreachable!("nothing can be proposed");
}

#[test]
fn a_power_cut_at_every_write_while_a_snapshot_is_installed_leaves_a_node_that_comes_up_and_catches_up() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(2, disks);
    (1..=3).for_each(|node| world.start(node));
    world.run_until(100, "a leader", |world| world.leader(SHARDS[1]).is_some());
    let away = (1..=3).find(|node| Some(*node) != world.leader(SHARDS[1])).expect("a follower");
    world.kill(away, CrashPolicy::KeepNone);
    (0..100).for_each(|n| fill(&mut world, SHARDS[1], n));
    world.stop_all();
    let base = world.disks;
    let again = |seed| {
        let mut world = World::new(seed, base.iter().map(|(node, disk)| (*node, disk.fork())).collect());
        (1..=3).filter(|node| *node != away).for_each(|node| world.start(node));
        world.run_until(100, "a leader", |world| world.leader(SHARDS[1]).is_some());
        world
    };
    // How many writes a whole installation takes.
    let mut world = again(1);
    let before = world.disks[&away].mutations();
    world.start(away);
    world.run_until(400, "all nodes are level", |world| world.is_level());
    let whole = world.disks[&away].mutations() - before;
    assert!(world.net.lock().fetched > 0, "by a snapshot");
    let step = (whole / 50).max(1) as usize;
    for cut in (1..whole).step_by(step) {
        let mut world = again(cut);
        world.disks[&away].crash_after(before + cut);
        world.try_start(away);
        world.run_while_failing(away, 60);
        let policy = if cut % 2 == 0 { CrashPolicy::KeepNone } else { CrashPolicy::RandomWithGarbage(cut) };
        world.kill(away, policy);
        world.start(away);
        world.run_until(600, &format!("level after cut {cut}"), |world| world.is_level());
    }
}

#[test]
fn a_node_whose_disk_forgot_what_it_acknowledged_stops_instead_of_acknowledging_more() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(6, disks);
    (1..=3).for_each(|node| world.start(node));
    last_word(&mut world, SHARDS[1]);
    let away = (1..=3).find(|node| Some(*node) != world.leader(SHARDS[1])).expect("a follower");
    world.run_until(50, "all nodes are level", |world| world.is_level());
    let old = world.disks[&away].fork();
    fill(&mut world, SHARDS[1], 1);
    world.run_until(50, "all nodes are level", |world| world.is_level());
    world.kill(away, CrashPolicy::KeepNone);
    world.disks.insert(away, old);
    world.start(away);
    world.run_while_failing(away, 60);
    let failure = world.metadata(away).failure().unwrap_or_default();
    assert!(failure.contains("it lost what it had acknowledged"), "{failure}");
}

#[test]
fn members_come_and_go_while_entries_flow() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(3, disks);
    (1..=3).for_each(|node| world.start(node));
    world.disks.insert(4, SimDisk::new(4, 64 << 20));
    world.start(4);
    (0..120).for_each(|n| fill(&mut world, SHARDS[0], n));
    for shard in SHARDS {
        world.change(shard, &MemberChange::AddLearner(4));
        let leader = world.leader(shard).expect("somebody leads");
        let gone = (1..=3).find(|node| *node != leader).expect("a follower");
        let voters: BTreeSet<NodeId> = (1..=4).filter(|node| *node != gone).collect();
        world.change(shard, &MemberChange::SetVoters(voters.clone()));
        let members = world.metadata(leader).members(shard);
        assert_eq!((members.voters, members.learners), (voters, [gone].into()));
        world.change(shard, &MemberChange::Remove(gone));
        world.change(shard, &MemberChange::AddLearner(gone));
        world.change(shard, &MemberChange::SetVoters((1..=4).collect()));
        fill(&mut world, shard, 500);
    }
    world.run_until(400, "all nodes are level", |world| world.is_level());
    assert!(!dump(&world.metadata(4).snapshot(), SHARDS[0]).is_empty());
    // What every node says after a start is what was agreed.
    world.stop_all();
    (1..=4).for_each(|node| world.start(node));
    for node in 1..=4 {
        assert_eq!(world.metadata(node).members(SHARDS[1]).voters, (1..=4).collect());
    }
    last_word(&mut world, SHARDS[1]);
}

#[test]
fn one_round_of_messages_proves_the_lead_to_all_reads_that_wait() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(4, disks);
    (1..=3).for_each(|node| world.start(node));
    last_word(&mut world, SHARDS[1]);
    let leader = world.leader(SHARDS[1]).expect("somebody leads");
    let metadata = world.metadata(leader);
    let before = metadata.stats().read_rounds;
    let mut reads: Vec<Op<_>> = Vec::new();
    for _ in 0..100 {
        let metadata = metadata.clone();
        reads.push(Box::pin(async move { metadata.read_index(SHARDS[1]).await }));
    }
    let mut answers = Vec::new();
    world.run_until(20, "all reads are answered", |_| {
        reads.retain_mut(|read| poll(read.as_mut()).map(|answer| answers.push(answer)).is_none());
        reads.is_empty()
    });
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|index| *index > 0)));
    let rounds = metadata.stats().read_rounds - before;
    assert!(rounds < 50, "{rounds} rounds");
    // The others do not prove anything, and say who does.
    let other = (1..=3).find(|node| *node != leader).expect("a follower");
    let metadata = world.metadata(other);
    let refused = world.block(20, "a refusal", async move { metadata.read_index(SHARDS[1]).await });
    assert_eq!(refused, Err(ProposeError::NotLeader(Some(leader))));
}

#[test]
fn a_leader_without_a_majority_answers_within_two_election_timeouts_and_the_others_go_on() {
    let disks = three().iter().map(|(node, disk)| (*node, disk.fork())).collect();
    let mut world = World::new(5, disks);
    (1..=3).for_each(|node| world.start(node));
    last_word(&mut world, SHARDS[1]);
    let leader = world.leader(SHARDS[1]).expect("somebody leads");
    world.cut(&[leader].into(), false);
    let (write, read) = (world.metadata(leader), world.metadata(leader));
    let both = async move {
        let write = write.propose(SHARDS[1], attempt(1, 1), NEVER, command("lost=1")).await;
        (write, read.read_index(SHARDS[1]).await)
    };
    let (write, read) = world.block(25, "answers", both);
    assert!(matches!(write, Err(ProposeError::Failed(_))), "{write:?}");
    assert_eq!(read, Err(ProposeError::NotLeader(None)));
    world.run_until(40, "another leader", |world| {
        world.running.iter().any(|(node, r)| *node != leader && r.metadata.leader(SHARDS[1]) == Some(*node))
    });
    world.heal();
    world.run_until(100, "all nodes are level", |world| world.is_level());
}
