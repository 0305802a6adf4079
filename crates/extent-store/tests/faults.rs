//! Disks that fail, lie and fill up.
#![allow(clippy::panic)]

mod fixture;

use std::sync::Arc;

use env::disk::{Caching, Disk, Open};
use env::sim_disk::{CrashPolicy, SimDisk};
use extent_store::{
    AppendError, CopyError, CreateError, Damage, Depth, DiskIdentity, DiskStore, FenceError, ReadError, Scanned,
};
use fixture::{CLUSTER, Extent, GROUP, OTHER, STEP, World, at, extent, path, sim_disk};
use types::DiskId;

struct Rig {
    world: World,
    disk: SimDisk,
    store: DiskStore,
}

/// A disk with one open group and these extents in it.
fn rig(seed: u64, extents: &[Extent]) -> (Rig, Vec<u64>) {
    let (world, disk) = (World::simulated(seed), sim_disk(seed));
    let (store, _) = world.open(Arc::new(disk.clone()));
    world.create(&store, GROUP, 1);
    let offsets = world.append_all(&store, GROUP, 1, extents);
    (Rig { world, disk, store }, offsets)
}

impl Rig {
    fn read(&self, offset: u64, extent: Extent) -> Result<bytes::Bytes, ReadError> {
        self.world.read(&self.store, at(GROUP, 1, offset), extent)
    }

    fn append(&self, offset: u64, extent: Extent) -> Result<(), AppendError> {
        self.world.run(self.store.append(self.world.frame(at(GROUP, 1, offset), extent)))
    }

    fn try_fence(&self, generation: u32) -> Result<u64, FenceError> {
        let store = self.store.clone();
        self.world.run(async move { store.fence(GROUP, generation).await })
    }

    fn length(&self) -> Result<u64, ReadError> {
        let store = self.store.clone();
        self.world.run(async move { store.durable_length(GROUP, 1).await })
    }

    fn items(&self, depth: Depth) -> Vec<Scanned> {
        self.store.scan(GROUP, 1, depth).expect("a sound header").collect()
    }
}

fn damage<T: std::fmt::Debug>(result: Result<T, ReadError>) -> Damage {
    match result {
        Err(ReadError::Damaged(damage)) => damage,
        other => panic!("damage was to be found, not {other:?}"),
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_frame_is_never_handed_out() {
    let one = extent(1, 130_000);
    for (place, expected) in [
        (0, "header"),
        (100, "header"),
        (150, "header"),
        (4095, "header"),
        (4096, "slice 0"),
        (4096 + 65_536, "slice 1"),
        (4096 + 129_999, "slice 1"),
    ] {
        let (rig, _) = rig(1, &[one, extent(2, 10)]);
        rig.disk.flip_bit(&path(GROUP, 1), 4096 + place, 3).expect("there");
        let found = damage(rig.read(4096, one)).to_string();
        assert!(found.contains(expected), "byte {place}: {found}");
        let store = rig.store.clone();
        damage(rig.world.run(async move { store.read_frame(at(GROUP, 1, 4096)).await }));
        let items = rig.items(Depth::Payloads);
        assert!(matches!(items[0], Scanned::Damaged { offset: 4096, .. }), "{items:?}");
        assert!(
            items.iter().any(|item| matches!(item, Scanned::Frame(h) if h.origin.content == extent(2, 10).content()))
        );
        assert_eq!(rig.store.health().damaged_reads, 2);
    }
}

#[test]
fn damage_outside_of_a_range_does_not_spoil_it() {
    let one = extent(1, 1 << 20);
    let (rig, _) = rig(1, &[one]);
    rig.disk.flip_bit(&path(GROUP, 1), 4096 + 4096 + 3 * 65_536, 0).expect("there");
    let range = |range| rig.world.read_range(&rig.store, at(GROUP, 1, 4096), one, range);
    assert_eq!(range(0..3 * 65_536).expect("sound slices"), one.payload()[..3 * 65_536]);
    assert_eq!(range(4 * 65_536..1 << 20).expect("sound slices"), one.payload()[4 * 65_536..]);
    assert_eq!(damage(range(3 * 65_536 + 9..3 * 65_536 + 10)), Damage::Slice(3));
}

#[test]
fn flipped_padding_is_found_by_scrub() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    rig.disk.flip_bit(&path(GROUP, 1), 4096 + 4096 + 11, 0).expect("there");
    let store = rig.store.clone();
    let scrubbed = rig.world.run(async move { store.read_frame(at(GROUP, 1, 4096)).await });
    assert_eq!(damage(scrubbed), Damage::Padding);
}

#[test]
fn a_misdirected_read_is_seen_by_the_address_in_the_header() {
    let one = extent(1, 5000);
    let (rig, offsets) = rig(1, &[one, extent(2, 5000)]);
    let file = path(GROUP, 1);
    rig.disk.misdirect_read(&file, &file, offsets[1]).expect("there");
    // The page cache path meets it first, goes the blocking way, and there reads what it should: never wrong bytes.
    if let Ok(bytes) = rig.read(offsets[0], one) {
        assert_eq!(bytes, one.payload());
    }
    rig.disk.misdirect_read(&file, &file, offsets[1]).expect("there");
    let store = rig.store.clone();
    let scrubbed = rig.world.run(async move { store.read_frame(at(GROUP, 1, 4096)).await });
    assert_eq!(damage(scrubbed), Damage::Misplaced("offset"));
}

#[test]
fn a_misdirected_write_is_missing_where_it_should_be_and_damage_where_it_fell() {
    let (one, two) = (extent(1, 5000), extent(2, 5000));
    let (rig, _) = rig(1, &[one]);
    rig.world.create(&rig.store, OTHER, 1);
    rig.disk.misdirect_write(&path(OTHER, 1), &path(GROUP, 1), 4096).expect("there");
    rig.world.append_all(&rig.store, OTHER, 1, &[two]);
    assert!(matches!(rig.world.read(&rig.store, at(OTHER, 1, 4096), two), Err(ReadError::Missing)));
    assert_eq!(damage(rig.read(4096, one)), Damage::Misplaced("group"));
}

#[test]
fn a_lost_write_is_a_gap_and_nothing_behind_it_counts() {
    let (rig, offsets) = rig(1, &[extent(1, 10)]);
    rig.disk.lose_writes(&path(GROUP, 1), 1).expect("there");
    let second = offsets[0] + 8192;
    rig.append(second, extent(2, 10)).expect("the disk says so");
    rig.append(second + 8192, extent(3, 10)).expect("the disk says so");
    assert!(matches!(rig.read(second, extent(2, 10)), Err(ReadError::Missing)));
    assert_eq!(rig.length().expect("a sound header"), second);
    let items = rig.items(Depth::Headers);
    assert!(matches!(items[1], Scanned::Hole { bytes: 8192, .. }), "{items:?}");
    assert!(matches!(items[2], Scanned::Frame(_)), "{items:?}");
}

#[test]
fn a_failed_sync_is_final_for_its_file_and_never_tried_again() {
    let (rig, offsets) = rig(1, &[extent(1, 10)]);
    let end = offsets[0] + 8192;
    rig.disk.fail_sync(1);
    let failed = rig.append(end, extent(2, 10));
    assert!(matches!(failed, Err(AppendError::Failed(_))), "{failed:?}");
    let (before, mutations) = (rig.disk.counters(), rig.disk.mutations());
    for offset in [end, end + 8192] {
        let failed = rig.append(offset, extent(3, 10));
        assert!(matches!(failed, Err(AppendError::Failed(_))), "{failed:?}");
    }
    assert_eq!((rig.disk.counters().syncs, rig.disk.mutations()), (before.syncs, mutations), "not touched again");
    let health = rig.store.health();
    assert!(health.suspect && health.sync_errors == 1, "{health:?}");
    assert_eq!(rig.try_fence(2).expect("the rest of the disk works"), end, "what was acknowledged, no more");
    let image = rig.disk.crash(CrashPolicy::KeepNone);
    let (store, _) = rig.world.open(Arc::new(image));
    assert_eq!(
        rig.world.read(&store, at(GROUP, 1, 4096), extent(1, 10)).expect("acknowledged"),
        extent(1, 10).payload()
    );
    assert_eq!(store.fence_of(GROUP).map(|fence| fence.length), Some(end));
}

#[test]
fn a_failed_sync_of_one_group_leaves_the_others_alone() {
    let (rig, offsets) = rig(1, &[extent(1, 10)]);
    rig.world.create(&rig.store, OTHER, 1);
    rig.disk.fail_sync(1);
    assert!(rig.append(offsets[0] + 8192, extent(2, 10)).is_err());
    rig.world.append_all(&rig.store, OTHER, 1, &[extent(3, 10)]);
}

#[test]
fn a_failed_write_is_final_and_what_waited_behind_it_is_not_acknowledged() {
    let (rig, offsets) = rig(4, &[extent(1, 10)]);
    let end = offsets[0] + 8192;
    rig.disk.fail_write(2);
    let frame = |i: u64| rig.world.frame(at(GROUP, 1, end + i * 8192), extent(10 + i as u32, 10));
    let waiting: Vec<_> = (0..4).map(|i| rig.store.append(frame(i))).collect();
    let answers: Vec<bool> = waiting.into_iter().map(|append| rig.world.run(append).is_ok()).collect();
    assert!(!answers[1] && !answers[2] && !answers[3], "{answers:?}");
    let acknowledged = end + if answers[0] { 8192 } else { 0 };
    assert_eq!(rig.try_fence(2).expect("the rest of the disk works"), acknowledged);
    assert!(rig.store.health().suspect);
}

#[test]
fn a_full_disk_says_so_before_client_bytes_are_taken_and_can_still_be_fenced_and_emptied() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    let used = 1u64 << 30;
    let free = rig.disk.space().expect("on").free_bytes;
    rig.disk.set_capacity(used - free);
    let store = rig.store.clone();
    let refused = rig.world.run(async move { store.create(OTHER, 1, STEP).await });
    assert!(matches!(refused, Err(CreateError::NoSpace)), "{refused:?}");
    assert!(rig.disk.list("extents/cd").expect("its directory").is_empty(), "nothing is left of it");
    // What is reserved can still be appended to; beyond it the disk is full.
    let mut offset = 12_288;
    let refused = loop {
        match rig.append(offset, extent(2, 4096)) {
            Ok(()) => offset += 8192,
            Err(error) => break error,
        }
        assert!(offset <= STEP + 8192, "more than was reserved");
    };
    assert!(matches!(refused, AppendError::NoSpace), "{refused:?}");
    assert!(offset > STEP - 8192, "all that was reserved could be used");
    assert!(!rig.store.health().suspect, "a full disk is not a broken one");
    assert!(matches!(rig.append(offset, extent(3, 1)), Err(AppendError::NoSpace)), "final for this file");
    let length = rig.try_fence(2).expect("a fence needs no space");
    assert_eq!(length, offset);
    assert_eq!(rig.read(4096, extent(1, 10)).expect("reads go on"), extent(1, 10).payload());
    let store = rig.store.clone();
    rig.world.run(async move { store.drop_file(GROUP, 1).await }).expect("dropping needs no space");
    rig.world.create(&rig.store, OTHER, 1);
}

#[test]
fn a_fence_gives_back_what_was_reserved_and_not_written() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    let allocated = |rig: &Rig| {
        let file = rig.disk.open(&path(GROUP, 1), Open::Read, Caching::Buffered).expect("there");
        file.allocated_bytes().expect("on")
    };
    assert!(allocated(&rig) >= STEP);
    rig.try_fence(2).expect("a sound disk");
    assert_eq!(allocated(&rig), 4096 + 8192);
}

#[test]
fn swapped_foreign_and_truncated_files_are_refused() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    rig.world.create(&rig.store, OTHER, 1);
    rig.world.append_all(&rig.store, OTHER, 1, &[extent(2, 10)]);
    rig.store.close();
    let Rig { world, disk, .. } = rig;
    let (one, other) = (path(GROUP, 1), path(OTHER, 1));
    disk.rename(&one, "extents/swap").expect("a file");
    disk.rename(&other, &one).expect("a file");
    disk.rename("extents/swap", &other).expect("a file");
    let (store, _) = world.open(Arc::new(disk.clone()));
    let rig = Rig { world, disk, store };
    assert_eq!(damage(rig.read(4096, extent(1, 10))), Damage::Misplaced("group"));
    assert_eq!(damage(rig.length()), Damage::ForeignFile("group"));
    assert!(matches!(rig.try_fence(2), Err(FenceError::Damaged(Damage::ForeignFile("group")))));
    rig.disk.rename(&one, &path(GROUP, 7)).expect("a file");
    let (store, _) = rig.world.open(Arc::new(rig.disk.clone()));
    let refused = store.scan(GROUP, 7, Depth::Headers).map(|_| ());
    assert_eq!(damage(refused), Damage::ForeignFile("group"));
}

#[test]
fn a_file_of_another_generation_or_disk_is_refused() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    rig.disk.rename(&path(GROUP, 1), &path(GROUP, 2)).expect("a file");
    let (store, _) = rig.world.open(Arc::new(rig.disk.clone()));
    assert_eq!(damage(rig.world.read(&store, at(GROUP, 2, 4096), extent(1, 10))), Damage::Misplaced("generation"));
    assert_eq!(damage(store.scan(GROUP, 2, Depth::Headers).map(|_| ())), Damage::ForeignFile("generation"));

    // A file copied over from another disk of the same node.
    let other = sim_disk(2);
    let identity = DiskIdentity::create(&other, CLUSTER, 1, DiskId(0xD2)).expect("an empty disk");
    other.create_dir_all("extents/ab").expect("a directory");
    let file = other.open(&path(GROUP, 2), Open::CreateNew, Caching::Buffered).expect("new");
    file.write_at(&rig.disk.synced_bytes(&path(GROUP, 2)).expect("there"), 0).expect("written");
    let (store, _) = DiskStore::open(&rig.world.env, Arc::new(other), identity, rig.world.config()).expect("a disk");
    assert_eq!(damage(store.scan(GROUP, 2, Depth::Headers).map(|_| ())), Damage::ForeignFile("disk"));
}

#[test]
fn a_truncated_file_reads_as_missing_or_damaged_and_has_its_true_length() {
    let (one, two) = (extent(1, 10), extent(2, 70_000));
    for (len, second_is) in [(12_288, "missing"), (12_288 + 512, "cut"), (12_288 + 4096 + 100, "cut"), (50_000, "cut")]
    {
        let (rig, offsets) = rig(1, &[one, two]);
        rig.disk.truncate_synced(&path(GROUP, 1), len).expect("there");
        assert_eq!(rig.read(offsets[0], one).expect("below the cut"), one.payload());
        match rig.read(offsets[1], two) {
            Err(ReadError::Missing) => assert_eq!(second_is, "missing", "{len}"),
            other => assert_eq!((damage(other), second_is), (Damage::Truncated, "cut"), "{len}"),
        }
        assert_eq!(rig.length().expect("a sound header"), offsets[1]);
        assert!(rig.items(Depth::Payloads).len() <= 2);
    }
}

#[test]
fn an_unreadable_place_is_an_error_of_the_disk_and_scans_go_around_it() {
    let extents = [extent(1, 10), extent(2, 10), extent(3, 10)];
    let (rig, offsets) = rig(1, &extents);
    rig.disk.make_unreadable(&path(GROUP, 1), offsets[1] + 4096, 512).expect("there");
    assert!(matches!(rig.read(offsets[1], extents[1]), Err(ReadError::Io(_))));
    assert_eq!(rig.read(offsets[2], extents[2]).expect("readable"), extents[2].payload());
    let items = rig.items(Depth::Payloads);
    assert!(matches!(items[0], Scanned::Frame(_)) && matches!(items[2], Scanned::Frame(_)), "{items:?}");
    assert!(matches!(items[1], Scanned::Damaged { damage: Damage::Unreadable, .. }), "{items:?}");
    assert!(matches!(rig.length(), Err(ReadError::Io(_))), "no answer is better than one that is too small");
}

#[test]
fn a_dead_disk_answers_errors_and_no_lengths() {
    let (rig, _) = rig(1, &[extent(1, 10)]);
    rig.disk.lose();
    assert!(matches!(rig.append(12_288, extent(2, 10)), Err(AppendError::Failed(_))));
    assert!(matches!(rig.read(4096, extent(1, 10)), Err(ReadError::Io(_))));
    assert!(matches!(rig.length(), Err(ReadError::Io(_))));
    assert!(matches!(rig.try_fence(2), Err(FenceError::Io(_))));
    assert!(matches!(rig.append(12_288, extent(2, 10)), Err(AppendError::Fenced(2))), "refused all the same");
}

#[test]
fn a_copy_whose_write_was_lost_or_that_found_no_space_never_gets_its_name() {
    for fault in ["lost write", "full disk", "failed sync", "failed directory sync"] {
        let (rig, offsets) = rig(1, &[extent(1, 100_000)]);
        let length = rig.try_fence(2).expect("a sound disk");
        let (store, disk) = (rig.store.clone(), rig.disk.clone());
        let copied = rig.world.run(async move {
            let frame = store.read_frame(at(GROUP, 1, offsets[0])).await.expect("sound");
            let mut copy = store.begin_copy(GROUP, 3, length).await?;
            match fault {
                "lost write" => disk.lose_writes(&(path(GROUP, 3) + ".new"), 2).expect("there"),
                "full disk" => {
                    let free = disk.space().expect("on").free_bytes;
                    disk.set_capacity((1 << 30) - free + 8192);
                }
                "failed sync" => disk.fail_sync(1),
                _ => disk.fail_dir_sync(1),
            }
            copy.put(frame).await?;
            copy.finish().await
        });
        match (fault, &copied) {
            ("lost write", Err(CopyError::NotReadBack(_))) | ("full disk", Err(CopyError::NoSpace)) => {}
            ("failed sync" | "failed directory sync", Err(CopyError::Io(_))) => {}
            _ => panic!("{fault}: {copied:?}"),
        }
        assert_eq!(rig.store.list_files().len(), 1, "{fault}");
        assert_eq!(rig.disk.list("extents/ab").expect("its directory").len(), 1, "{fault}");
        assert_eq!(rig.read(4096, extent(1, 100_000)).expect("untouched"), extent(1, 100_000).payload());
    }
}

#[test]
fn a_frame_of_another_cluster_is_refused() {
    let (rig, _) = rig(1, &[]);
    let frame = rig.world.frame(at(GROUP, 1, 4096), extent(1, 10));
    let mut bytes = frame.bytes().to_vec();
    bytes[16] ^= 1;
    let crc = extent_store::format::crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    let foreign = extent_store::Frame::verify(bytes.into()).expect("sound in itself");
    assert!(matches!(rig.world.run(rig.store.append(foreign)), Err(AppendError::Stale)));
}
