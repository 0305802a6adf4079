//! What a bucket asks for is what its objects get: groups of its own kind, copies by reference only where they are as good, and its
//! name in the set of every group it has bytes in.
#![allow(clippy::panic)]

mod fixture;

use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{CLUSTER, NODE, Node, Setup};
use metadata::command::{Command, RootCommand};
use metadata::read::content as contents;
use metadata::read::root;
use metadata::rows::{BodyRow, ContentBytes, GroupRecord, GroupState};
use metadata::shard::{KeyRange, ROOT};
use object_controller::api::{BucketChange, BucketInfo, Durability, Erasure, ObjectStore, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{Addresses, DiskState, KeyHash, NewNode, NodeStart};
use types::{DiskId, GroupId};

const BYTES: usize = 300_000;

fn rf(rf: u8) -> Durability {
    Durability { rf: Some(rf), ..Durability::default() }
}

/// A store on three disks with two replicas where nobody says otherwise, and a bucket for each of these policies.
fn with_buckets<const N: usize>(seed: u64, setup: Setup, policies: [Durability; N]) -> (Node, [Arc<BucketInfo>; N]) {
    let node = Node::born(seed, setup);
    let mut number = 0;
    let buckets = policies.map(|policy| {
        number += 1;
        node.run(|c| async move {
            let bucket = ask::make_bucket(&c, &format!("bucket-{number}")).await;
            c.change_bucket(&bucket, BucketChange::Durability(policy)).await.expect("a change")
        })
    });
    (node, buckets)
}

fn put(node: &Node, bucket: &Arc<BucketInfo>, key: &'static str, seed: u64) {
    let bucket = bucket.clone();
    node.run(|c| async move { ask::put(&c, &bucket, key, content(seed, BYTES)).await.expect("a put") });
}

async fn copy(
    c: &impl ObjectStore,
    from: (&Arc<BucketInfo>, &str),
    to: (&Arc<BucketInfo>, &str),
) -> Result<(), StoreError> {
    c.copy_object(ask::source(from.0, from.1, None), ask::target(to.0, to.1)).await.map(|_| ())
}

fn records(node: &Node) -> BTreeMap<GroupId, GroupRecord> {
    root::groups(&node.metadata.snapshot()).collect::<Result<_, _>>().expect("records")
}

/// The groups of an object's bytes; whether it refers to them.
fn groups_of(node: &Node, bucket: &BucketInfo, key: &str) -> (BTreeSet<GroupId>, bool) {
    let found = node.metadata.current(bucket.id, &ask::key(key), true).expect("readable").expect("it is there");
    let (runs, refers) = match found.body.clone().expect("its body") {
        BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. } => (runs, false),
        BodyRow::Reference(reference) => (reference.runs, true),
        other => panic!("{other:?}"),
    };
    (runs.iter().map(|run| run.group).collect(), refers)
}

fn appended(node: &Node) -> u64 {
    node.stores.iter().map(|disk| disk.health().appended_bytes).sum()
}

#[test]
fn an_object_lies_on_as_many_disks_as_its_bucket_asks_for_and_apart_from_other_kinds() {
    let never = Durability { erasure: Erasure::Never, ..Durability::default() };
    let policies = [Durability::default(), rf(3), rf(1), never, rf(2)];
    let (node, buckets) = with_buckets(1, Setup::mirrored(), policies);
    let mut by_kind = Vec::new();
    for (bucket, copies) in buckets.iter().zip([2, 3, 1, 2, 2]) {
        put(&node, bucket, "k", 1);
        let (groups, _) = groups_of(&node, bucket, "k");
        for group in &groups {
            let record = &records(&node)[group];
            let disks: BTreeSet<DiskId> = record.replicas.iter().map(|replica| replica.disk).collect();
            assert_eq!((usize::from(record.rf), disks.len()), (copies, copies), "{}", bucket.name);
            for disk in disks {
                let store = node.stores.get(disk).expect("a disk");
                assert!(store.list_files().iter().any(|file| file.group == *group), "the bytes are there");
            }
        }
        by_kind.push(groups);
        let bucket = bucket.clone();
        let (_, bytes) = node.run(|c| async move { ask::get(&c, &bucket, "k", None).await }).expect("it is there");
        assert_eq!(bytes, content(1, BYTES));
    }
    assert_eq!(by_kind[0], by_kind[4], "two replicas are two replicas, whoever says so");
    let apart: BTreeSet<_> = by_kind[..4].iter().flatten().collect();
    assert_eq!(apart.len(), 4, "what may be encoded does not lie with what may not");
}

#[test]
fn a_bucket_that_asks_for_more_disks_than_there_are_takes_no_data_and_others_go_on() {
    let setup = Setup { disks: 2, ..Setup::mirrored() };
    let (node, [plain, three]) = with_buckets(2, setup, [Durability::default(), rf(3)]);
    let refused = node.run(|c| async move { ask::put(&c, &three, "k", content(1, BYTES)).await });
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    put(&node, &plain, "k", 2);
}

#[test]
fn a_copy_into_a_bucket_that_asks_for_more_copies_the_bytes() {
    let (node, [two, three, one]) = with_buckets(3, Setup::mirrored(), [rf(2), rf(3), rf(1)]);
    put(&node, &two, "k", 3);
    put(&node, &three, "k", 4);
    let before = appended(&node);
    let (from, to) = (two.clone(), three.clone());
    node.run(|c| async move { copy(&c, (&from, "k"), (&to, "copy")).await.expect("a copy") });
    let (groups, refers) = groups_of(&node, &three, "copy");
    assert!(!refers && groups.iter().all(|group| records(&node)[group].replicas.len() == 3));
    let copied = appended(&node) - before;
    assert!(copied >= 3 * BYTES as u64, "{copied} bytes");

    // Into one that asks for less, and back from there into one that asks for as much as it has: by reference.
    let before = appended(&node);
    let (two, three, one, a) = (two.clone(), three.clone(), one.clone(), three.clone());
    node.run(|c| async move {
        copy(&c, (&three, "k"), (&one, "copy")).await.expect("a copy");
        copy(&c, (&one, "copy"), (&two, "copy")).await.expect("a copy");
        copy(&c, (&two, "copy"), (&three, "again")).await.expect("a copy");
        let (_, bytes) = ask::get(&c, &three, "again", None).await.expect("it is there");
        assert_eq!(bytes, content(4, BYTES));
    });
    assert_eq!(appended(&node), before);
    let (groups, refers) = groups_of(&node, &a, "again");
    assert!(refers);
    for group in groups {
        let set = records(&node)[&group].buckets.clone();
        assert!([two_of(&node), one_of(&node)].iter().all(|id| set.contains(id)), "{set:?}");
    }
}

fn two_of(node: &Node) -> types::BucketId {
    id_of(node, "bucket-1")
}

fn one_of(node: &Node) -> types::BucketId {
    id_of(node, "bucket-3")
}

fn id_of(node: &Node, name: &str) -> types::BucketId {
    let name = types::BucketName::new(name).expect("a name");
    node.controller.bucket(&name).expect("a bucket").id
}

#[test]
fn a_policy_that_was_raised_is_that_of_the_next_copy_within_the_bucket_too() {
    let (node, [bucket]) = with_buckets(4, Setup::mirrored(), [rf(2)]);
    put(&node, &bucket, "k", 5);
    let raised = node.run(|c| async move {
        let raised = c.change_bucket(&bucket, BucketChange::Durability(rf(3))).await.expect("a change");
        copy(&c, (&raised, "k"), (&raised, "copy")).await.expect("a copy");
        raised
    });
    assert!(!groups_of(&node, &raised, "copy").1, "the source has two replicas until the curator has raised it");
}

#[test]
fn a_copy_within_a_bucket_is_one_entry_and_leaves_the_groups_records_alone() {
    let (node, [bucket]) = with_buckets(5, Setup::mirrored(), [Durability::default()]);
    put(&node, &bucket, "k", 6);
    let (before, entries) = (records(&node), node.metadata.stats().entries);
    let name = bucket.clone();
    node.run(|c| async move { copy(&c, (&name, "k"), (&name, "copy")).await.expect("a copy") });
    assert!(groups_of(&node, &bucket, "copy").1);
    assert_eq!((records(&node), node.metadata.stats().entries), (before, entries + 1));
}

#[test]
fn a_bucket_that_got_bytes_by_copy_stays_in_the_set_when_the_group_is_sealed() {
    let (node, [a, b]) = with_buckets(6, Setup::mirrored(), [Durability::default(), rf(2)]);
    put(&node, &a, "k", 7);
    let (from, to) = (a.clone(), b.clone());
    node.run(|c| async move { copy(&c, (&from, "k"), (&to, "copy")).await.expect("a copy") });
    let (groups, refers) = groups_of(&node, &b, "copy");
    let node = node.restart();
    assert!(refers && !groups.is_empty());
    for group in groups {
        let record = &records(&node)[&group];
        assert_eq!((record.state, record.buckets.clone()), (GroupState::Sealed, vec![a.id, b.id]));
    }
}

/// The power goes at every mutating call of the disks while an object is copied into another bucket, and its source deleted.
#[test]
fn whatever_a_crash_leaves_a_group_with_bytes_of_a_bucket_names_it() {
    let setups = [Setup::mirrored(), Setup { disks: 3, rf: 2, ..Setup::three_shards() }];
    for (index, setup) in setups.into_iter().enumerate() {
        let (base, [a, b]) = with_buckets(10 + index as u64, setup, [rf(2), rf(2)]);
        put(&base, &a, "k", 8);
        let act = |node: &Node| {
            let (a, b) = (a.clone(), b.clone());
            node.run(|c| async move {
                copy(&c, (&a, "k"), (&b, "k")).await?;
                ask::delete(&c, &a, "k", None).await.map(|_| ())
            })
        };
        let whole = base.fork();
        let begin = whole.disks[0].mutations();
        act(&whole).expect("it ends well when nothing happens");
        whole.settle();
        assert_named(&whole, &b, true);
        let count = whole.disks[0].mutations() - begin;
        let mut there = 0;
        for cut in 0..count {
            let node = base.fork();
            node.disks[0].crash_after(begin + cut);
            let acknowledged = act(&node).is_ok();
            node.scheduler.drain();
            node.scheduler.abandon();
            for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll] {
                let disks = node.disks.iter().map(|disk| disk.crash(policy)).collect();
                let again = Node::start(100 + cut, node.setup.clone(), disks, false);
                there += usize::from(assert_named(&again, &b, acknowledged));
                again.settle();
                again.check_rows();
            }
        }
        assert!(there > 0, "some crashes come after the copy");
    }
}

/// Whether the copy is there. If anything of the bucket refers to a group or owns in it, the group's record names the bucket.
fn assert_named(node: &Node, bucket: &Arc<BucketInfo>, acknowledged: bool) -> bool {
    let snapshot = node.metadata.snapshot();
    let records = records(node);
    let mut owned = BTreeSet::new();
    for row in contents::all_owners(&snapshot, &KeyRange::ALL) {
        let (home, content, _, owner) = row.expect("readable");
        if owner.destination.bucket == bucket.id {
            owned.insert((home, content));
        }
    }
    for row in contents::bodies(&snapshot, &KeyRange::ALL) {
        let (home, id, body) = row.expect("readable");
        let runs = match body {
            BodyRow::Reference(reference) if home.bucket == bucket.id => reference.runs,
            BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. } if owned.contains(&(home, id.id)) => {
                runs
            }
            _ => continue,
        };
        for run in runs {
            assert!(records[&run.group].buckets.contains(&bucket.id), "its policy does not count");
        }
    }
    let name = bucket.clone();
    match node.run(|c| async move { ask::get(&c, &name, "k", None).await }) {
        Ok((_, bytes)) => {
            assert_eq!(bytes, content(8, BYTES));
            true
        }
        Err(error) => {
            assert!(!acknowledged && matches!(error, StoreError::NoSuchKey { .. }), "{error}");
            false
        }
    }
}

/// Tells the store that it is a cluster of one node.
fn born(node: &Node) {
    let start = NodeStart {
        incarnation: 1,
        version: 1,
        addresses: Addresses { rpc: "n1:1".into(), ..Addresses::default() },
        rack: None,
    };
    let disks = node.stores.iter().map(|disk| NewDisk { id: disk.id(), total_bytes: 1 }).collect();
    let first = NewNode { key: KeyHash([NODE as u8; 32]), start };
    change(node, ClusterCommand::Init { cluster: CLUSTER, node: first, disks });
}

fn change(node: &Node, command: ClusterCommand) {
    let command = Command::Root(RootCommand::Cluster(command));
    node.run(|c| async move { c.decide(ROOT, command).await }).expect("decided").expect("no refusal");
}

#[test]
fn an_open_group_on_a_disk_that_drains_is_sealed_and_new_ones_keep_away_from_it() {
    let (node, [bucket]) = with_buckets(7, Setup::mirrored(), [Durability::default()]);
    born(&node);
    put(&node, &bucket, "k", 9);
    let (groups, _) = groups_of(&node, &bucket, "k");
    let group = groups.first().expect("one");
    let leaving = records(&node)[group].replicas[0].disk;
    node.run(|c| async move { c.tend().await });
    node.settle();
    assert_eq!(records(&node)[group].state, GroupState::Open, "nothing leaves");
    change(&node, ClusterCommand::SetDiskState { disk: leaving, state: DiskState::Draining, at_epoch: None });
    for round in 0..3 {
        node.run(|c| async move { c.tend().await });
        node.settle();
        assert_eq!(records(&node)[group].state, GroupState::Sealed, "what is sealed can move away");
        put(&node, &bucket, "k", 10 + round);
        let (groups, _) = groups_of(&node, &bucket, "k");
        for group in groups {
            assert!(records(&node)[&group].replicas.iter().all(|replica| replica.disk != leaving));
        }
    }
    let open = records(&node).values().filter(|record| record.state == GroupState::Open).count();
    assert!(open <= 2, "{open} groups are open: a place is left once");
}

#[test]
fn groups_of_a_kind_that_no_bucket_asks_for_any_more_are_sealed() {
    let (node, [plain, three]) = with_buckets(8, Setup::mirrored(), [Durability::default(), rf(3)]);
    put(&node, &plain, "k", 11);
    put(&node, &three, "k", 12);
    let (of_plain, of_three) = (groups_of(&node, &plain, "k").0, groups_of(&node, &three, "k").0);
    let states = |node: &Node, groups: &BTreeSet<GroupId>| {
        node.run(|c| async move { c.tend().await });
        node.settle();
        groups.iter().map(|group| records(node)[group].state).collect::<Vec<_>>()
    };
    assert_eq!(states(&node, &of_three), [GroupState::Open]);
    let name = three.clone();
    node.run(|c| async move {
        c.change_bucket(&name, BucketChange::Durability(Durability::default())).await.expect("a change");
    });
    assert_eq!(states(&node, &of_three), [GroupState::Sealed]);
    assert_eq!(states(&node, &of_plain), [GroupState::Open]);
}
