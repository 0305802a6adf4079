//! What `ashlar inspect` shows.

mod fixture;

use std::sync::Arc;

use extent_store::{Depth, inspect};
use fixture::{CLUSTER, GROUP, World, at, extent, path, sim_disk};

#[test]
fn a_disk_a_group_and_a_frame_in_words() {
    let (world, disk) = (World::simulated(1), sim_disk(1));
    let (store, _) = world.open(Arc::new(disk.clone()));
    world.create(&store, GROUP, 1);
    let offsets = world.append_all(&store, GROUP, 1, &[extent(1, 70_000), extent(2, 10)]);
    world.fence(&store, GROUP, 2);
    disk.flip_bit(&path(GROUP, 1), offsets[1] + 4096, 0).expect("there");

    let asked = store.clone();
    let quarantined = world.run(async move { asked.quarantined().await }).expect("a list");
    let text = inspect::disk(store.identity(), &store.health(), &store.list_files(), &quarantined, store.strangers());
    assert!(text.contains("disk             00000000000000d1\n"), "{text}");
    assert!(text.contains("group files      1 (1 fenced)\n"), "{text}");

    let mut scan = store.scan(GROUP, 1, Depth::Payloads).expect("a sound file");
    let (header, bytes) = (*scan.file_header(), scan.file_bytes());
    let items: Vec<_> = scan.by_ref().collect();
    let text = inspect::group(&header, bytes, store.list_files().first(), &items);
    assert!(text.contains("fence            generation 2 at 90112\n"), "{text}");
    assert!(text.contains("4096    77824 frame  00000001000000020000000000000001 index 1 payload 70000"), "{text}");
    assert!(text.contains("81920     8192 DAMAGED slice 0 does not match its checksum"), "{text}");

    let text = inspect::frame(&world.frame(at(GROUP, 1, 4096), extent(1, 70_000)).header());
    assert!(text.contains(&format!("cluster          {CLUSTER}\n")), "{text}");
    assert!(text.contains("home key         \"key/1\"\n") && text.contains("slice 1          crc32c "), "{text}");
}
