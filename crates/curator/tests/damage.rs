//! Damage of all kinds is found, repaired where there is a good copy, and named where there is none.

mod fixture;

use curator::DifferenceKind;
use env::disk::{Caching, Disk, Open};
use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{Node, Setup};
use object_controller::api::{BucketInfo, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Two objects in sealed, settled groups.
fn prepared(setup: Setup) -> (Node, Arc<BucketInfo>) {
    let node = Node::born(51, setup);
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 1_500_000));
    node.put(&bucket, "two", content(2, 1_200_000));
    let node = node.restart();
    node.rounds();
    node.assert_clean();
    (node, bucket)
}

/// The first file with frames on the first disk that has one, and the offset of its first frame.
fn victim(node: &Node) -> (usize, String) {
    (0..node.disks.len()).find_map(|at| node.files(at).first().map(|path| (at, path.clone()))).expect("a file")
}

fn assert_readable(node: &Node, bucket: &Arc<BucketInfo>) {
    assert_eq!(node.get(bucket, "one"), Some(content(1, 1_500_000)));
    assert_eq!(node.get(bucket, "two"), Some(content(2, 1_200_000)));
}

/// Every replica is whole and readable by itself.
fn assert_whole(node: &Node) {
    let scrub = node.scrub();
    assert!(scrub.ok && scrub.damaged == 0, "{scrub:#?}");
    node.rounds();
    node.assert_clean();
}

#[test]
fn a_flipped_bit_is_found_by_scrub_and_the_replica_replaced() {
    let (node, bucket) = prepared(Setup::mirrored());
    let (at, path) = victim(&node);
    node.disks[at].flip_bit(&path, 4096 + 4096 + 70_000, 5).expect("a fault");
    let scrub = node.scrub();
    assert!(scrub.ok, "{scrub:#?}");
    assert_eq!((scrub.damaged, scrub.repaired), (1, 1), "{scrub:#?}");
    assert!(!node.files(at).contains(&path), "the bad file is out of the way");
    let audit = node.audit();
    assert_eq!(audit.quarantined_files, 1, "and kept: {audit:#?}");
    assert_whole(&node);
    assert_readable(&node, &bucket);
    let node = node.restart();
    assert_readable(&node, &bucket);
    assert_whole(&node);
}

#[test]
fn a_header_that_cannot_be_read_is_repaired_too() {
    let (node, bucket) = prepared(Setup::mirrored());
    let (at, path) = victim(&node);
    node.disks[at].make_unreadable(&path, 4096, 512).expect("a fault");
    assert_eq!(node.scrub().repaired, 1);
    assert_whole(&node);
    assert_readable(&node, &bucket);
}

#[test]
fn what_a_read_meets_is_repaired_by_the_next_round() {
    let (base, bucket) = prepared(Setup::mirrored());
    let mut repaired = 0;
    for at in 0..base.disks.len() {
        let node = base.fork();
        for path in node.files(at) {
            node.disks[at].flip_bit(&path, 4096 + 4096 + 9, 1).expect("a fault");
        }
        assert_readable(&node, &bucket);
        node.rounds();
        assert_readable(&node, &bucket);
        repaired += node.rounds.status().done.repaired;
    }
    assert!(repaired > 0, "each frame is read from one of its replicas, and all were bad once");
}

#[test]
fn the_background_pass_finds_what_nobody_reads() {
    let (node, bucket) = prepared(Setup { scrub_bytes: 1 << 20, ..Setup::mirrored() });
    let node = node.restart();
    let (at, path) = victim(&node);
    node.disks[at].flip_bit(&path, 4096 + 4096 + 70_000, 5).expect("a fault");
    node.rounds();
    let status = node.rounds.status();
    assert_eq!((status.done.repaired, status.scrub_passes), (1, 1), "{status:?}");
    assert_whole(&node);
    assert_readable(&node, &bucket);
}

#[test]
fn with_one_copy_damage_is_named_and_the_file_stays() {
    let (node, bucket) = prepared(Setup::default());
    let (at, path) = victim(&node);
    node.disks[at].flip_bit(&path, 4096 + 4096 + 70_000, 5).expect("a fault");
    let scrub = node.scrub();
    assert!(!scrub.ok);
    assert_eq!((scrub.hurt_extents, scrub.repaired), (1, 0), "{scrub:#?}");
    assert!(scrub.hurt[0].starts_with("bucket/\""), "{scrub:#?}");
    assert!(node.files(at).contains(&path));
    assert_eq!(node.audit().quarantined_files, 0);
    let hurt = node.run(|c| async move { ask::get(&c, &bucket, "one", None).await });
    let other = matches!(hurt, Err(StoreError::Damaged(_)));
    assert!(other || hurt.is_ok(), "never wrong bytes");
    // The disk was only ill for a while.
    node.disks[at].heal(&path).expect("healed");
    assert_whole(&node);
}

#[test]
fn a_frame_that_is_bad_everywhere_keeps_every_copy_and_is_named_once() {
    let (node, _) = prepared(Setup::mirrored());
    let (group, record) = node.records().first().cloned().expect("a group");
    for replica in &record.replicas {
        let at = (replica.disk.0 - 0xD1) as usize;
        let path = node.files(at).into_iter().find(|path| path.contains(&group.to_string())).expect("its file");
        node.disks[at].flip_bit(&path, 4096 + 4096 + 70_000, 5).expect("a fault");
    }
    let scrub = node.scrub();
    assert_eq!((scrub.ok, scrub.damaged, scrub.hurt_extents, scrub.repaired), (false, 2, 1, 0), "{scrub:#?}");
    assert_eq!(node.audit().quarantined_files, 0, "all copies are kept");
    assert_eq!(node.rounds.status().hurt_groups, 1);
}

#[test]
fn each_frame_is_taken_from_whichever_replica_has_it() {
    let (node, bucket) = prepared(Setup::mirrored());
    let (group, record) = node.records().into_iter().max_by_key(|(_, r)| r.length).expect("a group");
    for (frame, replica) in (0..).zip(&record.replicas) {
        let at = (replica.disk.0 - 0xD1) as usize;
        let path = node.files(at).into_iter().find(|path| path.contains(&group.to_string())).expect("its file");
        node.disks[at].flip_bit(&path, 4096 + frame * ((1 << 20) + 4096) + 4096 + 100, 5).expect("a fault");
    }
    let scrub = node.scrub();
    assert_eq!((scrub.ok, scrub.repaired), (true, 2), "{scrub:#?}");
    assert_whole(&node);
    assert_readable(&node, &bucket);
}

#[test]
fn a_frame_that_nobody_owns_any_more_may_be_bad_everywhere() {
    let node = Node::born(55, Setup { reclaim_delay: Duration::from_secs(600), ..Setup::mirrored() });
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    node.put(&bucket, "two", content(2, 900_000));
    let node = node.restart();
    node.rounds();
    node.delete(&bucket, "one");
    let (_, record) = node.records().into_iter().next().expect("a group");
    let second = 4096 + 900_000u64.next_multiple_of(4096);
    for (frames, replica) in [vec![4096, 4096 + second], vec![4096]].into_iter().zip(&record.replicas) {
        let at = (replica.disk.0 - 0xD1) as usize;
        for frame in frames {
            node.disks[at].flip_bit(&node.files(at)[0], frame + 4096 + 500, 5).expect("a fault");
        }
    }
    let scrub = node.scrub();
    assert_eq!((scrub.ok, scrub.damaged, scrub.repaired), (true, 1, 1), "{scrub:#?}");
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
    node.round().expect("a round");
    node.clock.advance(Duration::from_secs(601));
    node.rounds();
    node.assert_clean();
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
}

#[test]
fn a_lost_write_is_missed_by_the_metadata_although_the_file_is_sound() {
    for (setup, lost) in [(Setup::mirrored(), false), (Setup::default(), true)] {
        let (node, bucket) = prepared(setup);
        let (at, path) = victim(&node);
        let zeros = vec![0; (1 << 20) + 4096];
        node.disks[at].overwrite_synced(&path, 4096, &zeros).expect("a lost write");
        let audit = node.audit();
        assert!(!audit.ok && audit.differences.iter().any(|d| d.kind == DifferenceKind::Lost), "{audit:#?}");
        let scrub = node.scrub();
        assert_eq!((scrub.ok, scrub.repaired), (!lost, u64::from(!lost)), "{scrub:#?}");
        if !lost {
            assert_whole(&node);
            assert_readable(&node, &bucket);
        }
    }
}

#[test]
fn a_deleted_file_is_made_again_from_the_other_replica() {
    let (node, bucket) = prepared(Setup::mirrored());
    let (at, path) = victim(&node);
    node.disks[at].remove(&path).expect("removed");
    let node = node.restart();
    node.rounds();
    assert_eq!(node.rounds.status().done.repaired, 1);
    assert_whole(&node);
    assert_readable(&node, &bucket);
}

#[test]
fn swapped_files_are_told_by_their_headers_and_replaced() {
    let node = Node::born(52, Setup { group_bytes: 2 << 20, ..Setup::mirrored() });
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 1_500_000));
    node.put(&bucket, "two", content(2, 1_200_000));
    let node = node.restart();
    node.rounds();
    let at = (0..3).find(|at| node.files(*at).len() >= 2).expect("a disk with two files");
    let (a, b) = (node.files(at)[0].clone(), node.files(at)[1].clone());
    node.disks[at].rename(&a, "extents/x").expect("renamed");
    node.disks[at].rename(&b, &a).expect("renamed");
    node.disks[at].rename("extents/x", &b).expect("renamed");
    let node = node.restart();
    let scrub = node.scrub();
    assert!(scrub.ok && scrub.repaired == 2, "{scrub:#?}");
    assert_whole(&node);
    assert_readable(&node, &bucket);
}

#[test]
fn a_file_that_no_record_names_is_set_aside_and_never_deleted() {
    let (node, bucket) = prepared(Setup::default());
    let (at, path) = victim(&node);
    let bytes = node.disks[at].synced_bytes(&path).expect("bytes");
    // Another generation of a known group, and a group that nobody knows.
    let other = format!("{}00000077", &path[..path.len() - 8]);
    let foreign = "extents/ab/ab00000000000001.00000001".to_owned();
    node.disks[at].create_dir_all("extents/ab").expect("a directory");
    for path in [&other, &foreign] {
        let file = node.disks[at].open(path, Open::CreateNew, Caching::Buffered).expect("a file");
        file.write_at(&bytes[..8192], 0).expect("written");
        file.sync_data().expect("synced");
    }
    let node = node.restart();
    let audit = node.audit();
    let named = audit.differences.iter().filter(|d| d.kind == DifferenceKind::FileWithoutRecord).count();
    assert_eq!(named, 2, "{audit:#?}");
    node.rounds();
    let audit = node.assert_clean();
    assert_eq!(audit.quarantined_files, 2, "{audit:#?}");
    assert!(!node.files(at).contains(&other) && !node.files(at).contains(&foreign));
    assert_readable(&node, &bucket);
}

#[test]
fn damage_before_acknowledged_frames_of_a_group_that_was_open_costs_only_what_is_damaged() {
    let node = Node::born(53, Setup::default());
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    node.put(&bucket, "two", content(2, 900_000));
    let (at, path) = victim(&node);
    node.disks[at].flip_bit(&path, 4096 + 4096 + 70_000, 5).expect("a fault");
    let node = node.crash(CrashPolicy::KeepNone);
    node.rounds();
    let audit = node.audit();
    assert!(audit.ok, "headers are all there, nothing is called dead: {audit:#?}");
    assert_eq!(audit.owned_bytes, 2 * (900_000u64.next_multiple_of(4096) + 4096));
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
    let scrub = node.scrub();
    assert_eq!((scrub.ok, scrub.hurt_extents), (false, 1), "{scrub:#?}");
    node.disks[at].heal(&path).expect("healed");
    assert_eq!(node.get(&bucket, "one"), Some(content(1, 900_000)));
}

#[test]
fn an_unreadable_header_of_an_acknowledged_frame_is_never_called_dead() {
    let node = Node::born(54, Setup::default());
    let bucket = node.bucket();
    node.put(&bucket, "one", content(1, 900_000));
    node.put(&bucket, "two", content(2, 900_000));
    let (at, path) = victim(&node);
    // The header of the second frame: no sound header speaks for it, and the fence stops before it.
    let second = 4096 + 4096 + 900_000u64.next_multiple_of(4096);
    node.disks[at].flip_bit(&path, second + 16, 0).expect("a fault");
    let node = node.crash(CrashPolicy::KeepNone);
    node.rounds();
    let dead: u64 = node.records().iter().flat_map(|(_, r)| r.dead.iter()).map(|(_, bytes)| bytes).sum();
    assert_eq!(dead, 0, "{:?}", node.records());
    node.disks[at].heal(&path).expect("healed");
    assert_eq!(node.get(&bucket, "two"), Some(content(2, 900_000)));
    node.rounds();
    node.assert_clean();
}

#[test]
fn frames_beyond_the_sealed_length_that_nobody_owns_are_dead() {
    let node = Node::born(56, Setup::default());
    let bucket = node.bucket();
    node.put(&bucket, "k", content(1, 900_000));
    node.begin_stalled_put(&bucket, "never", content(9, 3_300_000));
    // Each audit lets the upload go on for a while.
    let written = (0..500).map(|_| node.audit().in_progress_bytes).find(|bytes| *bytes > 2 << 20);
    assert!(written.is_some(), "the upload goes on");
    let (at, path) = victim(&node);
    // The first frame of the upload never reached the disk, the others did.
    let first = 4096 + 4096 + 900_000u64.next_multiple_of(4096);
    node.disks[at].overwrite_synced(&path, first, &vec![0; (1 << 20) + 4096]).expect("a lost write");
    let node = node.crash(CrashPolicy::KeepAll);
    node.rounds();
    let record =
        node.records().into_iter().map(|(_, record)| record).find(|r| r.length == first).expect("cut at the gap");
    assert!(record.dead.iter().any(|(offset, _)| *offset > first), "{record:?}");
    node.assert_clean();
    assert_eq!(node.get(&bucket, "k"), Some(content(1, 900_000)));
}
