//! An `ashlar server` for tests and measurements.
//!
//! Promises: `start` returns when the server said that it is ready; a dropped server is stopped.
//! Refuses to know: what is asked of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The keys of every server started here. They guard nothing but test data.
pub const ACCESS_KEY: &str = "ASHLARXTASK000000000";
/// See [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "not-a-secret-it-guards-only-test-data-01";

/// A running server.
pub struct Server {
    child: Child,
    binary: PathBuf,
    /// `host:port` of the S3 endpoint.
    pub address: String,
    /// `host:port` of the admin endpoint.
    pub admin: String,
}

impl Server {
    /// Starts with its data in `folder/disk0`; its log is `folder/server.log`.
    pub fn start(binary: &Path, folder: &Path, options: &[&str]) -> Result<Server, String> {
        Server::start_under(&[], binary, folder, options)
    }

    /// Starts as an argument of another program, such as valgrind, that becomes the server's process.
    pub fn start_under(wrapper: &[&str], binary: &Path, folder: &Path, options: &[&str]) -> Result<Server, String> {
        let log = File::create(folder.join("server.log")).map_err(|error| format!("server.log: {error}"))?;
        let mut command = match wrapper {
            [] => Command::new(binary),
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).arg(binary);
                command
            }
        };
        let mut child = command
            .args(["server", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json", "--data-dir"])
            .arg(folder.join("disk0"))
            .args(options)
            .env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let stdout = child.stdout.take();
        let mut server = Server { child, binary: binary.to_owned(), address: String::new(), admin: String::new() };
        let ready = first_line(stdout).ok_or_else(|| {
            format!("the server did not say that it is ready; see {}", folder.join("server.log").display())
        })?;
        server.address = address(&ready, "endpoint")?;
        server.admin = address(&ready, "admin")?;
        Ok(server)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> Result<(), String> {
        let line = format!("kill -TERM {}", self.pid());
        Command::new("sh").args(["-c", &line]).status().map_err(|error| format!("kill: {error}"))?;
        let status = self.child.wait().map_err(|error| format!("the server's end: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }

    /// `ashlar admin …` with the root keys, JSON answer.
    pub fn admin_command(&self, words: &[&str]) -> Result<Value, String> {
        let output = Command::new(&self.binary)
            .arg("admin")
            .args(words)
            .args(["--admin", &self.admin, "--json"])
            .env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY)
            .output()
            .map_err(|error| format!("ashlar admin: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            format!("ashlar admin {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())
        })
    }
}

/// A running balancer in front of one server.
pub struct Balancer {
    child: Child,
    /// `host:port` for clients.
    pub address: String,
}

impl Balancer {
    /// Starts; its log is `folder/balancer.log`.
    pub fn start(server: &Server, folder: &Path) -> Result<Balancer, String> {
        let log = File::create(folder.join("balancer.log")).map_err(|error| format!("balancer.log: {error}"))?;
        let mut child = Command::new(&server.binary)
            .args(["balancer", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json", "--node"])
            .arg(format!("{},{}", server.address, server.admin))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", server.binary.display()))?;
        let stdout = child.stdout.take();
        let mut balancer = Balancer { child, address: String::new() };
        let ready = first_line(stdout).ok_or("the balancer did not say that it is ready")?;
        balancer.address = address(&ready, "endpoint")?;
        Ok(balancer)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line that says that a process is ready; one that never becomes ready ends by itself or is ended by CI's own limit. What it
/// says after that is passed over.
fn first_line(stdout: Option<ChildStdout>) -> Option<Value> {
    let mut reader = BufReader::new(stdout?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    serde_json::from_str(&line).ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(ready: &Value, field: &str) -> Result<String, String> {
    let text = ready[field].as_str().ok_or_else(|| format!("the server's first line has no {field}"))?;
    Ok(text.trim_start_matches("http://").trim_end_matches('/').to_owned())
}
