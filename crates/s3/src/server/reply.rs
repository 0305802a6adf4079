//! An answer on its way out: its body as hyper pulls it, and what is told once it has ended.
//!
//! Promises: a body that fails or has another length than announced is an error to hyper, which then cuts the connection; it
//! never looks like a whole one.

use super::dispatch::RequestId;
use super::slots::Slot;
use super::{Observation, Observer};
use crate::body::Leftover;
use crate::response::S3Body;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_controller::api::{ReadBody, StoreError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

type Pulled = (Box<dyn ReadBody>, Result<Option<Bytes>, StoreError>);

enum Kind {
    Empty,
    Full(Bytes),
    /// Between two pieces.
    Idle(Box<dyn ReadBody>),
    /// The first piece has come.
    Begun(Box<dyn ReadBody>, Bytes),
    /// The next piece is on its way.
    Pulling(Pin<Box<dyn Future<Output = Pulled> + Send>>),
}

/// What is told of a request at its end. Lives as long as the answer's body does.
pub struct Account {
    /// Who is told.
    pub observer: Arc<dyn Observer>,
    /// The slot it took.
    pub _slot: Option<Slot>,
    /// For the log.
    pub request_id: RequestId,
    /// Name.
    pub operation: &'static str,
    /// HTTP status.
    pub status: u16,
    /// When its head had been parsed.
    pub began: Instant,
    /// Until the answer's head, microseconds.
    pub first_byte_us: u64,
    /// Counts the body received.
    pub received: Option<Arc<Leftover>>,
}

/// The body of an answer.
pub struct ReplyBody {
    kind: Kind,
    left: u64,
    sent: u64,
    account: Account,
}

impl ReplyBody {
    /// Takes `body` out to the client; `first` is what was taken from it already.
    pub fn new(body: S3Body, first: Option<Bytes>, account: Account) -> Self {
        let (kind, left) = match body {
            S3Body::Empty => (Kind::Empty, 0),
            S3Body::Full(b) if b.is_empty() => (Kind::Empty, 0),
            S3Body::Full(b) => {
                let len = b.len() as u64;
                (Kind::Full(b), len)
            }
            S3Body::Stream(b, len) => match first {
                Some(first) => (Kind::Begun(b, first), len),
                None => (Kind::Idle(b), len),
            },
        };
        ReplyBody { kind, left, sent: 0, account }
    }

    fn pulled(&mut self, (body, piece): Pulled) -> Option<Result<Frame<Bytes>, ReplyError>> {
        match piece {
            Ok(Some(bytes)) => {
                self.kind = Kind::Idle(body);
                (!bytes.is_empty()).then(|| self.pass(bytes))
            }
            Ok(None) => None,
            Err(e) => {
                tracing::warn!(request_id = self.account.request_id.as_str(), error = %e, "an answer was cut off");
                Some(Err(ReplyError("the object could not be read")))
            }
        }
    }

    fn pass(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, ReplyError> {
        let n = bytes.len() as u64;
        self.left = self.left.checked_sub(n).ok_or(ReplyError("the object is longer than announced"))?;
        self.sent += n;
        Ok(Frame::data(bytes))
    }
}

/// Why an answer was cut off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplyError(&'static str);

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.kind, Kind::Empty) {
                Kind::Empty if this.left == 0 => return Poll::Ready(None),
                Kind::Empty => return Poll::Ready(Some(Err(ReplyError("the object is shorter than announced")))),
                Kind::Full(bytes) => return Poll::Ready(Some(this.pass(bytes))),
                // All is sent: no need to ask for an end.
                Kind::Idle(_) if this.left == 0 => return Poll::Ready(None),
                Kind::Idle(mut body) => {
                    this.kind = Kind::Pulling(Box::pin(async move {
                        let piece = body.next().await;
                        (body, piece)
                    }));
                }
                Kind::Pulling(mut future) => {
                    let Poll::Ready(pulled) = future.as_mut().poll(cx) else {
                        this.kind = Kind::Pulling(future);
                        return Poll::Pending;
                    };
                    if let Some(frame) = this.pulled(pulled) {
                        return Poll::Ready(Some(frame));
                    }
                }
                Kind::Begun(body, first) => {
                    if let Some(frame) = this.pulled((body, Ok(Some(first)))) {
                        return Poll::Ready(Some(frame));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        let a = &self.account;
        let observation = Observation {
            operation: a.operation,
            status: a.status,
            duration_us: micros_since(a.began),
            first_byte_us: a.first_byte_us,
            bytes_in: a.received.as_ref().map_or(0, |l| l.bytes()),
            bytes_out: self.sent,
            aborted: self.left > 0,
        };
        tracing::debug!(
            request_id = a.request_id.as_str(),
            operation = observation.operation,
            status = observation.status,
            duration_us = observation.duration_us,
            bytes_in = observation.bytes_in,
            bytes_out = observation.bytes_out,
            aborted = observation.aborted,
            "answered"
        );
        a.observer.observe(&observation);
    }
}

/// Microseconds since `began`.
pub fn micros_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
