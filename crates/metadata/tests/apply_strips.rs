//! What apply decides about strips: all of it or nothing, by compare-and-set; what is frozen, and who may change what meanwhile.
#![allow(clippy::panic)]

mod model_support;

use metadata::apply::check_invariants;
use metadata::command::{Outcome, Refusal, RootCommand};
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use metadata::shard::KeyRange;
use metadata::strip::{NewMember, StripRecord, StripState};
use model_support::{Store, refused};
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{Addresses, DiskState, KeyHash, NewNode, NodeStart};
use types::{ClusterId, DiskId, GroupId, StripId, TokenId};

const STRIP: StripId = StripId(0x57);
const PARITY: [GroupId; 2] = [GroupId(101), GroupId(102)];

fn replica(disk: u64) -> Replica {
    Replica { disk: DiskId(disk), file_generation: 1, state: ReplicaState::Whole }
}

/// Four settled groups of four blocks of frames on disks 1 and 2 each; the second block of each is dead.
fn settled() -> Store {
    let mut store = Store::new();
    for group in (0..4).map(GroupId) {
        let record = GroupRecord {
            state: GroupState::Open,
            generation: 1,
            rf: 2,
            replicas: [1, 2].map(|disk| Replica { state: ReplicaState::Open, ..replica(disk) }).to_vec(),
            length: 0,
            writer: (1, 1),
            settled: false,
            account: None,
            buckets: vec![],
            dead: vec![],
            sealed_ms: 0,
            strip: None,
        };
        store.root(RootCommand::CreateGroup { group, record });
        store.root(RootCommand::BeginSeal { group, generation: 1 });
        let (replicas, account) = (vec![replica(1), replica(2)], Some(vec![]));
        let length = 4096 + 32768;
        store.root(RootCommand::EndSeal { group, generation: 2, length, replicas, buckets: vec![], account });
        store.root(RootCommand::Settle { group, generation: 2, dead: vec![(12288, 8192)] });
    }
    store
}

fn frames() -> Vec<(u64, u64)> {
    vec![(4096, 8192), (20480, 8192), (28672, 8192)]
}

fn begin() -> RootCommand {
    let data = (0..4).map(|group| NewMember { group: GroupId(group), generation: 2, frames: frames() });
    RootCommand::BeginStrip {
        strip: STRIP,
        data: data.collect(),
        parity: vec![(PARITY[0], DiskId(5)), (PARITY[1], DiskId(6))],
    }
}

fn end() -> RootCommand {
    let kept = (0..4).map(|place| (3, DiskId(1 + place % 2))).collect();
    RootCommand::EndStrip { strip: STRIP, kept, digests: (0..6).collect() }
}

fn group(store: &Store, group: u64) -> GroupRecord {
    root::group(&store.rows, GroupId(group)).expect("readable").expect("there")
}

fn strip(store: &Store) -> Option<StripRecord> {
    root::strip(&store.rows, STRIP).expect("readable")
}

fn assert_sound(store: &Store) {
    assert_eq!(check_invariants(&store.rows, &KeyRange::ALL).expect("readable"), Vec::<String>::new());
}

fn set_replicas(group: u64, generation: u32, disk: u64) -> RootCommand {
    RootCommand::SetReplicas { group: GroupId(group), generation, replicas: vec![replica(disk)] }
}

#[test]
fn a_strip_freezes_what_lives_raises_generations_and_creates_its_parity() {
    let mut store = settled();
    assert_eq!(store.root(begin()), Outcome::Done);
    assert_sound(&store);
    for place in 0..4 {
        let record = group(&store, place);
        let of = record.strip.clone().expect("a member");
        assert_eq!((record.generation, of.strip, u64::from(of.place)), (3, STRIP, place));
        assert_eq!(of.live, [(4096, 8192), (20480, 16384)]);
        assert_eq!(record.replicas, [replica(1), replica(2)], "it keeps what it has");
    }
    let parity = group(&store, 102);
    assert_eq!((parity.state, parity.settled, parity.generation), (GroupState::Sealed, true, 1));
    assert_eq!((parity.length, parity.replicas), (4096 + 4096 + 32768, vec![replica(6)]));
    assert_eq!(strip(&store).expect("there").state, StripState::Encoding);
    assert_eq!(refused(store.root(begin())), Refusal::Stale(None), "the id was used");
}

#[test]
fn what_dies_afterwards_is_dead_but_not_punchable() {
    let mut store = settled();
    store.root(begin());
    store.root(RootCommand::AddDead { dead: vec![(GroupId(0), vec![(4096, 8192), (28672, 8192)])] });
    let record = group(&store, 0);
    assert_eq!(record.dead, [(4096, 16384), (28672, 8192)]);
    assert_eq!(record.punchable().as_ref(), [(12288, 8192)]);
    store.root(RootCommand::AbortStrip { strip: STRIP });
    let record = group(&store, 0);
    assert_eq!(record.punchable().as_ref(), record.dead, "nothing is frozen any more");
}

/// To what is proposed.
type Change<'a> = &'a dyn Fn(&mut Vec<NewMember>, &mut Vec<(GroupId, DiskId)>);

#[test]
fn a_strip_begins_with_all_groups_as_expected_or_not_at_all() {
    let untouched = |store: &Store| {
        assert_eq!((0..4).map(|g| group(store, g).generation).max(), Some(2));
        assert!(strip(store).is_none() && root::group(&store.rows, PARITY[0]).expect("readable").is_none());
    };
    let changed = |change: Change<'_>| {
        let RootCommand::BeginStrip { strip, mut data, mut parity } = begin() else { panic!() };
        change(&mut data, &mut parity);
        RootCommand::BeginStrip { strip, data, parity }
    };
    let mut store = settled();
    let refusals: [Change<'_>; 8] = [
        &|data, _| data[3].generation = 1,
        &|data, _| data[3].group = GroupId(99),
        &|data, _| data[3].group = GroupId(2),
        &|data, _| data[3].frames[0].1 = 4096,
        &|data, _| data[3].frames.truncate(2),
        &|data, _| data[3].frames.insert(1, (12288, 8192)),
        &|_, parity| parity[1].0 = GroupId(1),
        &|_, parity| parity.clear(),
    ];
    for change in refusals {
        assert!(matches!(refused(store.root(changed(change))), Refusal::Stale(_) | Refusal::Invalid(_)));
        untouched(&store);
    }
    // One dies between the look at the files and the entry.
    let mut store = settled();
    store.root(RootCommand::AddDead { dead: vec![(GroupId(3), vec![(20480, 8192)])] });
    assert!(matches!(refused(store.root(begin())), Refusal::Stale(Some(_))));
    untouched(&store);
    // In another strip already.
    let mut store = settled();
    store.root(begin());
    let RootCommand::BeginStrip { mut data, parity, .. } = begin() else { panic!() };
    data.iter_mut().for_each(|member| member.generation = 3);
    let parity = parity.into_iter().map(|(group, disk)| (GroupId(group.0 + 10), disk)).collect();
    let again = RootCommand::BeginStrip { strip: StripId(1), data, parity };
    assert!(matches!(refused(store.root(again)), Refusal::Stale(Some(_))));
    assert_sound(&store);
}

#[test]
fn nothing_else_changes_where_the_bytes_of_a_group_are_while_it_is_encoded() {
    let mut store = settled();
    store.root(begin());
    assert!(matches!(refused(store.root(set_replicas(0, 3, 9))), Refusal::Stale(Some(_))));
    assert!(matches!(refused(store.root(set_replicas(101, 1, 9))), Refusal::Stale(Some(_))));
    store.root(end());
    assert_eq!(group(&store, 0).generation, 4);
    assert!(matches!(store.root(set_replicas(0, 4, 9)), Outcome::Group(_)), "later it may, by its generation");
    assert!(matches!(store.root(set_replicas(101, 1, 9)), Outcome::Group(_)));
    assert_sound(&store);
    // A change before it began makes it fail.
    let mut store = settled();
    store.root(set_replicas(0, 2, 9));
    assert!(matches!(refused(store.root(begin())), Refusal::Stale(Some(_))));
}

#[test]
fn the_end_of_encoding_keeps_one_whole_replica_each_and_happens_once() {
    let mut store = settled();
    assert_eq!(refused(store.root(end())), Refusal::Stale(None), "it did not begin");
    store.root(begin());
    let RootCommand::EndStrip { strip: id, kept, digests } = end() else { panic!() };
    let mut wrong = kept.clone();
    wrong[2].0 = 2;
    let stale = RootCommand::EndStrip { strip: id, kept: wrong, digests: digests.clone() };
    assert!(matches!(refused(store.root(stale)), Refusal::Stale(Some(_))));
    let mut wrong = kept;
    wrong[2].1 = DiskId(7);
    let elsewhere = RootCommand::EndStrip { strip: id, kept: wrong, digests };
    assert_eq!(refused(store.root(elsewhere)), Refusal::Stale(None));
    assert_eq!(group(&store, 0).replicas.len(), 2, "nothing was changed by halves");
    assert_eq!(store.root(end()), Outcome::Done);
    for place in 0..4 {
        let record = group(&store, place);
        assert_eq!((record.generation, record.replicas), (4, vec![replica(1 + place % 2)]));
        assert!(record.strip.is_some());
    }
    let row = strip(&store).expect("there");
    assert_eq!((row.state, row.digests), (StripState::Encoded, vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(refused(store.root(end())), Refusal::Stale(None));
    assert_eq!(refused(store.root(RootCommand::AbortStrip { strip: STRIP })), Refusal::Stale(None), "it is no attempt");
    assert_sound(&store);
}

#[test]
fn a_strip_that_is_given_up_leaves_its_groups_as_they_were() {
    let mut store = settled();
    store.root(begin());
    assert_eq!(store.root(RootCommand::AbortStrip { strip: STRIP }), Outcome::Done);
    assert_eq!(store.root(RootCommand::AbortStrip { strip: STRIP }), Outcome::Done, "again");
    let record = group(&store, 1);
    assert_eq!((record.generation, record.strip, record.replicas.len()), (4, None, 2));
    assert_eq!(refused(store.root(end())), Refusal::Stale(None), "whoever proved it comes too late");
    assert!(root::group(&store.rows, PARITY[1]).expect("readable").is_none());
    assert_sound(&store);
}

#[test]
fn a_member_is_never_dropped_alone_and_a_strip_is_dissolved_when_its_groups_stand_for_themselves() {
    let mut store = settled();
    store.root(begin());
    store.root(end());
    store.root(RootCommand::AddDead { dead: vec![(GroupId(0), vec![(4096, 32768)])] });
    let dropped = RootCommand::DropGroup { group: GroupId(0), generation: 4 };
    assert!(matches!(refused(store.root(dropped)), Refusal::Stale(Some(_))));
    let dissolve = |generations: [u32; 4]| RootCommand::DissolveStrip {
        strip: STRIP,
        data: generations.map(|generation| (generation, 2)).to_vec(),
    };
    assert!(matches!(refused(store.root(dissolve([4; 4]))), Refusal::Stale(Some(_))), "they have one replica each");
    for member in 1..4 {
        let replicas = vec![replica(1 + member % 2), replica(2 - member % 2)];
        store.root(RootCommand::SetReplicas { group: GroupId(member), generation: 4, replicas });
    }
    assert!(matches!(refused(store.root(dissolve([4; 4]))), Refusal::Stale(Some(_))), "at other generations");
    assert_eq!(store.root(dissolve([4, 5, 5, 5])), Outcome::Done, "what is wholly dead needs no replicas");
    assert!(strip(&store).is_none() && root::group(&store.rows, PARITY[0]).expect("readable").is_none());
    assert_sound(&store);
    let dropped = RootCommand::DropGroup { group: GroupId(0), generation: 5 };
    assert_eq!(store.root(dropped), Outcome::Done);
}

/// A cluster of six nodes, each with the disk of its number.
fn with_nodes(store: &mut Store) {
    let node = |key: u8| {
        let addresses = Addresses { rpc: format!("host-{key}:7000"), ..Addresses::default() };
        let start = NodeStart { incarnation: 1, version: 1, addresses, rack: None };
        NewNode { key: KeyHash([key; 32]), start }
    };
    let disks = |id: u8| vec![NewDisk { id: DiskId(id.into()), total_bytes: 1 << 40 }];
    let mut propose = |command| match store.root(RootCommand::Cluster(command)) {
        Outcome::Map(_) => {}
        other => panic!("{other:?}"),
    };
    propose(ClusterCommand::Init { cluster: ClusterId(7), node: node(1), disks: disks(1) });
    for id in 2..=6 {
        let (token, secret_sha256) = (TokenId(id.into()), [id; 32]);
        propose(ClusterCommand::CreateToken { token, secret_sha256, expires_ms: u64::MAX });
        propose(ClusterCommand::AddNode { token, secret_sha256, node: node(id), disks: disks(id) });
    }
}

fn lose(store: &mut Store, disk: u64) {
    let command = ClusterCommand::SetDiskState { disk: DiskId(disk), state: DiskState::Lost, at_epoch: None };
    assert!(matches!(store.root(RootCommand::Cluster(command)), Outcome::Map(_)));
}

/// Four groups, each with replicas on the disk of its number and the next one's; parity on disks 5 and 6.
fn begun_on_nodes() -> Store {
    let mut store = settled();
    with_nodes(&mut store);
    for place in 0..4 {
        let replicas = vec![replica(place + 1), replica(place % 4 + 2)];
        store.root(RootCommand::SetReplicas { group: GroupId(place), generation: 2, replicas });
    }
    let RootCommand::BeginStrip { strip, mut data, parity } = begin() else { panic!() };
    data.iter_mut().for_each(|member| member.generation = 3);
    assert_eq!(store.root(RootCommand::BeginStrip { strip, data, parity }), Outcome::Done);
    store
}

fn end_on(disks: [u64; 4]) -> RootCommand {
    let kept = disks.map(|disk| (4, DiskId(disk))).to_vec();
    RootCommand::EndStrip { strip: STRIP, kept, digests: (0..6).collect() }
}

#[test]
fn a_strip_counts_only_on_distinct_nodes_with_disks_that_are_here() {
    let mut store = begun_on_nodes();
    assert_eq!(refused(store.root(end_on([1, 2, 3, 5]))), Refusal::Stale(None), "with parity on one node");
    assert_eq!(refused(store.root(end_on([2, 2, 3, 4]))), Refusal::Stale(None), "two on one node");
    lose(&mut store, 6);
    assert_eq!(refused(store.root(end_on([1, 2, 3, 4]))), Refusal::Stale(None), "parity is lost");
    let mut store = begun_on_nodes();
    lose(&mut store, 3);
    assert_eq!(refused(store.root(end_on([1, 2, 3, 4]))), Refusal::Stale(None), "a replica that is to stay is lost");
    assert_eq!(group(&store, 0).replicas.len(), 2, "nothing was changed by halves");
    let mut store = begun_on_nodes();
    assert_eq!(store.root(end_on([1, 2, 3, 4])), Outcome::Done);
    assert_sound(&store);
}

#[test]
fn replicas_on_lost_disks_or_on_one_node_do_not_dissolve_a_strip() {
    let mut store = begun_on_nodes();
    store.root(end_on([1, 2, 3, 4]));
    for place in 0..4 {
        let replicas = vec![replica(place + 1), replica(place % 4 + 2)];
        store.root(RootCommand::SetReplicas { group: GroupId(place), generation: 5, replicas });
    }
    let dissolve = RootCommand::DissolveStrip { strip: STRIP, data: vec![(6, 2); 4] };
    lose(&mut store, 4);
    assert!(matches!(refused(store.root(dissolve)), Refusal::Stale(Some(_))), "what is lost is no replica");
    let dissolve = RootCommand::DissolveStrip { strip: STRIP, data: vec![(6, 1); 4] };
    assert_eq!(store.root(dissolve), Outcome::Done);
    assert_sound(&store);
}
