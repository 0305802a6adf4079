//! A client's socket, guarded: framing is watched on the way in; a reader that stalls, or takes too little, is given up on the
//! way out. Also the word that hyper does not say: 100 Continue to a client that asked for it before a body of no bytes.

use crate::limits;
use framing::Guard;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Whether 100 Continue is to be said, between the handler of a request and the socket of its connection.
///
/// hyper says it when a body is first asked for, and so never for a body of no bytes, as RFC 9110 allows. But a botocore that
/// hears a final answer first leaves its connection in a state in which the answer to a later upload may be misread (seen with
/// 1.44: the status line is taken for a header and the ETag is lost). AWS continues such requests as well.
pub struct Interim {
    /// hyper has handed on and flushed all it wrote, so its next byte begins an answer.
    clean: AtomicBool,
    owed: AtomicBool,
}

impl Interim {
    fn new() -> Self {
        Interim { clean: AtomicBool::new(true), owed: AtomicBool::new(false) }
    }

    /// Has 100 Continue said before the answer to the request that is being handled. Not while the answer to an earlier one is
    /// still on its way: it would be torn.
    pub fn owe(&self) {
        self.owed.store(self.clean.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The socket of one connection.
pub struct GuardedStream<S = TcpStream> {
    inner: S,
    interim: Arc<Interim>,
    /// What of 100 Continue is still to be written.
    continuing: &'static [u8],
    guard: Guard,
    /// What is still to be passed on after a violation: hyper parses a head anew only once it looks complete.
    ending: &'static [u8],
    /// Runs while a write is pending.
    stalled: Option<(Instant, Pin<Box<Sleep>>)>,
    /// Of this window: time waited for the client, and bytes it took since it first had to be waited for.
    waited: Duration,
    taken_bytes: u64,
}

impl GuardedStream {
    /// Guards `inner`, and has it send what is written at once.
    pub fn new(inner: TcpStream) -> Self {
        if let Err(e) = inner.set_nodelay(true) {
            tracing::debug!(error = %e, "TCP_NODELAY could not be set");
        }
        Self::around(inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GuardedStream<S> {
    fn around(inner: S) -> Self {
        GuardedStream {
            inner,
            interim: Arc::new(Interim::new()),
            continuing: b"",
            guard: Guard::new(),
            ending: b"\r\n\r\n",
            stalled: None,
            waited: Duration::ZERO,
            taken_bytes: 0,
        }
    }

    /// To be told when 100 Continue is owed.
    pub fn interim(&self) -> Arc<Interim> {
        Arc::clone(&self.interim)
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

    /// Before hyper's next byte: says 100 Continue if it is owed.
    fn poll_continue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.clean.store(false, Ordering::Relaxed);
        if self.interim.owed.swap(false, Ordering::Relaxed) {
            self.continuing = CONTINUE;
        }
        while !self.continuing.is_empty() {
            let result = Pin::new(&mut self.inner).poll_write(cx, self.continuing);
            let n = ready!(self.written(cx, result))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.continuing = &self.continuing[n..];
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = result {
            if let Some((since, _)) = self.stalled.take() {
                self.waited += since.elapsed();
            }
            self.taken_bytes += *result.as_ref().unwrap_or(&0) as u64;
            if self.taken_bytes >= limits::WRITE_WINDOW_BYTES {
                (self.waited, self.taken_bytes) = (Duration::ZERO, 0);
            }
            return Poll::Ready(result);
        }
        let left = limits::WRITE_RATE_WINDOW.saturating_sub(self.waited);
        let (_, sleeping) = self.stalled.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        ready!(sleeping.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GuardedStream<S> {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_continue(cx))?;
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_continue(cx))?;
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.clean.store(true, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{GuardedStream, sleep};
    use crate::limits;
    use std::io;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    /// What is on its way to the client at most.
    const ON_THE_WAY: usize = 64 << 10;

    /// A guarded stream that is written to for ever, and its client. In memory: a socket's readiness knows no paused clock.
    fn pair() -> (tokio::task::JoinHandle<io::Result<()>>, DuplexStream) {
        let (ours, client) = duplex(ON_THE_WAY);
        let mut guarded = GuardedStream::around(ours);
        let writer = tokio::spawn(async move {
            loop {
                guarded.write_all(&[7; 64 << 10]).await?;
            }
        });
        (writer, client)
    }

    #[tokio::test]
    async fn nothing_written_waits_for_an_acknowledgement() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("a client");
        let (socket, _) = listener.accept().await.expect("it came");
        assert!(!socket.nodelay().expect("an answer"), "as the kernel gives it");
        assert!(GuardedStream::new(socket).inner.nodelay().expect("an answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_byte_now_and_then_is_given_up() {
        let (mut writer, mut client) = pair();
        let began = Instant::now();
        let given_up = loop {
            tokio::select! {
                ended = &mut writer => break ended.expect("no panic"),
                () = sleep(Duration::from_secs(9)) => {
                    client.read_exact(&mut [0; 512]).await.expect("more is there");
                }
            }
            assert!(began.elapsed() < 20 * limits::WRITE_RATE_WINDOW, "it is served for ever");
        };
        assert_eq!(given_up.expect_err("it ends").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limits::WRITE_RATE_WINDOW, "it had its time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_up_the_least_rate_is_served_on() {
        let (writer, mut client) = pair();
        let began = Instant::now();
        let mut taken = vec![0; ON_THE_WAY];
        while began.elapsed() < 10 * limits::WRITE_RATE_WINDOW {
            sleep(Duration::from_secs(20)).await;
            client.read_exact(&mut taken).await.expect("it is served");
        }
        assert!(!writer.is_finished());
    }
}
