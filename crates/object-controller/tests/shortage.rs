//! When the process lacks something for a moment: descriptors, or time before a deadline. Afterwards everything goes on.

mod fixture;

use bytes::Bytes;
use fixture::ask::{self, content};
use fixture::{Node, Setup};
use metadata::read::content as rows;
use metadata::shard::KeyRange;
use object_controller::api::{BodyError, BodySource, BodySummary, PutConditions, StoreError};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

#[test]
fn want_of_descriptors_is_busy_and_costs_no_disk_and_no_write_after_it() {
    let mut busy = 0;
    // Each opening of a file in its turn: group files and segments of the log, which is made to need new ones.
    for from in 0..24 {
        let setup = Setup { segment_bytes: 64 << 10, log_bytes: 1 << 20, ..Setup::default() };
        let node = Node::born(41 + from, setup);
        let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
        node.disks[0].refuse_opens(from, 2);
        let name = bucket.clone();
        busy += node.run(|c| async move {
            let mut busy = 0;
            for round in 0..12 {
                let bytes = content(round, if round % 2 == 0 { 700_000 } else { 16_000 });
                match ask::put(&c, &name, &format!("k{round}"), bytes).await {
                    Ok(_) => {}
                    Err(StoreError::Busy(_)) => busy += 1,
                    Err(other) => unreachable!("opening {from}, round {round}: {other}"),
                }
            }
            busy
        });
        node.disks[0].refuse_opens(0, 0);
        assert_eq!(node.metadata.failure(), None, "opening {from}");
        assert!(!node.stores.iter().any(|disk| disk.health().suspect), "opening {from}");
        node.run(|c| async move {
            ask::put(&c, &bucket, "after", content(99, 700_000)).await.expect("as before");
            assert_eq!(ask::get(&c, &bucket, "after", None).await.expect("stored").1, content(99, 700_000));
        });
    }
    assert!(busy > 0, "some openings were wanted");
}

#[test]
fn a_read_without_descriptors_is_busy_and_says_nothing_of_the_replicas() {
    let node = Node::born(42, Setup::mirrored());
    let bucket = node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        ask::put(&c, &bucket, "k", content(1, 2_500_000)).await.expect("a put");
        bucket
    });
    // No file is open for reading after a start.
    let node = node.restart();
    node.disks.iter().for_each(|disk| disk.refuse_opens(0, 8));
    let name = bucket.clone();
    let answer = node.run(|c| async move { ask::get(&c, &name, "k", None).await });
    assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
    assert_eq!(node.controller.findings().take(), []);
    node.disks.iter().for_each(|disk| disk.refuse_opens(0, 0));
    let (_, bytes) = node.run(|c| async move { ask::get(&c, &bucket, "k", None).await }).expect("descriptors again");
    assert_eq!(bytes, content(1, 2_500_000));
}

/// A client that sends what it has and then nothing, for ever.
struct Stalls(Bytes);

impl BodySource for Stalls {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + '_>> {
        let len = self.0.len().min(100_000);
        if len == 0 {
            return Box::pin(pending());
        }
        Box::pin(ready(Ok(Some(self.0.split_to(len)))))
    }

    fn finish(&mut self) -> Result<BodySummary, BodyError> {
        unreachable!("the body never ends")
    }
}

#[test]
fn an_abandon_that_came_too_late_is_tried_again() {
    for steps in 0..12 {
        let node = Node::born(43, Setup::default());
        let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
        node.run(|c| async move {
            let mut body = Stalls(content(1, 1_100_000));
            let mut upload = Box::pin(ask::put_body(&c, &bucket, "k", PutConditions::default(), None, &mut body));
            for _ in 0..200 {
                let polled = poll_fn(|context| Poll::Ready(upload.as_mut().poll(context))).await;
                assert!(polled.is_pending());
                // Lets the workers run.
                let mut yielded = false;
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        });
        for _ in 0..steps {
            node.scheduler.step();
        }
        node.clock.advance(Duration::from_secs(3600));
        node.settle();
        node.run(|c| async move { c.tend().await });
        node.settle();
        let condemned = rows::condemned(&node.metadata.snapshot(), &KeyRange::ALL, None).count();
        assert_eq!(condemned, 1, "after {steps} steps");
    }
}
