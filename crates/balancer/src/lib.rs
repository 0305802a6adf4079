//! The round-robin front: any node for any request.
//!
//! Clients talk to a balancer as if it were the store. Each request, also of one connection, goes to the healthy node whose turn it
//! is. Several balancers may stand side by side; they share nothing.
//!
//! Promises: a node that fails gets nothing more within two seconds and returns when it has passed its check; a request that a node
//! may have got is never repeated if it may change something; what clients signed arrives as they sent it; memory does not depend on
//! the size of bodies. Refuses to know: S3, beyond one answer of its own, and the store.

mod admin;
mod answer;
mod connection;
mod headers;
mod health;
pub mod limits;
mod metrics;
mod nodes;
mod proxy;
mod stream;
mod tls;

pub use nodes::NodeAddress;
pub use tls::TlsFiles;

use connection::Shared;
use limits::{ACCEPT_PAUSE, ATTEMPTS_MAX, NODE_IDLE_CONNECTIONS_MAX, NODES_MAX, SHUTDOWN_DEADLINE};
use metrics::Counts;
use nodes::Nodes;
use pingora_core::apps::HttpServerApp;
use pingora_core::server::configuration::ServerConf;
use proxy::Front;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What an operator says of a balancer.
pub struct Config {
    /// Where clients connect to.
    pub listen: SocketAddr,
    /// Where health and counts are told.
    pub admin_listen: SocketAddr,
    /// The nodes, one at least.
    pub nodes: Vec<NodeAddress>,
    /// Time between two checks of a node.
    pub check_every: Duration,
    /// With it, clients speak TLS.
    pub tls: Option<TlsFiles>,
    /// Clients' connections at once; more are answered 503 and closed.
    pub max_connections: usize,
}

/// Why a balancer does not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    /// Too few or too many.
    #[error("a balancer needs between 1 and {NODES_MAX} nodes")]
    Nodes,
    /// Certificate or key.
    #[error("TLS: {0}")]
    Tls(String),
    /// The address is taken, or not ours.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
}

/// A balancer that listens and has asked its nodes once.
pub struct Balancer {
    listener: TcpListener,
    admin: TcpListener,
    nodes: Arc<Nodes>,
    counts: Arc<Counts>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    check_every: Duration,
    max_connections: usize,
}

impl Balancer {
    /// Listens, and asks every node whether it is ready.
    pub async fn start(config: Config) -> Result<Balancer, StartError> {
        let nodes = Arc::new(Nodes::new(config.nodes).ok_or(StartError::Nodes)?);
        let tls = config.tls.as_ref().map(tls::acceptor).transpose().map_err(StartError::Tls)?;
        let (listener, admin) = (bind(config.listen).await?, bind(config.admin_listen).await?);
        health::check_all(&nodes).await;
        let counts = Arc::new(Counts::default());
        let conf = ServerConf {
            max_retries: ATTEMPTS_MAX,
            upstream_keepalive_pool_size: NODE_IDLE_CONNECTIONS_MAX,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            ..ServerConf::default()
        };
        let front = Front::new(Arc::clone(&nodes), Arc::clone(&counts));
        let proxy = Arc::new(pingora_proxy::http_proxy(&Arc::new(conf), front));
        let (stop, stopping) = watch::channel(false);
        Ok(Balancer {
            listener,
            admin,
            nodes,
            counts,
            shared: Arc::new(Shared { proxy, tls, stopping }),
            stop,
            check_every: config.check_every,
            max_connections: config.max_connections,
        })
    }

    /// Where clients connect to.
    pub fn endpoint(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where health and counts are told.
    pub fn admin_endpoint(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until `shutdown` completes and the requests in flight have ended or their time is up. Answers how many connections had
    /// to be cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> usize {
        let mut aside = JoinSet::new();
        for index in 0..self.nodes.all().len() {
            aside.spawn(health::watch(Arc::clone(&self.nodes), index, self.check_every));
        }
        let told = admin::Told {
            nodes: Arc::clone(&self.nodes),
            counts: Arc::clone(&self.counts),
            stopping: self.shared.stopping.clone(),
        };
        aside.spawn(admin::serve(self.admin, Arc::new(told)));
        let connections = accept(self.listener, &self.shared, &self.counts, self.max_connections, shutdown).await;
        let _ = self.stop.send(true);
        self.shared.proxy.http_cleanup().await;
        let cut = finish(connections).await;
        aside.shutdown().await;
        cut
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}

/// Takes connections until `shutdown`; those that are left.
async fn accept(
    listener: TcpListener,
    shared: &Arc<Shared>,
    counts: &Arc<Counts>,
    max: usize,
    shutdown: impl Future<Output = ()> + Send,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return connections,
            Some(ended) = connections.join_next() => {
                counts.connections.store(connections.len(), Ordering::Relaxed);
                if let Err(error) = ended {
                    tracing::error!(%error, "the task of a connection failed");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= max => {
                    counts.refused_connections.fetch_add(1, Ordering::Relaxed);
                    refuse(&stream);
                }
                Ok((stream, remote)) => {
                    connections.spawn(connection::run(stream, remote, Arc::clone(shared)));
                    counts.connections.store(connections.len(), Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Tells a client that there are too many. Best effort: nothing is waited for.
fn refuse(stream: &TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if let Err(error) = stream.try_write(ANSWER) {
        tracing::debug!(%error, "a refused connection was not told so");
    }
}

/// Joins what is left, by force after a while; how many had to be forced.
async fn finish(mut connections: JoinSet<()>) -> usize {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_DEADLINE, all).await.is_ok() {
        return 0;
    }
    let forced = connections.len();
    connections.shutdown().await;
    forced
}
