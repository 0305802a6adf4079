//! A server process for tests of the binary: started, asked, inspected, killed.
//!
//! Promises: it listens on 127.0.0.1, on ports of the kernel's choice; dropped, it is killed without a word (`kill -9`).
//! Refuses to know: what is expected of it.
#![allow(dead_code)] // Each test binary uses its part.

use bench::client::signature::{Credentials, PayloadSigning};
use bench::client::{Client, Expected, Target};
use bench::content::Content;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_ashlar");
const ACCESS_KEY: &str = "ASHLARTEST0000000000";
const SECRET_KEY: &str = "not-a-secret-it-guards-only-test-data-03";
/// The bucket of all requests.
pub const BUCKET: &str = "bucket";

/// A server process; killed when dropped.
pub struct Server {
    child: Child,
    address: String,
    admin: String,
}

impl Server {
    /// Starts on these data folders; ready when it returns.
    pub fn start(folders: &[&Path], options: &[&str]) -> Server {
        let mut command = Command::new(BINARY);
        command.args(["server", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"]);
        for folder in folders {
            command.arg("--data-dir").arg(folder);
        }
        command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = with_keys(&mut command).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
        let ready: Value = serde_json::from_str(&line).expect("it says that it is ready");
        let address = |field: &str| ready[field].as_str().expect("an address").trim_start_matches("http://").to_owned();
        let server = Server { child, address: address("endpoint"), admin: address("admin") };
        // There already after a second start.
        let _ = server.ask(|mut client| async move { client.create_bucket(BUCKET).await.map_err(|e| e.to_string()) });
        server
    }

    /// Its addresses, as `ashlar balancer --node` takes them.
    pub fn as_node(&self) -> String {
        format!("{},{}", self.address, self.admin)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends requests of one client.
    pub fn ask<T, F: Future<Output = T>>(&self, work: impl FnOnce(Client) -> F) -> T {
        ask(&self.address, ACCESS_KEY, SECRET_KEY, work)
    }

    /// Puts objects of so many bytes.
    pub fn put_all(&self, keys: &[String], bytes: usize) {
        self.ask(|mut client| async move {
            for key in keys {
                let body = Content::of_key(1, key).bytes(bytes);
                client.put(&format!("/{BUCKET}/{key}"), &body).await.expect("written");
            }
        });
    }

    /// Puts an object of so many bytes.
    pub fn put(&self, key: &str, bytes: usize) {
        self.put_all(&[key.to_owned()], bytes);
    }

    /// Gets what [`Server::put`] put, and compares.
    pub fn get(&self, key: &str, bytes: usize) {
        let expected = Expected::range(Content::of_key(1, key), 0, bytes as u64);
        self.ask(|mut client| async move { client.get(&format!("/{BUCKET}/{key}"), &expected).await.expect("read") });
    }

    /// The status of a HEAD.
    pub fn head(&self, key: &str) -> u16 {
        let answer = self.ask(|mut client| async move { client.head(&format!("/{BUCKET}/{key}")).await });
        answer.map_or_else(|error| error.status().expect("an answer"), |response| response.status)
    }

    /// `ashlar bench …` against it; whether it was content, and what it printed as JSON (or its complaint).
    pub fn bench(&self, words: &[&str]) -> (bool, Value) {
        let endpoint = format!("http://{}", self.address);
        let pid = self.child.id().to_string();
        let mut all = words.to_vec();
        all.extend(["--endpoint", &endpoint, "--admin", &self.admin, "--pid", &pid]);
        bench(&all)
    }

    /// `ashlar admin info`.
    pub fn info(&self) -> Value {
        let mut command = Command::new(BINARY);
        command.args(["admin", "info", "--json", "--admin", &self.admin]);
        serde_json::from_slice(&with_keys(&mut command).output().expect("the binary runs").stdout).expect("JSON")
    }

    /// The answer of `/metrics`, head and all.
    pub fn metrics_answer(&self) -> String {
        let mut stream = TcpStream::connect(&self.admin).expect("the admin port listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// `/metrics`: the value of each sample by its name and labels, without the common prefix.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let answer = self.metrics_answer();
        let samples = answer.lines().filter_map(|line| line.strip_prefix("ashlar_")?.rsplit_once(' '));
        samples.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends requests of one client to the servers' keys at any address, such as a balancer's.
pub fn ask_at<T, F: Future<Output = T>>(address: &str, work: impl FnOnce(Client) -> F) -> T {
    ask(address, ACCESS_KEY, SECRET_KEY, work)
}

/// Sends requests of one client.
pub fn ask<T, F: Future<Output = T>>(address: &str, access: &str, secret: &str, work: impl FnOnce(Client) -> F) -> T {
    let client = Client::new(&Target {
        address: address.to_owned(),
        region: "us-east-1".to_owned(),
        credentials: Credentials { access_key: access.to_owned(), secret_key: secret.to_owned() },
        payload: PayloadSigning::Unsigned,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(client))
}

/// `ashlar bench …` on its own; whether it was content, and what it printed as JSON (or its complaint).
pub fn bench(words: &[&str]) -> (bool, Value) {
    let mut command = Command::new(BINARY);
    command.args(["bench", "--json"]).args(words);
    let output = with_keys(&mut command).output().expect("the binary runs");
    let complaint = || Value::String(String::from_utf8_lossy(&output.stderr).into_owned());
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| complaint()))
}

fn with_keys(command: &mut Command) -> &mut Command {
    command.env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY).env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY)
}

/// What `ashlar inspect` answered.
pub struct Inspected {
    /// Exit code 0.
    pub sound: bool,
    /// Standard output.
    pub text: String,
    /// Standard error.
    pub error: String,
}

impl Inspected {
    /// The answer to `--json`.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| Value::String(format!("{}{}", self.text, self.error)))
    }
}

/// `ashlar inspect …` of these folders.
pub fn inspect(folders: &[&Path], words: &[&str]) -> Inspected {
    let mut command = Command::new(BINARY);
    command.arg("inspect").args(words);
    for folder in folders {
        command.arg("--data-dir").arg(folder);
    }
    let output = command.output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Inspected { sound: output.status.success(), text: text(&output.stdout), error: text(&output.stderr) }
}
