//! What a disk's store promises, on a real disk and on a simulated one.

mod fixture;

use std::sync::Arc;

use env::disk::Disk;
use extent_store::{AppendError, CopyError, CreateError, Depth, FenceError, FileError, PunchError, ReadError, Scanned};
use fixture::{GROUP, OTHER, STEP, World, at, extent, on_all, sim_disk};

#[test]
fn appended_extents_read_back_whole_and_in_ranges() {
    on_all(|world, disk| {
        let (store, found) = world.open(disk);
        assert!(found.is_empty());
        world.create(&store, GROUP, 1);
        let extents = [extent(1, 1), extent(2, 4096), extent(3, 1 << 20), extent(4, 65_537)];
        let offsets = world.append_all(&store, GROUP, 1, &extents);
        for (extent, offset) in extents.into_iter().zip(offsets) {
            let (address, payload) = (at(GROUP, 1, offset), extent.payload());
            assert_eq!(world.read(&store, address, extent).expect("acknowledged"), payload);
            let size = extent.bytes;
            for range in [0..1, size - 1..size, size / 3..size / 2 + 1, 65_535.min(size - 1)..size] {
                let read = world.read_range(&store, address, extent, range.clone()).expect("acknowledged");
                assert_eq!(read, payload[range.start as usize..range.end as usize], "{range:?}");
            }
        }
    });
}

#[test]
fn only_what_was_asked_for_is_given() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk);
        world.create(&store, GROUP, 1);
        world.append_all(&store, GROUP, 1, &[extent(1, 5000)]);
        let address = at(GROUP, 1, 4096);
        let refused = |error: Result<bytes::Bytes, ReadError>| match error {
            Err(error) => error.to_string(),
            Ok(bytes) => panic!("{} bytes of something else", bytes.len()),
        };
        let right = extent(1, 5000);
        assert_eq!(refused(world.read(&store, address, extent(2, 5000))), "damaged: the frame holds another content");
        assert_eq!(refused(world.read(&store, address, extent(1, 4999))), "damaged: the frame holds another length");
        assert_eq!(refused(world.read(&store, at(GROUP, 2, 4096), right)), "not here");
        assert_eq!(refused(world.read(&store, at(OTHER, 1, 4096), right)), "not here");
        assert_eq!(refused(world.read(&store, at(GROUP, 1, 1 << 30), right)), "not here");
        assert_eq!(refused(world.read(&store, at(GROUP, 1, 4096 + 8192 + 4096), right)), "not here");
        for impossible in [5000..5001, 5..5, 0..5001] {
            let read = world.read_range(&store, address, right, impossible);
            assert!(matches!(read, Err(ReadError::Invalid)), "{read:?}");
        }
        assert!(matches!(world.read(&store, at(GROUP, 1, 4097), right), Err(ReadError::Invalid)));
        assert!(matches!(world.read(&store, at(GROUP, 1, 0), right), Err(ReadError::Invalid)));
    });
}

#[test]
fn appends_come_in_order_to_files_that_are_open() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        let append = |store: &extent_store::DiskStore, generation, offset, number| {
            world.run(store.append(world.frame(at(GROUP, generation, offset), extent(number, 100))))
        };
        assert!(matches!(append(&store, 1, 8192, 1), Err(AppendError::OutOfOrder { expected: 4096 })));
        append(&store, 1, 4096, 1).expect("in order");
        assert!(matches!(append(&store, 1, 4096, 2), Err(AppendError::OutOfOrder { expected: 12_288 })));
        assert!(matches!(append(&store, 2, 4096, 1), Err(AppendError::Stale)));
        let store2 = store.clone();
        let again = world.run(async move { store2.create(GROUP, 1, STEP).await });
        assert!(matches!(again, Err(CreateError::Exists)));
        store.close();
        assert!(matches!(append(&store, 1, 12_288, 3), Err(AppendError::Closed)));
        drop(store);
        let (store, found) = world.open(disk);
        assert_eq!(found.len(), 1);
        assert!(matches!(append(&store, 1, 12_288, 3), Err(AppendError::Stale)), "nothing stays open over a restart");
    });
}

#[test]
fn a_fence_refuses_older_generations_for_good_and_keeps_its_answer() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        world.append_all(&store, GROUP, 1, &[extent(1, 100), extent(2, 70_000)]);
        let length = world.fence(&store, GROUP, 2);
        assert_eq!(length, 4096 + 8192 + 4096 + 73_728);
        assert_eq!(world.fence(&store, GROUP, 2), length);
        assert_eq!(world.fence(&store, OTHER, 5), 0, "no file yet");
        let refused = world.run(store.append(world.frame(at(GROUP, 1, length), extent(3, 100))));
        assert!(matches!(refused, Err(AppendError::Fenced(2))), "{refused:?}");
        drop(store);
        let (store, found) = world.open(disk);
        assert_eq!(found[0].fence.map(|fence| (fence.generation, fence.length)), Some((2, length)));
        let store2 = store.clone();
        let late = world.run(async move { store2.create(OTHER, 4, STEP).await });
        assert!(matches!(late, Err(CreateError::Fenced(5))), "{late:?}");
        let store2 = store.clone();
        let older = world.run(async move { store2.fence(GROUP, 1).await });
        assert!(matches!(older, Err(FenceError::Superseded(2))), "{older:?}");
        assert_eq!(world.fence(&store, GROUP, 3), length);
    });
}

#[test]
fn a_fence_after_a_restart_looks_at_the_file() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        let offsets = world.append_all(&store, GROUP, 1, &[extent(1, 100), extent(2, 1 << 20), extent(3, 9)]);
        store.close();
        drop(store);
        let (store, _) = world.open(disk);
        let end = offsets[2] + 8192;
        let store2 = store.clone();
        assert_eq!(world.run(async move { store2.durable_length(GROUP, 1).await }).expect("a sound file"), end);
        assert_eq!(world.fence(&store, GROUP, 2), end);
    });
}

#[test]
fn a_fence_does_not_take_an_unused_copy_for_what_was_acknowledged_here() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        let offsets = world.append_all(&store, GROUP, 1, &[extent(1, 100)]);
        for group in [GROUP, OTHER] {
            let copying = store.clone();
            let copied = async move { copying.begin_copy(group, 3, 1 << 20).await?.finish().await };
            world.run(copied).expect("a copy whose switch was lost");
        }
        store.close();
        drop(store);
        let (store, _) = world.open(disk);
        assert_eq!(world.fence(&store, GROUP, 4), offsets[0] + 8192);
        assert_eq!(world.fence(&store, OTHER, 4), 0, "nothing was ever appended to it here");
    });
}

#[test]
fn punched_frames_are_missing_and_their_neighbours_stay() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk);
        world.create(&store, GROUP, 1);
        let extents = [extent(1, 100), extent(2, 70_000), extent(3, 100)];
        let offsets = world.append_all(&store, GROUP, 1, &extents);
        let punch = |ranges: &[(u64, u64)]| {
            let (store, ranges) = (store.clone(), ranges.to_vec());
            world.run(async move { store.punch(GROUP, 1, &ranges).await })
        };
        let second = (offsets[1], offsets[2] - offsets[1]);
        assert!(matches!(punch(&[second]), Err(PunchError::NotFenced)));
        let length = world.fence(&store, GROUP, 2);
        for (offset, bytes) in [(0, 4096), (offsets[1], 4096), (offsets[1] + 1, 4096), (4096, 0), (4096, 1 << 40)] {
            let refused = punch(&[(offset, bytes)]);
            assert!(matches!(refused, Err(PunchError::NotWholeFrames { .. })), "{offset}+{bytes}: {refused:?}");
        }
        punch(&[second]).expect("a whole frame");
        punch(&[second]).expect("once more");
        assert!(matches!(world.read(&store, at(GROUP, 1, offsets[1]), extents[1]), Err(ReadError::Missing)));
        for i in [0, 2] {
            let read = world.read(&store, at(GROUP, 1, offsets[i]), extents[i]).expect("not punched");
            assert_eq!(read, extents[i].payload());
        }
        assert_eq!(world.fence(&store, GROUP, 3), length, "a hole is not the end of a file that was answered for");
        let items: Vec<Scanned> = store.scan(GROUP, 1, Depth::Payloads).expect("a sound file").collect();
        assert!(matches!(items[1], Scanned::Hole { offset, bytes } if (offset, bytes) == second), "{items:?}");
        assert!(matches!(items[3], Scanned::Hole { .. }) && items.len() == 4, "the rest of the reservation");
    });
}

#[test]
fn a_copy_has_the_same_frames_at_the_same_offsets_in_a_new_generation() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk);
        world.create(&store, GROUP, 1);
        let extents = [extent(1, 100), extent(2, 300_000), extent(3, 5)];
        let offsets = world.append_all(&store, GROUP, 1, &extents);
        let length = world.fence(&store, GROUP, 2);
        let copying = store.clone();
        let (first, third) = (at(GROUP, 1, offsets[0]), at(GROUP, 1, offsets[2]));
        world
            .run(async move {
                let mut copy = copying.begin_copy(GROUP, 3, length).await?;
                let again = copying.begin_copy(GROUP, 3, length).await;
                assert!(matches!(again, Err(CopyError::Exists)));
                copy.put(copying.read_frame(first).await.expect("sound")).await?;
                copy.put(copying.read_frame(third).await.expect("sound")).await?;
                copy.finish().await
            })
            .expect("a copy");
        for (i, missing) in [(0, false), (1, true), (2, false)] {
            let read = world.read(&store, at(GROUP, 3, offsets[i]), extents[i]);
            assert_eq!(matches!(read, Err(ReadError::Missing)), missing, "{read:?}");
            assert!(missing || read.expect("copied") == extents[i].payload());
        }
        let store2 = store.clone();
        assert_eq!(world.run(async move { store2.durable_length(GROUP, 3).await }).expect("a copy"), length);
        assert_eq!(store.list_files().len(), 2);
    });
}

#[test]
fn frames_that_do_not_belong_into_a_copy_are_refused_and_an_unfinished_one_leaves_nothing() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        let frames: Vec<_> = [at(OTHER, 1, 4096), at(GROUP, 1, 8192), at(GROUP, 1, 4096), at(GROUP, 1, 81_920)]
            .map(|address| world.frame(address, extent(1, 100)))
            .into();
        let copying = store.clone();
        world.run(async move {
            let mut copy = copying.begin_copy(GROUP, 2, 80_000).await.expect("a new file");
            for (frame, fits) in frames.into_iter().zip([false, true, false, false]) {
                assert_eq!(copy.put(frame).await.is_ok(), fits);
            }
        });
        assert!(store.list_files().is_empty());
        assert!(disk.list("extents/ab").expect("its directory").is_empty());
        world.create(&store, GROUP, 2);
    });
}

#[test]
fn quarantine_keeps_the_bytes_and_the_reason_and_can_be_undone() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        world.append_all(&store, GROUP, 1, &[extent(1, 100)]);
        let store2 = store.clone();
        let name = world.run(async move { store2.quarantine(GROUP, 1, "nobody knows it").await }).expect("set aside");
        assert!(matches!(world.read(&store, at(GROUP, 1, 4096), extent(1, 100)), Err(ReadError::Missing)));
        let late = world.run(store.append(world.frame(at(GROUP, 1, 12_288), extent(2, 100))));
        assert!(matches!(late, Err(AppendError::Stale)), "{late:?}");
        drop(store);
        let (store, found) = world.open(disk);
        assert!(found.is_empty());
        let store2 = store.clone();
        let list = world.run(async move { store2.quarantined().await }).expect("a list");
        assert_eq!((list.len(), list[0].name.as_str(), list[0].reason.as_str()), (1, &*name, "nobody knows it"));
        let (store2, name2) = (store.clone(), name.clone());
        world.run(async move { store2.restore(&name2).await }).expect("put back");
        assert!(world.read(&store, at(GROUP, 1, 4096), extent(1, 100)).is_ok());
        let store2 = store.clone();
        world
            .run(async move {
                let name = store2.quarantine(GROUP, 1, "").await?;
                assert!(matches!(store2.purge("../identity").await, Err(FileError::Missing)));
                store2.purge(&name).await?;
                assert!(matches!(store2.purge(&name).await, Err(FileError::Missing)));
                Ok::<_, FileError>(())
            })
            .expect("purged");
        assert!(store.list_files().is_empty());
    });
}

#[test]
fn a_dropped_file_is_gone_with_its_fence() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk.clone());
        world.create(&store, GROUP, 1);
        world.append_all(&store, GROUP, 1, &[extent(1, 100)]);
        world.fence(&store, GROUP, 2);
        let store2 = store.clone();
        world.run(async move { store2.drop_file(GROUP, 1).await }).expect("dropped");
        let store2 = store.clone();
        let again = world.run(async move { store2.drop_file(GROUP, 1).await });
        assert!(matches!(again, Err(FileError::Missing)), "{again:?}");
        assert!(disk.list("fences").expect("its directory").is_empty());
        drop(store);
        assert!(world.open(disk).1.is_empty());
    });
}

#[test]
fn waiting_appends_of_all_groups_share_syncs() {
    let (world, disk) = (World::simulated(3), sim_disk(3));
    let mut config = world.config();
    (config.preallocate_bytes, config.batch) = (1 << 20, 64);
    let identity =
        extent_store::DiskIdentity::create(&disk, fixture::CLUSTER, 1, fixture::DISK).expect("an empty disk");
    let (store, _) =
        extent_store::DiskStore::open(&world.env, Arc::new(disk.clone()), identity, config).expect("a sound disk");
    world.create(&store, GROUP, 1);
    let (before, health) = (disk.counters(), store.health());
    let waiting: Vec<_> = (0..64u32)
        .map(|i| store.append(world.frame(at(GROUP, 1, 4096 + 8192 * u64::from(i)), extent(i, 4096))))
        .collect();
    for append in waiting {
        world.run(append).expect("acknowledged");
    }
    let (after, synced) = (disk.counters(), store.health().syncs - health.syncs);
    assert_eq!(store.health().appends, 64);
    assert_eq!(after.syncs - before.syncs, synced);
    // The simulated scheduler hands over batches of random size: far fewer syncs than appends, whatever it draws.
    assert!(synced <= 12, "{synced} syncs for 64 appends that waited together");
}

#[test]
fn a_range_reads_its_header_and_covering_slices_and_nothing_else() {
    let (world, disk) = (World::simulated(5), sim_disk(5));
    let (store, _) = world.open(Arc::new(disk.clone()));
    world.create(&store, GROUP, 1);
    let big = extent(1, 1 << 20);
    world.append_all(&store, GROUP, 1, &[big]);
    let measure = |range: std::ops::Range<u32>| {
        let before = disk.counters();
        world.read_range(&store, at(GROUP, 1, 4096), big, range).expect("acknowledged");
        let after = disk.counters();
        (after.reads - before.reads, after.read_bytes - before.read_bytes)
    };
    let slice = 64 << 10;
    assert_eq!(measure(0..1 << 20), (1, 4096 + (1 << 20)), "header and payload in one read");
    assert_eq!(measure(0..10), (1, 4096 + slice));
    assert_eq!(measure(70_000..70_001), (2, 4096 + slice));
    assert_eq!(measure(65_535 + 65_536..65_536 * 2 + 1), (2, 4096 + 2 * slice));
}

#[test]
fn handles_of_many_groups_are_bounded_and_all_stay_readable() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk);
        let group = |i: u64| types::GroupId(i << 50 | i);
        for i in 1..20 {
            world.create(&store, group(i), 1);
            world.append_all(&store, group(i), 1, &[extent(i as u32, 10)]);
        }
        for i in (1..20).chain((1..20).rev()) {
            let read = world.read(&store, at(group(i), 1, 4096), extent(i as u32, 10)).expect("acknowledged");
            assert_eq!(read, extent(i as u32, 10).payload());
        }
        assert_eq!(store.open_handles(), 4, "as configured");
    });
}

#[test]
fn what_is_not_ours_is_reported_and_left_alone() {
    on_all(|world, disk: Arc<dyn Disk>| {
        disk.create_dir_all("extents/zz").expect("a directory");
        let file = disk.open("extents/zz/photo.jpg", env::disk::Open::CreateNew, env::disk::Caching::Buffered);
        file.expect("a file").write_at(b"mine", 0).expect("written");
        // An extents folder without an identity is refused; with one, the stranger is only reported.
        assert!(world.try_open(disk.clone()).is_err_and(|error| error.contains("no identity file")));
        disk.remove("extents/zz/photo.jpg").expect("removed");
    });
    on_all(|world, disk| {
        drop(world.open(disk.clone()));
        disk.create_dir_all("extents/zz").expect("a directory");
        let file = disk.open("extents/zz/photo.jpg", env::disk::Open::CreateNew, env::disk::Caching::Buffered);
        file.expect("a file").write_at(b"mine", 0).expect("written");
        let (store, found) = world.open(disk.clone());
        assert!(found.is_empty());
        assert_eq!(store.strangers(), ["extents/zz/photo.jpg"]);
        assert_eq!(disk.list("extents/zz").expect("its directory"), ["photo.jpg"]);
    });
}

#[test]
fn a_page_of_a_scan_goes_on_where_the_last_one_ended() {
    on_all(|world, disk| {
        let (store, _) = world.open(disk);
        world.create(&store, GROUP, 1);
        let extents: Vec<_> = (0..12).map(|i| extent(i, 1 << 20)).collect();
        let offsets = world.append_all(&store, GROUP, 1, &extents);
        let (mut from, mut pages, mut seen) = (Some(0), 0, Vec::new());
        while let Some(at) = from {
            let store = store.clone();
            let page = world.run(async move { store.scan_page(GROUP, 1, Depth::Payloads, at).await });
            let page = page.expect("a sound file");
            seen.extend(page.items.into_iter().filter_map(|item| match item {
                Scanned::Frame(header) => Some(header.address.offset),
                _ => None,
            }));
            (from, pages) = (page.next, pages + 1);
        }
        assert_eq!(seen, offsets);
        assert!(pages > 1, "12 MiB are more than a page");
    });
}

#[test]
fn real_threads_append_read_and_fence_at_once_without_losing_an_acknowledgement() {
    let world = World::real();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(env::real_disk::RealDisk::open(dir.path(), false).expect("a directory"));
    let (store, _) = world.open(disk.clone());
    world.create(&store, GROUP, 1);
    let tail = Arc::new(std::sync::Mutex::new(4096u64));
    let threads: Vec<_> = (0..8u32)
        .map(|thread| {
            let (store, tail, buffers) = (store.clone(), tail.clone(), world.buffers.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let mut acknowledged = Vec::new();
                for i in 0..20 {
                    let one = extent(thread * 100 + i, 1 + 700 * i);
                    // The offset is taken and handed over under one lock, as a group's writer does.
                    let mut next = tail.lock().expect("no panic");
                    let frame = fixture::frame_in(&buffers, at(GROUP, 1, *next), one);
                    let (address, append) = (frame.address(), store.append(frame.clone()));
                    *next = frame.end();
                    drop(next);
                    match runtime.block_on(append) {
                        Ok(()) => acknowledged.push((address, one)),
                        Err(AppendError::Fenced(2)) => break,
                        Err(error) => panic!("{error}"),
                    }
                    let read = runtime.block_on(store.read(one.request(address, 0..one.bytes)));
                    assert_eq!(read.expect("acknowledged"), one.payload());
                }
                acknowledged
            })
        })
        .collect();
    let length = world.fence(&store, GROUP, 2);
    let acknowledged: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    store.close();
    drop(store);
    let (store, _) = world.open(disk);
    for (address, one) in acknowledged {
        assert!(address.offset < length, "{address:?} was acknowledged after the fence answered {length}");
        assert_eq!(world.read(&store, address, one).expect("acknowledged"), one.payload());
    }
}

#[test]
fn appends_accepted_before_a_fence_are_acknowledged_and_counted_by_it() {
    for seed in 0..8 {
        let (world, disk) = (World::simulated(seed), sim_disk(seed));
        let (store, _) = world.open(Arc::new(disk));
        world.create(&store, GROUP, 1);
        let frame = |i: u64| world.frame(at(GROUP, 1, 4096 + 8192 * i), extent(i as u32, 10));
        let waiting: Vec<_> = (0..3).map(|i| store.append(frame(i))).collect();
        assert_eq!(world.fence(&store, GROUP, 2), 4096 + 3 * 8192, "seed {seed}");
        for append in waiting {
            world.run(append).expect("accepted before the fence");
        }
    }
}

#[test]
fn a_read_that_the_page_cache_cannot_answer_is_begun_without_a_thread_and_verified() {
    let Ok(ring) = env::ring::Ring::start() else {
        eprintln!("skipped: no io_uring here");
        return;
    };
    let world = World::real();
    // Not in memory: direct writes leave the page cache empty only on a disk.
    let dir = tempfile::tempdir_in(".").expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(fixture::ringed(dir.path(), ring));
    let (store, _) = world.open(disk.clone());
    world.create(&store, GROUP, 1);
    let extents: Vec<_> = (0..8).map(|number| extent(number, 200_000)).collect();
    let offsets = world.append_all(&store, GROUP, 1, &extents);
    // The first read opens the file, on a thread.
    for (extent, offset) in extents.iter().zip(&offsets) {
        assert_eq!(world.read(&store, at(GROUP, 1, *offset), *extent).expect("sound"), extent.payload());
    }
    let health = store.health();
    assert!(health.begun_reads >= 1 && health.begun_reads + health.inline_reads <= 8, "{health:?}");
    // Damage is found, and named as the blocking path names it.
    let names = disk.list("extents/ab").expect("the group's directory");
    let file = disk.open(&format!("extents/ab/{}", names[0]), env::disk::Open::ReadWrite, env::disk::Caching::Direct);
    let mut block = env::buf::AlignedBuf::zeroed(4096);
    block.fill(7);
    let last = *offsets.last().expect("eight");
    file.expect("the group's file").write_at(&block, last + 8192).expect("a sound disk");
    let damaged = world.read(&store, at(GROUP, 1, last), extents[7]);
    assert!(matches!(damaged, Err(extent_store::ReadError::Damaged(extent_store::Damage::Slice(0)))), "{damaged:?}");
}
