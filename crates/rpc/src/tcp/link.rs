//! One direction to one peer: what waits for it, and the connection, made when there is something to say and made again when it breaks.
//!
//! Promises: a call ends with `Unreachable` only if no byte of it was given to a connection; calls written to a connection that ends are
//! lost at once, not at their timeout; a peer that cannot be reached is tried again after a rest that grows, and meanwhile calls fail
//! at once. Refuses to know: what the messages are.

use super::outbox::{Outbox, Reply, Waiting};
use super::trust::KeySha256;
use super::{TcpConfig, tls};
use crate::limits::{CONNECT_TIMEOUT, MAX_BODY_BYTES, MAX_HEAD_BYTES};
use crate::wire::{Frame, FrameReader, FrameWriter, Header, Kind, Payload, Room};
use crate::{CallError, Message, Service};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{BufReader, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use types::NodeId;

/// Below TLS: a record is 16 KiB, so that one system call fetches several.
pub(super) const SOCKET_BUFFER_BYTES: usize = 64 << 10;
/// Doublings of the rest; more would overflow and change nothing.
const MOST_DOUBLINGS: u32 = 10;

type Stream = TlsStream<BufReader<TcpStream>>;

pub(super) struct Link {
    config: TcpConfig,
    to: NodeId,
    outbox: Outbox,
    state: Mutex<State>,
    ping_due: AtomicBool,
    closed: AtomicBool,
    closing: Notify,
}

#[derive(Default)]
struct State {
    /// A task makes connections for it.
    driven: bool,
    failures: u32,
    /// No connection is tried before this moment.
    rests_until: Duration,
}

/// The two halves of a connection whose other side has answered.
struct Connection {
    key: KeySha256,
    reader: FrameReader<ReadHalf<Stream>>,
    writer: FrameWriter<WriteHalf<Stream>>,
}

impl Link {
    pub(super) fn new(config: TcpConfig, to: NodeId) -> Arc<Link> {
        Arc::new(Link {
            config,
            to,
            outbox: Outbox::default(),
            state: Mutex::default(),
            ping_due: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    pub(super) async fn call(
        self: Arc<Self>,
        service: Service,
        message: Message,
        timeout: Duration,
    ) -> Result<Message, CallError> {
        let unreachable = CallError::Unreachable(self.to);
        if self.is_left_alone() {
            return Err(unreachable);
        }
        let deadline = self.now().saturating_add(timeout);
        let Some((number, answer)) = self.outbox.call(service, message, deadline) else { return Err(unreachable) };
        let forget = Forget { link: &self, number };
        self.start();
        let reply = self.config.env.timers.timeout(timeout, answer).await;
        let left = forget.now();
        match reply {
            Some(Ok(Reply::Answer(message))) => Ok(message),
            Some(Ok(Reply::Refused(reason))) => Err(CallError::Refused(self.to, reason)),
            Some(Ok(Reply::Unreachable)) => Err(unreachable),
            Some(Ok(Reply::Lost)) => Err(CallError::Lost(self.to)),
            Some(Err(_)) | None if left => Err(CallError::Lost(self.to)),
            Some(Err(_)) | None => Err(unreachable),
        }
    }

    pub(super) fn send(self: &Arc<Self>, service: Service, message: Message) {
        if !self.is_left_alone() {
            self.outbox.send(service, message);
            self.start();
        }
    }

    /// Ends the connection, for good.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_one();
    }

    fn now(&self) -> Duration {
        self.config.env.clock.monotonic()
    }

    /// Whether no connection is to be tried now.
    fn is_left_alone(&self) -> bool {
        let state = self.state.lock();
        self.closed.load(Ordering::SeqCst) || (!state.driven && self.now() < state.rests_until)
    }

    /// Sees to it that somebody takes from the outbox. Called after something was put in: see `ends`.
    fn start(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.driven {
            state.driven = true;
            drop(state);
            self.config.env.tasks.spawn(self.clone().drive());
        }
    }

    /// Whether the driver has nothing left to do. Under the lock that `start` takes: what is put in later finds it gone.
    fn ends(&self) -> bool {
        let mut state = self.state.lock();
        state.driven = !self.closed.load(Ordering::SeqCst) && !self.outbox.is_empty();
        !state.driven
    }

    async fn drive(self: Arc<Self>) {
        loop {
            match self.config.env.timers.timeout(CONNECT_TIMEOUT, self.connect()).await {
                Some(Ok(connection)) => {
                    let begin = self.now();
                    let end = self.converse(connection).await;
                    tracing::debug!(to = self.to, end, "a connection ended");
                    self.outbox.lose_written();
                    // One that ends at once is as good as none; else what waits goes over the next one, at once.
                    let well = self.now() - begin > self.config.pace.first_rest;
                    self.rest_unless(well);
                    if !well {
                        self.outbox.drop_waiting();
                    }
                }
                failed => {
                    let why = failed.map_or_else(|| "no answer".to_owned(), |result| result.err().unwrap_or_default());
                    tracing::debug!(to = self.to, why, "a node cannot be reached");
                    self.rest_unless(false);
                    self.outbox.drop_waiting();
                }
            }
            if self.ends() {
                self.outbox.drop_waiting();
                return;
            }
        }
    }

    fn rest_unless(&self, well: bool) {
        let mut state = self.state.lock();
        state.failures = if well { 0 } else { (state.failures + 1).min(MOST_DOUBLINGS) };
        let pace = &self.config.pace;
        let rest = pace.first_rest.saturating_mul(1 << state.failures.saturating_sub(1)).min(pace.longest_rest);
        state.rests_until = if well { Duration::ZERO } else { self.now() + rest };
    }

    async fn connect(&self) -> Result<Connection, String> {
        let trust = &self.config.trust;
        let (Some(key), Some(address)) = (trust.key_of(self.to), trust.address_of(self.to)) else {
            return Err("the map does not list it".to_owned());
        };
        let stream = self.handshake(key, address).await.map_err(|error| error.to_string())?;
        let (read, write) = split(stream);
        let room = Room {
            pool: self.config.answer_memory.clone(),
            timers: self.config.env.timers.clone(),
            longest_bytes: MAX_HEAD_BYTES + MAX_BODY_BYTES,
        };
        let mut connection = Connection { key, reader: FrameReader::new(read, room), writer: FrameWriter::new(write) };
        // With TLS 1.3 the other side may still refuse our key when the handshake is done for us. It has not when it answers.
        connection.writer.ping().await.map_err(|error| error.to_string())?;
        match connection.reader.next().await {
            Ok(Some(Frame { header: Header { kind: Kind::Pong, .. }, .. })) => Ok(connection),
            Ok(_) => Err("it does not answer a ping".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn handshake(&self, key: KeySha256, address: String) -> io::Result<Stream> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let client = TlsConnector::from(Arc::new(tls::client(&self.config.identity, key)));
        let stream = client.connect(tls::name(), BufReader::with_capacity(SOCKET_BUFFER_BYTES, socket)).await?;
        match tls::proved_key(stream.get_ref().1) {
            Some(proved) if proved == key => Ok(stream),
            _ => Err(io::Error::other("it speaks another protocol")),
        }
    }

    /// Reads and writes until the connection ends; answers why.
    async fn converse(&self, connection: Connection) -> String {
        let Connection { key, mut reader, mut writer } = connection;
        let progress = reader.progress();
        tokio::select! {
            end = self.read(&mut reader) => end,
            end = self.write(&mut writer) => end.map_or_else(|error| error.to_string(), |never| match never {}),
            end = self.watch(key, &progress) => end.to_owned(),
            () = self.closing.notified() => "closed".to_owned(),
        }
    }

    async fn read(&self, reader: &mut FrameReader<ReadHalf<Stream>>) -> String {
        loop {
            let Frame { header, payload } = match reader.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return "the other side ended it".to_owned(),
                Err(error) => return error.to_string(),
            };
            let reply = match (header.kind, payload) {
                (Kind::Pong, _) => continue,
                (Kind::Answer, Payload::Here(message)) => Reply::Answer(message),
                (Kind::Refusal, Payload::Here(message)) => {
                    Reply::Refused(String::from_utf8_lossy(&message.body).into_owned())
                }
                (Kind::Answer | Kind::Refusal, Payload::NoRoom) | (Kind::NoAnswer, _) => Reply::Lost,
                (Kind::Call | Kind::Send | Kind::Ping, _) => return "it asks where it is to answer".to_owned(),
            };
            self.outbox.reply(header.number, reply);
        }
    }

    async fn write(&self, writer: &mut FrameWriter<WriteHalf<Stream>>) -> io::Result<std::convert::Infallible> {
        loop {
            if self.ping_due.swap(false, Ordering::Relaxed) {
                writer.ping().await?;
            }
            let now = self.now();
            let batch = self.outbox.take(now);
            if batch.is_empty() {
                writer.flush().await?;
                self.outbox.ready().await;
                continue;
            }
            for Waiting { kind, service, number, deadline, message } in batch {
                let timeout_ms = u32::try_from(deadline.saturating_sub(now).as_millis()).unwrap_or(u32::MAX);
                writer.write(&Header::of(kind, service, number, timeout_ms, &message), &message).await?;
            }
        }
    }

    /// Ends when the peer has been silent for too long or the map no longer lists the key.
    async fn watch(&self, key: KeySha256, progress: &AtomicU64) -> &'static str {
        let pace = &self.config.pace;
        let (mut seen, mut silent) = (progress.load(Ordering::Relaxed), 0);
        loop {
            self.config.env.timers.sleep(pace.ping).await;
            let now = progress.load(Ordering::Relaxed);
            silent = if now == seen { silent + 1 } else { 0 };
            seen = now;
            if silent >= pace.silent_pings {
                return "nothing was heard of it";
            }
            if self.config.trust.key_of(self.to) != Some(key) {
                return "the map lists another key";
            }
            self.ping_due.store(true, Ordering::Relaxed);
            self.outbox.nudge();
        }
    }
}

/// Takes a call out of the table when its caller goes away.
struct Forget<'a> {
    link: &'a Link,
    number: u64,
}

impl Forget<'_> {
    /// Whether the call may have left.
    fn now(self) -> bool {
        let left = self.link.outbox.give_up(self.number);
        std::mem::forget(self);
        left
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.outbox.give_up(self.number);
    }
}
