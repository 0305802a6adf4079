//! One suite over both trees: batches are atomic, snapshots stand still, a reopened tree is the last completed flush.

use env::disk::Disk;
use env::sim_disk::{CrashPolicy, SimDisk};
use metadata::tree::{LsmConfig, LsmTree, MemTree, Read, Snapshot, Tree, WriteBatch};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes trees of one kind over something that stays when they are closed.
trait Kind {
    fn open(&self) -> Arc<dyn Tree>;
}

struct Mem(SimDisk);

impl Kind for Mem {
    fn open(&self) -> Arc<dyn Tree> {
        Arc::new(MemTree::open(Arc::new(self.0.clone()), "a/tree").expect("opens"))
    }
}

struct Lsm(tempfile::TempDir);

const LSM: LsmConfig = LsmConfig { cache_bytes: 1 << 20, table_bytes: 1 << 20, compress: true };

impl Kind for Lsm {
    fn open(&self) -> Arc<dyn Tree> {
        Arc::new(LsmTree::open(&self.0.path().join("tree"), LSM).expect("opens"))
    }
}

fn both(test: impl Fn(&dyn Kind)) {
    test(&Mem(SimDisk::new(1, 1 << 30)));
    test(&Lsm(tempfile::tempdir().expect("a directory")));
}

fn batch(rows: &[(&str, Option<&str>)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (key, value) in rows {
        match value {
            Some(value) => batch.put(key.as_bytes().to_vec(), value.as_bytes().to_vec()),
            None => batch.remove(key.as_bytes().to_vec()),
        }
    }
    batch
}

fn write(tree: &Arc<dyn Tree>, rows: &[(&str, Option<&str>)]) {
    tree.publish(tree.write(batch(rows)).expect("writes"));
}

fn flush(tree: &Arc<dyn Tree>) {
    tree.seal();
    tree.flush().expect("flushes");
}

fn all(read: &dyn Read) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let up: Vec<_> =
        read.range(b"", b"\xff").map(|row| row.expect("reads")).map(|(k, v)| (text(&k), text(&v))).collect();
    let mut down: Vec<_> =
        read.range_back(b"", b"\xff").map(|row| row.expect("reads")).map(|(k, v)| (text(&k), text(&v))).collect();
    down.reverse();
    assert_eq!(up, down, "both directions give the same rows");
    for (key, value) in &up {
        assert_eq!(read.get(key.as_bytes()).expect("reads").as_deref(), Some(value.as_bytes()));
    }
    up
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn a_batch_is_invisible_until_it_is_published_and_then_whole() {
    both(|kind| {
        let tree = kind.open();
        write(&tree, &[("a", Some("1")), ("b", Some("1"))]);
        let at = tree.write(batch(&[("a", Some("2")), ("b", None), ("c", Some("2"))])).expect("writes");
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "1"), ("b", "1")]));
        tree.publish(at);
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "2"), ("c", "2")]));
    });
}

#[test]
fn of_two_rows_with_one_key_in_a_batch_the_later_wins() {
    both(|kind| {
        let tree = kind.open();
        write(&tree, &[("a", Some("1")), ("a", None), ("b", None), ("b", Some("2")), ("b", Some("3"))]);
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("b", "3")]));
        flush(&tree);
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("b", "3")]));
    });
}

#[test]
fn a_snapshot_stands_still_through_writes_flushes_and_compactions() {
    both(|kind| {
        let tree = kind.open();
        write(&tree, &[("a", Some("1")), ("b", Some("1"))]);
        flush(&tree);
        let old = Snapshot::published(&tree);
        for round in 0..12 {
            let value = round.to_string();
            write(&tree, &[("a", Some(&value)), ("b", None), (&format!("c{round:02}"), Some("x"))]);
            flush(&tree);
            while tree.compact().expect("compacts") {}
        }
        assert_eq!(all(&old), pairs(&[("a", "1"), ("b", "1")]));
        let new = all(&Snapshot::published(&tree));
        assert_eq!((new.len(), new[0].1.as_str()), (13, "11"));
    });
}

#[test]
fn a_reopened_tree_is_the_last_completed_flush_and_nothing_of_later_batches() {
    both(|kind| {
        let tree = kind.open();
        write(&tree, &[("applied", Some("1")), ("a", Some("1"))]);
        write(&tree, &[("applied", Some("2")), ("b", Some("2"))]);
        tree.seal();
        // Written after sealing: belongs to the next flush, though this one has not begun.
        write(&tree, &[("applied", Some("3")), ("c", Some("3"))]);
        tree.flush().expect("flushes");
        drop(tree);
        let tree = kind.open();
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "1"), ("applied", "2"), ("b", "2")]));
        // And it goes on from there.
        write(&tree, &[("applied", Some("3")), ("a", None)]);
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("applied", "3"), ("b", "2")]));
    });
}

#[test]
fn a_flush_or_compaction_in_the_middle_of_a_batch_shows_and_keeps_nothing_of_it() {
    both(|kind| {
        let tree = kind.open();
        for round in 0..6 {
            write(&tree, &[("a", Some(&round.to_string()))]);
            flush(&tree);
        }
        write(&tree, &[("b", Some("sealed"))]);
        tree.seal();
        let at = tree.write(batch(&[("a", Some("half")), ("applied", Some("9"))])).expect("writes");
        // The engine numbers these changes above the batch: its own idea of "visible" would show it.
        tree.flush().expect("flushes");
        tree.compact().expect("compacts");
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "5"), ("b", "sealed")]));
        drop(tree);
        let tree = kind.open();
        assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "5"), ("b", "sealed")]), "position {at}");
    });
}

#[test]
fn seeks_and_rows_are_counted() {
    both(|kind| {
        let tree = kind.open();
        write(&tree, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
        let snapshot = Snapshot::published(&tree);
        assert_eq!(snapshot.range(b"a", b"z").take(2).count(), 2);
        assert_eq!(snapshot.range_back(b"b", b"c").count(), 1);
        assert_eq!(snapshot.range(b"z", b"a").count(), 0, "an inverted range is empty");
        assert_eq!(snapshot.range(b"a", b"a").count(), 0, "an empty range is empty");
        assert!(snapshot.get(b"nothing").expect("reads").is_none());
        let counts = snapshot.counts();
        assert_eq!((counts.gets(), counts.seeks(), counts.rows()), (1, 4, 3));
    });
}

#[test]
fn readers_see_whole_batches_while_one_writes_flushes_and_compacts() {
    both(|kind| {
        let tree = kind.open();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        let snapshot = Snapshot::published(&tree);
                        let first = all(&snapshot);
                        let values: std::collections::BTreeSet<_> = first.iter().map(|(_, value)| value).collect();
                        assert!(values.len() <= 1, "half of a batch: {first:?}");
                        assert_eq!(first, all(&snapshot));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..40 {
                    tree.flush().expect("flushes");
                    tree.compact().expect("compacts");
                    std::thread::yield_now();
                }
            });
            for round in 0..400 {
                let value = Some(round.to_string());
                let rows: Vec<(String, Option<&str>)> = (0..8).map(|k| (format!("k{k}"), value.as_deref())).collect();
                let rows: Vec<(&str, Option<&str>)> = rows.iter().map(|(k, v)| (k.as_str(), *v)).collect();
                write(&tree, &rows);
                if round % 10 == 0 {
                    tree.seal();
                }
            }
            end.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_power_cut_at_any_write_of_a_checkpoint_leaves_the_old_one_or_the_new_one() {
    let prepare = |disk: &SimDisk| {
        let tree = Mem(disk.clone()).open();
        write(&tree, &[("a", Some("1"))]);
        flush(&tree);
        write(&tree, &[("a", Some("2"))]);
        tree.seal();
        tree
    };
    let whole = SimDisk::new(7, 1 << 20);
    let tree = prepare(&whole);
    let first = whole.mutations();
    tree.flush().expect("flushes");
    let last = whole.mutations();
    for cut in first..=last {
        for seed in 0..8 {
            let disk = SimDisk::new(7, 1 << 20);
            let tree = prepare(&disk);
            disk.crash_after(cut);
            let done = tree.flush().is_ok();
            let after = Mem(disk.crash(CrashPolicy::RandomWithGarbage(seed)));
            let found = all(&Snapshot::published(&after.open()));
            assert!(found == pairs(&[("a", "2")]) || (!done && found == pairs(&[("a", "1")])), "cut {cut}: {found:?}");
        }
    }
}

#[test]
fn a_failed_flush_ends_writing_but_not_reading() {
    let disk = SimDisk::new(3, 1 << 20);
    let tree = Mem(disk.clone()).open();
    write(&tree, &[("a", Some("1"))]);
    tree.seal();
    disk.fail_sync(1);
    assert!(tree.flush().is_err());
    assert!(tree.write(batch(&[("b", Some("1"))])).is_err() && tree.flush().is_err() && tree.failure().is_some());
    assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "1")]));

    let lsm = Lsm(tempfile::tempdir().expect("a directory"));
    let tree = lsm.open();
    write(&tree, &[("a", Some("1"))]);
    tree.seal();
    // The table cannot be made: its folder is not there any more.
    std::fs::remove_dir_all(lsm.0.path().join("tree/tables")).expect("removes");
    assert!(tree.flush().is_err());
    assert!(tree.write(batch(&[("b", Some("1"))])).is_err() && tree.flush().is_err() && tree.failure().is_some());
    assert_eq!(all(&Snapshot::published(&tree)), pairs(&[("a", "1")]));
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let disk = SimDisk::new(5, 1 << 20);
    let tree = Mem(disk.clone()).open();
    write(&tree, &[("a", Some("1"))]);
    flush(&tree);
    let name = disk.list("a/tree").expect("lists").pop().expect("a checkpoint");
    disk.flip_bit(&format!("a/tree/{name}"), 12, 3).expect("flips");
    assert!(MemTree::open(Arc::new(disk), "a/tree").is_err());
}

type Op = (u8, u8, Option<u8>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn both_trees_agree_with_a_map(ops in prop::collection::vec(any::<Op>(), 1..120)) {
        both(|kind| {
            let mut tree = kind.open();
            let (mut model, mut flushed, mut sealed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            for (what, key, value) in &ops {
                match what % 16 {
                    0 => {
                        tree.seal();
                        sealed = model.clone();
                    }
                    1 => {
                        tree.flush().expect("flushes");
                        flushed = sealed.clone();
                    }
                    2 => drop(tree.compact().expect("compacts")),
                    3 => {
                        tree = kind.open_again(tree);
                        model = flushed.clone();
                        sealed = flushed.clone();
                    }
                    _ => {
                        let (key, value) = (format!("{:02}", key % 20), value.map(|v| v.to_string()));
                        write(&tree, &[(&key, value.as_deref())]);
                        match value {
                            Some(value) => drop(model.insert(key, value)),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
                let expected: Vec<_> = model.clone().into_iter().collect();
                assert_eq!(all(&Snapshot::published(&tree)), expected);
            }
        });
    }
}

impl dyn Kind + '_ {
    fn open_again(&self, tree: Arc<dyn Tree>) -> Arc<dyn Tree> {
        drop(tree);
        self.open()
    }
}
