//! A node after power cuts at every write and sync: what was answered is applied, once and in order.

mod driver_support;

use driver_support::{NEVER, attempt, command, open, words};
use env::Env;
use env::sim_disk::{CrashPolicy, SimDisk};
use metadata::node::Metadata;
use metadata::shard::ShardId;

const WORDS: u32 = 32;

/// Words for four shards, a flush in the middle and many by size; gives the words that were answered.
fn run(seed: u64, disks: &[SimDisk]) -> (bool, Vec<(u32, String)>) {
    let sim = Env::simulated(seed);
    let Ok(metadata) = open(&sim.env, disks) else { return (false, Vec::new()) };
    let (for_run, answered) = (metadata.clone(), std::sync::Arc::new(parking_lot::Mutex::new(Vec::new())));
    let answers = answered.clone();
    sim.scheduler.block_on(async move {
        for n in 0..WORDS {
            let word = long(n);
            let result = for_run.propose(ShardId(n % 4), attempt(u64::from(n)), NEVER, command(&word)).await;
            if result.is_err() {
                return;
            }
            answers.lock().push((n % 4, format!("{n:02}")));
            if n == WORDS / 2 && for_run.flush().await.is_err() {
                return;
            }
        }
    });
    if metadata.failure().is_none() {
        metadata.close();
    }
    drop(metadata);
    sim.scheduler.abandon();
    let answered = answered.lock().clone();
    (true, answered)
}

/// So long that segments and memtables fill.
fn long(n: u32) -> String {
    format!("{n:02}{}", "x".repeat(3000))
}

fn found(metadata: &Metadata) -> Vec<Vec<(u32, String)>> {
    let snapshot = metadata.snapshot();
    let short = |(place, mut word): (u32, String)| {
        word.truncate(2);
        (place, word)
    };
    (0..4).map(|shard| words(&snapshot, ShardId(shard)).into_iter().map(short).collect()).collect()
}

fn check(answered: &[(u32, String)], found: &[Vec<(u32, String)>], what: &str) {
    for (shard, of_shard) in found.iter().enumerate() {
        let expected: Vec<&String> =
            answered.iter().filter(|(s, _)| *s as usize == shard).map(|(_, word)| word).collect();
        let got: Vec<&String> = of_shard.iter().map(|(_, word)| word).collect();
        assert!(got.starts_with(&expected), "{what}: an answered word of shard {shard} is gone");
        assert!(got.len() <= expected.len() + 1, "{what}: only one proposal was open");
    }
}

fn cut_everywhere(folders: usize, step: usize) {
    let disks = || (0..folders).map(|n| SimDisk::new(n as u64, 64 << 20)).collect::<Vec<_>>();
    let whole = disks();
    assert_eq!(run(1, &whole).1.len(), WORDS as usize);
    let mutations = whole[0].mutations();
    assert!(mutations > 100);
    for cut in (0..=mutations).step_by(step) {
        let disks = disks();
        disks.iter().for_each(|disk| disk.crash_after(cut));
        let (opened, answered) = run(1, &disks);
        let whole_or_none = if cut % 2 == 0 { CrashPolicy::KeepNone } else { CrashPolicy::KeepAll };
        let policies = [whole_or_none, CrashPolicy::RandomWithGarbage(cut)];
        for policy in policies {
            let after: Vec<SimDisk> = disks.iter().map(|disk| disk.crash(policy)).collect();
            let what = format!("cut {cut}, {policy:?}, opened {opened}");
            let sim = Env::simulated(2);
            let metadata = open(&sim.env, &after).unwrap_or_else(|e| unreachable!("{what}: {e}"));
            let first = found(&metadata);
            check(&answered, &first, &what);
            drop(metadata);
            sim.scheduler.abandon();
            let again: Vec<SimDisk> = after.iter().map(|disk| disk.crash(CrashPolicy::KeepNone)).collect();
            let sim = Env::simulated(3);
            let metadata = open(&sim.env, &again).unwrap_or_else(|e| unreachable!("{what}, again: {e}"));
            assert_eq!(first, found(&metadata), "{what}: two starts find the same");
        }
    }
}

#[test]
fn a_power_cut_at_every_write_and_sync_of_one_folder_loses_nothing_answered() {
    cut_everywhere(1, 1);
}

#[test]
fn a_power_cut_during_writes_and_syncs_of_two_folders_loses_nothing_answered() {
    cut_everywhere(2, 3);
}

#[test]
fn a_start_replays_what_no_flush_holds() {
    let disk = SimDisk::new(1, 64 << 20);
    let sim = Env::simulated(1);
    let metadata = open(&sim.env, std::slice::from_ref(&disk)).expect("opens");
    for word in ["a", "b"] {
        driver_support::propose(&sim, &metadata, 1, word).expect("answers");
    }
    assert_eq!(metadata.stats().flushes, 0);
    sim.scheduler.abandon();
    drop(metadata);
    let sim = Env::simulated(2);
    let metadata = open(&sim.env, &[disk.crash(CrashPolicy::KeepNone)]).expect("opens");
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 2);
    driver_support::propose(&sim, &metadata, 1, "c").expect("answers");
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 3);
}

#[test]
fn the_log_is_truncated_only_up_to_a_completed_flush() {
    let disk = SimDisk::new(1, 64 << 20);
    let sim = Env::simulated(1);
    let metadata = open(&sim.env, std::slice::from_ref(&disk)).expect("opens");
    for n in 0..60 {
        driver_support::propose(&sim, &metadata, n % 4, &format!("{n}{}", "x".repeat(8000))).expect("answers");
    }
    sim.scheduler.drain();
    let stats = metadata.stats();
    assert!(stats.flushes > 3, "{stats:?}");
    assert!(stats.logs[&0].segments <= 4, "flushes let the log be truncated: {stats:?}");
    // The tree as the last flush left it, and the log from there on: everything is there.
    drop(metadata);
    sim.scheduler.abandon();
    let sim = Env::simulated(2);
    let metadata = open(&sim.env, &[disk.crash(CrashPolicy::KeepNone)]).expect("opens");
    let sum: usize = found(&metadata).iter().map(Vec::len).sum();
    assert_eq!(sum, 60);
}

#[test]
fn a_power_cut_while_a_folder_is_filled_anew_loses_nothing_and_the_next_start_fills_it() {
    // Three folders; the disk of one fails on the way, so that it lacks what was answered later.
    let disks: Vec<SimDisk> = (0..3).map(|n| SimDisk::new(n, 64 << 20)).collect();
    let sim = Env::simulated(1);
    let metadata = open(&sim.env, &disks).expect("opens");
    for n in 0..12u32 {
        if n == 6 {
            disks[2].fail_sync(1);
        }
        driver_support::propose(&sim, &metadata, n % 4, &long(n)).expect("answers");
    }
    let expected = found(&metadata);
    drop(metadata);
    sim.scheduler.abandon();
    let before: Vec<SimDisk> = disks.iter().map(|disk| disk.crash(CrashPolicy::KeepNone)).collect();

    let whole: Vec<SimDisk> = before.iter().map(SimDisk::fork).collect();
    let sim = Env::simulated(2);
    let metadata = open(&sim.env, &whole).expect("opens");
    assert_eq!((metadata.stats().logs.len(), found(&metadata)), (3, expected.clone()));
    drop(metadata);
    let most = (0..3).map(|n| whole[n].mutations() - before[n].mutations()).max().expect("three disks");
    assert!(most > 20);
    for cut in 0..=most {
        let disks: Vec<SimDisk> = before.iter().map(SimDisk::fork).collect();
        disks.iter().for_each(|disk| disk.crash_after(disk.mutations() + cut));
        let sim = Env::simulated(3);
        // Whether it opens before the power goes does not matter.
        drop(open(&sim.env, &disks));
        sim.scheduler.abandon();
        let after: Vec<SimDisk> = disks.iter().map(|disk| disk.crash(CrashPolicy::RandomWithGarbage(cut))).collect();
        let sim = Env::simulated(4);
        let metadata = open(&sim.env, &after).unwrap_or_else(|e| unreachable!("cut {cut}: {e}"));
        assert_eq!((metadata.stats().logs.len(), found(&metadata)), (3, expected.clone()), "cut {cut}");
        // The folder that was filled anew holds everything, together with one other.
        drop(metadata);
        sim.scheduler.abandon();
        let after: Vec<SimDisk> = after.iter().map(|disk| disk.crash(CrashPolicy::KeepNone)).collect();
        after[0].lose();
        let metadata =
            open(&Env::simulated(5).env, &after).unwrap_or_else(|e| unreachable!("cut {cut}, without one: {e}"));
        assert_eq!(found(&metadata), expected, "cut {cut}, without one");
    }
}
