//! What apply decides about multipart uploads: digests, orders, repeats, what is condemned and when.
#![allow(clippy::panic)]

mod model_support;

use metadata::command::{CopyData, KeyOp, Outcome, PartBytes, PutOutcome, Refusal, ShardCommand};
use metadata::read::content::{manifest, manifest_at};
use metadata::read::object::{Lookup, lookup};
use metadata::read::upload;
use metadata::rows::{BucketRow, ContentBytes, DataRef, ManifestPart};
use model_support::{
    BUCKET, CONTENT_BYTES, Store, etag_text, extents, home, key, made, md5_of, new_version, part_op, refused,
};
use types::bucket::Versioning;
use types::limits::PART_MIN_BYTES;
use types::object::{ObjectMeta, PutConditions, Tag};
use types::{AttemptId, Checksum, ChecksumAlgorithm, ChecksumKind, ETag};

type Listed = Vec<(u32, String, Option<(ChecksumAlgorithm, Vec<u8>)>)>;

fn create_with(store: &mut Store, checksum: Option<(ChecksumAlgorithm, ChecksumKind)>) -> AttemptId {
    let id = store.attempt();
    let op = KeyOp::CreateUpload { meta: ObjectMeta::default(), tags: vec![], checksum };
    assert_eq!(store.key_as(id, "k", op), Outcome::Done);
    id
}

fn create(store: &mut Store) -> AttemptId {
    create_with(store, None)
}

fn put_part(store: &mut Store, upload: AttemptId, number: u32) -> AttemptId {
    let part = store.attempt();
    assert!(matches!(store.key_as(part, "k", part_op(upload, number, part)), Outcome::Part { .. }));
    part
}

fn sized_part(store: &mut Store, upload: AttemptId, number: u32, size: u64, checksum: Option<Checksum>) -> AttemptId {
    let part = store.attempt();
    let bytes = PartBytes::New(extents(part));
    let op = KeyOp::PutPart { upload, number, size, md5: md5_of(part), checksum, bytes };
    assert!(matches!(store.key_as(part, "k", op), Outcome::Part { .. }));
    part
}

fn listed(parts: &[(u32, AttemptId)]) -> Listed {
    parts.iter().map(|(number, part)| (*number, etag_text(*part), None)).collect()
}

fn complete_op(upload: AttemptId, parts: Listed) -> KeyOp {
    KeyOp::CompleteUpload { upload, parts, conditions: PutConditions::default(), checksum: None, size: None }
}

fn complete(store: &mut Store, upload: AttemptId, parts: &[(u32, AttemptId)]) -> Outcome {
    store.key("k", complete_op(upload, listed(parts)))
}

fn live(store: &Store, text: &str) -> Box<metadata::rows::VersionRow> {
    match lookup(&store.rows, BUCKET, &key(text), None, true).expect("readable") {
        Lookup::Live(row) => row,
        other => panic!("{other:?}"),
    }
}

/// s3-cases 78, 94, 96.
#[test]
fn complete_makes_the_object_once_and_answers_the_same_again() {
    let mut store = Store::new();
    let upload = store.attempt();
    let meta =
        ObjectMeta { headers: vec![("content-type".into(), "a/b".into())], user: vec![("x".into(), "y".into())] };
    let tags = vec![Tag { key: "t".into(), value: "u".into() }];
    let op = KeyOp::CreateUpload { meta: meta.clone(), tags: tags.clone(), checksum: None };
    store.key_as(upload, "k", op);
    let parts = [1, 2, 7].map(|n| (n, put_part(&mut store, upload, n)));
    let first = complete(&mut store, upload, &parts);
    let put = made(first.clone());
    let md5s: Vec<u8> = parts.iter().flat_map(|(_, part)| md5_of(*part)).collect();
    let expected = ETag::Multipart { md5: md5_sum(&md5s), parts: 3 };
    assert_eq!((put.etag, put.size), (expected, 3 * CONTENT_BYTES));
    assert_eq!(complete(&mut store, upload, &parts), first);
    assert_eq!(refused(complete(&mut store, upload, &parts[..2])), Refusal::NoSuchUpload, "another list");
    let object = live(&store, "k").object.expect("live");
    assert_eq!((object.meta, object.tags), (meta, tags));
    let late = store.attempt();
    assert_eq!(refused(store.key_as(late, "k", part_op(upload, 1, late))), Refusal::NoSuchUpload);
    assert_eq!(refused(store.key("k", KeyOp::AbortUpload { upload })), Refusal::NoSuchUpload);
    assert_eq!(store.condemned(0, false), [(home("k"), late)], "a late part is condemned");
    store.put("k");
    assert_eq!(refused(complete(&mut store, upload, &parts)), Refusal::NoSuchUpload, "its version went");
}

fn md5_sum(bytes: &[u8]) -> [u8; 16] {
    use md5::Digest;
    md5::Md5::digest(bytes).into()
}

/// s3-cases 83, 84, and R42.
#[test]
fn a_list_that_does_not_match_is_refused_and_the_upload_goes_on() {
    let mut store = Store::new();
    let upload = create(&mut store);
    let (one, two) = (put_part(&mut store, upload, 1), put_part(&mut store, upload, 2));
    let before = store.rows.map.len();
    let mut refuse = |parts: Listed| refused(store.key("k", complete_op(upload, parts)));
    assert!(matches!(refuse(listed(&[(2, two), (1, one)])), Refusal::Invalid(_)));
    assert!(matches!(refuse(listed(&[(1, one), (1, one)])), Refusal::Invalid(_)));
    assert!(matches!(refuse(vec![]), Refusal::Invalid(_)));
    assert_eq!(refuse(listed(&[(1, two)])), Refusal::InvalidPart(1));
    assert_eq!(refuse(listed(&[(1, one), (3, two)])), Refusal::InvalidPart(3));
    assert_eq!(store.rows.map.len(), before);
    let wrong = KeyOp::CompleteUpload {
        upload,
        parts: listed(&[(1, one)]),
        conditions: PutConditions::default(),
        checksum: None,
        size: Some(1),
    };
    assert!(matches!(refused(store.key("k", wrong)), Refusal::BadDigest(_)));
    made(complete(&mut store, upload, &[(1, one), (2, two)]));
}

#[test]
fn only_the_last_part_may_be_small() {
    let mut store = Store::new();
    let upload = create(&mut store);
    let small = sized_part(&mut store, upload, 1, PART_MIN_BYTES - 1, None);
    let last = sized_part(&mut store, upload, 2, 1, None);
    let outcome = complete(&mut store, upload, &[(1, small), (2, last)]);
    assert_eq!(refused(outcome), Refusal::PartTooSmall(1, PART_MIN_BYTES - 1));
    let put = made(complete(&mut store, upload, &[(1, small)]));
    assert!(matches!(put.etag, ETag::Multipart { parts: 1, .. }), "one part is a multipart object too");
    store.settle_down();
    assert_eq!(store.contents(), [small], "the part not listed is garbage");
}

/// s3-case 93, R43.
#[test]
fn a_part_uploaded_again_condemns_the_former_one() {
    let mut store = Store::new();
    let upload = create(&mut store);
    let former = put_part(&mut store, upload, 1);
    let again = part_op(upload, 1, former);
    assert!(matches!(store.key_as(former, "k", again), Outcome::Part { .. }), "the same attempt changes nothing");
    assert_eq!(store.condemned(0, false), []);
    let newer = put_part(&mut store, upload, 1);
    assert_eq!(store.condemned(0, false), [(home("k"), former)]);
    assert_eq!(refused(complete(&mut store, upload, &[(1, former)])), Refusal::InvalidPart(1));
    made(complete(&mut store, upload, &[(1, newer)]));
    for number in [0, 10_001] {
        let part = store.attempt();
        assert!(matches!(refused(store.key_as(part, "k", part_op(upload, number, part))), Refusal::Invalid(_)));
    }
}

#[test]
fn abort_condemns_the_parts_as_one_manifest() {
    let mut store = Store::new();
    let upload = create(&mut store);
    for number in 1..=300 {
        put_part(&mut store, upload, number);
    }
    assert_eq!(store.key("k", KeyOp::AbortUpload { upload }), Outcome::Done);
    assert_eq!(store.condemned(0, true), [(home("k"), upload)]);
    assert_eq!(store.condemned(0, false), [], "condemned only when the manifest is expanded");
    let expand = ShardCommand::ExpandManifest { home: home("k"), manifest: upload };
    assert_eq!(store.shard(0, expand.clone()), Outcome::Left(1));
    assert_eq!(store.condemned(0, false).len(), 256);
    assert_eq!(store.shard(0, expand.clone()), Outcome::Left(0));
    assert_eq!(store.shard(0, expand), Outcome::Left(0), "again, at least once");
    assert_eq!(store.condemned(0, false).len(), 300);
    let dead = store.settle_down();
    assert_eq!((dead.len(), store.contents().len()), (300, 0));
    assert_eq!(refused(complete(&mut store, upload, &[])), Refusal::NoSuchUpload);
}

/// s3-case 81.
#[test]
fn ten_thousand_parts_fit_one_complete_and_are_found_by_offset() {
    let mut store = Store::new();
    let upload = create(&mut store);
    let mut parts = Vec::new();
    // Rows as the parts would have left them: ten thousand entries with all checks would take minutes.
    let first = put_part(&mut store, upload, 1);
    let row = upload::part(&store.rows, BUCKET, &key("k"), upload, 1).expect("readable").expect("there");
    let body =
        store.rows.map[&metadata::format::key::body(BUCKET, &key("k"), metadata::rows::BodyId::whole(first))].clone();
    parts.push((1, first));
    for number in 2..=10_000 {
        use metadata::format::value::RowValue;
        let part = store.attempt();
        let row = metadata::rows::PartRow { body: part, md5: md5_of(part), ..row.clone() };
        let at = key("k");
        store.rows.map.insert(metadata::format::key::part(BUCKET, &at, upload, number), row.encode());
        let id = metadata::rows::BodyId::whole(part);
        store.rows.map.insert(metadata::format::key::body(BUCKET, &at, id), body.clone());
        parts.push((number, part));
    }
    let put = made(complete(&mut store, upload, &parts));
    assert_eq!(put.size, 10_000 * CONTENT_BYTES);
    assert!(put.etag.to_string().ends_with("-10000"));
    let object = live(&store, "k").object.expect("live");
    let DataRef::Manifest { id, parts: count } = object.data else { panic!("multipart") };
    store.rows.counts();
    for index in [0u32, 255, 256, 5_000, 9_999] {
        let offset = u64::from(index) * CONTENT_BYTES + 17;
        let (at, found) = manifest_at(&store.rows, BUCKET, &key("k"), id, count, offset, 2).expect("readable");
        assert_eq!((at, found[0].number, found[0].offset), (index, index + 1, u64::from(index) * CONTENT_BYTES));
        assert_eq!(found.len(), if index == 9_999 { 1 } else { 2 });
    }
    let (_, seeks, rows) = store.rows.counts();
    assert!(seeks <= 5 * 9 && rows <= 5 * 12, "{seeks} {rows}");
    assert_eq!(manifest(&store.rows, BUCKET, &key("k"), id, 300, 3).expect("readable")[0].number, 301);
}

/// A checksum over `bytes` as the edge computes it.
fn crc(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Checksum {
    let digest = match algorithm {
        ChecksumAlgorithm::Crc32 => {
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes).to_be_bytes()[4..].to_vec()
        }
        ChecksumAlgorithm::Crc32c => {
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes).to_be_bytes()[4..].to_vec()
        }
        ChecksumAlgorithm::Crc64Nvme => {
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes().to_vec()
        }
        ChecksumAlgorithm::Sha1 => {
            use sha1::Digest;
            sha1::Sha1::digest(bytes).to_vec()
        }
        ChecksumAlgorithm::Sha256 => {
            use sha2::Digest;
            sha2::Sha256::digest(bytes).to_vec()
        }
    };
    Checksum { algorithm, kind: ChecksumKind::FullObject, digest }
}

const COMPOSITE: ChecksumKind = ChecksumKind::Composite { parts: 0 };

fn complete_with_checksums(
    store: &mut Store,
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    sizes: &[usize],
) -> PutOutcome {
    let upload = create_with(store, Some((algorithm, kind)));
    let mut parts = Vec::new();
    for (number, size) in (1..).zip(sizes) {
        let bytes = vec![number as u8; *size];
        let part = sized_part(store, upload, number, *size as u64, Some(crc(algorithm, &bytes)));
        parts.push((number, part));
    }
    made(complete(store, upload, &parts))
}

/// s3-cases 97, 98.
#[test]
fn checksums_of_the_whole_follow_from_those_of_the_parts() {
    let sizes = [PART_MIN_BYTES as usize, PART_MIN_BYTES as usize + 3, 7];
    let whole: Vec<u8> = (1u8..).zip(sizes).flat_map(|(n, size)| vec![n; size]).collect();
    let mut store = Store::new();
    for algorithm in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc64Nvme] {
        let put = complete_with_checksums(&mut store, algorithm, ChecksumKind::FullObject, &sizes);
        assert_eq!(put.checksum, Some(crc(algorithm, &whole)), "{algorithm:?}");
    }
    for algorithm in
        [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Sha1, ChecksumAlgorithm::Sha256]
    {
        let put = complete_with_checksums(&mut store, algorithm, COMPOSITE, &sizes);
        let digests: Vec<u8> = (1u8..).zip(sizes).flat_map(|(n, size)| crc(algorithm, &vec![n; size]).digest).collect();
        let expected = Checksum { kind: ChecksumKind::Composite { parts: 3 }, ..crc(algorithm, &digests) };
        assert_eq!(put.checksum, Some(expected), "{algorithm:?}");
    }
    for (algorithm, kind) in
        [(ChecksumAlgorithm::Sha256, ChecksumKind::FullObject), (ChecksumAlgorithm::Crc64Nvme, COMPOSITE)]
    {
        let op = KeyOp::CreateUpload { meta: ObjectMeta::default(), tags: vec![], checksum: Some((algorithm, kind)) };
        assert!(matches!(refused(store.key("k", op)), Refusal::Invalid(_)));
    }
}

#[test]
fn a_checksum_that_the_client_repeats_is_compared_or_refused_never_passed_over() {
    let mut store = Store::new();
    let upload = create_with(&mut store, Some((ChecksumAlgorithm::Crc32, ChecksumKind::FullObject)));
    let known = crc(ChecksumAlgorithm::Crc32, b"abc");
    let part = sized_part(&mut store, upload, 1, 3, Some(known.clone()));
    let asked = |of_part: Option<(ChecksumAlgorithm, Vec<u8>)>, checksum| KeyOp::CompleteUpload {
        upload,
        parts: vec![(1, etag_text(part), of_part)],
        conditions: PutConditions::default(),
        checksum,
        size: Some(3),
    };
    let right = Some((ChecksumAlgorithm::Crc32, known.digest.clone()));
    let wrong = Some((ChecksumAlgorithm::Crc32, vec![0; 4]));
    let other = Some((ChecksumAlgorithm::Crc32c, vec![0; 4]));
    assert_eq!(refused(store.key("k", asked(wrong.clone(), None))), Refusal::InvalidPart(1));
    assert_eq!(refused(store.key("k", asked(other.clone(), None))), Refusal::InvalidPart(1));
    assert!(matches!(refused(store.key("k", asked(None, wrong))), Refusal::BadDigest(_)));
    assert!(matches!(refused(store.key("k", asked(None, other))), Refusal::Invalid(_)));
    made(store.key("k", asked(right.clone(), right)));
}

#[test]
fn a_multipart_copy_keeps_its_parts_when_the_source_goes() {
    let mut store = Store::cut(&["m"]);
    let upload = create(&mut store);
    let parts = [1, 5].map(|n| (n, put_part(&mut store, upload, n)));
    made(complete(&mut store, upload, &parts));
    let owner = store.attempt();
    let contents = parts.iter().map(|(_, part)| (home("k"), *part)).collect();
    store.shard_as(0, owner, ShardCommand::AddOwners { contents, destination: home("z") });
    let part = |(index, (number, content)): (u64, &(u32, AttemptId))| {
        let offset = index * CONTENT_BYTES;
        let part = ManifestPart { number: *number, offset, size: CONTENT_BYTES, checksum: None, body: *content };
        (part, store.reference("k", *content))
    };
    let data = CopyData::Parts((0..).zip(&parts).map(part).collect());
    let object = metadata::command::NewVersion { size: 2 * CONTENT_BYTES, ..new_version(owner) };
    made(store.key_as(owner, "z", KeyOp::Copy { object, data, conditions: PutConditions::default() }));
    store.delete("k", None);
    assert_eq!(store.settle_down(), []);
    let object = live(&store, "z").object.expect("live");
    assert_eq!(store.pieces("z", &object).len(), 2);
    store.delete("z", None);
    assert_eq!(store.settle_down().len(), 2);
    assert_eq!(store.contents(), []);
}

#[test]
fn a_part_copied_after_its_upload_ended_adds_no_owner() {
    let mut store = Store::new();
    let (content, _) = store.put("src");
    let upload = create(&mut store);
    store.key("k", KeyOp::AbortUpload { upload });
    let bytes = PartBytes::Copied(store.reference("src", content));
    let op = KeyOp::PutPart { upload, number: 1, size: 1, md5: [0; 16], checksum: None, bytes };
    assert_eq!(refused(store.key("k", op)), Refusal::NoSuchUpload);
    store.delete("src", None);
    assert_eq!(store.condemned(0, false), [(home("src"), content)]);
}

#[test]
fn an_inline_part_goes_with_its_object() {
    let mut store = Store::new();
    let upload = create(&mut store);
    let part = store.attempt();
    let bytes = PartBytes::New(ContentBytes::Inline(bytes::Bytes::from_static(b"tail")));
    let op = KeyOp::PutPart { upload, number: 1, size: 4, md5: md5_of(part), checksum: None, bytes };
    store.key_as(part, "k", op);
    made(complete(&mut store, upload, &[(1, part)]));
    let before = store.rows.map.len();
    store.delete("k", None);
    store.settle_down();
    assert!(store.rows.map.len() < before - 3, "version, manifest, body and answer are gone");
    assert_eq!(store.condemned(0, true), []);
}

#[test]
fn uploads_of_a_bucket_that_goes_are_aborted_a_few_at_a_time() {
    let mut store = Store::new();
    for _ in 0..5 {
        let upload = create(&mut store);
        put_part(&mut store, upload, 1);
    }
    let abort = ShardCommand::AbortUploads { bucket: BUCKET, max: 2 };
    assert!(matches!(refused(store.shard(0, abort.clone())), Refusal::Invalid(_)), "only of one that goes");
    let raised = store.raise(BucketRow { generation: 2, versioning: Versioning::Off, deleting: true });
    assert_eq!(raised, [Outcome::BucketHolds { versions: false, uploads: true, covered_to: None }]);
    let left: Vec<_> = (0..3).map(|_| store.shard(0, abort.clone())).collect();
    assert_eq!(left, [Outcome::Left(1), Outcome::Left(1), Outcome::Left(0)]);
    store.settle_down();
    assert_eq!(store.contents(), []);
}

#[test]
fn old_answers_are_forgotten_a_bounded_walk_at_a_time() {
    let mut store = Store::new();
    let (upload, late) = (create(&mut store), create(&mut store));
    let part = put_part(&mut store, upload, 1);
    let outcome = complete(&mut store, upload, &[(1, part)]);
    let forget = |completed_before_ms| ShardCommand::Forget { completed_before_ms };
    let modified_ms = made(outcome.clone()).modified_ms;
    assert_eq!(store.shard(0, forget(modified_ms)), Outcome::Left(0));
    assert_eq!(complete(&mut store, upload, &[(1, part)]), outcome);
    assert_eq!(store.shard(0, forget(u64::MAX)), Outcome::Left(0));
    assert_eq!(refused(complete(&mut store, upload, &[(1, part)])), Refusal::NoSuchUpload);
    assert!(upload::upload(&store.rows, BUCKET, &key("k"), late).expect("readable").is_some(), "uploads stay");

    use metadata::format::value::RowValue;
    let done = metadata::rows::CompletedUpload { parts_crc: 1, attempt: part, outcome: made(outcome), completed_ms: 1 };
    for n in 0..3000 {
        let id = AttemptId { node: 7, session: 1, sequence: n };
        let row = metadata::format::key::of_id(metadata::format::family::COMPLETED, BUCKET, &key("k"), id);
        store.rows.map.insert(row, done.encode());
    }
    let left: Vec<_> = (0..3).map(|_| store.shard(0, forget(2))).collect();
    assert_eq!(left, [Outcome::Left(1), Outcome::Left(1), Outcome::Left(0)]);
    assert!(!store.rows.map.keys().any(|row| row[0] == metadata::format::family::COMPLETED));
}
