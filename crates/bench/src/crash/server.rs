//! An `ashlar server` process that is started, killed and asked for its audit.
//!
//! Promises: a start returns only when the server said that it is ready; a dropped server is killed.
//! Refuses to know: what is stored in it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::client::Target;
use crate::client::signature::{Credentials, PayloadSigning};
use crate::limits::{AUDIT_TIMEOUT, SERVER_START_TIMEOUT};
use crate::{BenchError, clock};

const ACCESS_KEY: &str = "ASHLARCRASHTESTER000";
const SECRET_KEY: &str = "not-a-secret-it-guards-only-test-data-00";
/// Between two looks at a process or an audit that is not done.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The `ashlar` binary.
    pub binary: PathBuf,
    /// Folder for everything: data folders `disk0`, `disk1`, … and the log `server.log`.
    pub folder: PathBuf,
    /// Data folders.
    pub disks: u32,
    /// Further options of `ashlar server`.
    pub options: Vec<String>,
}

impl ServerConfig {
    fn command(&self) -> Result<Command, BenchError> {
        let log_path = self.folder.join("server.log");
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(BenchError::local(log_path.display().to_string()))?;
        let mut command = ashlar(&self.binary);
        command.arg("server").args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"]);
        for disk in 0..self.disks {
            command.arg("--data-dir").arg(self.folder.join(format!("disk{disk}")));
        }
        command.args(&self.options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        Ok(command)
    }

    fn spawn(&self) -> Result<Child, BenchError> {
        self.command()?.spawn().map_err(BenchError::local(format!("start {}", self.binary.display())))
    }
}

fn ashlar(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY).env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY);
    command
}

/// A running server.
pub struct Server {
    child: Child,
    address: String,
    admin: String,
}

impl Server {
    /// Starts and waits until it is ready.
    pub fn start(config: &ServerConfig) -> Result<Server, BenchError> {
        let mut child = config.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| BenchError::Server("has no standard output".into()))?;
        let mut server = Server { child, address: String::new(), admin: String::new() };
        let line = first_line(stdout)?;
        let ready: Value = serde_json::from_str(&line)
            .map_err(|_| BenchError::Server(format!("did not say that it is ready but {line:?}")))?;
        server.address = address(&ready, "endpoint")?;
        server.admin = address(&ready, "admin")?;
        Ok(server)
    }

    /// Starts and kills after `delay`, ready or not.
    pub fn start_and_kill(config: &ServerConfig, delay: Duration) -> Result<(), BenchError> {
        let child = config.spawn()?;
        let server = Server { child, address: String::new(), admin: String::new() };
        std::thread::sleep(delay);
        server.kill()
    }

    /// Where and as whom to ask.
    pub fn target(&self) -> Target {
        Target {
            address: self.address.clone(),
            region: "us-east-1".into(),
            credentials: Credentials { access_key: ACCESS_KEY.into(), secret_key: SECRET_KEY.into() },
            payload: PayloadSigning::Unsigned,
        }
    }

    /// `host:port` of its admin API.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) -> Result<(), BenchError> {
        self.child.kill().and_then(|()| self.child.wait()).map_err(BenchError::local("kill the server"))?;
        Ok(())
    }

    /// SIGTERM; it must end by itself with success.
    pub fn terminate(mut self) -> Result<(), BenchError> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().map_err(BenchError::local("run kill"))?;
        let deadline = clock::monotonic() + SERVER_START_TIMEOUT;
        while sent.success() && clock::monotonic() < deadline {
            if let Some(status) = self.child.try_wait().map_err(BenchError::local("wait for the server"))? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(BenchError::Server(format!("ended with {status} after SIGTERM")))
                };
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(BenchError::Server("did not end after SIGTERM".into()))
    }

    /// `ashlar admin audit` until it is content. What a crash left behind may first have to be settled and reclaimed.
    pub fn audit(&self, config: &ServerConfig) -> Result<(), BenchError> {
        let deadline = clock::monotonic() + AUDIT_TIMEOUT;
        loop {
            let mut command = ashlar(&config.binary);
            command.args(["admin", "audit", "--json", "--admin", &self.admin]);
            let output = command.output().map_err(BenchError::local("run ashlar admin audit"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let clean = serde_json::from_str::<Value>(&text).ok().and_then(|audit| audit["ok"].as_bool());
            if output.status.success() && clean == Some(true) {
                return Ok(());
            }
            if clock::monotonic() >= deadline {
                let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(BenchError::Broken(format!("the audit is not clean: {} {}", text.trim(), trouble.trim())));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is fine, and nothing more can be done here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line of the output; the rest is read and dropped so that the server never waits for us.
pub(crate) fn first_line(stdout: ChildStdout) -> Result<String, BenchError> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        // The receiver may have given up; then nobody wants the line.
        let _ = sender.send(read.map(|_| line));
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    match receiver.recv_timeout(SERVER_START_TIMEOUT) {
        Ok(line) => line.map_err(BenchError::local("read the server's output")),
        Err(_) => Err(BenchError::Server(format!("was not ready within {} s", SERVER_START_TIMEOUT.as_secs()))),
    }
}

/// `host:port` of a field that holds that or a URL.
fn address(ready: &Value, field: &str) -> Result<String, BenchError> {
    let text = ready[field].as_str().ok_or_else(|| BenchError::Server(format!("its first line has no {field}")))?;
    Ok(text.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

/// Keeps a word about a failed run beside its data.
pub(crate) fn note_failure(folder: &Path, text: &str) {
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(folder.join("FAILED")) {
        // The failure itself is reported on the terminal; this copy is a convenience.
        let _ = writeln!(file, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::address;
    use serde_json::json;

    #[test]
    fn the_ready_line_may_hold_an_address_or_a_url() {
        let ready = json!({"endpoint": "http://127.0.0.1:9000/", "admin": "127.0.0.1:9001"});
        assert_eq!(address(&ready, "endpoint").expect("a url"), "127.0.0.1:9000");
        assert_eq!(address(&ready, "admin").expect("an address"), "127.0.0.1:9001");
        assert!(address(&ready, "pid").is_err());
    }
}
