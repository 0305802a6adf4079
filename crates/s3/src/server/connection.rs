//! One connection: hyper's machine, the draining of unread bodies, and an end that the client can see.

use super::Handler;
use super::dispatch::{Shared, answer};
use super::reply::ReplyBody;
use super::stream::{GuardedStream, Interim};
use super::timer::HeadTimer;
use crate::limits;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// What the requests of one connection share with its task.
pub struct ConnectionState {
    /// The peer.
    pub remote: SocketAddr,
    /// To be told when 100 Continue is owed that hyper does not say.
    pub interim: Arc<Interim>,
    unread: Mutex<Option<Incoming>>,
    wake: Notify,
    linger: AtomicBool,
}

impl ConnectionState {
    fn new(remote: SocketAddr, interim: Arc<Interim>) -> Self {
        let unread = Mutex::new(None);
        ConnectionState { remote, interim, unread, wake: Notify::new(), linger: AtomicBool::new(false) }
    }

    /// Has the rest of `body` read and dropped, within bounds; beyond them the connection ends.
    pub fn drain(&self, body: Incoming) {
        self.linger();
        *self.unread.lock() = Some(body);
        self.wake.notify_one();
    }

    /// When this connection ends, wait for what the client is still sending.
    pub fn linger(&self) {
        self.linger.store(true, Ordering::Relaxed);
    }

    /// Never ends; drains one body after the other.
    async fn drain_all(&self) {
        loop {
            self.wake.notified().await;
            let body = self.unread.lock().take();
            if let Some(mut body) = body {
                // Out of time or over the bound: dropping the body makes hyper end the connection after the answer.
                let _ = timeout(limits::DRAIN_TIMEOUT, drain(&mut body)).await;
            }
        }
    }
}

async fn drain(body: &mut Incoming) {
    let mut left = limits::DRAIN_MAX_BYTES;
    while left > 0 {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            Some(Ok(frame)) => left = left.saturating_sub(frame.data_ref().map_or(0, |d| d.len() as u64)),
            Some(Err(_)) | None => return,
        }
    }
}

/// hyper's view of the handler.
struct RequestService<H> {
    shared: Arc<Shared<H>>,
    connection: Arc<ConnectionState>,
}

impl<H: Handler> Service<Request<Incoming>> for RequestService<H> {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (shared, connection) = (Arc::clone(&self.shared), Arc::clone(&self.connection));
        Box::pin(answer(shared, connection, request))
    }
}

/// Serves one connection to its end. `stop` turning true ends it after the request in flight.
pub async fn run<H: Handler>(
    stream: TcpStream,
    remote: SocketAddr,
    shared: Arc<Shared<H>>,
    mut stop: watch::Receiver<bool>,
) {
    let stream = GuardedStream::new(stream);
    let connection = Arc::new(ConnectionState::new(remote, stream.interim()));
    let service = RequestService { shared, connection: Arc::clone(&connection) };
    let mut http = http1::Builder::new()
        .timer(HeadTimer::new())
        .header_read_timeout(limits::HEADER_READ_TIMEOUT)
        .max_buf_size(limits::READ_BUFFER_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut stopping = false;
    let drainer = connection.drain_all();
    let mut drainer = std::pin::pin!(drainer);
    let result = loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| http.poll_without_shutdown(cx)) => break result,
            () = &mut drainer => {}
            _ = stop.changed(), if !stopping => {
                stopping = true;
                Pin::new(&mut http).graceful_shutdown();
            }
        }
    };
    if let Err(e) = &result {
        tracing::debug!(peer = %remote, error = %e, "a connection ended with an error");
    }
    let failed = result.is_err();
    let aborted = result.is_err_and(|e| e.is_user());
    let stream = http.into_parts().io.into_inner();
    if aborted {
        // Dropped without a word: what was sent so far must not look like a whole answer.
        return;
    }
    let linger = failed || stream.is_poisoned() || connection.linger.load(Ordering::Relaxed);
    stream.close(linger).await;
}
