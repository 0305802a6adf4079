//! Stories that run at once, in orders drawn from seeds.

mod fixture;

use fixture::ask::{self, Chunks, content};
use fixture::{Node, Setup};
use object_controller::ControllerConfig;
use object_controller::api::{BucketInfo, PutConditions, StoreError};
use std::sync::Arc;

fn with_bucket(seed: u64, setup: Setup) -> (Node, Arc<BucketInfo>) {
    let node = Node::born(seed, setup);
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    (node, bucket)
}

#[test]
fn of_fifty_racing_puts_that_must_not_find_the_key_exactly_one_wins() {
    for (seed, len) in [(1, 100), (2, 40_000), (3, 100)] {
        let (node, bucket) = with_bucket(seed, Setup::default());
        let racers: Vec<_> = (0..50)
            .map(|racer| {
                let (c, bucket) = (node.controller.clone(), bucket.clone());
                node.scheduler.spawn(async move {
                    let conditions = PutConditions { must_not_exist: true, if_match: None };
                    let mut body = Chunks::of(content(racer, len));
                    ask::put_body(&c, &bucket, "k", conditions, None, &mut body).await.map(|_| racer)
                })
            })
            .collect();
        node.settle();
        let mut winners = Vec::new();
        for mut racer in racers {
            match racer.take().expect("it ended") {
                Ok(winner) => winners.push(winner),
                Err(error) => assert!(matches!(error, StoreError::PreconditionFailed("If-None-Match")), "{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let (_, bytes) = node.run(|c| async move { ask::get(&c, &bucket, "k", None).await }).expect("the winner's");
        assert_eq!(bytes, content(winners[0], len));
    }
}

#[test]
fn a_copy_that_races_with_the_deletion_of_its_source_is_whole_or_finds_nothing() {
    let (mut copied, mut missed) = (0, 0);
    for seed in 0..40 {
        let setup = if seed % 2 == 0 { Setup::default() } else { Setup::three_shards() };
        let (node, bucket) = with_bucket(100 + seed, setup);
        let name = bucket.clone();
        node.run(|c| async move { ask::put(&c, &name, "z", content(seed, 1_300_000)).await.expect("a put") });
        let (c, name) = (node.controller.clone(), bucket.clone());
        let mut copy = node.scheduler.spawn(async move { ask::copy(&c, &name, "z", "a").await });
        let (c, name) = (node.controller.clone(), bucket.clone());
        let mut delete = node.scheduler.spawn(async move { ask::delete(&c, &name, "z", None).await });
        node.settle();
        delete.take().expect("it ended").expect("deleted");
        let found = node.run(|c| async move { ask::get(&c, &bucket, "a", None).await });
        match copy.take().expect("it ended") {
            Ok(_) => {
                copied += 1;
                assert_eq!(found.expect("the copy").1, content(seed, 1_300_000), "seed {seed}");
            }
            Err(StoreError::NoSuchKey { .. }) => {
                missed += 1;
                assert!(matches!(found, Err(StoreError::NoSuchKey { .. })), "seed {seed}");
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(copied > 0 && missed > 0, "the seeds reach both ends: {copied} copied, {missed} missed");
}

#[test]
fn many_uploads_get_on_with_the_smallest_budget_and_never_pass_it() {
    let (node, bucket) = with_bucket(5, Setup { read_bytes: 4 << 20, ..Setup::default() });
    let uploads: Vec<_> = (0..24)
        .map(|upload| {
            let (c, bucket) = (node.controller.clone(), bucket.clone());
            node.scheduler.spawn(async move {
                let hint = (upload % 2 == 0).then_some(3_300_000);
                let mut body = Chunks::of(content(upload, 3_300_000));
                let key = format!("k{upload}");
                ask::put_body(&c, &bucket, &key, PutConditions::default(), hint, &mut body).await
            })
        })
        .collect();
    node.settle();
    for mut upload in uploads {
        upload.take().expect("no upload waits for ever").expect("stored");
    }
    assert_eq!(node.write_buffers.in_use_bytes(), 0, "every buffer came back");
    assert!(node.write_buffers.budget_bytes() <= ControllerConfig::MIN_WRITE_BYTES);
    let readers: Vec<_> = (0..24)
        .map(|reader| {
            let (c, bucket) = (node.controller.clone(), bucket.clone());
            node.scheduler.spawn(async move { ask::get(&c, &bucket, &format!("k{reader}"), None).await })
        })
        .collect();
    node.settle();
    for (reader, mut bytes) in readers.into_iter().enumerate() {
        let (_, bytes) = bytes.take().expect("no reader waits for ever").expect("stored");
        assert_eq!(bytes, content(reader as u64, 3_300_000));
    }
}

#[test]
fn a_body_longer_than_announced_is_stored_whole() {
    let (node, bucket) = with_bucket(6, Setup::default());
    node.run(|c| async move {
        for (hint, len) in [(10, 60_000), (17_000, 17_001), (20_000, 2_500_000), (1_100_000, 3_000_000)] {
            let mut body = Chunks::of(content(len, len as usize));
            let conditions = PutConditions::default();
            ask::put_body(&c, &bucket, "k", conditions, Some(hint), &mut body).await.expect("stored");
            assert_eq!(ask::get(&c, &bucket, "k", None).await.expect("stored").1, content(len, len as usize));
        }
    });
}

#[test]
fn a_reader_keeps_its_pin_until_it_is_dropped() {
    use object_controller::api::ObjectStore;
    let (node, bucket) = with_bucket(9, Setup::default());
    let body = node.run(|c| async move {
        ask::put(&c, &bucket, "k", content(1, 2_000_000)).await.expect("a put");
        let handle = c.lookup(&bucket, &ask::key("k"), None, true).await.expect("stored");
        handle.read(0, 2_000_000)
    });
    let pins = node.controller.pins();
    let ended = pins.advance();
    assert_eq!(pins.lowest_pin(), ended);
    drop(body);
    assert!(pins.lowest_pin() > ended);
}
