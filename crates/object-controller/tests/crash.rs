//! The power is cut at every mutating call of the disk, in every story that writes: what was acknowledged is there, what was not
//! is there as a whole or not at all.

mod fixture;

use bytes::Bytes;
use env::sim_disk::CrashPolicy;
use fixture::ask::{self, content};
use fixture::{Node, Setup};
use object_controller::Controller;
use object_controller::api::{BucketInfo, ObjectStore, StoreError, UploadId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use types::limits::PART_MIN_BYTES;

type Act<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// What is there before the story begins.
#[derive(Clone)]
struct Before {
    bucket: Arc<BucketInfo>,
    upload: Option<(UploadId, Vec<(u32, String)>)>,
}

const OLD_BYTES: usize = 1_500_000;

fn old() -> Bytes {
    content(1, OLD_BYTES)
}

/// A bucket with one object in extents, `old`, and one inline, `small`.
fn prepared(setup: Setup) -> (Node, Before) {
    let node = Node::born(7, setup);
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        ask::put(&c, &bucket, "old", old()).await.expect("a put");
        ask::put(&c, &bucket, "small", content(2, 900)).await.expect("a put");
        bucket
    });
    node.settle();
    (node, Before { bucket, upload: None })
}

async fn read(node: &Controller, bucket: &BucketInfo, key: &str) -> Option<Bytes> {
    match ask::get(node, bucket, key, None).await {
        Err(StoreError::NoSuchKey { .. }) => None,
        found => Some(found.expect("a key is there or it is not").1),
    }
}

/// Runs the story once to count its mutations, then once for each of them with the power cut there.
fn cut_everywhere(
    (base, before): (Node, Before),
    act: impl Fn(Controller, Before) -> Act<'static>,
    check: impl Fn(&Node, &Before, bool),
) {
    let whole = base.fork();
    let begin = whole.disks[0].mutations();
    let state = before.clone();
    whole.run(|c| act(c, state)).expect("the story ends well when nothing happens");
    whole.settle();
    let count = whole.disks[0].mutations() - begin;
    assert!(count > 0, "a story that writes");
    check(&whole, &before, true);
    for cut in 0..count {
        let node = base.fork();
        assert_eq!(node.disks[0].mutations(), begin, "a start is a function of the disk and the seed");
        node.disks[0].crash_after(begin + cut);
        let state = before.clone();
        let acknowledged = node.run(|c| act(c, state)).is_ok();
        node.scheduler.drain();
        node.scheduler.abandon();
        for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomSubset(cut)] {
            let disks = node.disks.iter().map(|disk| disk.crash(policy)).collect();
            let again = Node::start(100 + cut, node.setup.clone(), disks, false);
            check(&again, &before, acknowledged);
            again.settle();
            again.check_rows();
            let bucket = before.bucket.clone();
            let untouched = again.run(|c| async move { read(&c, &bucket, "small").await });
            assert_eq!(untouched, Some(content(2, 900)), "cut {cut}, {policy:?}");
        }
    }
}

/// `key` is `new` if it was acknowledged, else `new` or as before.
fn all_or_nothing(
    node: &Node,
    before: &Before,
    key: &'static str,
    acknowledged: bool,
    new: Option<Bytes>,
    was: Option<Bytes>,
) {
    let bucket = before.bucket.clone();
    let found = node.run(|c| async move { read(&c, &bucket, key).await });
    if found != new {
        assert!(!acknowledged, "{key} was acknowledged and is not there");
        assert!(found == was, "{key} is neither new nor as before");
    }
}

#[test]
fn a_power_cut_in_an_inline_put_loses_nothing_acknowledged() {
    cut_everywhere(
        prepared(Setup::default()),
        |c, b| Box::pin(async move { ask::put(&c, &b.bucket, "new", content(3, 4_000)).await.map(|_| ()) }),
        |node, before, done| all_or_nothing(node, before, "new", done, Some(content(3, 4_000)), None),
    );
}

#[test]
fn a_power_cut_in_a_put_to_extents_loses_nothing_acknowledged() {
    cut_everywhere(
        prepared(Setup::default()),
        |c, b| Box::pin(async move { ask::put(&c, &b.bucket, "old", content(4, 2_300_000)).await.map(|_| ()) }),
        |node, before, done| all_or_nothing(node, before, "old", done, Some(content(4, 2_300_000)), Some(old())),
    );
}

/// The first disk, which holds half of the metadata and of the data, dies first; the power goes when the story has ended.
#[test]
fn a_disk_that_dies_in_a_mirrored_put_takes_nothing_acknowledged_with_it() {
    cut_everywhere(
        prepared(Setup { disks: 2, ..Setup::mirrored() }),
        |c, b| Box::pin(async move { ask::put(&c, &b.bucket, "new", content(4, 2_300_000)).await.map(|_| ()) }),
        |node, before, done| {
            all_or_nothing(node, before, "new", done, Some(content(4, 2_300_000)), None);
            all_or_nothing(node, before, "old", true, Some(old()), None);
        },
    );
}

#[test]
fn a_power_cut_in_a_copy_loses_nothing_acknowledged() {
    cut_everywhere(
        prepared(Setup::default()),
        |c, b| Box::pin(async move { ask::copy(&c, &b.bucket, "old", "new").await.map(|_| ()) }),
        |node, before, done| {
            all_or_nothing(node, before, "new", done, Some(old()), None);
            all_or_nothing(node, before, "old", true, Some(old()), None);
        },
    );
}

#[test]
fn a_power_cut_in_a_copy_between_shards_loses_nothing_acknowledged() {
    let (node, before) = prepared(Setup::three_shards());
    cut_everywhere(
        (node, before),
        |c, b| Box::pin(async move { ask::copy(&c, &b.bucket, "old", "aaa").await.map(|_| ()) }),
        |node, before, done| {
            all_or_nothing(node, before, "aaa", done, Some(old()), None);
            all_or_nothing(node, before, "old", true, Some(old()), None);
        },
    );
}

#[test]
fn a_power_cut_in_a_delete_loses_nothing_acknowledged() {
    cut_everywhere(
        prepared(Setup::default()),
        |c, b| Box::pin(async move { ask::delete(&c, &b.bucket, "old", None).await.map(|_| ()) }),
        |node, before, done| all_or_nothing(node, before, "old", done, None, Some(old())),
    );
}

#[test]
fn a_power_cut_in_a_complete_loses_nothing_acknowledged() {
    let (node, mut before) = prepared(Setup::default());
    let bucket = before.bucket.clone();
    let upload = node.run(|c| async move {
        let id = ask::begin(&c, &bucket, "new").await.expect("an upload");
        let mut parts = Vec::new();
        for (number, bytes) in [(1, content(5, PART_MIN_BYTES as usize)), (2, content(6, 70_000))] {
            let part = ask::part(&c, &bucket, "new", id, number, bytes).await.expect("a part");
            parts.push((number, part.etag.to_string()));
        }
        (id, parts)
    });
    node.settle();
    before.upload = Some(upload);
    let whole: Bytes = [content(5, PART_MIN_BYTES as usize), content(6, 70_000)].concat().into();
    cut_everywhere(
        (node, before),
        |c, b| {
            Box::pin(async move {
                let (id, parts) = b.upload.expect("begun before");
                ask::complete(&c, &b.bucket, "new", id, &parts).await.map(|_| ())
            })
        },
        |node, before, done| {
            all_or_nothing(node, before, "new", done, Some(whole.clone()), None);
            // The parts are still there if it did not happen: then it can be done again, and if it did, answers the same.
            let (bucket, upload) = (before.bucket.clone(), before.upload.clone());
            let whole = whole.clone();
            node.run(|c| async move {
                let (id, parts) = upload.expect("begun before");
                ask::complete(&c, &bucket, "new", id, &parts).await.expect("repeated");
                assert_eq!(read(&c, &bucket, "new").await, Some(whole));
            });
        },
    );
}

#[test]
fn a_power_cut_while_groups_are_sealed_loses_nothing() {
    cut_everywhere(
        prepared(Setup::default()),
        |c, b| {
            Box::pin(async move {
                ask::put(&c, &b.bucket, "new", content(9, 1_200_000)).await?;
                c.close().await;
                Ok(())
            })
        },
        |node, before, done| {
            all_or_nothing(node, before, "new", done, Some(content(9, 1_200_000)), None);
            all_or_nothing(node, before, "old", true, Some(old()), None);
        },
    );
}

#[test]
fn a_power_cut_while_a_bucket_is_deleted_leaves_it_whole_or_gone() {
    let (node, before) = prepared(Setup::three_shards());
    let (second, upload, etag) = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "second").await;
        let upload = ask::begin(&c, &bucket, "k").await.expect("an upload");
        let part = ask::part(&c, &bucket, "k", upload, 1, content(8, 70_000)).await.expect("a part");
        (bucket, upload, part.etag.to_string())
    });
    node.settle();
    let target = second.clone();
    cut_everywhere(
        (node, before),
        move |c, _| {
            let target = target.clone();
            Box::pin(async move { c.delete_bucket(&target).await })
        },
        |node, _, done| {
            let (second, etag) = (second.clone(), etag.clone());
            node.run(|c| async move {
                match c.bucket(&second.name) {
                    None => {
                        let snapshot = c.metadata().snapshot();
                        let left = metadata::read::upload::buckets(&snapshot, &metadata::shard::KeyRange::ALL);
                        assert!(!left.expect("readable").contains(&second.id), "its uploads went with it");
                    }
                    Some(found) => {
                        assert!(!done, "the deletion was acknowledged");
                        // Whatever was half done is completed at the start: the bucket takes objects again, and has its uploads.
                        ask::complete(&c, &found, "k", upload, &[(1, etag)]).await.expect("what was acknowledged");
                        ask::put(&c, &found, "k", content(8, 10)).await.expect("a usable bucket");
                    }
                }
            });
        },
    );
}
