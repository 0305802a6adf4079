//! `ashlar inspect` on the folders of real servers: each form, in words and as JSON, sound and damaged, asked rightly and wrongly.

mod running;

use running::{BUCKET, Inspected, Server, inspect};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LARGE_BYTES: usize = 300_000;

fn object(folders: &[&Path], key: &str) -> Inspected {
    inspect(folders, &["object", BUCKET, key, "--json"])
}

/// Group and offset of the first extent of a key.
fn place(folder: &Path, key: &str) -> (String, String) {
    let shown = object(&[folder], key).json();
    let run = &shown["bodies"][0]["runs"][0];
    let (Some(group), Some(offset)) = (run["group"].as_str(), run["offset"].as_u64()) else {
        unreachable!("no extent: {shown}")
    };
    (group.to_owned(), offset.to_string())
}

fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("reads");
    file.write_all_at(&[!byte[0]], at).expect("writes");
}

/// The only file below `folder` whose name begins so.
fn file_below(folder: &Path, begins: &str) -> PathBuf {
    let dirs = std::fs::read_dir(folder).expect("a directory");
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.expect("an entry").path()).expect("a directory"));
    let mut found = files
        .map(|file| file.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begins)));
    found.next().expect("a file of that name")
}

/// A folder with two objects of one extent and an inline one, of a server that was killed.
fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("data");
    let server = Server::start(&[&folder], &[]);
    server.put("large", LARGE_BYTES);
    server.put("other", LARGE_BYTES);
    server.put("small", 100);
    drop(server);
    (dir, folder)
}

#[test]
fn an_object_leads_to_its_group_its_frame_and_its_disk() {
    let (_dir, folder) = store();
    let small = object(&[&folder], "small");
    assert_eq!((small.sound, &small.json()["bodies"]), (true, &json!([{ "inline_bytes": 100 }])));
    let large = object(&[&folder], "large").json();
    assert_eq!((&large["size"], &large["key"]), (&LARGE_BYTES.into(), &"large".into()), "{large}");
    let words = inspect(&[&folder], &["object", BUCKET, "large"]);
    assert!(words.sound && words.text.contains("\"etag\""), "{}", words.text);

    let disk = inspect(&[&folder], &["disk", "--json"]).json();
    let replica = &large["bodies"][0]["runs"][0]["replicas"][0];
    assert_eq!(replica["disk"], disk["disk"], "{large} {disk}");
    let (group, offset) = place(&folder, "large");
    let files = disk["files"].as_array().expect("files");
    assert!(files.iter().any(|file| file["group"] == *group) && disk["free_bytes"].as_u64() > Some(0), "{disk}");
    assert!(inspect(&[&folder], &["disk"]).text.contains(&group));

    let frames = inspect(&[&folder], &["egroup", &group, "--json"]);
    let keys: Vec<_> = frames.json()["files"][0]["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter(|item| item["what"] == "frame")
        .map(|item| item["key"].clone())
        .collect();
    assert!(frames.sound && keys.contains(&json!("large")), "{}", frames.text);
    let words = inspect(&[&folder], &["egroup", &group]);
    assert!(words.sound && words.text.contains("large"), "{}", words.text);

    let frame = inspect(&[&folder], &["extent", &group, &offset, "--json"]);
    let found = &frame.json()["files"][0]["found"];
    assert_eq!((frame.sound, &found["what"], &found["key"]), (true, &"frame".into(), &"large".into()), "{found}");
    assert_eq!(found["crc32c"].as_array().map(Vec::len), Some(LARGE_BYTES.div_ceil(64 << 10)));
    assert!(inspect(&[&folder], &["extent", &group, &offset]).text.contains("payload and padding verify"));
}

#[test]
fn a_running_server_lets_all_be_looked_at_but_objects() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&[dir.path()], &[]);
    server.put("large", LARGE_BYTES);
    let refused = object(&[dir.path()], "large");
    assert!(!refused.sound && refused.error.contains("stop that first"), "{}", refused.error);
    let disk = inspect(&[dir.path()], &["disk", "--json"]);
    let group = disk.json()["files"][0]["group"].as_str().expect("a group").to_owned();
    assert!(disk.sound && inspect(&[dir.path()], &["egroup", &group]).sound);
    let log = inspect(&[dir.path()], &["log", "--json"]).json();
    let in_use = |segment: &&Value| segment["in_use"] == true;
    let segment = log["segments"].as_array().and_then(|all| all.iter().find(in_use)).expect("a segment");
    let entries = segment["frames"].to_string().matches("entry shard").count();
    assert!(entries > 2 && segment["damaged_at"].is_null(), "{log}");
    assert!(inspect(&[dir.path()], &["log"]).text.contains("entry shard"));
    server.get("large", LARGE_BYTES);
}

#[test]
fn a_damaged_extent_is_named_and_the_others_are_sound() {
    let (_dir, folder) = store();
    let ((group, offset), (other_group, other)) = (place(&folder, "large"), place(&folder, "other"));
    assert!(inspect(&[&folder], &["egroup", &group]).sound);
    let file = file_below(&folder.join("extents"), &group);
    flip(&file, offset.parse::<u64>().expect("a number") + 4096 + 70_000);
    let shown = inspect(&[&folder], &["extent", &group, &offset, "--json"]);
    let found = &shown.json()["files"][0]["found"];
    assert_eq!((shown.sound, &found["what"]), (false, &"damaged".into()), "{found}");
    let whole = inspect(&[&folder], &["egroup", &group, "--json"]);
    assert!(!whole.sound && whole.text.contains("damaged"), "{}", whole.text);
    assert!(inspect(&[&folder], &["extent", &other_group, &other]).sound, "the other frame");
    assert!(inspect(&[&folder], &["disk"]).sound);
}

#[test]
fn a_log_damaged_before_its_end_is_told_from_one_that_ends() {
    let (_dir, folder) = store();
    let sound = inspect(&[&folder], &["log", "--json"]);
    let log = sound.json();
    let used = log["segments"].as_array().and_then(|all| all.iter().find(|segment| segment["in_use"] == true));
    let used = used.expect("a segment");
    let middle = used["frames"][2]["offset"].as_u64().expect("a third frame");
    assert!(sound.sound && used["damaged_at"].is_null());
    flip(&folder.join(used["file"].as_str().expect("a name")), middle + 100);
    let shown = inspect(&[&folder], &["log", "--json"]);
    assert!(!shown.sound && shown.text.contains(&format!("\"damaged_at\":{middle}")), "{}", shown.text);
    assert!(inspect(&[&folder], &["log"]).text.contains("DAMAGED"));
}

#[test]
fn what_is_asked_wrongly_is_answered_with_what_to_do() {
    let (dir, folder) = store();
    let (group, _) = place(&folder, "large");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("makes");
    let nowhere = dir.path().join("nowhere");
    let says = |folders: &[&Path], words: &[&str], what: &str| {
        let answer = inspect(folders, words);
        assert!(!answer.sound && answer.error.contains(what), "{words:?}: {} {}", answer.text, answer.error);
    };
    for words in [&["disk"][..], &["log"], &["egroup", "00000000000000aa"], &["object", BUCKET, "large"]] {
        says(&[&nowhere], words, "--data-dir");
    }
    says(&[&empty], &["disk"], "never a data folder");
    says(&[&empty], &["object", BUCKET, "large"], "never a data folder");
    says(&[&empty], &["log"], "no log is here");
    says(&[&folder], &["egroup", "xyz"], "16 hexadecimal digits");
    says(&[&folder], &["egroup", "00000000000000aa"], "inspect disk");
    says(&[&folder], &["extent", &group, "99999999999"], "inspect egroup");
    says(&[&folder], &["object", "NO", "large"], "not the name of a bucket");
    says(&[&folder], &["object", BUCKET, "large", "--version-id", "?"], "--version-id");
    says(&[&folder, &empty], &["disk"], "name one --data-dir");
    let missing = object(&[&folder], "gone");
    assert_eq!((missing.sound, &missing.json()["missing"]), (false, &"key".into()));
    let missing = inspect(&[&folder], &["object", "other-bucket", "large", "--json"]);
    assert_eq!((missing.sound, &missing.json()["missing"]), (false, &"bucket".into()));
}

#[test]
fn an_object_is_found_in_metadata_kept_in_copies_and_no_copy_is_given_up_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let [a, b, away] = ["a", "b", "away"].map(|name| dir.path().join(name));
    let server = Server::start(&[&a, &b], &["--rf", "2"]);
    server.put("large", LARGE_BYTES);
    drop(server);
    for folders in [&[a.as_path()][..], &[&b], &[&b, &a]] {
        let shown = object(folders, "large");
        let replicas = shown.json()["bodies"][0]["runs"][0]["replicas"].as_array().map(Vec::len);
        assert_eq!((shown.sound, replicas), (true, Some(2)), "{}{}", shown.text, shown.error);
    }
    std::fs::rename(&b, &away).expect("mounted elsewhere");
    let refused = object(&[&a], "large");
    assert!(!refused.sound && refused.error.contains("--data-dir"), "{}", refused.error);
    assert!(refused.error.contains(&*b.to_string_lossy()), "where it was: {}", refused.error);
    assert!(object(&[&a, &away], "large").sound);
    let server = Server::start(&[&a, &away], &["--rf", "2"]);
    assert_eq!(server.info()["metadata_folders_in_set"], 2);
    server.get("large", LARGE_BYTES);
}

#[test]
fn an_object_is_found_also_from_a_folder_that_keeps_no_metadata() {
    let dir = tempfile::tempdir().expect("a folder");
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    let server = Server::start(&[&a, &b], &[]);
    server.put("small", 100);
    drop(server);
    let shown = object(&[&b], "small");
    assert!(shown.sound && !b.join("log").exists(), "{}", shown.error);
}
