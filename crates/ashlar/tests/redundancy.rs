//! Four nodes as processes: one is killed, the cluster heals, another is killed, and every byte is there; they come back, and what is
//! surplus then is trimmed.

#![allow(clippy::panic)]

mod running;

use bench::client::Expected;
use bench::content::Content;
use running::ask;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const OBJECTS: usize = 48;
/// How often something is asked for that takes seconds: each question takes some milliseconds at least.
const QUESTIONS: usize = 20_000;

struct Dev {
    child: Child,
    ready: Value,
    folder: String,
    /// Nodes that were started again.
    again: Vec<Child>,
}

fn ashlar(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env_remove("ASHLAR_ROOT_ACCESS_KEY").env_remove("ASHLAR_ROOT_SECRET_KEY");
    command
}

fn first_line(child: &mut Child) -> Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("reads");
    serde_json::from_str(&line).expect("it says that it is ready")
}

/// Bytes of an object: extents of one and of several, and nothing inline.
fn size(index: usize) -> usize {
    40_000 + index * 61_003 % 2_000_000
}

fn address(endpoint: &Value) -> &str {
    endpoint.as_str().and_then(|text| text.strip_prefix("http://")).expect("an address")
}

impl Dev {
    fn start(folder: &Path) -> Dev {
        let folder = folder.to_str().expect("UTF-8").to_owned();
        let words = ["dev", "--json", "--nodes", "4", "--data-dir", &folder];
        let mut child = ashlar(&words).spawn().expect("it runs");
        let ready = first_line(&mut child);
        Dev { child, ready, folder, again: Vec::new() }
    }

    fn key(&self, name: &str) -> &str {
        self.ready[name].as_str().expect("a key")
    }

    fn put(&self, node: usize, indices: impl Iterator<Item = usize>) {
        let at = address(&self.ready["nodes"][node]["endpoint"]);
        ask(at, self.key("access_key"), self.key("secret_key"), |mut client| async move {
            for index in indices {
                let key = format!("k{index}");
                client
                    .put(&format!("/bucket/{key}"), &Content::of_key(1, &key).bytes(size(index)))
                    .await
                    .expect("written");
            }
        });
    }

    fn get_all(&self, node: usize) {
        let at = address(&self.ready["nodes"][node]["endpoint"]);
        ask(at, self.key("access_key"), self.key("secret_key"), |mut client| async move {
            for index in 0..OBJECTS {
                let key = format!("k{index}");
                let expected = Expected::range(Content::of_key(1, &key), 0, size(index) as u64);
                client.get(&format!("/bucket/{key}"), &expected).await.expect("every byte is there");
            }
        });
    }

    /// `ashlar admin curator …` of a node.
    fn curator(&self, node: usize, words: &[&str]) -> Value {
        let admin = address(&self.ready["nodes"][node]["admin"]);
        let mut command = ashlar(&[&["admin", "curator"], words, &["--json", "--admin", admin]].concat());
        command.env("ASHLAR_ROOT_ACCESS_KEY", self.key("access_key"));
        command.env("ASHLAR_ROOT_SECRET_KEY", self.key("secret_key"));
        let output = command.stderr(Stdio::piped()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
        serde_json::from_slice(line.unwrap_or_default()).unwrap_or(Value::String(said))
    }

    /// Asks until the answer is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..QUESTIONS {
            last = self.curator(0, &["status"]);
            if wanted(&last) {
                return last;
            }
        }
        panic!("{what}: {last:#}");
    }

    fn kill(&self, node: usize) {
        let pid = self.ready["nodes"][node]["pid"].as_u64().expect("a pid").to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
    }

    fn start_again(&mut self, name: &str) {
        let words = ["dev", "start-node", name, "--json", "--data-dir", &self.folder];
        let mut child = ashlar(&words).spawn().expect("it runs");
        first_line(&mut child);
        self.again.push(child);
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        for child in self.again.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_full(status: &Value) -> bool {
    status["fully_redundant"] == Value::Bool(true)
}

#[test]
fn a_cluster_heals_by_itself_bears_the_next_loss_and_trims_what_came_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut dev = Dev::start(dir.path());
    let (access, secret) = (dev.key("access_key").to_owned(), dev.key("secret_key").to_owned());
    ask(address(&dev.ready["nodes"][0]["endpoint"]), &access, &secret, |mut client| async move {
        client.create_bucket("bucket").await.expect("made");
    });
    for node in 0..4 {
        dev.put(node, (0..OBJECTS).filter(|index| index % 4 == node));
    }
    dev.until("before anything happens", is_full);

    dev.kill(3);
    let hurt = dev.until("the loss is seen", |status| status["fully_redundant"] == Value::Bool(false));
    assert!(hurt["nodes"].as_array().is_some_and(|nodes| nodes.len() == 4), "{hurt:#}");
    let healed = dev.until("it heals", is_full);
    assert_eq!(healed["census"]["short"]["groups"], 0, "{healed:#}");
    assert!(healed["nodes"].as_array().expect("four").iter().any(|node| node["error"].is_string()), "{healed:#}");
    for node in 0..3 {
        dev.get_all(node);
    }

    dev.kill(2);
    dev.until("the second loss is seen", |status| !is_full(status));
    dev.get_all(0);
    dev.get_all(1);

    dev.start_again("n4");
    dev.start_again("n3");
    dev.until("all are back", is_full);
    let boosted = dev.curator(1, &["boost", "--for", "10m"]);
    assert!(boosted["boost_ms"].as_u64() > Some(500_000), "{boosted:#}");
    let scanned = dev.curator(2, &["scan", "--full"]);
    assert!(is_full(&scanned), "{scanned:#}");
    let nothing = |status: &Value| is_full(status) && status["census"]["surplus"]["groups"] == 0;
    dev.until("what is surplus is trimmed", nothing);
    assert!(dev.curator(3, &["tasks"])["tasks"].is_array());
    for node in 0..4 {
        dev.get_all(node);
    }
}
