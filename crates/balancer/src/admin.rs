//! The balancer's own address: whether it lives, whether it can serve, and its counts.
//!
//! Promises: nothing secret; counts only for this machine. Refuses to know: how to change anything.

use crate::metrics::Counts;
use crate::nodes::Nodes;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::limits::{ACCEPT_PAUSE, HEAD_TIMEOUT};

/// What is told.
pub struct Told {
    /// The nodes.
    pub nodes: Arc<Nodes>,
    /// The counts.
    pub counts: Arc<Counts>,
    /// Turns true when the balancer ends.
    pub stopping: watch::Receiver<bool>,
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, told: Arc<Told>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, remote) = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection of the admin address failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let told = Arc::clone(&told);
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(&request, remote.ip(), &told);
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection of the admin address ended with an error");
            }
        });
    }
}

fn answer(request: &Request<Incoming>, client: IpAddr, told: &Told) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    }
    match request.uri().path() {
        "/-/live" => text(StatusCode::OK, "live"),
        "/-/ready" if *told.stopping.borrow() => text(StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        "/-/ready" if told.nodes.any_healthy() => text(StatusCode::OK, "ready"),
        "/-/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "no node is ready"),
        "/metrics" if client.to_canonical().is_loopback() => text(StatusCode::OK, told.counts.text(&told.nodes)),
        "/metrics" => text(StatusCode::FORBIDDEN, "only from this machine"),
        _ => text(StatusCode::NOT_FOUND, "not found"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
