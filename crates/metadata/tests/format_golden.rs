//! The bytes of keys and rows are a contract with the disk: pinned here, and their order and damage tested.
#![allow(clippy::panic)]

use bytes::Bytes;
use metadata::command::RootCommand;
use metadata::format::value::{Counter, RowValue, ShardState};
use metadata::format::version::VersionHead;
use metadata::format::{family, key};
use metadata::rows::{
    BodyId, BodyRow, BucketRow, ClusterRow, Condemned, CondemnedRow, ContentBytes, DataRef, GroupRecord, GroupState,
    Home, Location, ManifestPart, ManifestRow, ObjectRow, OutboxRow, OwnerRow, PartRow, Reference, Replica,
    ReplicaState, Run, TokenRow, UploadRow, VersionRow,
};
use metadata::shard::ShardId;
use metadata::strip::{StripMember, StripPlace, StripRecord, StripState};
use proptest::prelude::*;
use types::bucket::{BucketConfigs, BucketInfo, Durability, Erasure, Versioning};
use types::cluster::{Addresses, Disk, DiskState, KeyHash, Node, NodeStart, NodeState};
use types::object::{ObjectMeta, Tag};
use types::{
    AttemptId, BucketId, BucketName, Checksum, ChecksumAlgorithm, ChecksumKind, ClusterId, DiskId, ETag, GroupId,
    ObjectKey, StripId, TokenId,
};

const ID: AttemptId = AttemptId { node: 1, session: 2, sequence: 3 };
const BUCKET: BucketId = BucketId(0x0102);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn object_key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("valid")
}

#[test]
fn keys_of_rows_are_these_bytes() {
    let k = object_key("a/b");
    let id = "00000001000000020000000000000003";
    let head = "0000000000000102612f62";
    assert_eq!(hex(&key::current(BUCKET, &k)), format!("10{head}"));
    assert_eq!(hex(&key::body(BUCKET, &k, BodyId::whole(ID))), format!("11{head}0001{id}"));
    assert_eq!(hex(&key::body(BUCKET, &k, BodyId { id: ID, part: 7 })), format!("11{head}0001{id}00000007"));
    assert_eq!(hex(&key::version(BUCKET, &k, 1)), format!("12{head}0001fffffffffffffffe"));
    assert_eq!(hex(&key::null(BUCKET, &k)), format!("13{head}0001"));
    assert_eq!(hex(&key::manifest(BUCKET, &k, ID, 256)), format!("14{head}0001{id}00000100"));
    assert_eq!(hex(&key::of_id(family::UPLOADS, BUCKET, &k, ID)), format!("15{head}0001{id}"));
    assert_eq!(hex(&key::part(BUCKET, &k, ID, 9)), format!("16{head}0001{id}00000009"));
    assert_eq!(hex(&key::of_id(family::COMPLETED, BUCKET, &k, ID)), format!("17{head}0001{id}"));
    assert_eq!(hex(&key::owner(&Home { bucket: BUCKET, key: k.clone() }, ID, ID)), format!("18{head}0001{id}{id}"));
    assert_eq!(hex(&key::of_id(family::CONDEMNED, BUCKET, &k, ID)), format!("19{head}0001{id}"));
    assert_eq!(hex(&key::shard_state(ShardId(1))), "010000000100");
    assert_eq!(hex(&key::fence(ShardId(1), 5)), "020000000100000005");
    assert_eq!(hex(&key::outbox(ShardId(1), 6)), "03000000010000000000000006");
    assert_eq!(hex(&key::bucket_row(ShardId(1), BUCKET)), "04000000010000000000000102");
    assert_eq!(hex(&key::bucket(BUCKET)), "210000000000000102");
    assert_eq!(hex(&key::bucket_name("abc")), "22616263");
    assert_eq!(hex(&key::group(GroupId(1))), "270000000000000001");
    assert_eq!(hex(&key::cluster()), "2800");
    assert_eq!(hex(&key::node(5)), "2900000005");
    assert_eq!(hex(&key::disk(DiskId(8))), "2a0000000000000008");
    assert_eq!(hex(&key::token(TokenId(9))), "2b0000000000000009");
}

fn version() -> VersionRow {
    let checksum =
        Checksum { algorithm: ChecksumAlgorithm::Crc32c, kind: ChecksumKind::FullObject, digest: vec![1, 2, 3, 4] };
    VersionRow {
        sequence: 7,
        attempt: ID,
        null: false,
        modified_ms: 300,
        object: Some(ObjectRow {
            size: 5,
            etag: ETag::Md5([0xAA; 16]),
            checksum: Some(checksum),
            meta: ObjectMeta {
                headers: vec![("x-amz-storage-class".into(), "GLACIER".into())],
                user: vec![("u".into(), "v".into())],
            },
            tags: vec![Tag { key: "k".into(), value: "w".into() }],
            data: DataRef::Body(ID),
        }),
    }
}

fn run() -> Run {
    Run { group: GroupId(1), offset: 4096, extents: 2, last_bytes: 9 }
}

fn reference() -> Reference {
    Reference {
        home: Home { bucket: BUCKET, key: object_key("h") },
        content: ID,
        offset: 1,
        size: 2,
        content_size: 300,
        runs: vec![run()],
        locations: vec![Location { group: GroupId(1), disks: vec![DiskId(8)] }],
    }
}

fn pinned<T: RowValue + PartialEq + std::fmt::Debug>(row: &T, golden: &str) {
    let bytes = row.encode();
    assert_eq!(hex(&bytes), golden);
    assert_eq!(&T::decode(&bytes).expect("decodes"), row);
    for cut in 0..bytes.len() {
        if let Ok(other) = T::decode(&bytes.slice(..cut)) {
            assert_ne!(&other, row, "a row cut at {cut} is not the row");
        }
    }
    let mut newer = bytes.to_vec();
    newer[0] = 0x7F;
    assert!(T::decode(&newer.into()).is_err(), "a version not known is refused");
}

#[test]
fn values_of_rows_are_these_bytes() {
    let etag = "aa".repeat(16);
    pinned(
        &version(),
        &format!(
            "010701020300ac02010500{etag}01010004010203040107474c41434945520001020301\
             13782d616d7a2d73746f726167652d636c61737307474c4143494552010175017601016b0177"
        ),
    );
    let marker = VersionRow { object: None, null: true, ..version() };
    pinned(&marker, "010701020301ac0200");
    let inline = BodyRow::Content { size: 3, bytes: ContentBytes::Inline(Bytes::from_static(b"abc")) };
    pinned_body(&inline, "0100616263");
    let locations = vec![Location { group: GroupId(1), disks: vec![DiskId(8)] }];
    let extents = BodyRow::Content { size: 300, bytes: ContentBytes::Extents { runs: vec![run()], locations } };
    pinned(&extents, "0101ac0201018020020901010108");
    pinned(&BodyRow::Reference(reference()), "0102820201680102030102ac0201018020020901010108");
    let part = ManifestPart { number: 1, offset: 0, size: 5, checksum: None, body: ID };
    pinned(&ManifestRow { parts: vec![part] }, "010101000500010203");
    pinned(
        &PartRow { body: ID, size: 5, md5: [0xBB; 16], checksum: None, modified_ms: 1 },
        &format!("0101020305{}0001", "bb".repeat(16)),
    );
    let upload = UploadRow { meta: ObjectMeta::default(), tags: vec![], checksum: None, initiated_ms: 1 };
    pinned(&upload, "010000000001");
    pinned(&OwnerRow { destination: Home { bucket: BUCKET, key: object_key("d") } }, "0182020164");
    pinned(&CondemnedRow { condemned_ms: 300, what: Condemned::Content }, "01ac0200");
    pinned(&CondemnedRow { condemned_ms: 300, what: Condemned::Manifest { parts: 2 } }, "01ac020102");
    pinned(&OutboxRow::Dead { runs: vec![run()] }, "0101010180200209");
    pinned(&BucketRow { generation: 1, versioning: Versioning::Suspended, deleting: true }, "01010201");
    pinned(&ShardState { last_stamp_ms: 1, next_outbox: 2 }, "010102");
    pinned(&Counter(300), "01ac02");
    pinned(&ClusterRow { cluster: ClusterId(9), epoch: 300, version: 1, last_node: 2 }, "0109ac020102");
    let (key, secret) = ("cc".repeat(32), "dd".repeat(32));
    let addresses = Addresses { rpc: "n:1".into(), s3: "s".into(), admin: String::new() };
    let start = NodeStart { incarnation: 300, version: 1, addresses, rack: Some("r".into()) };
    let node = Node { id: 2, key: KeyHash([0xCC; 32]), state: NodeState::Draining, start, joined_ms: 1 };
    pinned(&node, &format!("0102{key}02ac0201036e3a3101730001017201"));
    let disk =
        Disk { id: DiskId(8), node: 2, state: DiskState::Lost, incarnation: 300, reported_by: 4, total_bytes: 1 << 14 };
    pinned(&disk, "01080202ac0204808001");
    let token = TokenRow { secret_sha256: [0xDD; 32], expires_ms: 300, used_by: Some(2) };
    pinned(&token, &format!("01{secret}ac020102"));
}

fn bucket(durability: Durability) -> BucketInfo {
    BucketInfo {
        id: BUCKET,
        name: BucketName::new("abc").expect("valid"),
        owner: "o".into(),
        created_ms: 300,
        generation: 2,
        versioning: Versioning::Enabled,
        location: "l".into(),
        configs: BucketConfigs { policy: Some("{}".into()), ..BucketConfigs::default() },
        durability,
    }
}

#[test]
fn a_bucket_says_how_its_bytes_are_kept() {
    let fields = "820203616263016fac020201016c000001027b7d0000";
    pinned(&bucket(Durability::default()), &format!("02{fields}000000"));
    let asked = Durability { rf: Some(3), erasure: Erasure::Code { k: 4, m: 2 }, erasure_after_ms: Some(300) };
    pinned(&bucket(asked), &format!("02{fields}010302040201ac02"));
    pinned(&bucket(Durability { erasure: Erasure::Never, ..Durability::default() }), &format!("02{fields}000100"));
}

#[test]
fn a_bucket_of_the_first_form_has_the_clusters_durability() {
    let new = bucket(Durability::default()).encode();
    let mut old = new[..new.len() - 3].to_vec();
    old[0] = 1;
    assert_eq!(hex(&old), "01820203616263016fac020201016c000001027b7d0000");
    for cut in 1..old.len() {
        assert!(BucketInfo::decode(&Bytes::copy_from_slice(&old[..cut])).is_err(), "cut at {cut}");
    }
    assert_eq!(BucketInfo::decode(&old.into()), Ok(bucket(Durability::default())));
}

fn group_record() -> GroupRecord {
    let replica = Replica { disk: DiskId(8), file_generation: 1, state: ReplicaState::Holds(4096) };
    GroupRecord {
        state: GroupState::Sealed,
        generation: 3,
        rf: 2,
        replicas: vec![replica],
        length: 8192,
        writer: (1, 2),
        settled: true,
        account: Some(vec![(Home { bucket: BUCKET, key: object_key("h") }, ID)]),
        buckets: vec![BUCKET],
        dead: vec![(4096, 4096)],
        sealed_ms: 300,
        strip: Some(StripPlace { strip: StripId(9), place: 1, live: vec![(4096, 8192)] }),
    }
}

#[test]
fn records_of_groups_and_strips_are_these_bytes() {
    pinned(
        &group_record(),
        "02020302010801028020804001020101018202016801020301820201802080 20ac020109010180208040"
            .replace(' ', "")
            .as_str(),
    );
    let strip = StripRecord {
        state: StripState::Encoded,
        length: 12288,
        data: vec![StripMember { group: GroupId(1), frames: vec![(4096, 8192)] }],
        parity: vec![GroupId(2)],
        digests: vec![300, 1],
    };
    pinned(&strip, "0101806001010180208040010202ac0201");
    assert_eq!(hex(&key::strip(StripId(9))), "2c0000000000000009");
}

#[test]
fn a_record_of_version_1_is_a_group_of_no_strip() {
    let old: Bytes =
        vec![1, 2, 3, 2, 1, 8, 1, 2, 0x80, 0x20, 0x80, 0x40, 1, 2, 1, 0, 1, 0x82, 2, 1, 0x80, 0x20, 0x80, 0x20].into();
    let expected = GroupRecord { account: None, sealed_ms: 0, strip: None, ..group_record() };
    assert_eq!(GroupRecord::decode(&old).expect("decodes"), expected);
    let again = GroupRecord::decode(&expected.encode()).expect("decodes");
    assert_eq!(again, expected, "and is written as version 2 from then on");
    let fields: &[u8] = &old[1..];
    let command = RootCommand::CreateGroup { group: GroupId(5), record: expected };
    let entry = postcard::to_allocvec(&command).expect("encodes");
    assert!(entry.ends_with(fields), "an entry has the form it always had: {}", hex(&entry));
    assert_eq!(postcard::from_bytes::<RootCommand>(&entry).expect("decodes"), command);
}

/// Inline bytes have no length of their own, so a cut row is another body; the tree's checksums watch over that.
fn pinned_body(row: &BodyRow, golden: &str) {
    let bytes = row.encode();
    assert_eq!(hex(&bytes), golden);
    assert_eq!(&BodyRow::decode(&bytes).expect("decodes"), row);
}

#[test]
fn a_listing_reads_the_head_of_a_version_without_its_metadata() {
    let bytes = version().encode();
    let head = VersionHead::read(&bytes).expect("reads");
    assert_eq!(head.object.and_then(|o| o.storage_class), Some("GLACIER"));
    assert_eq!(head.version_id(), version().version_id());
}

#[test]
fn an_inline_body_is_a_slice_of_its_row() {
    let row = BodyRow::Content { size: 3, bytes: ContentBytes::Inline(Bytes::from_static(b"abc")) }.encode();
    let BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. } = BodyRow::decode(&row).expect("decodes") else {
        panic!("not inline");
    };
    assert_eq!(bytes.as_ptr(), row[2..].as_ptr());
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(0xFE), Just(0xFF), any::<u8>()], 0..12)
}

proptest! {
    #[test]
    fn rows_sort_as_their_keys_even_with_nul_bytes(a in any_bytes(), b in any_bytes()) {
        for f in [family::CURRENT, family::VERSIONS] {
            let bounds = |k: &[u8]| (key::from_key(f, BUCKET, k), key::after_key(f, BUCKET, k));
            let ((from_a, after_a), (from_b, after_b)) = (bounds(&a), bounds(&b));
            prop_assert!(from_a < after_a);
            if a < b {
                prop_assert!(after_a <= from_b, "all rows of the smaller key come first");
                prop_assert!(after_a < after_b);
            }
            let in_prefix = from_b >= from_a && after_b <= key::after_prefix(f, BUCKET, &a);
            prop_assert_eq!(in_prefix, b.starts_with(&a));
            prop_assert!(from_a >= key::from_key(f, BUCKET, &[]) && after_a <= key::bucket_end(f, BUCKET));
            prop_assert!(key::bucket_end(f, BUCKET) <= key::from_key(f, BucketId(BUCKET.0 + 1), &[]));
        }
    }

    #[test]
    fn a_key_taken_apart_is_what_it_was_made_of(text in "[a-z/\u{1}\u{e9}]{1,9}", sequence in any::<u64>(), part in 0u32..3) {
        let k = object_key(&text);
        let row = key::version(BUCKET, &k, sequence);
        let parsed = key::Parsed::new(&row).expect("parses");
        prop_assert_eq!(parsed.sequence(), Ok(sequence));
        prop_assert_eq!(parsed.home(), Ok(Home { bucket: BUCKET, key: k.clone() }));
        let id = BodyId { id: ID, part };
        let row = key::body(BUCKET, &k, id);
        prop_assert_eq!(key::Parsed::new(&row).expect("parses").body_id(), Ok(id));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_value_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0usize..60, flip in any::<u8>()) {
        let mut versions = version().encode().to_vec();
        let at = at % versions.len();
        versions[at] ^= flip;
        let mut random = vec![1];
        random.extend_from_slice(&bytes);
        for bytes in [Bytes::from(versions), Bytes::from(bytes.clone()), Bytes::from(random)] {
            let _ = VersionHead::read(&bytes);
            let _ = VersionRow::decode(&bytes);
            let _ = BodyRow::decode(&bytes);
            let _ = ManifestRow::decode(&bytes);
            let _ = UploadRow::decode(&bytes);
            let _ = OutboxRow::decode(&bytes);
            if let Ok(parsed) = key::Parsed::new(&bytes) {
                let _ = (parsed.home(), parsed.id(0), parsed.id(1), parsed.sequence(), parsed.body_id());
            }
        }
    }
}
