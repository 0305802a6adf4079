//! A cluster of processes made by `ashlar dev`, and what can be done to it.
//!
//! Promises: processes are hurt by their own pids, which `ashlar dev` named or which this one started; when this value is dropped,
//! everything it started ends. Refuses to know: what the cluster holds.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::net::{self, Networks};
use crate::client::Target;
use crate::client::signature::{Credentials, PayloadSigning};
use crate::crash::first_line;
use crate::{BenchError, clock};

/// How the cluster is started.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The `ashlar` binary.
    pub binary: PathBuf,
    /// Folder for everything.
    pub folder: PathBuf,
    /// Nodes.
    pub nodes: u32,
    /// Balancers in front of them; 0: clients go to the nodes themselves.
    pub balancers: u32,
    /// Further options of `ashlar dev`.
    pub options: Vec<String>,
}

/// What `ashlar dev --json` says when all are ready.
#[derive(Deserialize)]
struct Ready {
    access_key: String,
    secret_key: String,
    nodes: Vec<Node>,
    #[serde(default)]
    balancers: Vec<Balancer>,
}

#[derive(Deserialize, Clone)]
struct Node {
    name: String,
    pid: u32,
    endpoint: String,
    admin: String,
}

#[derive(Deserialize, Clone)]
struct Balancer {
    pid: u32,
    endpoint: String,
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Kill,
    Stop,
    Go,
}

/// A running cluster.
pub(super) struct Cluster {
    config: ClusterConfig,
    dev: Child,
    ready: Ready,
    /// Nodes that were started again, by index.
    again: Vec<Option<Child>>,
    /// Nodes that do not run.
    down: Vec<bool>,
    /// If nodes have networks of their own.
    networks: Option<Networks>,
}

impl Cluster {
    /// Starts and waits until all are ready. With `networks` each node has one of its own that can be cut.
    pub(super) fn start(config: &ClusterConfig, networks: bool) -> Result<Cluster, BenchError> {
        let networks = networks.then(|| Networks::make(config.nodes)).transpose()?;
        let mut command = Command::new(&config.binary);
        command.arg("dev").args(["--nodes", &config.nodes.to_string(), "--balancers", &config.balancers.to_string()]);
        command.arg("--data-dir").arg(config.folder.join("cluster")).arg("--json").args(&config.options);
        if networks.is_some() {
            command.args(["--networks", net::PREFIX]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log(&config.folder, "dev.log")?);
        let mut dev = command.spawn().map_err(BenchError::local("start ashlar dev"))?;
        let stdout = dev.stdout.take().ok_or_else(|| BenchError::Server("ashlar dev has no output".into()))?;
        let ready = match first_line(stdout).and_then(|line| {
            serde_json::from_str::<Ready>(&line)
                .map_err(|e| BenchError::Server(format!("ashlar dev said {line:?} instead of being ready: {e}")))
        }) {
            Ok(ready) => ready,
            Err(error) => {
                end(&mut dev);
                return Err(error);
            }
        };
        let count = ready.nodes.len();
        let again = (0..count).map(|_| None).collect();
        Ok(Cluster { config: config.clone(), dev, ready, again, down: vec![false; count], networks })
    }

    /// How many nodes.
    pub(super) fn len(&self) -> usize {
        self.ready.nodes.len()
    }

    /// Where and as whom clients ask: the balancers, or all nodes.
    pub(super) fn targets(&self) -> Vec<Target> {
        let balancers: Vec<_> = self.ready.balancers.iter().map(|b| b.endpoint.as_str()).collect();
        let nodes = self.ready.nodes.iter().map(|node| node.endpoint.as_str());
        let endpoints: Vec<&str> = if balancers.is_empty() { nodes.collect() } else { balancers };
        endpoints.into_iter().map(|endpoint| self.target(endpoint)).collect()
    }

    /// Each node by itself.
    pub(super) fn node_targets(&self) -> Vec<Target> {
        self.ready.nodes.iter().map(|node| self.target(&node.endpoint)).collect()
    }

    fn target(&self, endpoint: &str) -> Target {
        Target {
            address: endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned(),
            region: "us-east-1".into(),
            credentials: Credentials {
                access_key: self.ready.access_key.clone(),
                secret_key: self.ready.secret_key.clone(),
            },
            payload: PayloadSigning::Unsigned,
        }
    }

    /// The node's present process.
    fn pid(&self, node: usize) -> u32 {
        self.again[node].as_ref().map_or(self.ready.nodes[node].pid, Child::id)
    }

    /// Sends a signal to a node.
    pub(super) fn signal(&mut self, node: usize, signal: Signal) -> Result<(), BenchError> {
        send(self.pid(node), signal)?;
        if signal == Signal::Kill {
            self.down[node] = true;
            if let Some(mut child) = self.again[node].take() {
                child.wait().map_err(BenchError::local("wait for a node"))?;
            }
        }
        Ok(())
    }

    /// What the first of each pair says does not reach the second any more.
    pub(super) fn cut(&self, cuts: &[(usize, usize)]) -> Result<(), BenchError> {
        cuts.iter().try_for_each(|(from, to)| self.networks()?.cut(*from, *to))
    }

    /// Takes cuts back.
    pub(super) fn heal(&self, cuts: &[(usize, usize)]) -> Result<(), BenchError> {
        self.networks()?.heal(cuts)
    }

    fn networks(&self) -> Result<&Networks, BenchError> {
        self.networks.as_ref().ok_or_else(|| BenchError::Server("the nodes share one network".into()))
    }

    /// Kills a balancer for good.
    pub(super) fn kill_balancer(&mut self, index: usize) -> Result<(), BenchError> {
        send(self.ready.balancers[index].pid, Signal::Kill)
    }

    /// Starts a node again that was killed, and waits until it says that it is ready.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), BenchError> {
        let mut child = self.spawn(node)?;
        let stdout = child.stdout.take().ok_or_else(|| BenchError::Server("a node has no output".into()))?;
        self.again[node] = Some(child);
        self.down[node] = false;
        first_line(stdout).map(drop)
    }

    /// Starts nodes again that were all killed; they need each other to become ready.
    pub(super) fn restart_all(&mut self, nodes: &[usize]) -> Result<(), BenchError> {
        let mut outputs = Vec::new();
        for node in nodes {
            let mut child = self.spawn(*node)?;
            outputs.extend(child.stdout.take());
            self.again[*node] = Some(child);
            self.down[*node] = false;
        }
        outputs.into_iter().try_for_each(|output| first_line(output).map(drop))
    }

    fn spawn(&self, node: usize) -> Result<Child, BenchError> {
        let name = &self.ready.nodes[node].name;
        let mut command = Command::new(&self.config.binary);
        command.args(["dev", "start-node", name, "--json"]).arg("--data-dir").arg(self.config.folder.join("cluster"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log(&self.config.folder, &format!("{name}.again.log"))?);
        command.spawn().map_err(BenchError::local(format!("start node {name} again")))
    }

    /// Nodes that run.
    pub(super) fn running(&self) -> Vec<usize> {
        (0..self.len()).filter(|node| !self.down[*node]).collect()
    }

    /// Which node leads root, as a running node says; `None` if none does.
    pub(super) fn root_leader(&self) -> Option<usize> {
        self.running().into_iter().find_map(|node| {
            let info = self.info(node)?;
            let leader = info["metadata"]["root_leader"].as_u64()?;
            (0..self.len()).find(|other| self.info(*other).is_some_and(|i| i["node"].as_u64() == Some(leader)))
        })
    }

    /// What `ashlar admin info` says.
    pub(super) fn info(&self, node: usize) -> Option<serde_json::Value> {
        let output = self.admin(node, &["info"]).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn admin(&self, node: usize, words: &[&str]) -> Command {
        let mut command = Command::new(&self.config.binary);
        command.arg("admin").args(words).args(["--json", "--admin"]);
        command.arg(self.ready.nodes[node].admin.trim_start_matches("http://"));
        command.env("ASHLAR_ROOT_ACCESS_KEY", &self.ready.access_key);
        command.env("ASHLAR_ROOT_SECRET_KEY", &self.ready.secret_key);
        command
    }

    /// `ashlar admin audit` of a node until it is content.
    pub(super) fn audit(&self, node: usize, within: Duration) -> Result<(), BenchError> {
        let deadline = clock::monotonic() + within;
        loop {
            let output = self.admin(node, &["audit"]).output().map_err(BenchError::local("run ashlar admin audit"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let audit = serde_json::from_str::<serde_json::Value>(&text).ok();
            if output.status.success() && audit.is_some_and(|audit| audit["ok"] == true) {
                return Ok(());
            }
            if clock::monotonic() >= deadline {
                let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(BenchError::Broken(format!("the audit is not clean: {} {}", text.trim(), trouble.trim())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.again.iter_mut().flatten() {
            end(child);
        }
        // SIGTERM first: it ends its children by itself.
        let asked = Command::new("kill").args(["-TERM", &self.dev.id().to_string()]).status();
        let deadline = clock::monotonic() + Duration::from_secs(20);
        while asked.as_ref().is_ok_and(std::process::ExitStatus::success) && clock::monotonic() < deadline {
            if self.dev.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        end(&mut self.dev);
    }
}

fn end(child: &mut Child) {
    // Ended already is fine, and nothing more can be done here.
    let _ = child.kill();
    let _ = child.wait();
}

fn send(pid: u32, signal: Signal) -> Result<(), BenchError> {
    let name = match signal {
        Signal::Kill => "-KILL",
        Signal::Stop => "-STOP",
        Signal::Go => "-CONT",
    };
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().map_err(BenchError::local("run kill"))?;
    if sent.success() { Ok(()) } else { Err(BenchError::Server(format!("process {pid} is not there"))) }
}

fn log(folder: &Path, name: &str) -> Result<std::fs::File, BenchError> {
    let path = folder.join(name);
    OpenOptions::new().create(true).append(true).open(&path).map_err(BenchError::local(path.display().to_string()))
}
