//! The versioning, condition and multipart rows of the S3 cases, asked of the model directly.

mod fixture;

use fixture::{Fixture, Whole, key};
use object_controller::api::{
    CompleteUpload, CompletedPart, CopyObject, CopySource, CreateUpload, DeleteConditions, DeleteObject, ListVersions,
    NewObject, ObjectStore, PutConditions, ReadConditions, StoreError, Versioning,
};
use std::sync::Arc;
use types::{ChecksumAlgorithm, ChecksumKind, VersionId};

#[tokio::test]
async fn case_31_versions_and_markers_are_interleaved_newest_first() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let v1 = f.put("k", "1").await.version;
    let d1 = f.delete("k", None).await.version;
    let v2 = f.put("k", "2").await.version;
    let d2 = f.delete("k", None).await.version;
    let page = f.versions(ListVersions { max: 1000, ..ListVersions::default() }).await;
    assert_eq!(page.versions.iter().map(|v| Some(v.version)).collect::<Vec<_>>(), [d2, v2, d1, v1]);
    assert_eq!(page.versions.iter().map(|v| v.is_latest).collect::<Vec<_>>(), [true, false, false, false]);
    assert!(page.versions[0].object.is_none() && page.versions[1].object.is_some());
}

#[tokio::test]
async fn case_32_the_null_version_is_listed_once_by_pages_of_one() {
    let f = Fixture::new().await;
    f.put("k", "null").await;
    f.versioning(Versioning::Enabled).await;
    f.put("k", "new").await;
    let mut request = ListVersions { max: 1, ..ListVersions::default() };
    let mut seen = Vec::new();
    loop {
        let page = f.versions(request.clone()).await;
        seen.extend(page.versions.iter().map(|v| v.version));
        if !page.truncated {
            break;
        }
        request.key_marker = page.next_key;
        request.version_marker = page.next_version;
    }
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1], VersionId::Null);
}

#[tokio::test]
async fn case_33_a_key_marker_alone_begins_after_all_its_versions() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    for k in ["k", "k", "k", "z"] {
        f.put(k, "x").await;
    }
    let request = ListVersions { key_marker: Some("k".into()), max: 1000, ..ListVersions::default() };
    let page = f.versions(request).await;
    assert_eq!(page.versions.iter().map(|v| v.key.as_str()).collect::<Vec<_>>(), ["z"]);
}

#[tokio::test]
async fn cases_37_and_46_readers_are_told_what_hides_a_key() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let v = f.put("k", "x").await.version;
    let d = f.delete("k", None).await.version.expect("a marker");
    assert!(matches!(f.get("k", None).await, Err(StoreError::NoSuchKey { delete_marker: Some(m) }) if m == d));
    assert!(matches!(f.get("k", Some(d)).await, Err(StoreError::DeleteMarker { version, .. }) if version == d));
    assert!(matches!(f.get("k", Some(VersionId::Null)).await, Err(StoreError::NoSuchVersion)));
    assert_eq!(f.get("k", v).await.expect("the version"), "x");
    assert!(f.delete("k", Some(d)).await.delete_marker);
    assert_eq!(f.get("k", None).await.expect("visible again"), "x");
}

#[tokio::test]
async fn a_suspended_bucket_replaces_only_its_null_version() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let kept = f.put("k", "kept").await.version;
    f.versioning(Versioning::Suspended).await;
    assert_eq!(f.put("k", "one").await.version, Some(VersionId::Null));
    f.put("k", "two").await;
    assert_eq!(f.versions(ListVersions { max: 9, ..ListVersions::default() }).await.versions.len(), 2);
    assert_eq!(f.delete("k", None).await.version, Some(VersionId::Null));
    assert_eq!(f.get("k", kept).await.expect("the version"), "kept");
    assert!(f.get("k", None).await.is_err());
}

#[tokio::test]
async fn case_44_an_old_version_copied_onto_its_key_becomes_the_newest() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let old = f.put("k", "old").await.version;
    f.put("k", "new").await;
    let source = CopySource {
        bucket: Arc::clone(&f.bucket),
        key: key("k"),
        version: old,
        conditions: ReadConditions::default(),
    };
    let target = CopyObject {
        bucket: Arc::clone(&f.bucket),
        key: key("k"),
        meta: None,
        tags: None,
        always: Vec::new(),
        checksum: None,
        conditions: PutConditions::default(),
    };
    let made = f.store.copy_object(source, target).await.expect("a copy");
    assert_eq!(made.source_version, old);
    assert_eq!(f.get("k", None).await.expect("the copy"), "old");
    f.delete("k", old).await;
    assert_eq!(f.get("k", None).await.expect("the copy"), "old");
}

#[tokio::test]
async fn cases_54_and_62_conditions_are_judged_on_the_current_version() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let first = f.put("k", "1").await;
    f.put("k", "2").await;
    let absent = PutConditions { must_not_exist: true, if_match: None };
    let first = PutConditions { must_not_exist: false, if_match: Some(first.etag.to_string()) };
    assert!(matches!(f.put_if("k", "3", absent.clone()).await, Err(StoreError::PreconditionFailed(_))));
    assert!(matches!(f.put_if("k", "3", first.clone()).await, Err(StoreError::PreconditionFailed(_))));
    f.delete("k", None).await;
    assert!(matches!(f.put_if("k", "3", first).await, Err(StoreError::NoSuchKey { .. })));
    assert!(f.put_if("k", "3", absent).await.is_ok());
}

#[tokio::test]
async fn a_delete_marker_is_there_but_has_neither_etag_nor_size() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    f.put("k", "x").await;
    f.delete("k", None).await;
    let delete = |if_match: Option<&str>, if_match_size| DeleteObject {
        bucket: Arc::clone(&f.bucket),
        key: key("k"),
        version: None,
        conditions: DeleteConditions { if_match: if_match.map(str::to_owned), if_match_size, ..Default::default() },
    };
    for refused in [delete(Some("0123"), None), delete(None, Some(1))] {
        assert!(matches!(f.store.delete_object(refused).await, Err(StoreError::PreconditionFailed(_))));
    }
    assert!(f.store.delete_object(delete(Some("*"), None)).await.expect("it is there").delete_marker);
}

#[tokio::test]
async fn cases_78_and_86_complete_repeats_its_answer_and_abort_ends_an_upload() {
    let f = Fixture::new().await;
    let bucket = Arc::clone(&f.bucket);
    let begin =
        |checksum| CreateUpload { bucket: Arc::clone(&bucket), key: key("k"), object: NewObject::default(), checksum };
    let full = Some((ChecksumAlgorithm::Crc32, ChecksumKind::FullObject));
    let upload = f.store.create_upload(begin(full)).await.expect("an upload");
    let (big, small) = ("a".repeat(5 << 20), "b");
    let mut parts = Vec::new();
    for (number, body) in [(2, big.as_str()), (5, small)] {
        let mut source = Whole::new(body.as_bytes());
        let part = f.store.upload_part(&bucket, &key("k"), &upload, number, &mut source).await.expect("a part");
        parts.push(CompletedPart { number, etag: part.etag.to_string(), checksum: None });
    }
    let complete = |parts: &[CompletedPart]| CompleteUpload {
        bucket: Arc::clone(&bucket),
        key: key("k"),
        upload,
        parts: parts.to_vec(),
        conditions: PutConditions::default(),
        checksum: None,
        size: None,
    };
    let wrong = CompletedPart { number: 9, ..parts[0].clone() };
    let answer = f.store.complete_upload(complete(&[wrong])).await;
    assert!(matches!(answer, Err(StoreError::InvalidPart { number: 9 })));
    let first = f.store.complete_upload(complete(&parts)).await.expect("an object");
    assert_eq!(f.store.complete_upload(complete(&parts)).await.expect("the same object"), first);
    let whole = format!("{big}{small}");
    assert_eq!(first.checksum.map(|c| c.digest), Some(model::checksum_of(ChecksumAlgorithm::Crc32, whole.as_bytes())));
    assert!(matches!(f.store.abort_upload(&bucket, &key("k"), &upload).await, Err(StoreError::NoSuchUpload)));
    f.delete("k", None).await;
    f.put("k", "another").await;
    let late = f.store.complete_upload(complete(&parts)).await;
    assert!(matches!(late, Err(StoreError::NoSuchUpload)), "the version it made is gone: {late:?}");

    let upload = f.store.create_upload(begin(None)).await.expect("an upload");
    f.store.abort_upload(&bucket, &key("k"), &upload).await.expect("aborted");
    let late = f.store.upload_part(&bucket, &key("k"), &upload, 1, &mut Whole::new(b"x")).await;
    assert!(matches!(late, Err(StoreError::NoSuchUpload)));
}

#[tokio::test]
async fn case_159_a_bucket_with_only_a_delete_marker_is_not_empty() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    let marker = f.delete("k", None).await.version;
    assert!(matches!(f.store.delete_bucket(&f.bucket).await, Err(StoreError::BucketNotEmpty)));
    f.delete("k", marker).await;
    assert!(f.store.delete_bucket(&f.bucket).await.is_ok());
    assert!(matches!(f.store.delete_bucket(&f.bucket).await, Err(StoreError::NoSuchBucket)));
}
