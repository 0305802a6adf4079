//! A client's socket as pingora reads and writes it: framing is watched on the way in, heads and idle connections have deadlines, and
//! a head leaves in one segment with the first bytes of its body.
//!
//! Promises: a request with ambiguous framing never completes; the socket comes back to its connection's task when pingora lets go of
//! it. Refuses to know: what is proxied where.

use crate::connection::Connection;
use crate::limits::{CLIENT_IDLE_MAX, HEAD_TIMEOUT, HOLD_MAX_BYTES};
use framing::Guard;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// A client's socket.
pub enum Socket {
    /// As it is.
    Plain(TcpStream),
    /// Below TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Both ways at once.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Socket {
    fn pinned(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Socket::Plain(stream) => Pin::new(stream),
            Socket::Tls(stream) => Pin::new(stream),
        }
    }

    fn descriptor(&self) -> UniqueIDType {
        match self {
            Socket::Plain(stream) => stream.as_raw_fd(),
            Socket::Tls(stream) => stream.get_ref().0.as_raw_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().pinned().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().pinned().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().pinned().poll_write_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().pinned().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().pinned().poll_shutdown(cx)
    }
}

/// What comes back of a [`ClientStream`]: the socket, and what was not written yet.
pub type Returned<S> = (S, Vec<u8>);

/// What is waited for while no request is in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// The rest of a head, or the first one.
    Head,
    /// Another request.
    Request,
}

/// The stream of one connection.
pub struct ClientStream<S = Socket> {
    /// `None` once it was given back.
    socket: Option<S>,
    back: Option<oneshot::Sender<Returned<S>>>,
    connection: Arc<Connection>,
    guard: Guard,
    /// What is still to be passed on after a violation in a head: parsers look at a head anew only once it looks complete.
    ending: &'static [u8],
    had_request: bool,
    deadline: Option<(Waiting, Pin<Box<Sleep>>)>,
    held: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Around `socket`, which is sent to `back` in the end.
    pub fn new(socket: S, connection: Arc<Connection>, back: oneshot::Sender<Returned<S>>) -> Self {
        ClientStream {
            socket: Some(socket),
            back: Some(back),
            connection,
            guard: Guard::new(),
            ending: b"\r\n\r\n",
            had_request: false,
            deadline: None,
            held: Vec::new(),
        }
    }

    fn socket(&mut self) -> io::Result<Pin<&mut S>> {
        self.socket.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// While no request is in flight, the client has only so much time.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.connection.is_waiting() {
            self.deadline = None;
            return Poll::Pending;
        }
        let waiting = if self.guard.is_in_head() || !self.had_request { Waiting::Head } else { Waiting::Request };
        if self.deadline.as_ref().is_none_or(|(kind, _)| *kind != waiting) {
            let time = if waiting == Waiting::Head { HEAD_TIMEOUT } else { CLIENT_IDLE_MAX };
            self.deadline = Some((waiting, Box::pin(sleep(time))));
        }
        let Some((_, sleeping)) = &mut self.deadline else { return Poll::Pending };
        ready!(sleeping.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// What a violation of framing leaves to be read.
    fn read_poisoned(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.guard.has_violated_body() {
            self.connection.set_violated();
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the framing of the body is not valid"));
        }
        let n = self.ending.len().min(buf.remaining());
        buf.put_slice(&self.ending[..n]);
        self.ending = &self.ending[n..];
        Ok(())
    }

    /// Writes what was held back, and some of `more` if that goes at once; how much of `more`.
    fn poll_write_held(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let Some(socket) = &mut self.socket else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            let both = [IoSlice::new(&self.held), IoSlice::new(more)];
            let n = ready!(Pin::new(socket).poll_write_vectored(cx, &both))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_held = n.min(self.held.len());
            self.held.drain(..of_held);
            if n > of_held {
                return Poll::Ready(Ok(n - of_held));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.guard.is_poisoned() {
            return Poll::Ready(this.read_poisoned(buf));
        }
        let before = buf.filled().len();
        match this.socket()?.poll_read(cx, buf) {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                // Nothing more comes at the moment, or pingora would be writing and not reading.
                if let Poll::Ready(result) = this.poll_write_held(cx, b"") {
                    result?;
                }
                return this.poll_deadline(cx);
            }
        }
        let passed = this.guard.scan(&mut buf.filled_mut()[before..]);
        buf.set_filled(before + passed);
        this.had_request |= passed > 0;
        // A head keeps its deadline to its end, however many pieces it comes in.
        if !this.guard.is_in_head() {
            this.deadline = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.held.len() + buf.len() <= HOLD_MAX_BYTES {
            this.held.extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        let n = ready!(this.poll_write_held(cx, buf))?;
        if n > 0 {
            return Poll::Ready(Ok(n));
        }
        this.socket()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_held(cx, b""))?;
        this.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_held(cx, b""))?;
        this.socket()?.poll_shutdown(cx)
    }
}

impl<S> Drop for ClientStream<S> {
    fn drop(&mut self) {
        if let (Some(socket), Some(back)) = (self.socket.take(), self.back.take()) {
            // If nobody waits for it any more, it is closed here.
            let _ = back.send((socket, std::mem::take(&mut self.held)));
        }
    }
}

impl<S> fmt::Debug for ClientStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientStream({})", self.connection.remote)
    }
}

#[async_trait::async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // The connection ends anyway.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.socket.as_ref().map_or(-1, Socket::descriptor)
    }
}

impl Ssl for ClientStream {}

#[async_trait::async_trait]
impl Peek for ClientStream {}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
