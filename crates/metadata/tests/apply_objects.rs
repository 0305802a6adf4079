//! What apply decides about versions, conditions, tags, fences and deadlines: the cases by name.
#![allow(clippy::panic)]

mod model_support;

use bytes::Bytes;
use metadata::command::{Command, Condition, CopyData, Entry, KeyCommand, KeyOp, Outcome, Refusal, ShardCommand};
use metadata::list::{ListVersions, versions};
use metadata::read::object::{self, Lookup, lookup};
use metadata::read::shard;
use metadata::rows::{BucketRow, ContentBytes};
use model_support::{
    BUCKET, CONTENT_BYTES, Piece, Store, etag_text, home, key, made, new_version, put_op, refused, runs,
};
use types::bucket::Versioning;
use types::limits::EXTENT_BYTES;
use types::object::{DeleteConditions, PutConditions, Tag};
use types::{AttemptId, BucketId, ObjectKey, VersionId};

fn if_none_match() -> PutConditions {
    PutConditions { must_not_exist: true, if_match: None }
}

fn if_match(etag: &str) -> PutConditions {
    PutConditions { must_not_exist: false, if_match: Some(etag.to_owned()) }
}

fn versioned() -> Store {
    let mut store = Store::new();
    store.set_versioning(Versioning::Enabled);
    store
}

fn get(store: &Store, text: &str, id: Option<VersionId>) -> Lookup {
    lookup(&store.rows, BUCKET, &key(text), id, true).expect("readable")
}

fn marker_of(outcome: &Outcome) -> VersionId {
    match outcome {
        Outcome::Deleted { version: Some(id), delete_marker: true } => *id,
        other => panic!("no marker: {other:?}"),
    }
}

#[test]
fn only_the_first_of_racing_if_none_match_puts_is_made_and_the_others_are_condemned() {
    let mut store = Store::new();
    let outcomes: Vec<_> = (0..50).map(|_| store.put_if("k", if_none_match())).collect();
    let (winner, first) = &outcomes[0];
    assert!(matches!(first, Outcome::Put(_)));
    for (_, lost) in &outcomes[1..] {
        assert_eq!(*lost, Outcome::Refused(Refusal::Precondition(Condition::IfNoneMatch)));
    }
    assert_eq!(store.condemned(0, false).len(), 49);
    store.settle_down();
    assert_eq!(store.contents(), [*winner]);
}

#[test]
fn if_match_is_judged_on_the_latest_version() {
    let mut store = versioned();
    let (v1, _) = store.put("k");
    let (v2, _) = store.put("k");
    let (_, outcome) = store.put_if("k", if_match(&etag_text(v1)));
    assert_eq!(refused(outcome), Refusal::Precondition(Condition::IfMatch));
    made(store.put_if("k", if_match(&etag_text(v2))).1);
    made(store.put_if("k", if_match("*")).1);
    let marker = marker_of(&store.delete("k", None));
    assert_eq!(refused(store.put_if("k", if_match("*")).1), Refusal::NoSuchKey(Some(marker)));
    assert_eq!(refused(store.put_if("other", if_match("*")).1), Refusal::NoSuchKey(None));
    made(store.put_if("k", if_none_match()).1);
}

#[test]
fn a_refused_inline_put_leaves_nothing() {
    let mut store = Store::new();
    store.put("k");
    let before = store.rows.map.len();
    let attempt = store.attempt();
    let bytes = ContentBytes::Inline(Bytes::from_static(b"x"));
    let op = KeyOp::Put { object: new_version(attempt), bytes, conditions: if_none_match() };
    assert_eq!(refused(store.key_as(attempt, "k", op)), Refusal::Precondition(Condition::IfNoneMatch));
    assert_eq!(store.rows.map.len(), before);
}

#[test]
fn overwritten_inline_bytes_go_in_the_same_entry() {
    let mut store = Store::new();
    store.put_inline("k", b"one");
    let before = store.rows.map.len();
    store.put_inline("k", b"two");
    assert_eq!(store.rows.map.len(), before);
    assert_eq!(store.condemned(0, false), []);
}

/// A PUT in a bucket that never had versioning: what it costs to apply.
#[test]
fn a_put_reads_five_rows_and_writes_three() {
    let mut store = Store::new();
    store.put_inline("k", b"one");
    let before: Vec<_> = store.rows.map.clone().into_iter().collect();
    let attempt = store.attempt();
    let op = KeyOp::Put {
        object: new_version(attempt),
        bytes: ContentBytes::Inline(Bytes::from_static(b"x")),
        conditions: PutConditions::default(),
    };
    let command = KeyCommand { bucket: BUCKET, generation: store.generation, key: key("fresh"), op };
    let entry = store.entry(attempt, Command::Key(command));
    let mut batch = metadata::tree::WriteBatch::default();
    store.rows.counts();
    let shard = store.shards[0].clone();
    metadata::shard::StateMachine::apply(&mut store.schema, &shard, &entry, &store.rows, &mut batch).expect("readable");
    assert_eq!(store.rows.counts(), (5, 0, 0), "shard state, bucket, current, fence, body; no seek");
    assert_eq!(batch.rows.len(), 3, "shard state, current, body");
    assert_eq!(before.len(), store.rows.map.len());
}

/// A DELETE there.
#[test]
fn a_delete_reads_five_rows_and_writes_three() {
    let mut store = Store::new();
    store.put_inline("k", b"one");
    let attempt = store.attempt();
    let op = KeyOp::Delete { version: None, conditions: DeleteConditions::default() };
    let command = KeyCommand { bucket: BUCKET, generation: store.generation, key: key("k"), op };
    let entry = store.entry(attempt, Command::Key(command));
    let mut batch = metadata::tree::WriteBatch::default();
    store.rows.counts();
    let shard = store.shards[0].clone();
    metadata::shard::StateMachine::apply(&mut store.schema, &shard, &entry, &store.rows, &mut batch).expect("readable");
    assert_eq!(store.rows.counts(), (5, 0, 0), "shard state, bucket, current, fence, body; no seek");
    assert_eq!(batch.rows.len(), 3, "shard state, current, body");
}

#[test]
fn a_commit_happens_once_and_answers_the_same_again() {
    for versioning in [Versioning::Off, Versioning::Enabled, Versioning::Suspended] {
        let mut store = Store::new();
        store.set_versioning(versioning);
        let (id, put) = store.put("k");
        let again = store.key_as(id, "k", put_op(id, if_none_match()));
        assert_eq!(again, Outcome::Put(put), "known before its conditions are judged");
        store.put("k");
        let late = store.key_as(id, "k", put_op(id, PutConditions::default()));
        assert_eq!(refused(late), Refusal::ContentTaken);
    }
}

#[test]
fn a_delete_marker_is_made_once() {
    let mut store = versioned();
    store.put("k");
    let attempt = store.attempt();
    let op = KeyOp::Delete { version: None, conditions: DeleteConditions::default() };
    let first = store.key_as(attempt, "k", op.clone());
    assert_eq!(store.key_as(attempt, "k", op), first);
    let page = versions(&store.rows, BUCKET, &ListVersions { max: 9, ..ListVersions::default() }).expect("lists");
    assert_eq!(page.versions.len(), 2);
}

#[test]
fn an_entry_after_its_deadline_is_refused_and_its_upload_condemned() {
    let mut store = Store::new();
    let id = store.attempt();
    let command = KeyCommand { bucket: BUCKET, generation: 1, key: key("k"), op: put_op(id, PutConditions::default()) };
    let entry = Entry { deadline_ms: store.now_ms - 1, ..store.entry(id, Command::Key(command)) };
    let shard = store.shards[0].clone();
    assert_eq!(refused(store.apply(&shard, &entry)), Refusal::Deadline);
    assert_eq!(store.condemned(0, false), [(home("k"), id)]);
}

#[test]
fn time_never_runs_backwards_within_a_shard() {
    let mut store = versioned();
    let (_, first) = store.put("k");
    store.now_ms -= 50_000;
    let (_, second) = store.put("k");
    let (_, elsewhere) = store.put("other");
    assert_eq!(second.modified_ms, first.modified_ms + 1, "the version before it, plus one");
    assert_eq!(elsewhere.modified_ms, first.modified_ms, "the last effective time of the shard");
    store.now_ms -= 60_000;
    let late = store.entry(store_attempt(), Command::Shard(nothing()));
    let shard = store.shards[0].clone();
    assert_eq!(refused(store.apply(&shard, &late)), Refusal::Deadline, "the deadline is judged by that time too");
}

fn store_attempt() -> AttemptId {
    AttemptId { node: 1, session: 1, sequence: 77_777 }
}

fn nothing() -> ShardCommand {
    ShardCommand::OutboxDelivered { sequences: vec![] }
}

#[test]
fn a_fenced_session_changes_nothing_ever_and_is_not_condemned_either() {
    let mut store = Store::new();
    store.put("k");
    let fence = |lowest_session| ShardCommand::Fence { node: 1, lowest_session };
    store.shard(0, fence(2));
    assert_eq!(store.shard(0, fence(1)), Outcome::Done, "a fence is only raised");
    assert_eq!(shard::fence(&store.rows, store.shards[0].id, 1).expect("readable"), 2);
    let before = store.rows.map.len();
    assert_eq!(refused(store.put_if("k", PutConditions::default()).1), Refusal::Fenced);
    assert_eq!(refused(store.delete("k", None)), Refusal::Fenced);
    let contents = vec![(home("k"), store_attempt())];
    let add = ShardCommand::AddOwners { contents, destination: home("d") };
    assert_eq!(refused(store.shard(0, add)), Refusal::Fenced);
    let op = put_op(store_attempt(), PutConditions::default());
    let command = Command::Key(KeyCommand { bucket: BUCKET, generation: 1, key: key("k"), op });
    let late = Entry { deadline_ms: 0, ..store.entry(store_attempt(), command) };
    let shard = store.shards[0].clone();
    assert_eq!(refused(store.apply(&shard, &late)), Refusal::Fenced);
    assert_eq!(store.rows.map.len(), before);
    store.session = 2;
    store.put("k");
}

#[test]
fn an_older_generation_is_sent_back_and_decides_nothing() {
    let mut store = Store::new();
    store.generation = 0;
    let (id, outcome) = store.put_if("k", PutConditions::default());
    assert_eq!(refused(outcome), Refusal::Refetch);
    assert_eq!(store.contents(), []);
    store.generation = 1;
    made(store.key_as(id, "k", put_op(id, PutConditions::default())));
}

#[test]
fn a_bucket_that_goes_takes_no_writes_but_condemns_them() {
    let mut store = Store::new();
    store.generation = 2;
    let raised = store.raise(BucketRow { generation: 2, versioning: Versioning::Off, deleting: true });
    assert_eq!(raised, [Outcome::BucketHolds { versions: false, uploads: false, covered_to: None }]);
    let (id, outcome) = store.put_if("k", PutConditions::default());
    assert_eq!(refused(outcome), Refusal::NoSuchBucket);
    assert_eq!(store.condemned(0, false), [(home("k"), id)]);
    let raised = store.raise(BucketRow { generation: 1, versioning: Versioning::Off, deleting: false });
    assert!(matches!(raised[0], Outcome::BucketHolds { .. }));
    assert_eq!(refused(store.put_if("k", PutConditions::default()).1), Refusal::NoSuchBucket, "never a lower one");
}

#[test]
fn a_raised_bucket_answers_what_it_holds_and_how_far() {
    let mut store = Store::cut(&["m"]);
    store.set_versioning(Versioning::Enabled);
    store.delete("z", None);
    store.generation += 1;
    let row = BucketRow { generation: store.generation, versioning: Versioning::Enabled, deleting: true };
    let raised = store.raise(row);
    let upper = Outcome::BucketHolds { versions: true, uploads: false, covered_to: None };
    let lower = Outcome::BucketHolds { versions: false, uploads: false, covered_to: Some(key("m")) };
    assert_eq!(raised, [lower, upper], "a lone delete marker counts");
}

#[test]
fn what_a_shard_does_not_hold_has_moved() {
    let mut store = Store::cut(&["m"]);
    let id = store.attempt();
    let op = put_op(id, PutConditions::default());
    let command = KeyCommand { bucket: BUCKET, generation: 1, key: key("z"), op };
    let entry = store.entry(id, Command::Key(command));
    let lower = store.shards[0].clone();
    assert_eq!(refused(store.apply(&lower, &entry)), Refusal::Moved);
    assert_eq!(store.contents(), []);
    let other = BucketId(7);
    let row = BucketRow { generation: 1, versioning: Versioning::Off, deleting: false };
    let raise = ShardCommand::RaiseBucket { bucket: other, row };
    assert_eq!(refused(store.shard(0, raise)), Refusal::Moved);
}

#[test]
fn a_delete_in_a_bucket_without_versioning_ends_the_object() {
    let mut store = Store::new();
    store.put("k");
    assert_eq!(store.delete("k", None), Outcome::Deleted { version: None, delete_marker: false });
    assert_eq!(store.delete("k", None), Outcome::Deleted { version: None, delete_marker: false }, "and again");
    assert_eq!(get(&store, "k", None), Lookup::NoSuchKey(None));
    let (_, put) = store.put("k");
    assert_eq!(put.version, None);
}

#[test]
fn a_marker_hides_the_key_and_going_it_shows_it_again() {
    let mut store = versioned();
    let (_, put) = store.put("k");
    let marker = marker_of(&store.delete("k", None));
    assert_eq!(get(&store, "k", None), Lookup::NoSuchKey(Some(marker)));
    assert!(matches!(get(&store, "k", Some(marker)), Lookup::DeleteMarker(id, _) if id == marker));
    assert!(matches!(get(&store, "k", put.version), Lookup::Live(_)));
    let gone = store.delete("k", Some(marker));
    assert_eq!(gone, Outcome::Deleted { version: Some(marker), delete_marker: true });
    assert!(matches!(get(&store, "k", None), Lookup::Live(row) if Some(row.version_id()) == put.version));
}

#[test]
fn a_version_id_must_match_in_sequence_and_attempt() {
    let mut store = versioned();
    let (_, put) = store.put("k");
    let Some(VersionId::Id { sequence, attempt }) = put.version else { panic!("versioned") };
    let other = VersionId::Id { sequence, attempt: AttemptId { sequence: 999, ..attempt } };
    assert_eq!(get(&store, "k", Some(other)), Lookup::NoSuchVersion);
    assert_eq!(store.delete("k", Some(other)), Outcome::Deleted { version: Some(other), delete_marker: false });
    assert!(matches!(get(&store, "k", put.version), Lookup::Live(_)));
    assert_eq!(get(&store, "k", Some(VersionId::Null)), Lookup::NoSuchVersion);
}

#[test]
fn a_suspended_bucket_replaces_only_the_null_version() {
    let mut store = Store::new();
    let (null, _) = store.put("k");
    store.set_versioning(Versioning::Enabled);
    let (_, kept) = store.put("k");
    store.set_versioning(Versioning::Suspended);
    let (_, put) = store.put("k");
    assert_eq!(put.version, Some(VersionId::Null));
    assert_eq!(store.condemned(0, false), [(home("k"), null)]);
    assert_eq!(marker_of(&store.delete("k", None)), VersionId::Null, "the marker is the null version now");
    assert!(matches!(get(&store, "k", kept.version), Lookup::Live(_)));
    store.set_versioning(Versioning::Enabled);
    store.put("k");
    let page = versions(&store.rows, BUCKET, &ListVersions { max: 9, ..ListVersions::default() }).expect("lists");
    let shown: Vec<_> = page.versions.iter().map(|v| (v.version == VersionId::Null, v.object.is_some())).collect();
    assert_eq!(shown, [(false, true), (true, false), (false, true)]);
}

#[test]
fn conditions_of_a_delete_are_judged_on_what_it_aims_at() {
    let mut store = versioned();
    let (id, put) = store.put("k");
    let delete = |store: &mut Store, version, conditions| store.key("k", KeyOp::Delete { version, conditions });
    let etag = |etag: &str| DeleteConditions { if_match: Some(etag.into()), ..DeleteConditions::default() };
    let size = |size| DeleteConditions { if_match_size: Some(size), ..DeleteConditions::default() };
    let time = |s| DeleteConditions { if_match_last_modified: Some(s), ..DeleteConditions::default() };
    assert_eq!(refused(delete(&mut store, None, etag("bad"))), Refusal::Precondition(Condition::IfMatch));
    assert_eq!(refused(delete(&mut store, None, size(1))), Refusal::Precondition(Condition::Size));
    assert_eq!(refused(delete(&mut store, None, time(1))), Refusal::Precondition(Condition::LastModified));
    marker_of(&delete(&mut store, None, etag(&etag_text(id))));
    assert_eq!(refused(delete(&mut store, None, etag("bad"))), Refusal::Precondition(Condition::IfMatch));
    marker_of(&delete(&mut store, None, etag("*")));
    assert_eq!(refused(delete(&mut store, put.version, size(1))), Refusal::Precondition(Condition::Size));
    delete(&mut store, put.version, size(CONTENT_BYTES));
    let gone = delete(&mut store, put.version, etag("bad"));
    assert_eq!(gone, Outcome::Deleted { version: put.version, delete_marker: false }, "what is not there cannot fail");
}

#[test]
fn tags_go_to_the_version_named_and_change_neither_time_nor_order() {
    let mut store = versioned();
    let (_, old) = store.put("k");
    let (_, new) = store.put("k");
    let tags = vec![Tag { key: "a".into(), value: "b".into() }];
    let put = |store: &mut Store, version| store.key("k", KeyOp::PutTags { version, tags: tags.clone() });
    assert_eq!(put(&mut store, old.version), Outcome::Tagged(old.version));
    assert_eq!(put(&mut store, None), Outcome::Tagged(new.version));
    for (put, shown) in [(&old, &tags), (&new, &tags)] {
        let Lookup::Live(row) = get(&store, "k", put.version) else { panic!("live") };
        assert_eq!((&row.object.expect("live").tags, row.modified_ms), (shown, put.modified_ms));
    }
    let marker = marker_of(&store.delete("k", None));
    assert_eq!(refused(put(&mut store, None)), Refusal::NoSuchKey(Some(marker)));
    assert!(matches!(refused(put(&mut store, Some(marker))), Refusal::IsDeleteMarker(id, _) if id == marker));
    let unknown = VersionId::Id { sequence: 99, attempt: store_attempt() };
    assert_eq!(refused(put(&mut store, Some(unknown))), Refusal::NoSuchVersion);
}

fn copy_op(store: &Store, source: &str, content: AttemptId, conditions: PutConditions) -> KeyOp {
    let data = CopyData::One(store.reference(source, content));
    KeyOp::Copy { object: new_version(content), data, conditions }
}

/// s3-case 43: shared data outlives the version that wrote it.
#[test]
fn a_copy_onto_itself_keeps_the_data_whatever_goes_before_it() {
    for versioning in [Versioning::Off, Versioning::Enabled] {
        let mut store = Store::new();
        store.set_versioning(versioning);
        let (content, old) = store.put("k");
        for _ in 0..3 {
            let op = copy_op(&store, "k", content, PutConditions::default());
            made(store.key("k", op));
        }
        if old.version.is_some() {
            store.delete("k", old.version);
        }
        store.settle_down();
        let Lookup::Live(row) = get(&store, "k", None) else { panic!("live") };
        assert_eq!(store.pieces("k", &row.object.expect("live")), [Piece::Content("k".into(), content)]);
    }
}

/// s3-case 135.
#[test]
fn a_copy_of_a_copy_lives_until_it_is_deleted_and_then_nothing_is_left() {
    let mut store = Store::new();
    let (content, _) = store.put("a");
    let to_b = copy_op(&store, "a", content, PutConditions::default());
    made(store.key("b", to_b.clone()));
    made(store.key("c", to_b));
    store.delete("a", None);
    store.delete("b", None);
    assert_eq!(store.settle_down(), []);
    let Lookup::Live(row) = get(&store, "c", None) else { panic!("live") };
    assert_eq!(store.pieces("c", &row.object.expect("live")), [Piece::Content("a".into(), content)]);
    store.delete("c", None);
    let dead = store.settle_down();
    assert_eq!(dead, [runs(content)[0].group]);
    assert_eq!(store.contents(), []);
}

#[test]
fn a_copy_of_what_is_condemned_begins_again() {
    let mut store = Store::cut(&["m"]);
    let (content, _) = store.put("a");
    store.delete("a", None);
    let op = copy_op(&store, "a", content, PutConditions::default());
    assert_eq!(refused(store.key("b", op)), Refusal::SourceGone);
    let contents = vec![(home("a"), content)];
    let add = ShardCommand::AddOwners { contents, destination: home("z") };
    assert_eq!(refused(store.shard(0, add.clone())), Refusal::SourceGone);
    store.settle_down();
    assert_eq!(refused(store.shard(0, add)), Refusal::SourceGone, "reclaimed");
}

#[test]
fn owners_are_added_all_or_none_and_released_once() {
    let mut store = Store::new();
    let (kept, _) = store.put("a");
    let (gone, _) = store.put("b");
    store.delete("b", None);
    let owner = store.attempt();
    let add = |contents| ShardCommand::AddOwners { contents, destination: home("d") };
    let both = add(vec![(home("a"), kept), (home("b"), gone)]);
    assert_eq!(refused(store.shard_as(0, owner, both)), Refusal::SourceGone);
    store.delete("a", None);
    assert_eq!(store.condemned(0, false).len(), 2, "the refused owner keeps nothing");

    let (content, _) = store.put("c");
    let one = add(vec![(home("c"), content)]);
    assert_eq!(store.shard_as(0, owner, one.clone()), Outcome::Done);
    assert_eq!(store.shard_as(0, owner, one), Outcome::Done, "again, at least once");
    store.delete("c", None);
    assert!(!store.condemned(0, false).iter().any(|(_, id)| *id == content));
    let release = ShardCommand::ReleaseOwners { owners: vec![(home("c"), content, owner)] };
    store.shard(0, release.clone());
    assert!(store.condemned(0, false).iter().any(|(_, id)| *id == content));
    assert_eq!(store.shard(0, release), Outcome::Done, "again, at least once");
    let writer = ShardCommand::ReleaseOwners { owners: vec![(home("c"), content, content)] };
    assert!(matches!(refused(store.shard(0, writer)), Refusal::Invalid(_)), "nobody but its version ends the writer");
}

#[test]
fn inline_contents_are_not_referred_to() {
    let mut store = Store::new();
    let attempt = store.attempt();
    let bytes = ContentBytes::Inline(Bytes::from_static(b"x"));
    let op = KeyOp::Put { object: new_version(attempt), bytes, conditions: PutConditions::default() };
    made(store.key_as(attempt, "k", op));
    let op = copy_op(&store, "k", attempt, PutConditions::default());
    assert!(matches!(refused(store.key("l", op)), Refusal::Invalid(_)));
}

#[test]
fn an_abandoned_content_counts_its_bytes_and_is_condemned() {
    let mut store = Store::new();
    let id = store.attempt();
    assert_eq!(store.key_as(id, "k", KeyOp::Abandon { runs: runs(id) }), Outcome::Done);
    let body = metadata::read::content::body(&store.rows, BUCKET, &key("k"), metadata::rows::BodyId::whole(id));
    let Ok(Some(metadata::rows::BodyRow::Content { size, .. })) = body else { panic!("there") };
    assert_eq!(size, 6 * EXTENT_BYTES as u64);
    assert_eq!(metadata::read::content::has_body_of(&store.rows, &home("k"), id).ok(), Some(true));
    assert_eq!(metadata::read::content::has_body_of(&store.rows, &home("kk"), id).ok(), Some(false));
    let (put, _) = store.put("k");
    assert_eq!(refused(store.key_as(put, "k", KeyOp::Abandon { runs: runs(put) })), Refusal::ContentTaken);
    assert_eq!(store.condemned(0, false), [(home("k"), id)]);
}

#[test]
fn keys_that_begin_alike_are_strangers() {
    let mut store = versioned();
    for text in ["a", "a/", "a\u{1}", "a/b", "ab"] {
        store.put(text);
        store.put(text);
    }
    store.delete("a", None);
    for text in ["a/", "a\u{1}", "a/b", "ab"] {
        let page = object::newest_other(&store.rows, BUCKET, &ObjectKey::new(text).expect("valid")).expect("readable");
        assert_eq!(page.map(|row| row.sequence), Some(1), "{text}");
        assert!(matches!(get(&store, text, None), Lookup::Live(_)));
    }
}
