//! The driver with real threads, a real directory and the tree on disk.

mod driver_support;

use driver_support::{NEVER, Words, attempt, command, words};
use env::Env;
use env::real_disk::RealDisk;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use metadata::shard::ShardId;
use std::path::Path;
use std::sync::Arc;

fn open(env: &Env, paths: &[&Path], lost: usize) -> Metadata {
    let folder = |path: &&Path| FolderConfig {
        disk: Arc::new(RealDisk::open(path, true).expect("a disk")),
        dir: "meta".to_owned(),
    };
    let config = MetadataConfig::small(env.clone(), 1, paths.iter().map(folder).collect());
    let (segment_bytes, memtable_bytes, log_bytes) = (1 << 20, 64 << 10, 3 << 20);
    let config = MetadataConfig { create: true, lost, segment_bytes, memtable_bytes, log_bytes, ..config };
    Metadata::open(config, Box::new(Words)).expect("opens")
}

/// 32 writers of 60 words each; every answer is readable at once.
fn write(metadata: &Metadata, round: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let writer = async |writer: u32| {
        for n in 0..60 {
            let text = format!("{round}-{writer}-{n}-{}", "x".repeat(200));
            loop {
                match metadata.propose(ShardId(1), attempt(1), NEVER, command(&text)).await {
                    Ok(_) => break,
                    Err(metadata::node::ProposeError::Busy) => tokio::task::yield_now().await,
                    Err(e) => unreachable!("{e}"),
                }
            }
            assert!(driver_support::word(&metadata.snapshot(), ShardId(1), &text).is_some());
        }
    };
    runtime.block_on(futures_util::future::join_all((0..32).map(writer)));
}

#[test]
fn closing_and_opening_again_finds_everything_in_every_folder_also_in_one_filled_anew() {
    let (first, second) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let paths = [first.path(), second.path()];
    for round in 0..4u32 {
        let env = Env::system(1);
        let lost = usize::from(round == 2);
        let metadata = open(&env, &paths, lost);
        assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 1920 * round as usize);
        write(&metadata, round);
        let stats = metadata.stats();
        assert!(stats.flushes > 0 && stats.logs.len() == 2, "{stats:?}");
        metadata.close();
        drop(metadata);
        if round == 1 {
            // The second folder is lost with its disk; an empty one takes its place.
            std::fs::remove_dir_all(second.path().join("meta")).expect("removes");
        }
    }
    // The one that was filled anew, by itself.
    std::fs::remove_dir_all(first.path().join("meta")).expect("removes");
    let metadata = open(&Env::system(1), &paths, 1);
    assert_eq!(words(&metadata.snapshot(), ShardId(1)).len(), 1920 * 4);
    metadata.close();
}
