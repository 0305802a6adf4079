//! `ashlar admin bucket|node|disk|object`: what an operator sees and changes, refusals in words.

#![allow(clippy::panic)]

mod running;

use bench::content::Content;
use running::ask;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const BYTES: usize = 100_000;
/// How often something is looked at that happens in the background; each look is a process of its own.
const TRIES: usize = 3000;

/// `ashlar dev` with so many nodes; killed when dropped, and with it all it started.
struct Cluster {
    child: Child,
    ready: Value,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start(words: &[&str]) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        command.args(["dev", "--json", "--balancers", "0"]).args(words);
        command.arg("--data-dir").arg(folder.path().join("cluster"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env_remove("ASHLAR_ROOT_ACCESS_KEY").env_remove("ASHLAR_ROOT_SECRET_KEY");
        let mut child = command.spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("reads");
        let ready = serde_json::from_str(&line).expect("it says that it is ready");
        Cluster { child, ready, _folder: folder }
    }

    fn key(&self, name: &str) -> &str {
        self.ready[name].as_str().expect("a key")
    }

    fn address(&self, node: usize, port: &str) -> &str {
        let url = self.ready["nodes"][node][port].as_str().expect("an address");
        url.trim_start_matches("http://")
    }

    /// `ashlar admin …` of a node: the answer, or the complaint and the failure.
    fn admin(&self, node: usize, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        command.arg("admin").args(words).args(["--json", "--admin", self.address(node, "admin")]);
        command.env("ASHLAR_ROOT_ACCESS_KEY", self.key("access_key"));
        command.env("ASHLAR_ROOT_SECRET_KEY", self.key("secret_key"));
        let output = command.output().expect("it runs");
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).expect("JSON"));
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("{}{said}", String::from_utf8_lossy(&output.stdout)))
    }

    /// The same, asked while all nodes hear each other: on a machine with too much to do one may seem to be away for a moment, and
    /// that is a reason of its own to refuse.
    fn calmly(&self, words: &[&str]) -> Result<Value, String> {
        let all_up = || {
            let nodes = self.admin(0, &["node", "list"]).expect("a list");
            nodes["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(|node| node["health"] == "up"))
        };
        for _ in 0..TRIES {
            if !all_up() {
                continue;
            }
            let answer = self.admin(0, words);
            if all_up() {
                return answer;
            }
        }
        panic!("the nodes do not hear each other");
    }

    fn make_bucket(&self, node: usize, bucket: &str) {
        let (access, secret) = (self.key("access_key"), self.key("secret_key"));
        ask(self.address(node, "endpoint"), access, secret, |mut client| async move {
            client.create_bucket(bucket).await.expect("made");
        });
    }

    /// Again if a node does not answer just now: data for all of them are refused then.
    fn put(&self, node: usize, path: &str, bytes: usize) {
        let (access, secret) = (self.key("access_key"), self.key("secret_key"));
        let body = Content::of_key(1, path).bytes(bytes);
        let once = |_| {
            let body = &body;
            let put = |mut client: bench::client::Client| async move { client.put(path, body).await.is_ok() };
            ask(self.address(node, "endpoint"), access, secret, put)
        };
        assert!((0..TRIES).any(once), "{path} is not written");
    }

    /// Which of these a group's replicas are on, by the field of that name; all of them sound.
    fn replicas_of(&self, node: usize, bucket: &str, key: &str, field: &str) -> BTreeSet<String> {
        let stat = self.admin(node, &["object", "stat", bucket, key]).expect("it is there");
        assert_eq!(stat["ok"], true, "{stat}");
        let groups = stat["groups"].as_array().expect("a list");
        assert_eq!(groups.len(), 1, "{stat}");
        let replicas = groups[0]["replicas"].as_array().expect("a list");
        assert_eq!(
            (groups[0]["sound"].as_u64(), groups[0]["bytes"].as_u64()),
            (Some(replicas.len() as u64), Some(BYTES as u64))
        );
        replicas.iter().map(|replica| replica[field].to_string()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field<'a>(list: &'a Value, of: &str, name: &str, field: &str) -> &'a Value {
    let items = list.as_object().and_then(|list| list.values().find_map(Value::as_array)).expect("a list");
    let item = items.iter().find(|item| item[of] == *name).expect("it is listed");
    &item[field]
}

#[test]
fn a_bucket_of_one_node_asks_for_as_many_disks_as_there_are_and_no_more() {
    let one = Cluster::start(&["--nodes", "1", "--disks", "2"]);
    one.make_bucket(0, "bucket");
    let default = one.admin(0, &["bucket", "durability", "bucket"]).expect("it is there");
    let rf = default["rf"].as_u64().expect("a number");
    assert_eq!((&default["rf_said_by"], &default["ec"]), (&Value::from("cluster"), &Value::from("none")));

    let set = one.admin(0, &["bucket", "set-durability", "bucket", "--rf", "2"]).expect("two disks");
    assert_eq!((set["rf"].as_u64(), &set["rf_said_by"]), (Some(2), &Value::from("bucket")));
    one.put(0, "/bucket/large", BYTES);
    assert_eq!(one.replicas_of(0, "bucket", "large", "disk").len(), 2);
    one.put(0, "/bucket/small", 100);
    let small = one.admin(0, &["object", "stat", "bucket", "small"]).expect("it is there");
    assert_eq!((small["inline_bytes"].as_u64(), small["groups"].as_array().map(Vec::len)), (Some(100), Some(0)));

    let refused = |words: &[&str]| one.admin(0, words).expect_err("refused");
    let three = refused(&["bucket", "set-durability", "bucket", "--rf", "3"]);
    assert!(three.contains("3 replicas need 3 disks on this node: there are 2"), "{three}");
    let code = refused(&["bucket", "set-durability", "bucket", "--ec", "4+2"]);
    assert!(code.contains("4+2 needs 6 nodes"), "{code}");
    assert!(refused(&["bucket", "set-durability", "bucket", "--ec", "four+2"]).contains("4+2"));
    assert!(refused(&["bucket", "set-durability", "bucket"]).contains("--default"));
    assert!(refused(&["bucket", "durability", "nowhere"]).contains("no bucket nowhere"));
    assert!(refused(&["object", "stat", "bucket", "nothing"]).len() > 10);
    assert!(refused(&["node", "drain", "n1"]).contains("last node"));
    assert!(refused(&["node", "drain", "n7"]).contains("no node 7"));

    let disks = one.admin(0, &["disk", "list"]).expect("a list");
    let disk = disks["disks"][0]["disk"].as_str().expect("an id").to_owned();
    assert!(disks["disks"].as_array().is_some_and(|all| all.iter().all(|disk| disk["replicas"].as_u64() >= Some(1))));
    let drain = refused(&["disk", "drain", &disk]);
    assert!(drain.contains("2 copies are promised and 1 places"), "{drain}");
    let back = one.admin(0, &["bucket", "set-durability", "bucket", "--default"]).expect("back");
    assert_eq!((back["rf"].as_u64(), &back["rf_said_by"]), (Some(rf), &Value::from("cluster")));
    assert!(refused(&["disk", "remove", &disk]).contains("count on it"));
    // By force, for how full this machine's file system is is none of the test's business.
    one.admin(0, &["disk", "drain", &disk, "--force"]).expect("it drains");
    let listed = one.admin(0, &["disk", "list"]).expect("a list");
    assert_eq!(field(&listed, "disk", &disk, "state"), "draining");
    // What is open there is left within moments; on a store with two replicas there is no other place.
    let leaves = || {
        one.put(0, "/bucket/elsewhere", BYTES);
        let stat = one.admin(0, &["object", "stat", "bucket", "elsewhere"]).expect("it is there");
        !stat.to_string().contains(&disk)
    };
    assert!(rf == 2 || (0..TRIES).any(|_| leaves()), "new data still go to the disk that drains");
    one.admin(0, &["disk", "resume", &disk]).expect("it is back");
    let listed = one.admin(0, &["disk", "list"]).expect("a list");
    assert_eq!(field(&listed, "disk", &disk, "state"), "active");
}

#[test]
fn a_bucket_of_three_nodes_asks_for_three_and_a_node_leaves_only_if_nothing_breaks() {
    let three = Cluster::start(&["--nodes", "3"]);
    three.make_bucket(0, "bucket");
    let set = three.admin(1, &["bucket", "set-durability", "bucket", "--rf", "3"]).expect("three nodes");
    assert!(set["warnings"].to_string().contains("nothing can be written to this bucket"), "{set}");
    // Another node knows as soon as it is answered.
    three.put(2, "/bucket/k", BYTES);
    assert_eq!(three.replicas_of(0, "bucket", "k", "node").len(), 3);
    let list = three.admin(2, &["bucket", "list"]).expect("a list");
    assert_eq!(field(&list, "bucket", "bucket", "rf"), 3);

    let refused = three.calmly(&["node", "drain", "n3"]).expect_err("refused");
    assert!(refused.contains("3 copies are promised and 2 places would be left"), "{refused}");
    let remove = three.calmly(&["node", "remove", "3"]).expect_err("refused");
    assert!(remove.contains("drain it first") && remove.contains("count on it"), "{remove}");

    three.admin(0, &["bucket", "set-durability", "bucket", "--default"]).expect("back");
    three.calmly(&["node", "drain", "n3", "--force"]).expect("it drains");
    let nodes = three.admin(1, &["node", "list"]).expect("a list");
    assert_eq!(field(&nodes, "name", "n3", "state"), "draining");
    assert!(field(&nodes, "name", "n3", "replicas").as_u64() >= Some(1));
    assert_eq!(field(&nodes, "name", "n1", "state"), "active");
    three.calmly(&["node", "resume", "n3"]).expect("it is back");
    three.calmly(&["node", "maintenance", "n2"]).expect("it may go");
    let nodes = three.admin(0, &["node", "list"]).expect("a list");
    assert_eq!(field(&nodes, "name", "n2", "state"), "maintenance");
    let second = three.calmly(&["node", "drain", "n3"]).expect_err("refused");
    assert!(second.contains("one at a time"), "{second}");
    three.calmly(&["node", "resume", "n2"]).expect("it is back");
}
