//! What a real server tells of itself: `/metrics` as it is scraped, and `ashlar admin info`.

mod running;

use running::Server;
use std::path::Path;

const INLINE_BYTES: usize = 16_000;
const LARGE_BYTES: usize = 300_000;
/// So many inline objects that the smallest memory does not hold their rows: they are flushed, and read through the cache.
const INLINE_OBJECTS: usize = 600;
/// Requests after which a flush must have come to its end.
const TRIES: usize = 5_000;

fn machine_uptime_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
    text.split(' ').next().expect("a number").parse().expect("a number")
}

#[test]
fn a_scrape_counts_requests_times_bytes_syncs_caches_and_space() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&[dir.path()], &["--memory", "64MiB"]);
    let keys: Vec<String> = (0..INLINE_OBJECTS).map(|n| format!("key-{n:04}")).collect();
    server.put_all(&keys, INLINE_BYTES);
    server.put("large", LARGE_BYTES);
    server.get("large", LARGE_BYTES);
    assert_eq!(server.head("nothing"), 404);
    // One after the other: more than are kept as whole objects above the tree.
    let flushed = (0..TRIES).any(|n| {
        server.get(&keys[n % INLINE_OBJECTS], INLINE_BYTES);
        server.metrics()["metadata_cache_hits_total"] > 0.0
    });
    assert!(flushed, "a flushed row is read through the cache");

    let answer = server.metrics_answer();
    assert!(answer.contains("application/openmetrics-text") && answer.ends_with("# EOF\n"), "{answer}");
    assert!(answer.contains("# TYPE ashlar_metadata_cache_hits counter\n"), "{answer}");
    let metrics = server.metrics();
    let value = |name: &str| *metrics.get(name).unwrap_or(&f64::NAN);
    let put = "{operation=\"PutObject\",code=\"200\"}";
    assert_eq!(value(&format!("requests_total{put}")), (INLINE_OBJECTS + 1) as f64, "{answer}");
    assert_eq!(value("requests_total{operation=\"HeadObject\",code=\"404\"}"), 1.0, "{answer}");
    for histogram in ["request_seconds", "first_byte_seconds"] {
        let count = value(&format!("{histogram}_count{{operation=\"PutObject\"}}"));
        assert_eq!(count, (INLINE_OBJECTS + 1) as f64, "{answer}");
        assert!(value(&format!("{histogram}_sum{{operation=\"GetObject\"}}")) > 0.0, "{answer}");
        assert_eq!(value(&format!("{histogram}_bucket{{le=\"+Inf\",operation=\"PutObject\"}}")), count, "{answer}");
    }
    let written = (INLINE_OBJECTS * INLINE_BYTES + LARGE_BYTES) as f64;
    assert_eq!(value("received_bytes_total"), written, "{answer}");
    assert!(value("sent_bytes_total") >= (LARGE_BYTES + INLINE_BYTES) as f64, "{answer}");
    // One after the other: each had a sync of the log of its own, the large one also one of its group.
    assert!(value("fdatasync_seconds_count") >= (INLINE_OBJECTS + 2) as f64, "{answer}");
    assert!(value("metadata_cache_misses_total") > 0.0 && value("metadata_cache_bytes") > 0.0, "{answer}");
    server.get(&keys[0], INLINE_BYTES);
    server.get(&keys[0], INLINE_BYTES);
    let again = server.metrics();
    let rise = |name: &str| again[name] - value(name);
    assert!(rise("object_cache_hits_total") >= 1.0 && rise("object_cache_misses_total") <= 1.0, "{again:?}");
    assert!(
        (1.0..=(6 << 20) as f64).contains(&value("object_cache_bytes")),
        "three eighths of a quarter of 64 MiB: {answer}"
    );
    assert!(value("data_cache_hits_total") + value("data_cache_misses_total") >= 1.0, "{answer}");
    assert!(value("disk_free_bytes") > 0.0 && value("disk_total_bytes") > value("disk_free_bytes"), "{answer}");
    assert_eq!((value("panicked_stories"), value("metadata_flushes") >= 1.0), (0.0, true), "{answer}");
    assert_eq!((value("metadata_folders_in_set"), value("metadata_folders_wanted")), (1.0, 1.0), "{answer}");
}

#[test]
fn uptime_is_that_of_the_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let before = machine_uptime_seconds();
    let server = Server::start(&[dir.path()], &[]);
    let uptime = server.info()["uptime_seconds"].as_f64().expect("a number");
    assert!(uptime <= machine_uptime_seconds() - before + 1.0, "{uptime} s");
}

#[test]
fn copies_on_one_device_are_warned_of() {
    let dir = tempfile::tempdir().expect("a folder");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| dir.path().join(name));
    let info = Server::start(&[&a, &b], &["--rf", "2"]).info();
    let warnings = info["warnings"].as_array().expect("a list");
    let names = |path: &Path| warnings[0].as_str().is_some_and(|text| text.contains(&*path.to_string_lossy()));
    assert!(warnings.len() == 1 && names(&a) && names(&b), "{info}");
    let info = Server::start(&[&c, &d], &[]).info();
    assert_eq!(info["warnings"], serde_json::json!([]), "without copies one device is as good as two");
}
