//! One connection of another node, from its first message to its last.
//!
//! Promises: calls run at once, each as a task of its own, at most [`CALLS_IN_FLIGHT`] of them; messages without answer are handled in
//! their order; whoever is not, or no longer, in the map is cut off before his message is looked at. Refuses to know: services.

use super::TcpConfig;
use super::trust::KeySha256;
use crate::handlers::{Handlers, no_such_service};
use crate::limits::{CALLS_IN_FLIGHT, MAX_BODY_BYTES, MAX_HEAD_BYTES, SPARE_ANSWERS, STRANGER_BYTES};
use crate::wire::{Frame, FrameReader, FrameWriter, Header, Kind, Payload, Room, fits};
use crate::{Message, Service};
use futures_util::FutureExt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{BufReader, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::server::TlsStream;
use types::NodeId;

type Stream = TlsStream<BufReader<TcpStream>>;

/// Answers that are written before one looks for a flush.
const ANSWERS_AT_ONCE: usize = 64;

/// Who is at the other end.
#[derive(Clone, Copy)]
pub(super) struct Guest {
    pub(super) node: NodeId,
    pub(super) key: KeySha256,
    /// A stranger may speak to this service only.
    pub(super) only: Option<Service>,
}

pub(super) struct Server {
    pub(super) config: TcpConfig,
    pub(super) handlers: Handlers,
}

/// An answer on its way out.
struct Outgoing {
    kind: Kind,
    number: u64,
    message: Message,
    /// Nobody waits for it after this moment.
    deadline: Duration,
    /// The call counts as in flight until its answer is written.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Server {
    pub(super) async fn serve(self: &Arc<Self>, stream: Stream, guest: Guest) -> Result<(), String> {
        let (read, write) = split(stream);
        let longest_bytes = if guest.only.is_some() { STRANGER_BYTES } else { MAX_HEAD_BYTES + MAX_BODY_BYTES };
        let (pool, timers) = (self.config.call_memory.clone(), self.config.env.timers.clone());
        let mut reader = FrameReader::new(read, Room { pool, timers, longest_bytes });
        let progress = reader.progress();
        let (answers, outgoing) = mpsc::channel(CALLS_IN_FLIGHT + SPARE_ANSWERS);
        let conversation =
            Conversation { server: self, guest, answers, calls: Arc::new(Semaphore::new(CALLS_IN_FLIGHT)) };
        tokio::select! {
            end = conversation.read(&mut reader) => end,
            end = self.write(FrameWriter::new(write), outgoing) => end.map_err(|error| error.to_string()),
            end = self.watch(guest, &progress) => Err(end.to_owned()),
        }
    }

    async fn write(
        &self,
        mut writer: FrameWriter<WriteHalf<Stream>>,
        mut outgoing: mpsc::Receiver<Outgoing>,
    ) -> io::Result<()> {
        let mut batch = Vec::with_capacity(ANSWERS_AT_ONCE);
        while outgoing.recv_many(&mut batch, ANSWERS_AT_ONCE).await > 0 {
            let now = self.config.env.clock.monotonic();
            for answer in batch.drain(..) {
                if now < answer.deadline {
                    let header = Header::of(answer.kind, Service(0), answer.number, 0, &answer.message);
                    writer.write(&header, &answer.message).await?;
                }
            }
            if outgoing.is_empty() {
                writer.flush().await?;
            }
        }
        Ok(())
    }

    /// Ends when nothing came for so long that the other side, which pings, is gone; or when the map has changed its mind.
    async fn watch(&self, guest: Guest, progress: &AtomicU64) -> &'static str {
        let pace = &self.config.pace;
        let (mut seen, mut silent) = (progress.load(Ordering::Relaxed), 0);
        loop {
            self.config.env.timers.sleep(pace.ping).await;
            let now = progress.load(Ordering::Relaxed);
            silent = if now == seen { silent + 1 } else { 0 };
            seen = now;
            // Twice as patient as the other side, which knows what it waits for.
            if silent >= 2 * pace.silent_pings {
                return "nothing was heard of it";
            }
            if !self.still_welcome(guest) {
                return "the map no longer lists its key";
            }
        }
    }

    fn still_welcome(&self, guest: Guest) -> bool {
        guest.only.is_some() || self.config.trust.node_of(guest.key) == Some(guest.node)
    }
}

struct Conversation<'a> {
    server: &'a Arc<Server>,
    guest: Guest,
    answers: mpsc::Sender<Outgoing>,
    calls: Arc<Semaphore>,
}

impl Conversation<'_> {
    async fn read(&self, reader: &mut FrameReader<ReadHalf<Stream>>) -> Result<(), String> {
        while let Some(frame) = reader.next().await.map_err(|error| error.to_string())? {
            if !self.server.still_welcome(self.guest) {
                return Err("the map no longer lists its key".to_owned());
            }
            let service = frame.header.service;
            let spoken_to = matches!(frame.header.kind, Kind::Call | Kind::Send);
            if spoken_to && self.guest.only.is_some_and(|only| only != service) {
                return Err(format!("a stranger speaks to service {}", service.0));
            }
            match frame.header.kind {
                Kind::Call => self.call(frame)?,
                Kind::Send => self.receive(frame),
                Kind::Ping => self.reply(Kind::Pong, 0, Message::default())?,
                Kind::Answer | Kind::Refusal | Kind::NoAnswer | Kind::Pong => {
                    return Err("it answers what nobody asked".to_owned());
                }
            }
        }
        Ok(())
    }

    fn receive(&self, frame: Frame) {
        let handler = self.server.handlers.get(frame.header.service);
        if let (Some(handler), Payload::Here(message)) = (handler, frame.payload) {
            handler.receive(self.guest.node, message);
        }
    }

    fn call(&self, frame: Frame) -> Result<(), String> {
        let Frame { header, payload } = frame;
        let Payload::Here(message) = payload else { return self.refuse(header.number, "there is no memory for it") };
        let Some(handler) = self.server.handlers.get(header.service) else {
            return self.refuse(header.number, &no_such_service(header.service));
        };
        let Ok(permit) = self.calls.clone().try_acquire_owned() else {
            return self.refuse(header.number, "too many calls at once");
        };
        let arrived = self.server.config.env.clock.monotonic();
        let deadline = arrived.saturating_add(Duration::from_millis(header.timeout_ms.into()));
        let (answers, from) = (self.answers.clone(), self.guest.node);
        let call = async move {
            // The handler is also called within: its panic is its own.
            let answer = AssertUnwindSafe(async { handler.call(from, message).await }).catch_unwind();
            let (kind, message) = framed(answer.await.ok());
            // Fails if the connection has ended: then nobody waits.
            let outgoing = Outgoing { kind, number: header.number, message, deadline, _permit: Some(permit) };
            let _ = answers.send(outgoing).await;
        };
        self.server.config.env.tasks.spawn(call);
        Ok(())
    }

    fn refuse(&self, number: u64, reason: &str) -> Result<(), String> {
        self.reply(Kind::Refusal, number, text(reason))
    }

    /// Answers at once. A peer that asks so much without reading that there is no room for the answers is cut off.
    fn reply(&self, kind: Kind, number: u64, message: Message) -> Result<(), String> {
        let outgoing = Outgoing { kind, number, message, deadline: Duration::MAX, _permit: None };
        self.answers.try_send(outgoing).map_err(|_| "it does not read its answers".to_owned())
    }
}

/// What a handler's answer is on the wire; `None`: it panicked.
fn framed(answer: Option<Result<Message, String>>) -> (Kind, Message) {
    match answer {
        Some(Ok(message)) if fits(message.head.len(), message.body.len()) => (Kind::Answer, message),
        Some(Err(reason)) => (Kind::Refusal, text(&reason)),
        Some(Ok(_)) => {
            tracing::error!("the answer to a call is too long: it is lost");
            (Kind::NoAnswer, Message::default())
        }
        None => {
            tracing::error!("the handler of a call panicked: the answer is lost");
            (Kind::NoAnswer, Message::default())
        }
    }
}

/// A refusal's reason. Cut where it is longer than any reader's patience.
fn text(reason: &str) -> Message {
    let end = reason.floor_char_boundary(LONGEST_REASON_BYTES);
    Message { head: Default::default(), body: reason[..end].to_owned().into() }
}

const LONGEST_REASON_BYTES: usize = 1024;
