//! Serves S3 over HTTP/1.1.
//!
//! Promises: a request reaches the handler only after its framing and its signature held; an answer that cannot be completed
//! aborts its connection. Refuses to know: operations, XML bodies, the store.

mod admission;
mod config;
mod connection;
mod dispatch;
mod reply;
mod slots;
mod stream;
mod timer;

pub use config::ServerConfig;

use crate::auth::Authenticator;
use crate::error::S3Result;
use crate::request::S3Request;
use crate::response::S3Response;
use admission::Admission;
use dispatch::{RequestIds, Shared};
use http::HeaderValue;
use md5_lanes::{Kernel, Lanes};
use slots::Slots;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What answers requests: the router of operations.
pub trait Handler: Send + Sync + 'static {
    /// Answers one authenticated request. Dropped if the client goes away.
    fn handle(&self, request: S3Request) -> impl Future<Output = S3Response> + Send;
    /// Asked once at the beginning of each request, before its credentials are looked up: whether accounts and buckets in memory
    /// follow what other nodes acknowledged.
    fn is_fresh(&self) -> bool {
        true
    }
    /// Brings them up to date. An error is the answer to the request.
    fn refresh(&self) -> impl Future<Output = S3Result<()>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Learns of every answered request (metrics).
pub trait Observer: Send + Sync + 'static {
    /// Called when the answer has left or its connection has ended.
    fn observe(&self, observation: &Observation);
}

/// Observes nothing.
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _: &Observation) {}
}

/// One answered request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// The handler's name of it; `-` if it never got there.
    pub operation: &'static str,
    /// HTTP status.
    pub status: u16,
    /// From the parsed head to the end of the answer, microseconds.
    pub duration_us: u64,
    /// From the parsed head to the answer's head, microseconds.
    pub first_byte_us: u64,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// The answer was cut off.
    pub aborted: bool,
}

/// Serves `listener` until `shutdown` completes and the requests in flight have ended or their deadline has passed. Answers
/// how many connections had to be cut off.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    config: ServerConfig,
    authenticator: Arc<Authenticator>,
    handler: Arc<H>,
    observer: Arc<dyn Observer>,
    shutdown: impl Future<Output = ()> + Send,
) -> usize {
    let shared = Arc::new(Shared {
        slots: Slots::new(config.max_requests),
        host_id: HeaderValue::from_str(&config.host_id).ok(),
        request_ids: RequestIds::new(authenticator.now_ms()),
        lanes: Lanes::new(Kernel::detect(), config.md5_backlog_bytes),
        config,
        authenticator,
        handler,
        observer,
    });
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let admission = Admission::default();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(e) = ended {
                    tracing::error!(error = %e, "the task of a connection failed");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => match admission.admit(remote.ip(), &shared.config) {
                    Some(slot) => {
                        let run = connection::run(stream, remote, Arc::clone(&shared), stopped.clone());
                        connections.spawn(async move {
                            run.await;
                            drop(slot);
                        });
                    }
                    None => refuse(&stream),
                },
                Err(e) => {
                    // Out of file descriptors, most likely: taking a breath is better than spinning.
                    tracing::warn!(error = %e, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let _ = stop.send(true);
    finish(connections, shared.config.shutdown_deadline).await
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Joins what is left, by force after `deadline`; how many had to be forced.
async fn finish(mut connections: JoinSet<()>, deadline: Duration) -> usize {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(deadline, all).await.is_ok() {
        return 0;
    }
    let forced = connections.len();
    connections.shutdown().await;
    forced
}

/// Tells a client that there are too many. Best effort: nothing is waited for.
fn refuse(stream: &TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if let Err(e) = stream.try_write(ANSWER) {
        tracing::debug!(error = %e, "a refused connection was not told so");
    }
}
