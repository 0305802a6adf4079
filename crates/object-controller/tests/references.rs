//! Copies move no data; what they refer to lives on without its source.

mod fixture;

use bytes::Bytes;
use fixture::ask::{self, content};
use fixture::{Node, Setup};
use metadata::read::content as rows;
use metadata::shard::KeyRange;
use object_controller::Controller;
use object_controller::api::{BucketInfo, ListObjects, ObjectStore, StoreError};
use std::sync::Arc;
use types::ETag;
use types::limits::PART_MIN_BYTES;

const PART: usize = PART_MIN_BYTES as usize;

fn with_bucket(seed: u64, setup: Setup) -> (Node, Arc<BucketInfo>) {
    let node = Node::born(seed, setup);
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    (node, bucket)
}

/// Bytes of extents appended on all disks.
fn appended(node: &Node) -> u64 {
    node.stores.iter().map(|disk| disk.health().appended_bytes).sum()
}

async fn multipart(c: &Controller, bucket: &Arc<BucketInfo>, key: &str, parts: &[Bytes]) {
    let id = ask::begin(c, bucket, key).await.expect("an upload");
    let mut listed = Vec::new();
    for (number, bytes) in (1..).zip(parts) {
        let part = ask::part(c, bucket, key, id, number, bytes.clone()).await.expect("a part");
        listed.push((number, part.etag.to_string()));
    }
    ask::complete(c, bucket, key, id, &listed).await.expect("completed");
}

#[test]
fn a_copy_writes_no_data_and_outlives_its_source_in_every_shard() {
    for setup in [Setup::default(), Setup::three_shards()] {
        let (node, bucket) = with_bucket(1, setup);
        let name = bucket.clone();
        node.run(|c| async move { ask::put(&c, &name, "m", content(1, 3_000_000)).await.expect("a put") });
        let before = appended(&node);
        for survivor in ["m", "m/2", "z", "a"] {
            let copy = node.fork();
            let name = bucket.clone();
            copy.run(|c| async move {
                for (from, to) in [("m", "a"), ("a", "z"), ("z", "m/2"), ("m", "m")] {
                    ask::copy(&c, &name, from, to).await.expect("a copy");
                }
                for gone in ["m", "a", "z", "m/2"].into_iter().filter(|key| *key != survivor) {
                    ask::delete(&c, &name, gone, None).await.expect("a delete");
                }
                let (_, bytes) = ask::get(&c, &name, survivor, None).await.expect("a copy of a copy of a copy");
                assert_eq!(bytes, content(1, 3_000_000));
            });
            copy.check_rows();
            let condemned = rows::condemned(&copy.metadata.snapshot(), &KeyRange::ALL, None).count();
            assert_eq!((condemned, appended(&copy)), (0, 0), "{survivor}");
        }
        assert_eq!(appended(&node), before);
    }
}

#[test]
fn a_copy_of_a_multipart_object_writes_no_data_and_has_the_md5_of_the_whole() {
    for setup in [Setup::default(), Setup::three_shards()] {
        let (node, bucket) = with_bucket(2, setup);
        let parts = [content(1, PART), content(2, PART + 100_000), content(3, 900)];
        let whole = Bytes::from(parts.concat());
        let name = bucket.clone();
        node.run(|c| async move { multipart(&c, &name, "m", &parts).await });
        let before = appended(&node);
        node.run(|c| async move {
            let outcome = ask::copy(&c, &bucket, "m", "z").await.expect("a copy");
            assert_eq!(outcome.put.etag, ETag::Md5(ask::md5(&whole)));
            ask::delete(&c, &bucket, "m", None).await.expect("a delete");
            let (info, bytes) = ask::get(&c, &bucket, "z", None).await.expect("the copy");
            assert_eq!((info.parts, info.etag), (None, ETag::Md5(ask::md5(&whole))));
            assert_eq!(bytes, whole);
            for (offset, len) in [(0, 1), (PART as u64 - 1, 2), (PART as u64 * 2, 200_000), (whole.len() as u64 - 1, 1)]
            {
                let (_, some) = ask::get_range(&c, &bucket, "z", None, Some((offset, len))).await.expect("a range");
                let end = (offset + len).min(whole.len() as u64);
                assert_eq!(some, whole.slice(offset as usize..end as usize));
            }
        });
        assert_eq!(appended(&node), before);
    }
}

#[test]
fn a_part_refers_to_a_range_of_one_content_and_copies_what_is_small_or_spans_contents() {
    for setup in [Setup::default(), Setup::three_shards()] {
        let (node, bucket) = with_bucket(3, setup);
        let big = content(4, 3 * PART);
        let (name, bytes) = (bucket.clone(), big.clone());
        node.run(|c| async move { ask::put(&c, &name, "a", bytes).await.expect("a put") });
        let before = appended(&node);
        let (name, bytes) = (bucket.clone(), big.clone());
        let upload = node.run(|c| async move {
            let id = ask::begin(&c, &name, "z").await.expect("an upload");
            let range = Some((1_000_003, PART as u64 + 5));
            let source = ask::source(&name, "a", None);
            let (part, _) = c.upload_part_copy(&name, &ask::key("z"), &id, 1, source, range).await.expect("a part");
            assert_eq!(part.etag, ETag::Md5(ask::md5(&bytes[1_000_003..1_000_003 + PART + 5])));
            (id, part.etag.to_string())
        });
        assert_eq!(appended(&node), before, "by reference");
        let (name, bytes) = (bucket.clone(), big.clone());
        node.run(|c| async move {
            let source = ask::source(&name, "a", None);
            let range = Some((7, 70_000));
            let (small, _) =
                c.upload_part_copy(&name, &ask::key("z"), &upload.0, 2, source, range).await.expect("a part");
            let listed = [(1, upload.1), (2, small.etag.to_string())];
            ask::complete(&c, &name, "z", upload.0, &listed).await.expect("completed");
            ask::delete(&c, &name, "a", None).await.expect("a delete");
            let whole = [&bytes[1_000_003..1_000_003 + PART + 5], &bytes[7..70_007]].concat();
            assert_eq!(ask::get(&c, &name, "z", None).await.expect("the object").1, whole);
            // A range over both parts lies in two contents.
            let id = ask::begin(&c, &name, "b").await.expect("an upload");
            let source = ask::source(&name, "z", None);
            let range = Some((60_000, PART as u64));
            let (part, _) = c.upload_part_copy(&name, &ask::key("b"), &id, 1, source, range).await.expect("a part");
            ask::complete(&c, &name, "b", id, &[(1, part.etag.to_string())]).await.expect("completed");
            assert_eq!(ask::get(&c, &name, "b", None).await.expect("the object").1, whole[60_000..60_000 + PART]);
        });
        assert!(appended(&node) > before);
    }
}

#[test]
fn heads_listings_and_gets_of_inline_objects_touch_no_data_disk() {
    let (node, bucket) = with_bucket(7, Setup::default());
    let reads = |node: &Node| node.stores.iter().map(|disk| disk.health().data_reads).sum::<u64>();
    let name = bucket.clone();
    node.run(|c| async move {
        ask::put(&c, &name, "small", content(1, 16_384)).await.expect("a put");
        ask::put(&c, &name, "large", content(2, 16_385)).await.expect("a put");
        for key in ["small", "large"] {
            let head = c.lookup(&name, &ask::key(key), None, false).await.expect("there");
            assert!(head.info().size > 16_000);
        }
        let page = c.list_objects(&name, ListObjects { max: 1000, ..ListObjects::default() }).await.expect("a page");
        assert_eq!(page.objects.len(), 2);
        let handle = c.lookup(&name, &ask::key("small"), None, true).await.expect("there");
        let mut body = handle.read(1_000, 5);
        assert_eq!(body.take_ready().expect("in memory already"), content(1, 16_384).slice(1_000..1_005));
        assert!(body.next().await.expect("no error").is_none());
    });
    assert_eq!((reads(&node), appended(&node)), (0, 4096 + 20_480), "one frame was written and none read");
    node.run(|c| async move { ask::get(&c, &bucket, "large", None).await.expect("there") });
    assert!(reads(&node) > 0);
}

#[test]
fn a_refused_copy_leaves_no_owner_behind() {
    let (node, bucket) = with_bucket(4, Setup::three_shards());
    node.run(|c| async move {
        ask::put(&c, &bucket, "a", content(1, 2_000_000)).await.expect("a put");
        ask::put(&c, &bucket, "z", content(2, 10)).await.expect("a put");
        let mut target = ask::target(&bucket, "z");
        target.conditions.must_not_exist = true;
        let answer = c.copy_object(ask::source(&bucket, "a", None), target).await;
        assert!(matches!(answer, Err(StoreError::PreconditionFailed("If-None-Match"))));
    });
    let snapshot = node.metadata.snapshot();
    assert_eq!(rows::all_owners(&snapshot, &KeyRange::ALL).count(), 0);
    assert_eq!(rows::condemned(&snapshot, &KeyRange::ALL, None).count(), 0);
}

#[test]
fn a_bucket_is_deleted_in_every_shard_with_its_uploads_and_not_while_any_holds_a_version() {
    let (node, bucket) = with_bucket(5, Setup::three_shards());
    let node = {
        let name = bucket.clone();
        node.run(|c| async move {
            ask::put(&c, &name, "z", content(1, 10)).await.expect("a put");
            for key in ["a", "m", "z"] {
                let id = ask::begin(&c, &name, key).await.expect("an upload");
                ask::part(&c, &name, key, id, 1, content(2, 50_000)).await.expect("a part");
            }
            assert!(matches!(c.delete_bucket(&name).await, Err(StoreError::BucketNotEmpty)));
            ask::put(&c, &name, "m", content(1, 10)).await.expect("the bucket goes on");
            for key in ["m", "z"] {
                ask::delete(&c, &name, key, None).await.expect("a delete");
            }
            c.delete_bucket(&name).await.expect("deleted");
            assert!(c.bucket(&name.name).is_none());
            let answer = ask::put(&c, &name, "k", content(1, 10)).await;
            assert!(matches!(answer, Err(StoreError::NoSuchBucket)));
        });
        node.restart()
    };
    node.run(|c| async move {
        assert!(c.bucket(&bucket.name).is_none());
        let again = ask::make_bucket(&c, "bucket").await;
        assert_ne!(again.id, bucket.id);
        let stale = ask::put(&c, &bucket, "k", content(1, 10)).await;
        assert!(matches!(stale, Err(StoreError::NoSuchBucket)), "the former incarnation is gone");
        ask::put(&c, &again, "k", content(1, 10)).await.expect("the new one lives");
    });
    assert_eq!(rows::condemned(&node.metadata.snapshot(), &KeyRange::ALL, None).count(), 3);
}

#[test]
fn users_are_unique_and_survive_a_restart() {
    use object_controller::api::{CreateBucket, NewUser};
    let (node, _) = with_bucket(6, Setup::default());
    let new = |name: &str, key: Option<&str>| NewUser {
        name: name.into(),
        access_key: key.map(Into::into),
        secret_key: None,
        email: None,
    };
    let made = node.run(|c| async move {
        let made = c.create_user(new("ann", None)).await.expect("made");
        assert!(matches!(c.create_user(new("ann", None)).await, Err(StoreError::UserExists)));
        let taken = made.access_key.clone();
        assert!(matches!(c.create_user(new("bob", Some(&taken))).await, Err(StoreError::UserExists)));
        assert!(matches!(c.create_user(new("bob", Some("ROOT"))).await, Err(StoreError::UserExists)));
        assert!(matches!(c.create_user(new("no spaces", None)).await, Err(StoreError::InvalidState(_))));
        made
    });
    let node = node.restart();
    node.run(|c| async move {
        assert_eq!(c.credential(&made.access_key).expect("kept"), made);
        assert!(c.credential("ROOT").expect("root").account.is_root);
        let owner = made.account.canonical_id.clone();
        let name = types::BucketName::new("anns-bucket").expect("a name");
        let bucket = c.create_bucket(CreateBucket { name, owner: owner.clone(), location: String::new() }).await;
        let bucket = bucket.expect("a bucket");
        assert_eq!(c.buckets(&owner), std::slice::from_ref(&bucket));
        assert!(matches!(c.delete_user("ann").await, Err(StoreError::UserHasBuckets)));
        c.delete_bucket(&bucket).await.expect("deleted");
        c.delete_user("ann").await.expect("deleted");
        assert!(matches!(c.delete_user("ann").await, Err(StoreError::NoSuchUser)));
        assert!(c.credential(&made.access_key).is_none() && c.users().is_empty());
    });
}
