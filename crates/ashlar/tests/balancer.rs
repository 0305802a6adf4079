//! `ashlar balancer` as a process, in front of real servers that are paused and killed.

mod running;

use bench::client::Expected;
use bench::content::Content;
use running::{BUCKET, Server, ask_at};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing takes so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A balancer process; killed when dropped.
struct Balancer {
    child: Child,
    ready: Value,
}

impl Balancer {
    fn start(nodes: &[&Server]) -> Balancer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        command.args(["balancer", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"]);
        for node in nodes {
            command.args(["--node", &node.as_node()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
        Balancer { child, ready: serde_json::from_str(&line).expect("it says that it is ready") }
    }

    fn address(&self, field: &str) -> &str {
        self.ready[field].as_str().and_then(|text| text.strip_prefix("http://")).expect("an address")
    }

    /// How many nodes get requests.
    fn healthy(&self) -> usize {
        let mut stream = TcpStream::connect(self.address("admin")).expect("the admin port listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.lines().filter(|line| line.starts_with("ashlar_balancer_node_up{") && line.ends_with(" 1")).count()
    }

    /// Waits for so many healthy nodes; how long that took.
    fn wait_for(&self, healthy: usize) -> Duration {
        let began = now();
        while self.healthy() != healthy {
            assert!(began.elapsed() < PATIENCE, "not {healthy} healthy nodes in time");
        }
        began.elapsed()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods)] // How long processes take is real time.
fn now() -> Instant {
    Instant::now()
}

/// `kill -SIGNAL PID`, of a process of this test.
fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn objects_of_every_size_pass_through_to_a_real_server_and_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let balancer = Balancer::start(&[&server]);
    assert_eq!(balancer.ready["pid"], balancer.child.id());
    ask_at(balancer.address("endpoint"), |mut client| async move {
        for bytes in [0, 1, 4096, 16 << 10, 100_000, 1 << 20, (5 << 20) + 3] {
            let path = format!("/{BUCKET}/of-{bytes}");
            let content = Content::of_key(1, &path);
            client.put(&path, &content.bytes(bytes)).await.expect("written");
            client.get(&path, &Expected::range(content, 0, bytes as u64)).await.expect("read");
            client.head(&path).await.expect("there");
            client.delete(&path).await.expect("deleted");
            let gone = client.head(&path).await.expect_err("gone");
            assert_eq!(gone.status(), Some(404));
        }
    });
}

#[test]
fn a_hanging_and_a_killed_node_are_left_out_within_two_seconds_and_one_that_wakes_returns() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = |name: &str| Server::start(&[&dir.path().join(name)], &["--memory", "64MiB"]);
    let (first, second) = (start("first"), start("second"));
    let balancer = Balancer::start(&[&first, &second]);
    balancer.wait_for(2);

    signal(first.pid(), "STOP");
    let took = balancer.wait_for(1);
    // Two seconds are promised; a loaded machine may need some to tell us.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let heads = |count: usize| {
        ask_at(balancer.address("endpoint"), |mut client| async move {
            for _ in 0..count {
                client.head(&format!("/{BUCKET}")).await.expect("answered");
            }
        });
    };
    heads(50);
    signal(first.pid(), "CONT");
    balancer.wait_for(2);
    heads(50);

    drop(second);
    // Killed: nothing listens any more, and whoever was picked before that was noticed is asked elsewhere.
    heads(50);
    let took = balancer.wait_for(1);
    assert!(took < Duration::from_secs(4), "{took:?}");
    heads(50);
}

#[test]
fn sigterm_ends_a_balancer_in_good_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&[&dir.path().join("data")], &["--memory", "64MiB"]);
    let mut balancer = Balancer::start(&[&server]);
    signal(balancer.child.id(), "TERM");
    assert!(balancer.child.wait().expect("ended").success());
    assert!(TcpStream::connect(balancer.address("endpoint")).is_err());
}

#[test]
fn a_balancer_says_what_is_wrong_with_its_options() {
    for (words, complaint) in [
        (&["--node", "nonsense"][..], "HOST:PORT"),
        (&["--node", "https://a:1"], "without TLS"),
        (&[], "--node"),
        (&["--node", "127.0.0.1:1", "--tls-cert", "x.pem"], "--tls-key"),
        (&["--node", "127.0.0.1:1", "--tls-cert", "/none.pem", "--tls-key", "/none.pem"], "/none.pem"),
        (&["--node", "127.0.0.1:1", "--check-every", "0s"], "--check-every"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        let ports = ["balancer", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let output = command.args(ports).args(words).output().expect("the binary runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(complaint), "{words:?}: {error}");
    }
}
