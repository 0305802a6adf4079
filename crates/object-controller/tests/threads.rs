//! A node on real threads and a real file system: the same stories, many at once, and again after a restart.

mod fixture;

use env::Env;
use env::buf::BufPool;
use env::disk::Disk;
use env::real_disk::RealDisk;
use extent_store::{DiskIdentity, DiskStore, StoreConfig, StoreSet};
use fixture::ask::{self, Chunks, content};
use fixture::{CLUSTER, NODE, root};
use metadata::apply::Schema;
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use object_controller::api::{ObjectStore, PutConditions};
use object_controller::{Controller, ControllerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{BucketName, DiskId};

const MIB: usize = 1 << 20;

struct Node {
    controller: Controller,
    metadata: Metadata,
    stores: StoreSet,
    write_buffers: BufPool,
}

async fn start(folders: &[&Path], born: bool) -> Node {
    let env = Env::system(4);
    let read_buffers = BufPool::new(16 * MIB);
    let mut stores = Vec::new();
    let mut meta = Vec::new();
    for (index, folder) in folders.iter().enumerate() {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder, false).expect("a folder"));
        if born {
            DiskIdentity::create(&*disk, CLUSTER, NODE, DiskId(0xD1 + index as u64)).expect("a new disk");
        }
        let identity = DiskIdentity::start(&*disk, CLUSTER, NODE).expect("a sound identity").expect("ours");
        let mut config = StoreConfig::new(read_buffers.clone());
        (config.group_bytes, config.preallocate_bytes) = (16 << 20, 1 << 20);
        meta.push(FolderConfig { disk: disk.clone(), dir: "meta".into() });
        stores.push(DiskStore::open(&env, disk, identity, config).expect("a sound disk").0);
    }
    let stores = StoreSet::new(stores).expect("disks of one node");
    let directory = Arc::new(Directory::default());
    let mut config = MetadataConfig::small(env.clone(), NODE, meta);
    config.create = born;
    let metadata = Metadata::open(config, Box::new(Schema::new(directory.clone()))).expect("sound metadata");
    let write_buffers = BufPool::new(ControllerConfig::MIN_WRITE_BYTES);
    let config = ControllerConfig {
        env,
        metadata: metadata.clone(),
        directory,
        disks: stores.clone().into(),
        cluster: CLUSTER,
        rf: (folders.len() as u8).into(),
        write_buffers: write_buffers.clone(),
        read_buffers,
        inline_bytes: types::limits::INLINE_BYTES,
        group_bytes: 16 << 20,
        preallocate_bytes: 1 << 20,
        root: root(),
        nodes: None,
    };
    let controller = Controller::open(config).await.expect("the controller opens");
    Node { controller, metadata, stores, write_buffers }
}

async fn stop(node: Node) {
    node.controller.close().await;
    let Node { controller, metadata, stores, .. } = node;
    drop(controller);
    let ended = tokio::task::spawn_blocking(move || {
        metadata.close();
        stores.iter().for_each(DiskStore::close);
    });
    ended.await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once_find_their_bytes_also_after_a_restart() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let folders = [one.path(), two.path()];
    let node = start(&folders, true).await;
    let bucket = ask::make_bucket(&node.controller, "bucket").await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..64u64 {
        let (c, bucket) = (node.controller.clone(), bucket.clone());
        clients.spawn(async move {
            let len = [100, 20_000, 1_500_000, 2 * MIB][client as usize % 4];
            let mut body = Chunks::of(content(client, len));
            let key = format!("k{client}");
            ask::put_body(&c, &bucket, &key, PutConditions::default(), None, &mut body).await.expect("a put");
            ask::copy(&c, &bucket, &key, &format!("copy{client}")).await.expect("a copy");
            ask::delete(&c, &bucket, &key, None).await.expect("a delete");
            let (_, bytes) = ask::get(&c, &bucket, &format!("copy{client}"), None).await.expect("the copy");
            assert_eq!(bytes, content(client, len));
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client");
    }
    assert_eq!(node.write_buffers.in_use_bytes(), 0);
    stop(node).await;
    let node = start(&folders, false).await;
    let bucket = node.controller.bucket(&BucketName::new("bucket").expect("a name")).expect("kept");
    for client in 0..64u64 {
        let len = [100, 20_000, 1_500_000, 2 * MIB][client as usize % 4];
        let (_, bytes) = ask::get(&node.controller, &bucket, &format!("copy{client}"), None).await.expect("kept");
        assert_eq!(bytes, content(client, len));
    }
    stop(node).await;
}

/// A body that names its number by its length: inline, or now and then in an extent.
fn numbered(n: u64) -> bytes::Bytes {
    content(n, if n.is_multiple_of(5) { 20_000 + n as usize } else { 1_000 + n as usize })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_finds_an_older_object_than_was_acknowledged_or_read_before() {
    const KEYS: usize = 3;
    const WRITES: u64 = 120;
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(&[folder.path()], true).await;
    let bucket = ask::make_bucket(&node.controller, "bucket").await;
    let known: Arc<[AtomicU64; KEYS]> = Arc::default();
    let mut actors = tokio::task::JoinSet::new();
    for index in 0..KEYS {
        let (c, bucket, known) = (node.controller.clone(), bucket.clone(), known.clone());
        actors.spawn(async move {
            for n in 1..=WRITES {
                ask::put(&c, &bucket, &format!("k{index}"), numbered(n)).await.expect("a put");
                known[index].fetch_max(n, Ordering::SeqCst);
            }
        });
    }
    for reader in 0..8usize {
        let (c, bucket, known) = (node.controller.clone(), bucket.clone(), known.clone());
        actors.spawn(async move {
            let mut turn = reader;
            while known.iter().any(|known| known.load(Ordering::SeqCst) < WRITES) {
                turn += 1;
                let index = turn % KEYS;
                let (key, floor) = (format!("k{index}"), known[index].load(Ordering::SeqCst));
                if floor == 0 {
                    tokio::task::yield_now().await;
                    continue;
                }
                let size = if (turn / KEYS).is_multiple_of(3) {
                    c.lookup(&bucket, &ask::key(&key), None, false).await.expect("there").info().size
                } else {
                    let (_, bytes) = ask::get(&c, &bucket, &key, None).await.expect("there");
                    let n = bytes.len() as u64 % 1_000;
                    assert_eq!(bytes, numbered(n), "a length and bytes of two versions");
                    bytes.len() as u64
                };
                let n = size % 1_000;
                assert!(n >= floor, "{n} was found of {key} after {floor}");
                known[index].fetch_max(n, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(ended) = actors.join_next().await {
        ended.expect("an actor");
    }
    let hits = node.metadata.stats().objects.hits;
    assert!(hits > 0, "objects were found in memory");
    stop(node).await;
}
