//! One client's connection: its requests one after the other, and an end that the client can see.
//!
//! Promises: an answer that was begun and cannot be completed ends the connection without a word; any other end waits, within bounds,
//! for what the client still sends, lest a reset overtakes our answer. Refuses to know: nodes.

use crate::limits::{CLIENT_IDLE_MAX, DRAIN_MAX_BYTES, DRAIN_TIMEOUT, HANDSHAKE_TIMEOUT};
use crate::proxy::Front;
use crate::stream::{ClientStream, Socket};
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_proxy::HttpProxy;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// What a connection's socket, its task and its requests share.
pub struct Connection {
    /// The client.
    pub remote: SocketAddr,
    waiting: AtomicBool,
    violated: AtomicBool,
    aborted: AtomicBool,
}

impl Connection {
    /// A connection from there.
    pub fn new(remote: SocketAddr) -> Self {
        let no = || AtomicBool::new(false);
        Connection { remote, waiting: no(), violated: no(), aborted: no() }
    }

    /// Whether no request is in flight.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// See [`Connection::is_waiting`].
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Whether the framing of a body was not valid.
    pub fn is_violated(&self) -> bool {
        self.violated.load(Ordering::Relaxed)
    }

    /// See [`Connection::is_violated`].
    pub fn set_violated(&self) {
        self.violated.store(true, Ordering::Relaxed);
    }

    /// An answer was begun that will not be completed.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }
}

/// What all connections share.
pub struct Shared {
    /// Sends requests to nodes.
    pub proxy: Arc<HttpProxy<Front>>,
    /// Where TLS ends, if there is TLS.
    pub tls: Option<TlsAcceptor>,
    /// Turns true when the balancer ends.
    pub stopping: watch::Receiver<bool>,
}

/// Serves one connection to its end.
pub async fn run(stream: TcpStream, remote: SocketAddr, shared: Arc<Shared>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let socket = match accept(stream, shared.tls.as_ref()).await {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(peer = %remote, %error, "a TLS handshake failed");
            return;
        }
    };
    let connection = Arc::new(Connection::new(remote));
    let (back, returned) = oneshot::channel();
    let stream = ClientStream::new(socket, Arc::clone(&connection), back);
    serve(stream, &connection, &shared).await;
    if let Ok((socket, rest)) = returned.await
        && !connection.aborted.load(Ordering::Relaxed)
    {
        // Running out of time is as good an end as any.
        let _ = timeout(DRAIN_TIMEOUT, close(socket, &rest)).await;
    }
}

async fn accept(stream: TcpStream, tls: Option<&TlsAcceptor>) -> io::Result<Socket> {
    let Some(tls) = tls else { return Ok(Socket::Plain(stream)) };
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let stream = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await.unwrap_or_else(late)?;
    Ok(Socket::Tls(Box::new(stream)))
}

async fn serve(stream: ClientStream, connection: &Arc<Connection>, shared: &Shared) {
    connection.set_waiting(true);
    let mut next: Option<(Stream, Option<HttpPersistentSettings>)> = Some((Box::new(stream), None));
    while let Some((stream, settings)) = next {
        let mut session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            // Above all, what was read of the next request.
            settings.apply_to_session(&mut session);
        }
        // The socket's own deadlines are the tighter ones.
        session.set_keepalive(Some(2 * CLIENT_IDLE_MAX.as_secs()));
        session.set_pipelining_enabled(true);
        session.set_connection_user_context(Some(Box::new(Arc::clone(connection))));
        next = shared.proxy.process_new_http(session, &shared.stopping).await.map(|reused| reused.consume());
        connection.set_waiting(true);
    }
}

async fn close(mut socket: Socket, rest: &[u8]) -> io::Result<()> {
    socket.write_all(rest).await?;
    socket.shutdown().await?;
    let mut buf = vec![0; 16 << 10];
    let mut left = DRAIN_MAX_BYTES;
    while left > 0 {
        match socket.read(&mut buf).await? {
            0 => break,
            n => left = left.saturating_sub(n as u64),
        }
    }
    Ok(())
}
