//! The tree on disk when its process is killed at any moment of writing, flushing and compacting: a prefix of the batches.

use metadata::tree::{LsmConfig, LsmTree, Read, Snapshot, Tree, WriteBatch};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Names the directory; set only in the child.
const CHILD: &str = "ASHLAR_TREE_KILL";
const KEYS: u32 = 40;

fn open(path: &Path) -> Arc<dyn Tree> {
    let config = LsmConfig { cache_bytes: 1 << 20, table_bytes: 64 << 10, compress: true };
    Arc::new(LsmTree::open(path, config).expect("opens"))
}

/// The number that all rows hold; asserts that it is one number.
fn held(tree: &Arc<dyn Tree>) -> u64 {
    let rows: Vec<_> = Snapshot::published(tree).range(b"", b"\xff").map(|row| row.expect("reads")).collect();
    assert!(rows.is_empty() || rows.len() == KEYS as usize, "{} rows: part of a batch", rows.len());
    let values: std::collections::BTreeSet<_> = rows.iter().map(|(_, value)| &value[..8]).collect();
    assert!(values.len() <= 1, "rows of different batches");
    values.first().map_or(0, |value| u64::from_le_bytes((*value).try_into().expect("8 bytes")))
}

/// Sets all rows to the next number, over and over; flushes and compacts beside that; says which number is durable.
fn child(path: &Path) {
    let tree = open(path);
    let mut number = held(&tree);
    std::thread::scope(|scope| {
        let (sealed, flushes) = std::sync::mpsc::sync_channel(0);
        let flushing = tree.clone();
        scope.spawn(move || {
            for number in flushes {
                flushing.flush().expect("flushes");
                let mut out = std::io::stdout().lock();
                // The pipe may be closed: the parent has seen enough.
                let _ = writeln!(out, "\ndurable {number}").and_then(|()| out.flush());
                flushing.compact().expect("compacts");
            }
        });
        loop {
            number += 1;
            let mut batch = WriteBatch::default();
            for key in 0..KEYS {
                let mut value = number.to_le_bytes().to_vec();
                value.resize(500, key as u8);
                batch.put(key.to_be_bytes().to_vec(), value);
            }
            tree.publish(tree.write(batch).expect("writes"));
            if number.is_multiple_of(7) {
                tree.seal();
                sealed.send(number).expect("the other thread receives");
            }
        }
    });
}

#[test]
fn a_killed_process_leaves_a_prefix_with_every_completed_flush() {
    if let Ok(path) = std::env::var(CHILD) {
        return child(Path::new(&path));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tree");
    let mut last = 0;
    for round in 0..12 {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_killed_process_leaves_a_prefix_with_every_completed_flush", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        let mut durable = last;
        let lines = out.lines().map(|line| line.expect("text"));
        for line in lines.filter(|line| line.starts_with("durable ")).take(1 + round * 3 % 11) {
            durable = line["durable ".len()..].parse().expect("a number");
        }
        process.kill().expect("kills");
        process.wait().expect("ends");
        last = held(&open(&path));
        assert!(last >= durable, "round {round}: {durable} was durable, {last} is there");
    }
    assert!(last > 7 * 12);
}
