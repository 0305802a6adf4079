//! What apply decides in root: buckets, accounts, sessions, records of groups; and the directory that follows.
#![allow(clippy::panic)]

mod model_support;

use metadata::command::{Command, Outcome, Refusal, RootCommand};
use metadata::directory::Directory;
use metadata::read::root;
use metadata::rows::{GroupRecord, GroupState, Replica, ReplicaState};
use metadata::shard::{KeyRange, ROOT, Shard, StateMachine};
use metadata::tree::WriteBatch;
use model_support::{Rows, Store, refused};
use std::sync::Arc;
use types::account::{Account, Credential};
use types::bucket::{BucketChange, BucketInfo, Durability, Erasure, Versioning};
use types::{BucketId, BucketName, DiskId, GroupId};

fn name(text: &str) -> BucketName {
    BucketName::new(text).expect("valid")
}

fn create(store: &mut Store, text: &str, owner: &str) -> BucketInfo {
    let command = RootCommand::CreateBucket { name: name(text), owner: owner.into(), location: "eu".into() };
    match store.root(command) {
        Outcome::Bucket(info) => info,
        other => panic!("{other:?}"),
    }
}

fn bucket(outcome: Outcome) -> BucketInfo {
    match outcome {
        Outcome::Bucket(info) => info,
        other => panic!("{other:?}"),
    }
}

fn user(name: &str, access_key: &str) -> Credential {
    let account = Account {
        canonical_id: format!("id of {name}"),
        display_name: name.into(),
        email: String::new(),
        is_root: false,
    };
    Credential { access_key: access_key.into(), secret_key: "secret".into(), account }
}

#[test]
fn a_bucket_id_is_never_used_again() {
    let mut store = Store::new();
    let first = create(&mut store, "abc", "me");
    let again = RootCommand::CreateBucket { name: name("abc"), owner: "you".into(), location: String::new() };
    assert_eq!(refused(store.root(again)), Refusal::BucketExists(Box::new(first.clone())));
    let delete = RootCommand::DeleteBucket { bucket: first.id, generation: first.generation };
    assert_eq!(store.root(delete.clone()), Outcome::Done);
    assert_eq!(refused(store.root(delete)), Refusal::NoSuchBucket);
    let second = create(&mut store, "abc", "me");
    assert!(second.id > first.id);
}

#[test]
fn only_changes_that_apply_must_know_raise_the_generation() {
    let mut store = Store::new();
    let info = create(&mut store, "abc", "me");
    let change = |change| RootCommand::ChangeBucket { bucket: info.id, change };
    let tagged = bucket(store.root(change(BucketChange::Policy(Some("{}".into())))));
    assert_eq!((tagged.generation, tagged.configs.policy.as_deref()), (info.generation, Some("{}")));
    let versioned = bucket(store.root(change(BucketChange::Versioning(Versioning::Enabled))));
    assert_eq!((versioned.generation, versioned.versioning), (info.generation + 1, Versioning::Enabled));
    assert!(matches!(refused(store.root(change(BucketChange::Versioning(Versioning::Off)))), Refusal::Invalid(_)));
    let raising = |store: &Store| root::raising(&store.rows).map(|r| r.expect("readable")).collect::<Vec<_>>();
    assert_eq!(raising(&store), [(info.id, versioned.generation)]);
    store.root(RootCommand::BucketRaised { bucket: info.id, generation: info.generation });
    assert_eq!(raising(&store).len(), 1, "an older raise does not do");
    store.root(RootCommand::BucketRaised { bucket: info.id, generation: versioned.generation });
    assert_eq!(raising(&store), []);
}

#[test]
fn a_policy_of_durability_changes_no_generation_and_an_impossible_one_is_refused() {
    let mut store = Store::new();
    let info = create(&mut store, "abc", "me");
    let change =
        |durability| RootCommand::ChangeBucket { bucket: info.id, change: BucketChange::Durability(durability) };
    assert_eq!(info.durability, Durability::default());
    let asked = Durability { rf: Some(3), erasure: Erasure::Code { k: 4, m: 2 }, erasure_after_ms: Some(1) };
    let changed = bucket(store.root(change(asked)));
    assert_eq!((changed.generation, changed.durability), (info.generation, asked));
    let four = Durability { rf: Some(4), ..asked };
    assert!(matches!(refused(store.root(change(four))), Refusal::Invalid(_)));
    let again = root::bucket(&store.rows, info.id).expect("readable").expect("there");
    assert_eq!(again.durability, asked);
    assert_eq!(root::raising(&store.rows).count(), 1, "its creation alone is to be raised");
}

#[test]
fn a_deletion_that_was_taken_back_deletes_nothing() {
    let mut store = Store::new();
    let info = create(&mut store, "abc", "me");
    let raise = RootCommand::RaiseGeneration { bucket: info.id };
    let asked = bucket(store.root(raise.clone()));
    let taken_back = bucket(store.root(raise));
    assert_eq!((asked.generation, taken_back.generation), (2, 3));
    let delete = RootCommand::DeleteBucket { bucket: info.id, generation: asked.generation };
    assert_eq!(refused(store.root(delete)), Refusal::Refetch);
    assert_eq!(root::bucket(&store.rows, info.id).expect("readable"), Some(taken_back));
}

#[test]
fn accounts_are_unique_by_name_and_key_and_stay_while_they_own_buckets() {
    let mut store = Store::new();
    let ann = user("ann", "AK1");
    assert_eq!(store.root(RootCommand::CreateUser(ann.clone())), Outcome::Done);
    assert_eq!(store.root(RootCommand::CreateUser(ann.clone())), Outcome::Done, "the very same again");
    for other in [user("ann", "AK2"), user("bob", "AK1")] {
        assert_eq!(refused(store.root(RootCommand::CreateUser(other))), Refusal::UserExists);
    }
    let info = create(&mut store, "abc", "id of ann");
    let delete = RootCommand::DeleteUser("ann".into());
    assert_eq!(refused(store.root(delete.clone())), Refusal::UserHasBuckets);
    store.root(RootCommand::DeleteBucket { bucket: info.id, generation: 1 });
    assert_eq!(store.root(delete.clone()), Outcome::Done);
    assert_eq!(refused(store.root(delete)), Refusal::NoSuchUser);
    assert_eq!(store.root(RootCommand::CreateUser(user("bob", "AK1"))), Outcome::Done, "the key is free again");
}

#[test]
fn sessions_of_a_node_only_grow() {
    let mut store = Store::new();
    let session = |node| RootCommand::NewSession { node };
    let all: Vec<_> = [1, 1, 2, 1].map(|node| store.root(session(node))).into();
    assert_eq!(all, [1, 2, 1, 3].map(Outcome::Session));
    assert_eq!(root::session(&store.rows, 1).expect("readable"), 3);
}

#[test]
fn root_and_shards_take_only_their_own_commands() {
    let mut store = Store::new();
    let shard = store.shards[0].clone();
    let attempt = store.attempt();
    let entry = store.entry(attempt, Command::Root(RootCommand::NewSession { node: 1 }));
    assert_eq!(refused(store.apply(&shard, &entry)), Refusal::Moved);
    let root = Shard { id: ROOT, range: KeyRange::ALL, version: 1 };
    let fence = metadata::command::ShardCommand::Fence { node: 1, lowest_session: 9 };
    let entry = store.entry(attempt, Command::Shard(fence));
    assert_eq!(refused(store.apply(&root, &entry)), Refusal::Moved);
}

const GROUP: GroupId = GroupId(77);

fn replica(disk: u64, state: ReplicaState) -> Replica {
    Replica { disk: DiskId(disk), file_generation: 1, state }
}

fn open(disks: &[u64]) -> GroupRecord {
    GroupRecord {
        state: GroupState::Open,
        generation: 1,
        rf: disks.len() as u8,
        replicas: disks.iter().map(|d| replica(*d, ReplicaState::Open)).collect(),
        length: 0,
        writer: (1, 1),
        settled: false,
        account: None,
        buckets: vec![],
        dead: vec![],
        sealed_ms: 0,
        strip: None,
    }
}

fn record(outcome: Outcome) -> GroupRecord {
    match outcome {
        Outcome::Group(record) => *record,
        other => panic!("{other:?}"),
    }
}

fn states(record: &GroupRecord) -> Vec<ReplicaState> {
    record.replicas.iter().map(|r| r.state).collect()
}

fn end_seal(length: u64, replicas: Vec<Replica>) -> RootCommand {
    end_seal_at(2, length, replicas)
}

fn end_seal_at(generation: u32, length: u64, replicas: Vec<Replica>) -> RootCommand {
    let buckets = vec![BucketId(2), BucketId(1), BucketId(2)];
    RootCommand::EndSeal { group: GROUP, generation, length, replicas, buckets, account: Some(vec![]) }
}

fn sealing(disks: &[u64]) -> Store {
    let mut store = Store::new();
    store.root(RootCommand::CreateGroup { group: GROUP, record: open(disks) });
    let begun = record(store.root(RootCommand::BeginSeal { group: GROUP, generation: 1 }));
    assert_eq!((begun.state, begun.generation), (GroupState::Sealing, 2));
    store
}

#[test]
fn a_group_is_created_before_its_files_and_its_seal_is_a_compare_and_set() {
    let mut store = Store::new();
    let create = RootCommand::CreateGroup { group: GROUP, record: open(&[1]) };
    assert_eq!(record(store.root(create.clone())), open(&[1]));
    assert_eq!(record(store.root(create.clone())), open(&[1]), "the very same again");
    let begin = RootCommand::BeginSeal { group: GROUP, generation: 1 };
    let begun = record(store.root(begin.clone()));
    assert_eq!(refused(store.root(begin)), Refusal::Stale(Some(Box::new(begun.clone()))));
    assert_eq!(refused(store.root(create)), Refusal::Stale(Some(Box::new(begun))));
    let unknown = RootCommand::BeginSeal { group: GroupId(1), generation: 1 };
    assert_eq!(refused(store.root(unknown)), Refusal::Stale(None));
}

#[test]
fn the_length_of_a_sealed_group_only_grows_and_no_replica_is_lost() {
    use ReplicaState::{Holds, NotAnswered, Whole};
    let mut store = sealing(&[1, 2, 3]);
    let nobody = end_seal(9, vec![replica(1, NotAnswered)]);
    assert!(matches!(refused(store.root(nobody)), Refusal::Invalid(_)));
    let first = record(store.root(end_seal(8192, vec![replica(1, Whole), replica(2, Holds(4096))])));
    assert_eq!((first.state, first.length), (GroupState::Sealed, 8192));
    assert_eq!(states(&first), [Whole, Holds(4096), NotAnswered]);
    assert_eq!(first.buckets, [BucketId(1), BucketId(2)]);
    let late = record(store.root(end_seal(12288, vec![replica(3, Whole)])));
    assert_eq!(late.length, 12288, "a late answer raises it");
    assert_eq!(states(&late), [Holds(8192), Holds(4096), Whole], "and who was whole holds what it held");
    assert_eq!((first.generation, late.generation), (2, 3), "who judged by what it said before has to look again");
    let old = RootCommand::SetReplicas { group: GROUP, generation: 2, replicas: vec![replica(1, Whole)] };
    assert_eq!(refused(store.root(old)), Refusal::Stale(Some(Box::new(late))));
    let lower = record(store.root(end_seal_at(3, 4096, vec![replica(2, Whole)])));
    assert_eq!(lower.generation, 3, "that is nothing new");
    assert_eq!((lower.length, states(&lower)), (12288, vec![Holds(8192), Holds(4096), Whole]), "never lowers it");
    let silent = record(store.root(end_seal_at(3, 12288, vec![replica(1, Whole), replica(2, NotAnswered)])));
    assert_eq!(states(&silent), [Whole, Holds(4096), Whole], "nothing known is forgotten");
}

#[test]
fn a_group_is_settled_only_when_every_replica_has_answered_and_is_final_then() {
    use ReplicaState::{Holds, Whole};
    let mut store = sealing(&[1, 2]);
    let settle_at = |generation| RootCommand::Settle { group: GROUP, generation, dead: vec![(4096, 4096)] };
    let (settle, later) = (settle_at(2), settle_at(3));
    assert!(matches!(refused(store.root(settle.clone())), Refusal::Stale(Some(_))), "not sealed");
    store.root(end_seal(8192, vec![replica(1, Whole)]));
    assert!(matches!(refused(store.root(settle.clone())), Refusal::Stale(Some(_))), "one has not answered");
    store.root(end_seal(8192, vec![replica(2, Holds(4096))]));
    assert!(matches!(refused(store.root(settle)), Refusal::Stale(Some(_))), "judged before that answer");
    let settled = record(store.root(later));
    assert!(settled.settled && settled.dead == [(4096, 4096)]);
    let raise = end_seal_at(3, 12288, vec![replica(2, Whole)]);
    assert_eq!(refused(store.root(raise)), Refusal::Stale(Some(Box::new(settled))));
    let copied = record(store.root(end_seal_at(3, 8192, vec![replica(2, Whole)])));
    assert_eq!(states(&copied), [Whole, Whole], "a copied tail is still recorded");
}

#[test]
fn a_group_goes_only_when_settled_and_wholly_dead() {
    let mut store = sealing(&[1]);
    let drop_group = |generation| RootCommand::DropGroup { group: GROUP, generation };
    let add = |dead| RootCommand::AddDead { dead: vec![(GROUP, dead), (GroupId(1), vec![(0, 1)])] };
    store.root(end_seal(12288, vec![replica(1, ReplicaState::Whole)]));
    assert_eq!(store.root(add(vec![(4096, 8192)])), Outcome::Done);
    assert!(matches!(refused(store.root(drop_group(2))), Refusal::Stale(Some(_))), "not settled");
    store.root(RootCommand::Settle { group: GROUP, generation: 2, dead: vec![] });
    let moved =
        RootCommand::SetReplicas { group: GROUP, generation: 2, replicas: vec![replica(5, ReplicaState::Whole)] };
    assert_eq!(record(store.root(moved)).generation, 3);
    assert!(matches!(refused(store.root(drop_group(2))), Refusal::Stale(Some(_))), "another generation");
    assert_eq!(store.root(drop_group(3)), Outcome::Done, "the header is never dead and does not count");
    assert_eq!(refused(store.root(drop_group(3))), Refusal::Stale(None));

    let mut store = sealing(&[1]);
    store.root(end_seal(12288, vec![replica(1, ReplicaState::Whole)]));
    store.root(RootCommand::Settle { group: GROUP, generation: 2, dead: vec![(8192, 4096)] });
    assert!(matches!(refused(store.root(drop_group(2))), Refusal::Stale(Some(_))), "something lives");
    store.root(add(vec![(4096, 4096)]));
    store.root(add(vec![(4096, 4096)]));
    assert_eq!(root::group(&store.rows, GROUP).expect("readable").expect("there").dead, [(4096, 8192)]);
    assert_eq!(store.root(drop_group(2)), Outcome::Done);
}

#[test]
fn the_directory_follows_root_and_is_the_same_when_loaded_again() {
    let mut store = Store::new();
    let directory = Arc::new(Directory::default());
    store.schema = metadata::apply::Schema::new(Arc::clone(&directory));
    let step = |store: &mut Store, command: RootCommand| {
        let root = Shard { id: ROOT, range: KeyRange::ALL, version: 1 };
        let attempt = store.attempt();
        let entry = store.entry(attempt, Command::Root(command));
        let outcome = store.apply(&root, &entry);
        store.schema.applied(&root, &entry, &outcome, &Rows::default());
        let loaded = Directory::load(&store.rows).expect("readable");
        assert_eq!(loaded.buckets(), directory.buckets());
        assert_eq!(loaded.users(), directory.users());
        outcome
    };
    let create = |text: &str, owner: &str| RootCommand::CreateBucket {
        name: name(text),
        owner: owner.into(),
        location: String::new(),
    };
    let abc = bucket(step(&mut store, create("abc", "id of ann")));
    step(&mut store, create("xyz", "id of bob"));
    step(&mut store, create("aaa", "id of ann"));
    step(&mut store, create("abc", "id of bob"));
    step(&mut store, RootCommand::CreateUser(user("ann", "AK1")));
    step(&mut store, RootCommand::CreateUser(user("bob", "AK1")));
    step(
        &mut store,
        RootCommand::ChangeBucket { bucket: abc.id, change: BucketChange::Versioning(Versioning::Enabled) },
    );
    assert_eq!(directory.bucket(&name("abc")).map(|b| b.versioning), Some(Versioning::Enabled));
    assert_eq!(directory.bucket_by_id(abc.id).map(|b| b.name.clone()), Some(name("abc")));
    let of_ann: Vec<_> = directory.buckets_of("id of ann").iter().map(|b| b.name.to_string()).collect();
    assert_eq!(of_ann, ["aaa", "abc"]);
    assert_eq!(directory.user_by_access_key("AK1").map(|u| u.account.display_name.clone()), Some("ann".into()));
    step(&mut store, RootCommand::DeleteBucket { bucket: abc.id, generation: 2 });
    assert_eq!((directory.bucket(&name("abc")), directory.bucket_by_id(abc.id)), (None, None));
    let aaa = directory.bucket(&name("aaa")).expect("there");
    step(&mut store, RootCommand::DeleteBucket { bucket: aaa.id, generation: 1 });
    step(&mut store, RootCommand::DeleteUser("ann".into()));
    assert_eq!((directory.user("ann"), directory.user_by_access_key("AK1")), (None, None));
    let mut batch = WriteBatch::default();
    batch.put(vec![metadata::format::family::BUCKETS], vec![0xFF]);
    let mut damaged = Rows::default();
    damaged.write(batch);
    assert!(Directory::load(&damaged).is_err(), "damage is an error, not an empty directory");
}

#[test]
fn a_bucket_joins_a_groups_set_in_any_state_and_the_seal_unites_it_with_what_the_sealer_knows() {
    let mut store = Store::new();
    let ids: Vec<_> = (0..3).map(|n| create(&mut store, &format!("bucket-{n}"), "me").id).collect();
    assert_eq!(ids[..2], [BucketId(1), BucketId(2)]);
    let third = ids[2];
    let add = |bucket| RootCommand::AddBucket { groups: vec![GroupId(1), GROUP], bucket };
    let record_of = |store: &Store| root::group(&store.rows, GROUP).expect("readable").expect("there");
    store.root(RootCommand::CreateGroup { group: GROUP, record: open(&[1, 2]) });
    assert_eq!(store.root(add(third)), Outcome::Done, "a group that is gone is passed over");
    assert_eq!(record_of(&store).buckets, [third]);
    assert_eq!(record_of(&store).generation, 1, "its writer goes on");
    store.root(RootCommand::BeginSeal { group: GROUP, generation: 1 });
    assert_eq!(store.root(add(BucketId(1))), Outcome::Done);
    assert_eq!(record_of(&store).generation, 2, "its sealer goes on");
    let replicas = vec![replica(1, ReplicaState::Whole), replica(2, ReplicaState::Whole)];
    let buckets = vec![BucketId(2)];
    let seal = RootCommand::EndSeal { group: GROUP, generation: 2, length: 8192, replicas, buckets, account: None };
    assert_eq!(record(store.root(seal)).buckets, [BucketId(1), BucketId(2), third]);
}

#[test]
fn a_switch_that_was_judged_without_a_new_bucket_of_a_sealed_group_loses() {
    let mut store = sealing(&[1, 2]);
    let ids: Vec<_> = (0..3).map(|n| create(&mut store, &format!("bucket-{n}"), "me").id).collect();
    assert_eq!(ids[..2], [BucketId(1), BucketId(2)]);
    let third = ids[2];
    let both = vec![replica(1, ReplicaState::Whole), replica(2, ReplicaState::Whole)];
    let judged = record(store.root(end_seal(8192, both)));
    let add = |bucket| RootCommand::AddBucket { groups: vec![GROUP], bucket };
    assert_eq!(store.root(add(BucketId(2))), Outcome::Done);
    let again = root::group(&store.rows, GROUP).expect("readable");
    assert_eq!(again, Some(judged.clone()), "what is there already changes nothing");
    assert_eq!(store.root(add(third)), Outcome::Done);
    let trimmed = vec![replica(1, ReplicaState::Whole)];
    let trim = RootCommand::SetReplicas { group: GROUP, generation: judged.generation, replicas: trimmed };
    let Refusal::Stale(Some(now)) = refused(store.root(trim)) else { panic!("it was trimmed") };
    assert_eq!((now.generation, now.buckets), (judged.generation + 1, vec![BucketId(1), BucketId(2), third]));
    store.root(RootCommand::DeleteBucket { bucket: third, generation: 1 });
    assert_eq!(refused(store.root(add(third))), Refusal::NoSuchBucket);
}
