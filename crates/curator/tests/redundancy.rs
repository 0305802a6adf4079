//! Copies are made anew when a node goes, and trimmed when it is back, whatever dies in between: what was acknowledged is always there.
#![allow(clippy::panic)]

mod world;

use curator::view::DiskState;
use curator::{Difference, DifferenceKind};
use env::sim_disk::CrashPolicy;
use metadata::rows::GroupState;
use std::time::Duration;
use world::net::Faults;
use world::{Cluster, FIRST, OTHERS, node_of};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Five nodes, RF 2, everything sealed and settled, redundancy looked after.
fn at_rest(seed: u64) -> Cluster {
    let mut cluster = Cluster::born(seed, 2);
    cluster.put(3, 8);
    cluster.settled();
    cluster
}

/// A node that holds something.
fn holder(cluster: &Cluster) -> u32 {
    OTHERS.into_iter().max_by_key(|node| cluster.on(*node)).expect("four")
}

/// Nothing is wrong but files of copies that no record came to name.
fn assert_sound(cluster: &Cluster) {
    cluster.assert_copies();
    let audit = cluster.audit();
    let left = |difference: &Difference| difference.kind != DifferenceKind::FileWithoutRecord;
    assert!(!audit.differences.iter().any(left), "seed {}: {audit:#?}", cluster.seed);
}

#[test]
fn a_node_that_is_down_is_rebuilt_from_at_once_and_trimmed_when_it_is_back() {
    let mut cluster = at_rest(1);
    cluster.look_after(1);
    let node = holder(&cluster);
    let held = cluster.on(node);
    cluster.world.run_for(SECOND);
    let copied = || -> u64 { cluster.first.redundancy.iter().map(|r| r.status().copied_bytes).sum() };
    assert_eq!(copied(), 0, "there is nothing to do");
    cluster.down(node);
    assert!(cluster.world.run_until(|| copied() > 0, 5 * SECOND), "it begins within 5 s of the verdict");
    cluster.assert_redundant(2, false, MINUTE);
    assert_eq!(cluster.on(node), held, "what it holds may count again");
    for other in OTHERS.into_iter().filter(|other| *other != node) {
        cluster.net.set_down(other, true);
        cluster.assert_readable(&format!("without {node} and {other}"));
        cluster.net.set_down(other, false);
    }
    cluster.up(node);
    cluster.world.run_for(30 * SECOND);
    let surplus = || cluster.whole().values().filter(|nodes| nodes.len() == 3).count();
    assert_eq!(surplus(), held, "not trimmed before it has stayed");
    cluster.assert_redundant(2, true, 10 * MINUTE);
    cluster.assert_readable_without_any("after the trimming");
    assert_sound(&cluster);
}

#[test]
fn what_was_open_when_a_node_went_is_sealed_by_its_writer_and_copied() {
    let mut cluster = Cluster::born(2, 2);
    cluster.look_after(1);
    cluster.put(3, 3);
    let open = |cluster: &Cluster, node| {
        let on = |r: &metadata::rows::GroupRecord| r.replicas.iter().any(|r| node_of(r.disk) == node);
        cluster.records().iter().filter(|(_, r)| r.state == GroupState::Open && on(r)).count()
    };
    let node = OTHERS.into_iter().max_by_key(|node| open(&cluster, *node)).expect("four");
    assert!(open(&cluster, node) > 0);
    cluster.down(node);
    // Nobody writes any more.
    cluster.assert_redundant(2, false, MINUTE);
    assert_eq!(open(&cluster, node), 0);
    cluster.assert_readable("with the node away");
    cluster.up(node);
    for _ in 0..5 {
        let _ = cluster.round();
        cluster.world.run_for(31 * SECOND);
    }
    cluster.assert_redundant(2, true, 10 * MINUTE);
    cluster.assert_readable_without_any("after it came back");
}

#[test]
fn groups_of_a_writer_that_is_taken_for_dead_are_sealed_and_it_goes_on_in_others() {
    let mut cluster = Cluster::born(3, 2);
    cluster.look_after(1);
    cluster.begin_puts(3, 12);
    cluster.world.run_for(Duration::from_millis(600));
    // The others think so; it lives.
    cluster.change(FIRST, |disk| disk.health = curator::view::Health::Down);
    let acknowledged = cluster.acknowledged.clone();
    assert!(cluster.world.run_until(|| acknowledged.lock().len() == 36, 5 * MINUTE), "{}", acknowledged.lock().len());
    cluster.assert_readable("while it is taken for dead");
    cluster.change(FIRST, |disk| disk.health = curator::view::Health::Up);
    cluster.settled();
    cluster.look_after(1);
    cluster.assert_redundant(2, true, 10 * MINUTE);
    cluster.assert_readable_without_any("afterwards");
    assert_sound(&cluster);
}

#[test]
fn two_that_do_the_same_work_make_no_copy_twice_and_lose_none() {
    for seed in 0..4 {
        let mut cluster = at_rest(10 + seed);
        cluster.look_after(2);
        let node = holder(&cluster);
        cluster.down(node);
        cluster.assert_redundant(2, false, 3 * MINUTE);
        let most = cluster.whole().values().map(Vec::len).max();
        assert_eq!(most, Some(3), "a copy too many");
        cluster.up(node);
        cluster.assert_redundant(2, true, 15 * MINUTE);
        cluster.assert_readable_without_any("after two of each");
        assert_sound(&cluster);
    }
}

#[test]
fn a_crash_at_any_step_of_a_rebuild_or_a_trim_loses_nothing() {
    // How many messages a rebuild and a trim take.
    let steps = |cluster: &mut Cluster, node, stop_after: Option<u64>| -> u64 {
        let before = *cluster.net.delivered.lock();
        let net = cluster.net.clone();
        let stop = move || stop_after.is_some_and(|after| *net.delivered.lock() >= before + after);
        cluster.look_after(1);
        cluster.down(node);
        if cluster.world.run_until(&stop, 20 * SECOND) {
            return 0;
        }
        cluster.up(node);
        cluster.world.run_until(&stop, 5 * MINUTE);
        *cluster.net.delivered.lock() - before
    };
    let mut whole = at_rest(20);
    let node = holder(&whole);
    let all = steps(&mut whole, node, None);
    assert!(all > 60, "{all} messages");
    for step in (0..all.min(600)).step_by(23) {
        let mut cluster = at_rest(20);
        steps(&mut cluster, node, Some(step));
        let what = format!("after {step} messages");
        match step % 3 {
            0 => cluster.restart(CrashPolicy::RandomSubset(step)),
            1 => {
                OTHERS.into_iter().for_each(|other| cluster.cut_power(other, CrashPolicy::KeepNone));
            }
            _ => {
                cluster.cut_power(OTHERS[step as usize % 4], CrashPolicy::RandomSubset(step));
                cluster.restart(CrashPolicy::KeepNone);
            }
        }
        cluster.up(node);
        cluster.assert_readable(&what);
        cluster.settled();
        cluster.look_after(1);
        cluster.assert_redundant(2, true, 10 * MINUTE);
        cluster.assert_readable_without_any(&what);
        assert_sound(&cluster);
    }
}

#[test]
fn a_bad_network_and_a_node_that_comes_and_goes_lose_nothing_and_it_comes_to_rest() {
    for seed in 0..4 {
        let mut cluster = at_rest(30 + seed);
        cluster.look_after(1);
        cluster.net.set_faults(Faults { lose_question: 1, lose_answer: 2, double: 20, delay_ms: 30 });
        let node = holder(&cluster);
        for pause in [3, 17, 1, 40, 8] {
            cluster.down(node);
            cluster.world.run_for(pause * SECOND);
            cluster.up(node);
            cluster.world.run_for(2 * SECOND);
        }
        cluster.net.set_faults(Faults::default());
        let files: usize = cluster.whole().values().map(Vec::len).sum();
        assert!(files <= 3 * cluster.whole().len(), "each flap costs copies: {files}");
        cluster.assert_redundant(2, true, 15 * MINUTE);
        cluster.rounds();
        cluster.assert_readable_without_any("after the flapping");
        assert_sound(&cluster);
    }
}

#[test]
fn nothing_is_trimmed_while_a_copy_that_would_stay_is_damaged() {
    let mut cluster = at_rest(40);
    cluster.look_after(1);
    let node = holder(&cluster);
    cluster.down(node);
    cluster.assert_redundant(2, false, MINUTE);
    // One frame rots on every copy but the one that comes back.
    let (group, record) = cluster
        .records()
        .into_iter()
        .find(|(_, r)| r.replicas.len() == 3 && r.replicas.iter().any(|r| node_of(r.disk) == node))
        .expect("a group with three copies");
    for replica in record.replicas.iter().filter(|r| node_of(r.disk) != node) {
        let path = format!("extents/{:02x}/{group}.{:08x}", group.0 & 0xff, replica.file_generation);
        let disk = cluster.sim_disk(node_of(replica.disk));
        let path = find(disk, &format!("{group}.{:08x}", replica.file_generation)).unwrap_or(path);
        disk.overwrite_synced(&path, 4096 + 4096, &[0x5a; 4096]).expect("rot");
    }
    cluster.up(node);
    cluster.world.run_for(3 * MINUTE);
    let copies = |cluster: &Cluster| cluster.whole()[&group].len();
    assert_eq!(copies(&cluster), 3, "the sound one must not go, nor is any other surplus");
    cluster.assert_readable("with rot on two of three");
    cluster.rounds();
    cluster.assert_redundant(2, true, 10 * MINUTE);
    cluster.assert_readable_without_any("after the repair");
    assert_sound(&cluster);
}

/// The path of a file by the end of its name.
fn find(disk: &env::sim_disk::SimDisk, name: &str) -> Option<String> {
    use env::disk::Disk;
    let dirs = disk.list("extents").expect("a listing");
    let paths = dirs.iter().flat_map(|dir| {
        let names = disk.list(&format!("extents/{dir}")).expect("a listing");
        names.into_iter().map(move |name| format!("extents/{dir}/{name}"))
    });
    paths.collect::<Vec<_>>().into_iter().find(|path| path.ends_with(name))
}

#[test]
fn a_node_that_drains_becomes_empty_and_a_disk_that_is_lost_leaves_the_records() {
    for state in [DiskState::Draining, DiskState::Lost] {
        let mut cluster = at_rest(50);
        cluster.look_after(1);
        let node = holder(&cluster);
        if state == DiskState::Lost {
            cluster.net.set_down(node, true);
        }
        cluster.change(node, |disk| disk.state = state);
        let gone = cluster.world.run_until(|| cluster.on(node) == 0, 3 * MINUTE);
        assert!(gone, "{state:?}: {:#?}", cluster.records());
        cluster.assert_redundant(2, true, MINUTE);
        cluster.net.set_down(node, true);
        cluster.assert_readable("without it");
        cluster.up(node);
        assert_sound(&cluster);
    }
}

#[test]
fn copies_follow_the_default_up_at_once_and_down_after_a_while() {
    let mut cluster = at_rest(60);
    cluster.look_after(1);
    cluster.view.lock().default_rf = 3;
    cluster.assert_redundant(3, true, 3 * MINUTE);
    cluster.assert_readable_without_any("at three");
    cluster.view.lock().default_rf = 2;
    cluster.world.run_for(30 * SECOND);
    assert!(cluster.whole().values().all(|nodes| nodes.len() == 3), "somebody may think better of it");
    cluster.assert_redundant(2, true, 15 * MINUTE);
    cluster.assert_readable_without_any("at two again");
    assert_sound(&cluster);
}

#[test]
fn a_copy_whose_maker_died_is_set_aside_when_nobody_can_be_waiting_for_it_any_more() {
    let cluster = at_rest(70);
    let (group, record) = cluster
        .records()
        .into_iter()
        .find(|(_, record)| record.replicas.iter().all(|replica| node_of(replica.disk) != FIRST))
        .expect("a group of others");
    let (store, generation) = (cluster.store(FIRST), record.generation + 2);
    let copies = store.clone();
    cluster.world.block_on(async move {
        let copy = copies.begin_copy(group, generation, record.length).await.expect("begun");
        copy.finish().await.expect("named");
    });
    let is_there = || store.list_files().iter().any(|file| file.group == group);
    for hours in 0..5 {
        let _ = cluster.round();
        assert!(is_there() || hours > 0, "its maker may be about to name it");
        cluster.world.run_for(60 * MINUTE + SECOND);
    }
    assert!(!is_there());
    cluster.assert_readable("afterwards");
}
