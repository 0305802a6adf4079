//! The binary and its data folders: missing, lost, new, in another order.

use bench::client::signature::{Credentials, PayloadSigning};
use bench::client::{Client, Expected, Target};
use bench::content::Content;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const ACCESS_KEY: &str = "ASHLARTEST0000000000";
const SECRET_KEY: &str = "not-a-secret-it-guards-only-test-data-02";
const OBJECT_BYTES: usize = 300_000;

/// A server process; killed when dropped.
struct Server {
    child: Child,
    address: String,
    admin: String,
}

fn command(folders: &[&Path], options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args([
        "server",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--json",
        "--memory",
        "128MiB",
    ]);
    for folder in folders {
        command.arg("--data-dir").arg(folder);
    }
    command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY).env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY);
    command
}

fn ready(mut child: Child) -> Result<Server, String> {
    let stderr = child.stderr.take().expect("piped");
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = BufReader::new(stderr).read_to_string(&mut text);
        text
    });
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
    let Ok(ready) = serde_json::from_str::<Value>(&line) else {
        child.wait().expect("ended");
        return Err(log.join().expect("the log"));
    };
    let address = |field: &str| ready[field].as_str().expect("an address").trim_start_matches("http://").to_owned();
    Ok(Server { child, address: address("endpoint"), admin: address("admin") })
}

/// A server that is ready, or what it said when it ended.
fn start(folders: &[&Path], options: &[&str]) -> Result<Server, String> {
    ready(command(folders, options).spawn().expect("the binary runs"))
}

fn refused(folders: &[&Path], options: &[&str]) -> String {
    match start(folders, options) {
        Ok(_) => unreachable!("it started"),
        Err(said) => said,
    }
}

impl Server {
    fn info(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_ashlar"))
            .args(["admin", "info", "--json", "--admin", &self.admin])
            .env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY)
            .output()
            .expect("the binary runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn client(&self) -> Client {
        Client::new(&Target {
            address: self.address.clone(),
            region: "us-east-1".to_owned(),
            credentials: Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() },
            payload: PayloadSigning::Unsigned,
        })
    }

    fn put(&self, key: &str) -> Result<(), String> {
        let mut client = self.client();
        run(async move {
            client.create_bucket("disks").await.map_err(|e| e.to_string())?;
            let body = Content::of_key(1, key).bytes(OBJECT_BYTES);
            client.put(&format!("/disks/{key}"), &body).await.map(drop).map_err(|e| e.to_string())
        })
    }

    fn get(&self, key: &str) -> Result<(), String> {
        let mut client = self.client();
        let expected = Expected::range(Content::of_key(1, key), 0, OBJECT_BYTES as u64);
        run(async move { client.get(&format!("/disks/{key}"), &expected).await.map(drop).map_err(|e| e.to_string()) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Folders `a`, `b` in a new directory.
struct Folders {
    _dir: tempfile::TempDir,
    a: PathBuf,
    b: PathBuf,
    away: PathBuf,
}

fn folders() -> Folders {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    Folders { a: at("a"), b: at("b"), away: at("away"), _dir: dir }
}

/// Id of the disk last seen at `path`, from the list of `other`.
fn disk_id(other: &Path, path: &Path) -> String {
    let text = std::fs::read_to_string(other.join("disks")).expect("a list");
    let list: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let disks = list["disks"].as_object().expect("disks").iter();
    let mut of_path = disks.filter(|(_, disk)| disk["path"].as_str().map(Path::new) == Some(path));
    of_path.next().expect("the disk is listed").0.clone()
}

#[test]
fn a_data_folder_that_is_not_mounted_or_left_out_is_missed_and_never_taken_for_a_new_disk() {
    let Folders { _dir, a, b, away } = folders();
    let server = start(&[&a, &b], &[]).expect("starts");
    for key in ["one", "two", "three", "four"] {
        server.put(key).expect("written");
    }
    drop(server);

    let said = refused(&[&a], &[]);
    assert!(said.contains("--lost-disk") && said.contains(&*b.to_string_lossy()), "left out: {said}");
    std::fs::rename(&b, &away).expect("unmounted");
    let said = refused(&[&a, &b], &[]);
    assert!(said.contains("mounted") && !b.exists(), "no directory is made: {said}");
    std::fs::create_dir(&b).expect("the mount point");
    let said = refused(&[&a, &b], &[]);
    assert!(said.contains("mounted") && said.contains("--add-disk"), "an empty mount point: {said}");
    let said = refused(&[&a, &b], &["--add-disk"]);
    assert!(said.contains("--lost-disk"), "a new disk does not take the place of one that is away: {said}");
    assert_eq!(std::fs::read_dir(&b).expect("reads").count(), 0, "nothing is written below the mount point");

    std::fs::remove_dir(&b).expect("removes");
    std::fs::rename(&away, &b).expect("mounted");
    let server = start(&[&b, &a], &[]).expect("starts in another order");
    for key in ["one", "two", "three", "four"] {
        server.get(key).expect("read");
    }
    assert_eq!(server.info()["disks_missing"], serde_json::json!([]));
}

#[test]
fn a_disk_lost_at_rf_2_is_named_once_and_the_other_serves_alone_until_a_new_one_comes() {
    let Folders { _dir, a, b, .. } = folders();
    let server = start(&[&a, &b], &["--rf", "2"]).expect("starts");
    server.put("one").expect("written");
    assert_eq!(server.info()["metadata_folders_in_set"], 2);
    drop(server);

    let lost = disk_id(&b, &a);
    std::fs::remove_dir_all(&a).expect("the disk dies");
    let said = refused(&[&b], &["--rf", "2"]);
    assert!(said.contains(&format!("--lost-disk {lost}")), "{said}");
    let server = start(&[&b], &["--rf", "2", "--lost-disk", &lost]).expect("starts");
    server.get("one").expect("read from the other copy");
    let info = server.info();
    assert_eq!((&info["metadata_folders_in_set"], &info["metadata_folders_wanted"]), (&1.into(), &2.into()), "{info}");
    assert_eq!(info["disks_missing"], serde_json::json!([lost]), "{info}");
    drop(server);
    // It is written down: the flag is for once.
    drop(start(&[&b], &["--rf", "2"]).expect("starts"));

    std::fs::create_dir(&a).expect("a new disk");
    let server = start(&[&a, &b], &["--rf", "2", "--add-disk"]).expect("starts");
    assert_eq!(server.info()["metadata_folders_in_set"], 2, "filled anew");
    server.get("one").expect("read");
    server.put("two").expect("written to both");
    drop(server);
    let server = start(&[&a, &b], &["--rf", "2"]).expect("starts without any flag");
    server.get("two").expect("read");
}

#[test]
fn a_lost_disk_that_is_here_is_not_lost_and_a_damaged_list_is_taken_from_the_other_folder() {
    let Folders { _dir, a, b, .. } = folders();
    drop(start(&[&a, &b], &[]).expect("starts"));
    let here = disk_id(&a, &b);
    let said = refused(&[&a, &b], &["--lost-disk", &here]);
    assert!(said.contains(&format!("disk {here} is here")), "{said}");
    std::fs::write(a.join("disks"), "{").expect("writes");
    assert!(refused(&[&a], &[]).contains("damaged"), "no list at all: nobody knows what is missing");
    drop(start(&[&a, &b], &[]).expect("starts"));
    assert_eq!(disk_id(&a, &b), here, "it was written again");
}

#[test]
fn a_disk_that_was_restored_from_an_old_image_is_refused() {
    let Folders { _dir, a, b, .. } = folders();
    drop(start(&[&a, &b], &[]).expect("starts"));
    let image = b.with_extension("image");
    copy_folder(&b, &image);
    let server = start(&[&a, &b], &[]).expect("starts");
    server.put("later").expect("written");
    drop(server);
    let last = b.with_extension("last");
    std::fs::rename(&b, &last).expect("put aside");
    std::fs::rename(&image, &b).expect("restored");
    let said = refused(&[&a, &b], &[]);
    assert!(said.contains("an old image of disk") && said.contains("--lost-disk"), "{said}");
    std::fs::rename(&b, &image).expect("taken away");
    std::fs::rename(&last, &b).expect("put back");
    start(&[&a, &b], &[]).expect("starts").get("later").expect("read");
}

fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success());
}

#[test]
fn root_keys_are_found_in_any_folder_and_none_are_made_later() {
    let Folders { _dir, a, b, .. } = folders();
    let keyless = |folders: &[&Path]| {
        let mut command = command(folders, &[]);
        command.env_remove("ASHLAR_ROOT_ACCESS_KEY").env_remove("ASHLAR_ROOT_SECRET_KEY");
        ready(command.spawn().expect("the binary runs"))
    };
    drop(keyless(&[&a, &b]).expect("starts"));
    let made = std::fs::read(a.join("credentials")).expect("keys");
    drop(keyless(&[&b, &a]).expect("starts in another order"));
    assert!(!b.join("credentials").exists() && std::fs::read(a.join("credentials")).expect("keys") == made);
    std::fs::remove_file(a.join("credentials")).expect("removes");
    let Err(said) = keyless(&[&a, &b]) else { unreachable!("other keys were made") };
    assert!(said.contains("ASHLAR_ROOT_ACCESS_KEY"), "{said}");
}
