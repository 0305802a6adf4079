//! What the issue wants counted, not timed, of a whole node: device flushes of small PUTs, bytes written by a copy. What HEAD,
//! listings and inline GETs cost stands in `references.rs`, what a page costs in the tests of `metadata`.

mod fixture;

use env::disk::Disk;
use fixture::ask::{self, content};
use fixture::{Node, Setup};
use object_controller::api::ObjectStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: usize = 1 << 20;

/// Syncs of files and directories, on all disks: log, tree and extents.
fn flushes(node: &Node) -> u64 {
    let counters = node.disks.iter().map(|disk| disk.counters());
    counters.map(|counters| counters.syncs + counters.dir_syncs).sum()
}

#[test]
fn at_64_writers_of_4_kib_a_put_costs_at_most_a_tenth_of_a_device_flush() {
    const WRITERS: u64 = 64;
    const PUTS: u64 = 40;
    let node = Node::born(1, Setup::default());
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    let (before, done) = (flushes(&node), Arc::new(AtomicU64::new(0)));
    for writer in 0..WRITERS {
        let (controller, bucket, done) = (node.controller.clone(), bucket.clone(), done.clone());
        node.scheduler.spawn(async move {
            for n in 0..PUTS {
                let key = format!("{writer}/{n}");
                ask::put(&controller, &bucket, &key, content(n, 4096)).await.expect("a put");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    node.settle();
    assert_eq!(done.load(Ordering::Relaxed), WRITERS * PUTS);
    assert!(node.metadata.stats().flushes > 0, "flushes of the tree are among them");
    let flushes = flushes(&node) - before;
    assert!(flushes * 10 <= WRITERS * PUTS, "{flushes} flushes for {} PUTs", WRITERS * PUTS);
}

#[test]
fn a_copy_of_1_gib_writes_no_data_bytes() {
    const PARTS: u32 = 64;
    let node = Node::born(2, Setup::default());
    let bucket = node.run(|c| async move { ask::make_bucket(&c, "bucket").await });
    let (name, piece) = (bucket.clone(), content(1, 16 * MIB));
    node.run(|c| async move { ask::put(&c, &name, "piece", piece).await.expect("a put") });
    let appended = |node: &Node| node.stores.iter().map(|disk| disk.health().appended_bytes).sum::<u64>();
    let written = |node: &Node| node.disks.iter().map(|disk| disk.counters().written_bytes).sum::<u64>();
    let before = (appended(&node), written(&node));
    let size = node.run(|c| async move {
        // Parts of 16 MiB, each by reference: an object of 1 GiB on a disk of half of that.
        let upload = ask::begin(&c, &bucket, "whole").await.expect("an upload");
        let mut listed = Vec::new();
        for number in 1..=PARTS {
            let source = ask::source(&bucket, "piece", None);
            let part = c.upload_part_copy(&bucket, &ask::key("whole"), &upload, number, source, None).await;
            listed.push((number, part.expect("a part").0.etag.to_string()));
        }
        ask::complete(&c, &bucket, "whole", upload, &listed).await.expect("completed");
        ask::copy(&c, &bucket, "whole", "copy").await.expect("a copy");
        c.lookup(&bucket, &ask::key("copy"), None, false).await.expect("there").info().size
    });
    assert_eq!(size, 1 << 30);
    assert_eq!(appended(&node), before.0, "no extent was written");
    let metadata = written(&node) - before.1;
    assert!(metadata < 4 * MIB as u64, "{metadata} bytes of metadata for 64 parts, an object and its copy");
}
