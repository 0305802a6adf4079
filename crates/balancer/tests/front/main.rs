//! A balancer between clients and nodes that are both played by the test, byte for byte.
#![allow(clippy::panic)] // Of functions that tests call.

mod backend;
mod client;
mod failures;
mod framing;
mod passing;
mod turns;

use std::net::SocketAddr;
use std::time::Duration;

use backend::Backend;
use balancer::{Balancer, Config, TlsFiles};
use client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing in these tests takes so long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running balancer.
pub struct Front {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<usize>,
}

pub fn config(nodes: &[&Backend]) -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        admin_listen: ([127, 0, 0, 1], 0).into(),
        nodes: nodes.iter().map(|node| node.name().parse().expect("a name")).collect(),
        check_every: Duration::from_millis(100),
        tls: None,
        max_connections: 1000,
    }
}

impl Front {
    pub async fn start(nodes: &[&Backend]) -> Front {
        Front::with(config(nodes)).await
    }

    pub async fn with(config: Config) -> Front {
        let balancer = Balancer::start(config).await.expect("it starts");
        let (address, admin) = (balancer.endpoint().expect("bound"), balancer.admin_endpoint().expect("bound"));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(balancer.run(async move {
            // A front that is dropped ends too.
            let _ = stopped.await;
        }));
        Front { address, admin, stop: Some(stop), task }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Tells it to end.
    pub fn stop(&mut self) {
        self.stop.take().expect("once").send(()).expect("it runs");
    }

    /// How many connections it had to cut off.
    pub async fn ended(self) -> usize {
        tokio::time::timeout(PATIENCE, self.task).await.expect("in time").expect("no panic")
    }

    /// An answer of its admin address.
    pub async fn admin(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a head").1.to_owned())
    }

    /// A sample of its metrics.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.admin("/metrics").await.1;
        let prefix = format!("ashlar_balancer_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// Waits until it counts so many healthy nodes; how long that took.
    pub async fn healthy(&self, wanted: usize) -> Duration {
        let began = tokio::time::Instant::now();
        loop {
            let text = self.admin("/metrics").await.1;
            let up = text.lines().filter(|line| line.starts_with("ashlar_balancer_node_up{") && line.ends_with(" 1"));
            if up.count() == wanted {
                return began.elapsed();
            }
            assert!(began.elapsed() < PATIENCE, "not {wanted} healthy nodes:\n{text}");
        }
    }
}

pub fn tls_files() -> TlsFiles {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front");
    TlsFiles { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
}

/// The values of a header of a head, joined.
pub fn header(head: &str, name: &str) -> Option<String> {
    let values: Vec<&str> = head
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect();
    (!values.is_empty()).then(|| values.join(", "))
}
