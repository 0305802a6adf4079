//! `ashlar dev`: one cluster in a folder, started, ended, killed and brought back.

mod running;

use bench::client::Expected;
use bench::content::Content;
use running::ask;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BYTES: usize = 100_000;

/// `ashlar dev …`; killed when dropped, and with it all it started.
struct Dev {
    child: Child,
    ready: Value,
}

fn ashlar(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Keys are the cluster's own.
    command.env_remove("ASHLAR_ROOT_ACCESS_KEY").env_remove("ASHLAR_ROOT_SECRET_KEY");
    command
}

fn first_line(child: &mut Child) -> Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("reads");
    serde_json::from_str(&line).expect("it says that it is ready")
}

impl Dev {
    fn start(folder: &Path, words: &[&str]) -> Dev {
        let folder = folder.to_str().expect("UTF-8");
        let mut child = ashlar(&[&["dev", "--json", "--data-dir", folder], words].concat()).spawn().expect("it runs");
        let ready = first_line(&mut child);
        Dev { child, ready }
    }

    fn balancer(&self, index: usize) -> &str {
        address(&self.ready["balancers"][index]["endpoint"])
    }

    fn ask<T, F: Future<Output = T>>(&self, at: &str, work: impl FnOnce(bench::client::Client) -> F) -> T {
        let key = |name: &str| self.ready[name].as_str().expect("a key");
        ask(at, key("access_key"), key("secret_key"), work)
    }

    fn put(&self, at: &str) {
        self.ask(at, |mut client| async move {
            client.create_bucket("bucket").await.expect("made");
            client.put("/bucket/k", &Content::of_key(1, "k").bytes(BYTES)).await.expect("written");
        });
    }

    fn get(&self, at: &str) {
        let expected = Expected::range(Content::of_key(1, "k"), 0, BYTES as u64);
        self.ask(at, |mut client| async move { client.get("/bucket/k", &expected).await.expect("read") });
    }

    /// Pids of all it started.
    fn pids(&self) -> Vec<u64> {
        let of = |field: &str| self.ready[field].as_array().expect("a list").clone();
        let all = of("nodes").into_iter().chain(of("balancers"));
        all.map(|process| process["pid"].as_u64().expect("a pid")).collect()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(endpoint: &Value) -> &str {
    endpoint.as_str().and_then(|text| text.strip_prefix("http://")).expect("an address")
}

/// Whether it runs; a process that has ended and waits for its parent does not.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn wait_until_gone(pids: &[u64]) {
    // The kernel ends them; if it does not, this test's own time limit does.
    while pids.iter().any(|pid| runs(*pid)) {
        std::thread::yield_now();
    }
}

fn kill(pid: u64, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn a_cluster_is_served_ended_and_brought_back_from_its_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("cluster");
    let mut dev = Dev::start(&folder, &["--nodes", "1", "--disks", "2", "--balancers", "2"]);
    let node = dev.ready["nodes"][0].clone();
    assert_eq!((&node["name"], node["data_dirs"].as_array().map(Vec::len)), (&Value::from("n1"), Some(2)));
    dev.put(dev.balancer(0));
    dev.get(dev.balancer(1));
    dev.get(address(&node["endpoint"]));
    let pids = dev.pids();
    assert!(pids.len() == 3 && pids.iter().all(|pid| runs(*pid)));
    kill(dev.child.id().into(), "TERM");
    assert!(dev.child.wait().expect("ended").success());
    assert!(!pids.iter().any(|pid| runs(*pid)), "it ends what it started");

    // The same again, with nothing said but the folder; then killed without a word.
    let mut again = Dev::start(&folder, &[]);
    for field in ["access_key", "secret_key"] {
        assert_eq!(again.ready[field], dev.ready[field]);
    }
    assert_eq!(again.ready["nodes"][0]["endpoint"], node["endpoint"]);
    assert_eq!(again.balancer(1), dev.balancer(1));
    again.get(again.balancer(0));
    let pids = again.pids();
    again.child.kill().expect("killed");
    again.child.wait().expect("ended");
    wait_until_gone(&pids);
}

#[test]
fn a_killed_node_is_started_again_where_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("cluster");
    let dev = Dev::start(&folder, &["--balancers", "1"]);
    dev.put(dev.balancer(0));
    let pid = dev.pids()[0];
    kill(pid, "KILL");
    wait_until_gone(&[pid]);

    let folder = folder.to_str().expect("UTF-8");
    let mut node = ashlar(&["dev", "start-node", "n1", "--json", "--data-dir", folder]).spawn().expect("it runs");
    let ready = first_line(&mut node);
    assert_eq!((&ready["endpoint"], &ready["pid"]), (&dev.ready["nodes"][0]["endpoint"], &Value::from(node.id())));
    dev.get(address(&ready["endpoint"]));
    node.kill().expect("killed");
    node.wait().expect("ended");
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("UTF-8");
    let refused = |words: &[&str]| {
        let mut child = ashlar(words).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
        assert!(!child.wait().expect("ended").success(), "{words:?}");
        said
    };
    assert!(refused(&["dev", "start-node", "n1", "--data-dir", folder]).contains("holds no cluster"));
    drop(Dev::start(dir.path(), &["--nodes", "1"]));
    assert!(refused(&["dev", "--nodes", "3", "--data-dir", folder]).contains("a cluster of 1 node"));
    assert!(refused(&["dev", "start-node", "n7", "--data-dir", folder]).contains("no node n7"));
}

#[test]
fn nodes_join_and_each_gives_what_another_took() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path(), &["--nodes", "3"]);
    let node = |index: usize| address(&dev.ready["nodes"][index]["endpoint"]).to_owned();
    dev.put(&node(1));
    for index in 0..3 {
        dev.get(&node(index));
    }
}

#[test]
fn an_old_image_of_a_node_is_refused_before_it_takes_part_in_anything() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("UTF-8");
    let dev = Dev::start(dir.path(), &["--nodes", "3"]);
    let pids = dev.pids();
    kill(pids[2], "KILL");
    wait_until_gone(&[pids[2]]);
    let (place, old) = (dir.path().join("n3"), dir.path().join("n3.old"));
    let copied = Command::new("cp").arg("-a").args([&place, &old]).status().expect("cp runs");
    assert!(copied.success());
    let start = || ashlar(&["dev", "start-node", "n3", "--json", "--data-dir", folder]);
    let mut later = start().spawn().expect("it runs");
    first_line(&mut later);
    later.kill().expect("killed");
    later.wait().expect("ended");
    // One node that remembers is enough to be told; with it the old image would be a majority.
    kill(pids[0], "KILL");
    wait_until_gone(&[pids[0]]);
    std::fs::remove_dir_all(&place).expect("removed");
    std::fs::rename(&old, &place).expect("the old image is back");
    let mut node = start().stderr(Stdio::piped()).spawn().expect("it runs");
    let mut said = String::new();
    node.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    assert!(!node.wait().expect("ended").success());
    assert!(said.contains("an old image") && said.contains("Bring the newest folders back"), "{said}");
}
