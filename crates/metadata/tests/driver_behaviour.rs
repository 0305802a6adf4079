//! The driver while nothing breaks, and while something does: batching, stamps, limits, full disks, failed folders.

mod driver_support;

use driver_support::{NEVER, Words, attempt, command, config, home, open, propose, word, words};
use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use env::{Env, SimEnv};
use metadata::command::Outcome;
use metadata::node::{Metadata, MetadataConfig, ProposeError, StartError};
use metadata::shard::{ROOT, ShardId};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn disks(count: usize) -> Vec<SimDisk> {
    (0..count).map(|n| SimDisk::new(n as u64, 64 << 20)).collect()
}

fn after_power_cut(disks: &[SimDisk]) -> Vec<SimDisk> {
    disks.iter().map(|disk| disk.crash(CrashPolicy::KeepNone)).collect()
}

fn node(count: usize) -> (SimEnv, Vec<SimDisk>, Metadata) {
    let (sim, disks) = (Env::simulated(1), disks(count));
    let metadata = open(&sim.env, &disks).expect("opens");
    (sim, disks, metadata)
}

/// Opens again what these disks hold without what was not synced.
fn reopen(sim: SimEnv, metadata: Metadata, disks: &[SimDisk]) -> (SimEnv, Vec<SimDisk>, Result<Metadata, StartError>) {
    drop(metadata);
    sim.scheduler.abandon();
    let (sim, disks) = (Env::simulated(2), after_power_cut(disks));
    let opened = open(&sim.env, &disks);
    (sim, disks, opened)
}

#[test]
fn an_answer_is_readable_at_once_and_numbers_follow_the_log() {
    let (sim, _, metadata) = node(1);
    for n in 1..=5 {
        assert_eq!(propose(&sim, &metadata, 1, &format!("w{n}")), Ok(Outcome::Left(n)));
        assert_eq!(word(&metadata.snapshot(), ShardId(1), &format!("w{n}")).map(|(place, _)| place), Some(n));
    }
}

#[test]
fn a_snapshot_does_not_change_while_others_write() {
    let (sim, _, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    let snapshot = metadata.snapshot();
    for n in 0..50 {
        propose(&sim, &metadata, 1, &format!("{n}{}", "x".repeat(1000))).expect("answers");
    }
    sim.scheduler.drain();
    assert!(metadata.stats().flushes > 0);
    assert_eq!(words(&snapshot, ShardId(1)), [(1, "a".to_owned())]);
}

#[test]
fn sixty_four_writers_share_appends_and_syncs() {
    let (sim, disks, metadata) = node(1);
    let before = (metadata.stats().appends, disks[0].counters().syncs);
    for writer in 0..64u32 {
        let metadata = metadata.clone();
        sim.scheduler.spawn(async move {
            for n in 0..10 {
                let command = command(&format!("{writer}-{n}"));
                metadata.propose(ShardId(writer % 4), attempt(1), NEVER, command).await.expect("answers");
            }
        });
    }
    sim.scheduler.run();
    let appends = metadata.stats().appends - before.0;
    let syncs = disks[0].counters().syncs - before.1;
    let entries: usize = (0..4).map(|shard| words(&metadata.snapshot(), ShardId(shard)).len()).sum();
    assert_eq!(entries, 640);
    assert!(appends <= 64 && syncs <= 2 * 64, "{appends} appends, {syncs} syncs for 640 entries");
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let run = || {
        let (sim, disks, metadata) = node(1);
        for writer in 0..8u32 {
            let metadata = metadata.clone();
            sim.scheduler.spawn(async move {
                for n in 0..20 {
                    let command = command(&format!("{writer}-{n}-{}", "x".repeat(500)));
                    metadata.propose(ShardId(writer % 4), attempt(1), NEVER, command).await.expect("answers");
                }
            });
        }
        sim.scheduler.run();
        (sim.scheduler.digest(), disks[0].digest())
    };
    assert_eq!(run(), run());
}

#[test]
fn stamps_never_go_back_though_the_wall_clock_does() {
    let (sim, _, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    sim.clock.advance(Duration::from_secs(5));
    propose(&sim, &metadata, 2, "b").expect("answers");
    sim.clock.set_wall_ms(1_000);
    propose(&sim, &metadata, 1, "c").expect("answers");
    let snapshot = metadata.snapshot();
    let stamp = |shard, text| word(&snapshot, ShardId(shard), text).expect("is there").1;
    assert_eq!(stamp(2, "b"), stamp(1, "a") + 5_000);
    assert_eq!(stamp(1, "c"), stamp(2, "b"));
}

#[test]
fn nothing_is_appended_after_its_deadline() {
    let (sim, _, metadata) = node(1);
    let now = env::clock::Clock::wall_ms(&*sim.clock);
    let late = metadata.clone();
    let result = sim.scheduler.block_on(async move { late.propose(ROOT, attempt(1), now - 1, command("late")).await });
    assert_eq!(result, Err(ProposeError::TooLate));
    let on_time = metadata.clone();
    let result =
        sim.scheduler.block_on(async move { on_time.propose(ROOT, attempt(1), now, command("on time")).await });
    assert_eq!(result, Ok(Outcome::Left(1)));
}

#[test]
fn keys_are_routed_by_the_ranges_made_at_birth() {
    let (_, _, metadata) = node(1);
    let shards: Vec<u32> = metadata.shards().map(|shard| shard.id.0).collect();
    assert_eq!(shards, [0, 1, 2, 3]);
    let shard = |key: &str| metadata.shard_of(&home(key)).0;
    assert_eq!([shard("a"), shard("l\u{10ffff}"), shard("m"), shard("s"), shard("t"), shard("zz")], [1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_shard_that_is_not_here_and_an_entry_too_large_are_refused() {
    let (sim, _, metadata) = node(1);
    assert_eq!(propose(&sim, &metadata, 9, "a"), Err(ProposeError::NoSuchShard));
    assert_eq!(propose(&sim, &metadata, 1, &"x".repeat(2 << 20)), Err(ProposeError::TooLarge));
    // Smaller than an entry may be, larger than a segment of this small log.
    assert_eq!(propose(&sim, &metadata, 1, &"x".repeat(64 << 10)), Err(ProposeError::TooLarge));
    assert_eq!(propose(&sim, &metadata, 1, "a"), Ok(Outcome::Left(1)));
}

#[test]
fn too_much_in_flight_is_busy_and_room_comes_back() {
    let (sim, _, metadata) = node(1);
    let handles: Vec<_> = (0..40)
        .map(|n| {
            let (metadata, command) = (metadata.clone(), command(&format!("{n}{}", "x".repeat(1 << 19))));
            sim.scheduler.spawn(async move { metadata.propose(ShardId(1), attempt(n), NEVER, command).await })
        })
        .collect();
    let mut answers = Vec::new();
    sim.scheduler.run();
    for mut handle in handles {
        answers.push(handle.take().expect("done"));
    }
    // They are all too large for this log, and it is the driver that says so: those that got that far were in flight.
    assert!(answers.iter().all(|answer| matches!(answer, Err(ProposeError::TooLarge | ProposeError::Busy))));
    assert_eq!(propose(&sim, &metadata, 1, "a"), Ok(Outcome::Left(1)));
}

#[test]
fn sessions_are_taken_from_root_and_attempts_are_counted_in_them() {
    let (sim, _, metadata) = node(1);
    let other = metadata.clone();
    assert_eq!(sim.scheduler.block_on(async move { other.start_session().await }), Ok(7));
    let first = metadata.next_attempt();
    assert_eq!((first.node, first.session, first.sequence), (1, 7, 1));
    assert_eq!(metadata.next_attempt().sequence, 2);
}

#[test]
fn a_full_disk_refuses_without_a_trace_and_goes_on_when_there_is_space() {
    let (sim, disks, metadata) = node(1);
    let space = disks[0].space().expect("space");
    disks[0].set_capacity(space.total_bytes - space.free_bytes + (16 << 10));
    let mut accepted = Vec::new();
    let refused = loop {
        let word = format!("{}{}", accepted.len(), "x".repeat(9000));
        match propose(&sim, &metadata, 1, &word) {
            Ok(_) => accepted.push(word),
            Err(e) => break e,
        }
        assert!(accepted.len() < 1000, "the disk never gets full");
    };
    // Flushes wait for space, so the tree is behind or the log is full; neither has failed.
    assert!(matches!(refused, ProposeError::NoSpace | ProposeError::Busy) && metadata.failure().is_none(), "{refused}");
    let held = |metadata: &Metadata| {
        words(&metadata.snapshot(), ShardId(1)).into_iter().map(|(_, word)| word).collect::<Vec<_>>()
    };
    assert_eq!(held(&metadata), accepted);
    disks[0].set_capacity(64 << 20);
    // The first may find the node behind still; asking makes it try again.
    let _ = propose(&sim, &metadata, 1, "asking");
    sim.scheduler.drain();
    propose(&sim, &metadata, 1, "after").expect("there is space");
    let before_cut = held(&metadata);
    assert!(before_cut.starts_with(&accepted) && before_cut.ends_with(&["after".to_owned()]));
    assert!(metadata.stats().flushes > 0);
    let (_, _, metadata) = reopen(sim, metadata, &disks);
    assert_eq!(held(&metadata.expect("opens")), before_cut);
}

#[test]
fn those_who_are_turned_away_do_not_fill_the_queues_of_those_who_work() {
    let (sim, disks, metadata) = node(1);
    let space = disks[0].space().expect("space");
    disks[0].set_capacity(space.total_bytes - space.free_bytes + (700 << 10));
    let busy = (0..1000).find_map(|n| propose(&sim, &metadata, 1, &format!("{n}{}", "x".repeat(9000))).err());
    assert_eq!(busy, Some(ProposeError::Busy), "flushes wait for space");
    // Clients that come again and again while the workers do not get on.
    let mut context = Context::from_waker(Waker::noop());
    for n in 0..10_000 {
        let mut proposal = pin!(metadata.propose(ShardId(1), attempt(n), NEVER, command("again")));
        assert_eq!(proposal.as_mut().poll(&mut context), Poll::Ready(Err(ProposeError::Busy)));
    }
    let mut flush = pin!(metadata.flush());
    assert!(flush.as_mut().poll(&mut context).is_pending(), "there is room for what matters");
    disks[0].set_capacity(64 << 20);
    sim.scheduler.drain();
    assert_eq!(flush.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    propose(&sim, &metadata, 1, "after").expect("there is space");
}

#[test]
fn a_full_log_refuses_and_takes_more_when_there_is_space() {
    let (sim, disks) = (Env::simulated(1), disks(1));
    // No flush: only the log needs space.
    let config = MetadataConfig { memtable_bytes: 1 << 30, log_bytes: 1 << 30, ..config(&sim.env, &disks) };
    let metadata = Metadata::open(config, Box::new(Words)).expect("opens");
    let space = disks[0].space().expect("space");
    disks[0].set_capacity(space.total_bytes - space.free_bytes);
    let mut count = 0;
    let refused = loop {
        match propose(&sim, &metadata, 1, &format!("{count}{}", "x".repeat(9000))) {
            Ok(_) => count += 1,
            Err(e) => break e,
        }
    };
    assert_eq!((refused, metadata.failure()), (ProposeError::NoSpace, None));
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), count);
    disks[0].set_capacity(64 << 20);
    propose(&sim, &metadata, 1, "after").expect("there is space");
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), count + 1);
}

#[test]
fn a_failed_sync_of_the_only_log_ends_writing_and_reads_go_on() {
    let (sim, disks, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[0].fail_sync(1);
    assert!(matches!(propose(&sim, &metadata, 1, "b"), Err(ProposeError::Failed(_))));
    assert!(
        matches!(propose(&sim, &metadata, 2, "c"), Err(ProposeError::ReadOnly(_))),
        "though a sync would succeed now"
    );
    assert!(metadata.failure().is_some());
    assert_eq!(words(&metadata.snapshot(), ShardId(1)), [(1, "a".to_owned())]);
    let (_, _, metadata) = reopen(sim, metadata, &disks);
    assert_eq!(words(&metadata.expect("opens").snapshot(), ShardId(1)), [(1, "a".to_owned())]);
}

#[test]
fn a_failed_flush_of_the_only_tree_ends_writing_and_loses_nothing() {
    let (sim, disks, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    let flushing = metadata.clone();
    disks[0].fail_dir_sync(1);
    assert!(sim.scheduler.block_on(async move { flushing.flush().await }).is_err());
    sim.scheduler.drain();
    assert!(matches!(propose(&sim, &metadata, 1, "b"), Err(ProposeError::ReadOnly(_))));
    let (_, _, metadata) = reopen(sim, metadata, &disks);
    assert_eq!(words(&metadata.expect("opens").snapshot(), ShardId(1)), [(1, "a".to_owned())]);
}

#[test]
fn a_store_is_made_only_when_it_is_asked_for() {
    let (sim, disks) = (Env::simulated(1), disks(1));
    let config = MetadataConfig { create: false, ..config(&sim.env, &disks) };
    assert!(matches!(Metadata::open(config, Box::new(Words)), Err(StartError::Missing(_))));
}

#[test]
fn a_tree_whose_log_is_gone_is_refused() {
    let (sim, disks, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    let flushing = metadata.clone();
    sim.scheduler.block_on(async move { flushing.flush().await }).expect("flushes");
    for name in disks[0].list("m/log/0001").expect("lists") {
        disks[0].remove(&format!("m/log/0001/{name}")).expect("removes");
    }
    disks[0].sync_dir("m/log/0001").expect("syncs");
    let (_, _, metadata) = reopen(sim, metadata, &disks);
    assert!(matches!(metadata, Err(StartError::Contradiction(_))));
}

#[test]
fn a_folder_whose_disk_fails_leaves_and_is_filled_anew_at_the_next_start() {
    let (sim, disks, metadata) = node(3);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[1].fail_sync(1);
    propose(&sim, &metadata, 1, "b").expect("the others have it");
    assert_eq!(metadata.stats().logs.keys().copied().collect::<Vec<_>>(), [0, 2]);
    propose(&sim, &metadata, 1, "c").expect("answers");
    let (sim, disks, metadata) = reopen(sim, metadata, &disks);
    let metadata = metadata.expect("opens");
    assert_eq!(metadata.stats().logs.len(), 3, "filled anew");
    propose(&sim, &metadata, 1, "d").expect("answers");
    // The new folder holds everything by itself: any two of three make a start.
    let (_, _, metadata) = {
        drop(metadata);
        sim.scheduler.abandon();
        let after = after_power_cut(&disks);
        after[0].lose();
        let (sim, after) = (Env::simulated(3), after);
        let opened = open(&sim.env, &after);
        (sim, after, opened)
    };
    let metadata = metadata.expect("two of three");
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 4);
}

#[test]
fn two_folders_failing_at_once_stop_the_node() {
    let (sim, disks, metadata) = node(3);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[0].fail_sync(1);
    disks[2].fail_sync(1);
    assert!(matches!(propose(&sim, &metadata, 1, "b"), Err(ProposeError::Failed(_))));
    assert!(metadata.failure().is_some());
}

#[test]
fn a_start_that_sees_only_the_folder_that_had_left_is_refused() {
    let (sim, disks, metadata) = node(2);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[1].fail_sync(1);
    propose(&sim, &metadata, 1, "b").expect("the other has it");
    drop(metadata);
    sim.scheduler.abandon();
    let after = after_power_cut(&disks);
    after[0].lose();
    let sim = Env::simulated(2);
    let opened = Metadata::open(MetadataConfig { create: false, ..config(&sim.env, &after) }, Box::new(Words));
    assert!(matches!(opened, Err(StartError::Io(_) | StartError::Set(_))), "it lacks what was answered");
}

#[test]
fn the_tree_of_one_folder_failing_costs_that_folder_only() {
    let (sim, disks, metadata) = node(2);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[0].fail_dir_sync(1);
    let flushing = metadata.clone();
    // Whoever asked for all folders learns that one failed.
    assert!(sim.scheduler.block_on(async move { flushing.flush().await }).is_err());
    sim.scheduler.drain();
    propose(&sim, &metadata, 1, "b").expect("the other folder has it");
    sim.scheduler.drain();
    assert_eq!(metadata.stats().logs.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 2);
}

#[test]
fn a_log_grown_by_starts_alone_is_shortened_and_the_node_is_not_busy_for_ever() {
    let (sim, disks, metadata) = node(1);
    propose(&sim, &metadata, 1, "a").expect("answers");
    drop(metadata);
    sim.scheduler.abandon();
    let mut disks = disks;
    for _ in 0..12 {
        let sim = Env::simulated(2);
        drop(open(&sim.env, &disks).expect("opens"));
        sim.scheduler.abandon();
        disks = after_power_cut(&disks);
    }
    let sim = Env::simulated(3);
    let metadata = open(&sim.env, &disks).expect("opens");
    assert!(metadata.stats().logs[&0].segments > 12, "each start takes a segment");
    sim.scheduler.drain();
    assert!(metadata.stats().logs[&0].segments <= 2, "{:?}", metadata.stats());
    assert_eq!(propose(&sim, &metadata, 1, "b"), Ok(Outcome::Left(2)));
}

#[test]
fn reads_leave_a_disk_whose_log_failed() {
    let (sim, disks, metadata) = node(2);
    propose(&sim, &metadata, 1, "a").expect("answers");
    disks[0].lose();
    propose(&sim, &metadata, 1, "b").expect("the other folder has it");
    sim.scheduler.drain();
    let flushing = metadata.clone();
    sim.scheduler.block_on(async move { flushing.flush().await }).expect("only the folder that is left is flushed");
    assert_eq!(metadata.failure(), None);
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 2);
}

#[test]
fn a_start_that_sees_only_folders_that_had_left_one_after_the_other_is_refused() {
    let (sim, disks, metadata) = node(3);
    propose(&sim, &metadata, 1, "a").expect("answers");
    for left in [2, 1] {
        disks[left].fail_sync(1);
        propose(&sim, &metadata, 1, &format!("without {left}")).expect("the others have it");
    }
    drop(metadata);
    sim.scheduler.abandon();
    let after = after_power_cut(&disks);
    after[0].lose();
    // Two of the three that there were once, but not the one that has it all.
    let opened = open(&Env::simulated(2).env, &after);
    assert!(matches!(opened, Err(StartError::Set(_))), "they lack what was answered");
}

#[test]
fn a_disk_far_from_full_is_asked_for_its_space_now_and_then_and_one_near_it_each_time() {
    let (sim, disks) = (Env::simulated(1), vec![SimDisk::new(1, 4 << 30)]);
    let metadata = open(&sim.env, &disks).expect("opens");
    let full = metadata.reserve_bytes() / 2;
    assert!(metadata.has_room());
    disks[0].set_capacity(full);
    assert!(metadata.has_room(), "it was far from full a moment ago");
    sim.clock.advance(Duration::from_millis(100));
    assert!(!metadata.has_room(), "it is full");
    disks[0].set_capacity(metadata.reserve_bytes() * 4);
    assert!(metadata.has_room(), "it has some room, but is not far from full");
    disks[0].set_capacity(full);
    assert!(!metadata.has_room(), "it was asked again at once");
}
