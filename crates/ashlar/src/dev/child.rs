//! A process of `ashlar dev`: started, waited for until it is ready, ended.
//!
//! Promises: it dies with us, however we die; its words are in its log. Refuses to know: what it does.

use crate::server::Failure;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for a process to become ready: a recovery reads a log of 256 MiB.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for a process to end by itself: the deadline of its requests in flight, and room.
const END_TIMEOUT: Duration = Duration::from_secs(45);
/// How often both are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bytes of a log that are shown when its process has ended too early.
const LOG_TAIL_BYTES: usize = 2000;

/// A running process.
pub struct Child {
    /// n1, balancer1, ...
    pub name: String,
    process: Process,
}

impl Child {
    /// Starts `ashlar WORDS`; what it prints goes to `folder`, to `NAME.ready` and `NAME.log`.
    pub fn start(name: &str, folder: &Path, mut command: Command) -> Result<Child, Failure> {
        let said = |e| format!("{name}: {e}");
        let log = File::options().create(true).append(true).open(log_file(folder, name)).map_err(said)?;
        // Empty before it is started: what an earlier process said does not count.
        let ready = File::create(ready_file(folder, name)).map_err(said)?;
        command.stdin(Stdio::null()).stdout(ready).stderr(log);
        let process = env::process::spawn_tied(&mut command).map_err(said)?;
        Ok(Child { name: name.to_owned(), process })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the line that says that it is ready.
    pub async fn ready(&mut self, folder: &Path) -> Result<Value, Failure> {
        let path = ready_file(folder, &self.name);
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let said = std::fs::read_to_string(&path)?;
            if let Some((line, _)) = said.split_once('\n') {
                return Ok(serde_json::from_str(line)?);
            }
            if let Some(status) = self.ended()? {
                let log = tail(&log_file(folder, &self.name));
                return Err(format!("{} ended before it was ready ({status}):\n{log}", self.name).into());
            }
            if Instant::now() > deadline {
                return Err(format!("{} was not ready in {} s", self.name, READY_TIMEOUT.as_secs()).into());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Asks it to end.
    pub fn ask_to_end(&mut self) {
        if let Ok(None) = self.ended()
            && let Err(error) = env::process::terminate(&self.process)
        {
            tracing::warn!(name = self.name, %error, "a process could not be asked to end");
        }
    }

    /// Waits until it has ended, and ends it if that takes too long.
    pub async fn end(&mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        while let Ok(None) = self.ended() {
            if Instant::now() > deadline {
                tracing::warn!(name = self.name, "did not end in time and is killed");
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn log_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn ready_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.ready"))
}

fn tail(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..];
    String::from_utf8_lossy(tail).into_owned()
}
