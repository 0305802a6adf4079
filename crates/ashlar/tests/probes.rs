//! `ashlar bench ttfb`, `tree`, `connections`, `scale` and `soak`, small, against real servers: what they count, not how fast it is.

mod running;

use running::{BUCKET, Server, bench};
use serde_json::Value;
use std::path::Path;

/// A folder on a disk that knows direct reads and drops its page cache when told; the usual one may be memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A figure of a line whose name begins so.
fn figure(findings: &Value, line: &str, name: &str) -> f64 {
    let starts = |l: &&Value| l["name"].as_str().is_some_and(|text| text.starts_with(line));
    let line = findings["lines"].as_array().expect("lines").iter().find(starts).expect(line);
    let found = line["figures"].as_array().expect("figures").iter().find(|f| f["name"] == name).expect(name);
    found["value"].as_f64().expect("a number")
}

/// Names of the counted checks that do not hold.
fn failed(findings: &Value) -> Vec<&str> {
    let checks = findings["checks"].as_array().expect("checks").iter();
    let bad = checks.filter(|check| check["counted"] == true && check["holds"] == false);
    bad.map(|check| check["name"].as_str().expect("a name")).collect()
}

#[test]
fn an_uncached_get_waits_for_the_disk_once_and_a_cached_one_never() {
    let dir = folder();
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let (good, found) = server.bench(&["ttfb", "--objects", "128", "--folder", text(dir.path())]);
    assert!(good && failed(&found).is_empty(), "{found:#}");
    let of_get = |name: &str| figure(&found, "per uncached GET", name);
    // A fast disk may be done before the kernel looks whether a read would wait.
    assert!(of_get("waiting_reads_of_extents") > 0.5, "{found:#}");
    assert_eq!(of_get("waiting_reads_of_extents") + of_get("other_reads_of_extents"), 1.0, "{found:#}");
    assert!(of_get("device_bytes") >= 65_536.0, "{found:#}");
    let head_blocks = figure(&found, "per uncached HEAD", "tree_blocks_read");
    assert!(head_blocks > 0.05, "{head_blocks}: the tree's blocks were read again after each flush");
    // The kernel may say that a read of cached pages would wait, if it is busy with them.
    assert!(figure(&found, "per cached GET and HEAD", "other_reads_of_extents") > 0.95, "{found:#}");
    assert!(figure(&found, "O_DIRECT read of 4 KiB", "count") >= 60.0, "{found:#}");
}

#[test]
fn emptied_caches_hold_no_block_and_everything_can_still_be_read() {
    let dir = folder();
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let words = ["tree", "--top", "2", "--middle", "3", "--leaf", "400", "--hot", "40", "--concurrency", "8"];
    let (good, found) = server.bench(&words);
    assert!(good && failed(&found).is_empty(), "{found:#}");
    assert_eq!(figure(&found, "load", "keys_put"), 2400.0);
    for walk in ["full walk, cold", "full walk, warm"] {
        assert_eq!(figure(&found, walk, "keys"), 2400.0, "{found:#}");
    }
    assert!(figure(&found, "full walk, cold", "tree_blocks_read") > 10.0, "{found:#}");
    assert_eq!(figure(&found, "full walk, warm", "tree_blocks_read"), 0.0, "{found:#}");
    assert_eq!(figure(&found, "hot set of 40 keys, before", "hit_ratio"), 1.0, "{found:#}");

    let (good, found) = server.bench(&words);
    assert!(good, "{found:#}");
    assert_eq!(figure(&found, "load", "keys_put"), 0.0, "all of them are there");
}

#[test]
fn a_key_that_a_listing_lacks_is_a_broken_promise() {
    let dir = folder();
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let words =
        ["tree", "--bucket", BUCKET, "--prefix", "x/", "--top", "2", "--middle", "2", "--leaf", "5", "--hot", "2"];
    let (good, found) = server.bench(&words);
    assert!(good, "{found:#}");
    server.ask(|mut client| async move {
        client.delete(&format!("/{BUCKET}/x/top-001/mid-0001/key-00002")).await.expect("deleted");
    });
    let again: Vec<&str> = words.into_iter().chain(["--no-load"]).collect();
    let (good, complaint) = server.bench(&again);
    assert!(!good && complaint.as_str().is_some_and(|text| text.contains("PROMISE BROKEN")), "{complaint:#}");
}

#[test]
fn a_crowd_is_kept_and_a_full_queue_tells_its_clients_to_slow_down() {
    let dir = folder();
    // The least memory has room for 64 requests at once.
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let sizes = ["--connections", "24", "--concurrency", "2", "--seconds", "0.3", "--pairs", "1"];
    let words: Vec<&str> = ["connections"].into_iter().chain(sizes).chain(["--fill-queue", "160"]).collect();
    let (good, found) = server.bench(&words);
    assert!(good && failed(&found).is_empty(), "{found:#}");
    assert_eq!(figure(&found, "crowd", "ended_by_the_server"), 0.0, "{found:#}");
    let writers = figure(&found, "full queue", "slow_writers");
    assert!((64.0..=128.0).contains(&writers), "{writers} slow writers filled a queue of 64");
    assert!(figure(&found, "GET, among", "p99_ms") > 0.0, "{found:#}");
}

#[test]
fn servers_of_one_and_two_workers_are_started_asked_and_ended() {
    let dir = folder();
    let sizes = ["--seconds", "0.3", "--rounds", "1", "--concurrency", "4"];
    let words: Vec<&str> = ["scale", "--folder", text(dir.path())].into_iter().chain(sizes).collect();
    let (good, found) = bench(&[&words[..], &["--", "--memory", "64MiB"]].concat());
    assert!(good && failed(&found).is_empty(), "{found:#}");
    for operation in ["HEAD", "GET", "PUT"] {
        assert!(figure(&found, operation, "one_worker") > 0.0 && figure(&found, operation, "ratio") > 0.0, "{found:#}");
    }
    for line in ["1 workers", "2 workers"] {
        let pid = figure(&found, line, "pid");
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the server with {line} still runs");
    }
}

#[test]
fn a_soak_samples_scrubs_and_compares_everything() {
    let dir = folder();
    let (data, samples) = (dir.path().join("soak"), dir.path().join("samples.tsv"));
    let times = ["--for", "5s", "--sample", "500ms", "--scrub-every", "1s", "--workers", "2", "--rate", "200"];
    let words: Vec<&str> =
        ["soak", "--folder", text(&data), "--tsv", text(&samples)].into_iter().chain(times).collect();
    let (good, found) = bench(&[&words[..], &["--", "--memory", "256MiB"]].concat());
    // An unoptimised binary alone takes as much as the least memory.
    assert!(good && failed(&found).is_empty(), "{found:#}");
    assert!(figure(&found, "scrubs", "done") >= 1.0, "{found:#}");
    assert!(figure(&found, "compared at the end", "objects") > 50.0, "{found:#}");
    let operations = figure(&found, "in all", "operations");
    assert!((100.0..=1100.0).contains(&operations), "{operations} in 5 s at 200 a second");
    let rows = std::fs::read_to_string(&samples).expect("samples");
    assert!((9..=11).contains(&rows.lines().count()), "a head and a line for each half second:\n{rows}");
    let columns = |line: &str| line.split('\t').count();
    assert!(rows.lines().all(|line| columns(line) == 13), "{rows}");
}
