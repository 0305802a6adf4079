//! A client's socket, guarded: framing is watched on the way in, a reader that stalls is given up on the way out.

use super::guard::Guard;
use crate::limits;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

/// The socket of one connection.
pub struct GuardedStream {
    inner: TcpStream,
    guard: Guard,
    /// What is still to be passed on after a violation: hyper parses a head anew only once it looks complete.
    ending: &'static [u8],
    /// Runs while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl GuardedStream {
    /// Guards `inner`.
    pub fn new(inner: TcpStream) -> Self {
        GuardedStream { inner, guard: Guard::new(), ending: b"\r\n\r\n", stalled: None }
    }

    /// Whether a violation of framing was found.
    pub fn is_poisoned(&self) -> bool {
        self.guard.is_poisoned()
    }

    /// Closes. With `linger`, what the client still sends is read and dropped for a while, lest a reset overtakes our answer.
    pub async fn close(mut self, linger: bool) {
        if self.inner.shutdown().await.is_err() || !linger {
            return;
        }
        let drain = async {
            let mut buf = vec![0; 16 << 10];
            let mut left = limits::DRAIN_MAX_BYTES;
            while left > 0 {
                match self.inner.read(&mut buf).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => left = left.saturating_sub(n as u64),
                }
            }
        };
        // Running out of time is as good an end as any.
        let _ = timeout(limits::DRAIN_TIMEOUT, drain).await;
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let sleeping = self.stalled.get_or_insert_with(|| Box::pin(sleep(limits::WRITE_IDLE_TIMEOUT)));
        ready!(sleeping.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.guard.is_poisoned() {
            let n = this.ending.len().min(buf.remaining());
            buf.put_slice(&this.ending[..n]);
            this.ending = &this.ending[n..];
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let passed = this.guard.scan(&mut buf.filled_mut()[before..]);
        buf.set_filled(before + passed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
