//! The log after power cuts, kills and full disks: what was acknowledged is there, and every start finds the same.

use bytes::Bytes;
use env::sim_disk::{CrashPolicy, SimDisk};
use metadata::log::format::{HardState, Item, LogEntry};
use metadata::log::{Log, LogConfig, LogError, Recovered};
use metadata::shard::ShardId;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 64 << 10;

fn config(disk: &SimDisk) -> LogConfig {
    LogConfig { disk: Arc::new(disk.clone()), dir: "m/log".to_owned(), segment_bytes: SEGMENT_BYTES }
}

fn entry(shard: u32, index: u64, bytes: usize) -> Item {
    let data = Bytes::from(vec![index as u8; bytes]);
    Item::Entry(LogEntry { shard: ShardId(shard), index, term: 1, kind: 0, data })
}

/// Indices of a shard's entries, whose data is checked.
fn indices(recovered: &Recovered, shard: u32) -> Vec<u64> {
    let entries = recovered.entries.get(&ShardId(shard)).into_iter().flatten();
    entries
        .map(|entry| {
            assert!(entry.data.iter().all(|b| *b == entry.index as u8), "entry {} has another's data", entry.index);
            entry.index
        })
        .collect()
}

/// What a run of the workload had acknowledged when it ended.
#[derive(Default, Debug)]
struct Acknowledged {
    created: bool,
    last: u64,
    truncated: u64,
    truncating: u64,
}

/// Appends through several segments, truncates twice, so that segments are used again; stops at the first error.
fn workload(disk: &SimDisk) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let Ok(mut log) = Log::create(config(disk), 7) else { return acknowledged };
    acknowledged.created = true;
    for index in 1..=40 {
        let state = Item::HardState(ShardId(1), HardState { term: index, vote: 1, commit: index - 1 });
        if log.append(&[state, entry(1, index, 7000), entry(2, index, 10)]).is_err() {
            break;
        }
        acknowledged.last = index;
        if index == 20 || index == 36 {
            acknowledged.truncating = index - 5;
            let marks = [(ShardId(1), index - 5, 1), (ShardId(2), index - 5, 1)];
            if log.truncate(&marks).is_err() {
                break;
            }
            acknowledged.truncated = index - 5;
        }
    }
    acknowledged
}

fn check(acknowledged: &Acknowledged, recovered: &Recovered, cut: u64) {
    let truncated = recovered.state.truncated.get(&ShardId(1)).map_or(0, |(index, _)| *index);
    assert!(truncated == acknowledged.truncated || truncated == acknowledged.truncating, "cut {cut}");
    for shard in [1, 2] {
        let found = indices(recovered, shard);
        let last = found.last().copied().unwrap_or(truncated);
        assert!(
            last == acknowledged.last || last == acknowledged.last + 1,
            "cut {cut}: {acknowledged:?}, found {last}"
        );
        assert_eq!(found, (truncated + 1..=last).collect::<Vec<_>>(), "cut {cut}: a gap");
    }
    if let Some(state) = recovered.state.hard_states.get(&ShardId(1)) {
        assert_eq!(
            state.term,
            indices(recovered, 2).last().copied().unwrap_or(truncated),
            "state and entry are one append"
        );
    }
}

#[test]
fn a_power_cut_at_every_write_and_sync_loses_nothing_acknowledged_and_two_starts_find_the_same() {
    let whole = SimDisk::new(1, 8 << 20);
    assert_eq!(workload(&whole).last, 40);
    let policies = [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::PrefixOf(1)];
    for cut in 0..=whole.mutations() {
        let disk = SimDisk::new(1, 8 << 20);
        disk.crash_after(cut);
        let acknowledged = workload(&disk);
        let random = (0..3).map(|seed| CrashPolicy::RandomWithGarbage(seed + cut));
        for policy in policies.into_iter().chain(random) {
            let after = disk.crash(policy);
            let first = match Log::open(config(&after)) {
                Ok((_, recovered)) => recovered,
                Err(e) => {
                    assert!(!acknowledged.created, "cut {cut}, {policy:?}: {e}");
                    continue;
                }
            };
            check(&acknowledged, &first, cut);
            let (_, second) =
                Log::open(config(&after.crash(CrashPolicy::KeepNone))).expect("what opened once opens again");
            assert_eq!((&first.entries, &first.state), (&second.entries, &second.state), "cut {cut}, {policy:?}");
        }
    }
}

#[test]
fn power_cuts_during_recovery_lose_nothing_acknowledged() {
    let whole = SimDisk::new(2, 8 << 20);
    workload(&whole);
    let disk = SimDisk::new(2, 8 << 20);
    disk.crash_after(whole.mutations() * 3 / 4);
    let acknowledged = workload(&disk);
    assert!(acknowledged.last > 20 && acknowledged.last < 40, "the cut is in the middle: {acknowledged:?}");
    let after = disk.crash(CrashPolicy::RandomSubset(1));
    let probe = after.fork();
    let before = probe.mutations();
    drop(Log::open(config(&probe)).expect("opens"));
    let steps = probe.mutations() - before;
    assert!(steps >= 4, "a start writes a header twice and syncs");
    for first in 0..=steps {
        for second in [0, first / 2, steps] {
            let mut disk = after.fork();
            for (round, cut) in [first, second].into_iter().enumerate() {
                disk.crash_after(disk.mutations() + cut);
                // Whether it opens before the power goes does not matter.
                let _ = Log::open(config(&disk));
                disk = disk.crash(CrashPolicy::RandomWithGarbage(first + round as u64));
            }
            let (_, recovered) = Log::open(config(&disk)).expect("opens");
            check(&acknowledged, &recovered, first);
        }
    }
}

#[test]
fn what_a_killed_process_had_written_is_durable_once_its_successor_relies_on_it() {
    let disk = SimDisk::new(3, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    log.append(&[entry(1, 1, 10)]).expect("appends");
    // The process dies between write and sync.
    disk.crash_after(disk.mutations() + 1);
    assert!(log.append(&[entry(1, 2, 10)]).is_err());
    let next = disk.kill();
    let (_, seen) = Log::open(config(&next)).expect("opens");
    assert_eq!(indices(&seen, 1), [1, 2], "it was written, and the machine did not stop");
    let (_, later) = Log::open(config(&next.crash(CrashPolicy::KeepNone))).expect("opens");
    assert_eq!(indices(&later, 1), [1, 2], "the successor may have answered reads from it");
}

#[test]
fn entries_replace_those_of_their_index_and_above() {
    let disk = SimDisk::new(4, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    log.append(&[entry(1, 1, 1), entry(1, 2, 1), entry(1, 3, 1)]).expect("appends");
    let Item::Entry(mut other) = entry(1, 2, 5) else { unreachable!() };
    other.term = 9;
    log.append(&[Item::Entry(other)]).expect("appends");
    drop(log);
    let (_, recovered) = Log::open(config(&disk)).expect("opens");
    let found: Vec<_> = recovered.entries[&ShardId(1)].iter().map(|e| (e.index, e.term)).collect();
    assert_eq!(found, [(1, 1), (2, 9)]);
}

#[test]
fn replaced_entries_keep_no_segment_and_what_replaced_them_keeps_its_own() {
    for reopened in [false, true] {
        let disk = SimDisk::new(4, 8 << 20);
        let mut log = Log::create(config(&disk), 7).expect("creates");
        (1..=9).for_each(|index| log.append(&[entry(1, index, 7000)]).expect("appends"));
        assert_eq!(log.stats().segments, 2, "the entries from 3 on lie in both");
        log.append(&[entry(1, 3, 10)]).expect("appends");
        // More segments, which nobody needs.
        (1..=15).for_each(|index| log.append(&[entry(2, index, 7000)]).expect("appends"));
        if reopened {
            drop(log);
            log = Log::open(config(&disk)).expect("opens").0;
        }
        let before = log.stats().segments;
        log.truncate(&[(ShardId(1), 2, 1), (ShardId(2), 15, 1)]).expect("truncates");
        assert_eq!(
            log.stats().segments,
            before - 1,
            "reopened {reopened}: the first goes, the one with the new third stays"
        );
        drop(log);
        let (_, recovered) = Log::open(config(&disk)).expect("opens");
        assert_eq!(indices(&recovered, 1), [3], "reopened {reopened}");
    }
}

#[test]
fn local_records_come_back_until_what_they_follow_is_truncated() {
    let disk = SimDisk::new(4, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let local = |after| Item::Local(ShardId(1), after, Bytes::from_static(b"made"));
    log.append(&[entry(1, 1, 1), local(1), entry(1, 2, 1), local(2)]).expect("appends");
    log.truncate(&[(ShardId(1), 1, 1)]).expect("truncates");
    drop(log);
    let (_, recovered) = Log::open(config(&disk)).expect("opens");
    assert_eq!(recovered.locals, [(ShardId(1), 2, Bytes::from_static(b"made"))]);
}

#[test]
fn segments_are_used_again_and_old_records_do_not_come_back() {
    let disk = SimDisk::new(5, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let mut index = 0;
    for _ in 0..30 {
        for _ in 0..10 {
            index += 1;
            log.append(&[entry(1, index, 7000)]).expect("appends");
        }
        log.truncate(&[(ShardId(1), index - 2, 1)]).expect("truncates");
    }
    assert!(log.stats().segments <= 3, "{:?}", log.stats());
    let files = env::disk::Disk::list(&disk, "m/log").expect("lists").len();
    assert!(files <= 10, "{files} files for a log of two entries");
    drop(log);
    let (mut log, recovered) = Log::open(config(&disk)).expect("opens");
    assert_eq!(indices(&recovered, 1), [index - 1, index]);
    // Into a segment full of older frames, and read back at once.
    log.append(&[entry(1, index + 1, 10)]).expect("appends");
    drop(log);
    let (_, recovered) = Log::open(config(&disk)).expect("opens");
    assert_eq!(indices(&recovered, 1), [index - 1, index, index + 1]);
}

#[test]
fn after_a_long_time_without_truncation_files_are_removed_and_every_crash_of_that_opens() {
    let fill = |disk: &SimDisk| {
        let mut log = Log::create(config(disk), 7).expect("creates");
        (1..=80).for_each(|index| log.append(&[entry(1, index, 7000)]).expect("appends"));
        log
    };
    let files = |disk: &SimDisk| env::disk::Disk::list(disk, "m/log").expect("lists").len();
    let whole = SimDisk::new(5, 8 << 20);
    let mut log = fill(&whole);
    let (before, count) = (whole.mutations(), files(&whole));
    log.truncate(&[(ShardId(1), 79, 1)]).expect("truncates");
    assert!(files(&whole) < count, "some are removed");
    for cut in before..=whole.mutations() {
        let disk = SimDisk::new(5, 8 << 20);
        let mut log = fill(&disk);
        disk.crash_after(cut);
        // Whether it is done before the power goes does not matter.
        let _ = log.truncate(&[(ShardId(1), 79, 1)]);
        for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomSubset(cut)] {
            let (_, recovered) =
                Log::open(config(&disk.crash(policy))).unwrap_or_else(|e| unreachable!("cut {cut}: {e}"));
            let first = recovered.state.truncated.get(&ShardId(1)).map_or(1, |(index, _)| index + 1);
            assert_eq!(indices(&recovered, 1), (first..=80).collect::<Vec<_>>(), "cut {cut}, {policy:?}");
        }
    }
}

#[test]
fn what_is_known_of_a_quiet_shard_outlives_the_segment_it_was_written_in() {
    let disk = SimDisk::new(5, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let state = HardState { term: 3, vote: 1, commit: 1 };
    log.append(&[entry(1, 1, 10), Item::HardState(ShardId(1), state)]).expect("appends");
    log.truncate(&[(ShardId(1), 1, 3)]).expect("truncates");
    for index in 1..=60 {
        log.append(&[entry(2, index, 7000)]).expect("appends");
        if index % 10 == 0 {
            log.truncate(&[(ShardId(2), index, 1)]).expect("truncates");
        }
    }
    assert!(log.stats().segments <= 2, "the first segment is gone");
    drop(log);
    for _ in 0..2 {
        let (_, recovered) = Log::open(config(&disk)).expect("opens");
        assert_eq!(recovered.state.truncated[&ShardId(1)], (1, 3));
        assert_eq!(recovered.state.hard_states[&ShardId(1)], state);
    }
}

#[test]
fn a_segment_stays_for_the_one_shard_that_needs_it() {
    let disk = SimDisk::new(5, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    log.append(&[entry(1, 1, 10), entry(2, 1, 10)]).expect("appends");
    for index in 2..=60 {
        log.append(&[entry(2, index, 7000)]).expect("appends");
    }
    log.truncate(&[(ShardId(2), 60, 1)]).expect("truncates");
    assert!(log.stats().segments > 5, "they follow one that is needed");
    drop(log);
    let (_, recovered) = Log::open(config(&disk)).expect("opens");
    assert_eq!((indices(&recovered, 1), indices(&recovered, 2)), (vec![1], vec![]));
}

#[test]
fn one_append_is_one_write_and_one_sync() {
    let disk = SimDisk::new(6, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let before = env::disk::Disk::counters(&disk);
    let items: Vec<Item> = (1..=20).map(|index| entry(index as u32 % 3, index, 300)).collect();
    log.append(&items).expect("appends");
    let after = env::disk::Disk::counters(&disk);
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
}

#[test]
fn a_full_disk_is_an_answer_and_leaves_nothing_behind_and_truncation_makes_room() {
    let disk = SimDisk::new(8, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let used = env::disk::Disk::space(&disk).expect("space");
    disk.set_capacity(used.total_bytes - used.free_bytes);
    let mut index = 0;
    let refused = loop {
        match log.append(&[entry(1, index + 1, 7000)]) {
            Ok(()) => index += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused, LogError::NoSpace);
    assert!(index >= 6, "the first segment was there");
    assert!(log.failure().is_none());
    log.truncate(&[(ShardId(1), index, 1)]).expect("truncation may take the last spare");
    log.append(&[entry(1, index + 1, 7000)]).expect("there is room again");
    drop(log);
    // Still full; a start needs a fresh segment, every time.
    for _ in 0..3 {
        let (_, recovered) = Log::open(config(&disk)).expect("opens");
        assert_eq!(indices(&recovered, 1), [index + 1]);
    }
}

#[test]
fn a_failed_write_or_sync_is_final() {
    for fail in [SimDisk::fail_write as fn(&SimDisk, u64), SimDisk::fail_sync] {
        let disk = SimDisk::new(9, 8 << 20);
        let mut log = Log::create(config(&disk), 7).expect("creates");
        log.append(&[entry(1, 1, 10)]).expect("appends");
        fail(&disk, 1);
        assert!(matches!(log.append(&[entry(1, 2, 10)]), Err(LogError::Failed(_))));
        assert!(matches!(log.append(&[entry(1, 2, 10)]), Err(LogError::Failed(_))), "the next sync would succeed");
        assert!(matches!(log.truncate(&[]), Err(LogError::Failed(_))));
        assert!(log.failure().is_some());
        let (_, recovered) = Log::open(config(&disk.crash(CrashPolicy::KeepNone))).expect("opens");
        assert_eq!(indices(&recovered, 1), [1]);
    }
}

#[test]
fn more_than_a_segment_holds_is_refused_before_anything_is_written() {
    let disk = SimDisk::new(9, 8 << 20);
    let mut log = Log::create(config(&disk), 7).expect("creates");
    let most = log.append_max_bytes();
    assert_eq!(log.append(&[entry(1, 1, most)]), Err(LogError::TooLarge));
    log.append(&[entry(1, 1, most - 26)]).expect("the most there can be");
    log.append(&[entry(1, 2, most - 26)]).expect("in the next segment");
    drop(log);
    let (_, recovered) = Log::open(config(&disk)).expect("opens");
    assert_eq!(indices(&recovered, 1), [1, 2]);
}
