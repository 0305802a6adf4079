//! Where the raw bytes of a body come from, bounded in time.
//!
//! Promises: a peer that stalls or trickles ends in `RequestTimeout`; a connection that ends early in `IncompleteBody`. What is
//! left of an unread body goes back to its connection, which decides between draining and closing.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::post_form::FormFile;
use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What a connection learns of the body of its present request.
#[derive(Default)]
pub struct Leftover {
    body: Mutex<Option<Incoming>>,
    bytes: AtomicU64,
    polled: AtomicBool,
}

impl Leftover {
    /// The unread rest, once the request was dropped.
    pub fn take(&self) -> Option<Incoming> {
        self.body.lock().take()
    }

    /// Body bytes received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether anybody asked for the body (then `100 Continue` was sent if it was expected).
    pub fn polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }
}

enum Kind {
    Incoming {
        body: Option<Incoming>,
        leftover: Option<Arc<Leftover>>,
    },
    Pieces(VecDeque<Bytes>),
    /// The file within a form, which reads from the request's own source.
    Form(Box<FormFile>),
}

/// Raw bytes of a body.
pub struct Source {
    kind: Kind,
    waited: Duration,
    received: u64,
}

impl Source {
    /// These bytes.
    pub fn bytes(bytes: Bytes) -> Self {
        Self::pieces([bytes])
    }

    /// These bytes, in pieces.
    pub fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces = pieces.into_iter().filter(|p| !p.is_empty()).collect();
        Source { kind: Kind::Pieces(pieces), waited: Duration::ZERO, received: 0 }
    }

    /// The file of a form.
    pub fn form(file: FormFile) -> Self {
        Source { kind: Kind::Form(Box::new(file)), waited: Duration::ZERO, received: 0 }
    }

    /// What hyper receives.
    pub fn incoming(body: Incoming, leftover: Option<Arc<Leftover>>) -> Self {
        Source { kind: Kind::Incoming { body: Some(body), leftover }, waited: Duration::ZERO, received: 0 }
    }

    /// The next bytes; `None` at the end. Never empty.
    pub async fn next(&mut self) -> S3Result<Option<Bytes>> {
        match &mut self.kind {
            Kind::Pieces(pieces) => Ok(pieces.pop_front()),
            Kind::Form(file) => Box::pin(file.next()).await,
            Kind::Incoming { body, leftover } => {
                let Some(incoming) = body else { return Ok(None) };
                if let Some(l) = leftover {
                    l.polled.store(true, Ordering::Relaxed);
                }
                let Some(bytes) = next_data(incoming, &mut self.waited).await? else {
                    *body = None;
                    return Ok(None);
                };
                self.received += bytes.len() as u64;
                if let Some(l) = leftover {
                    l.bytes.store(self.received, Ordering::Relaxed);
                }
                check_rate(self.received, self.waited)?;
                Ok(Some(bytes))
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Kind::Incoming { body, leftover: Some(leftover) } = &mut self.kind
            && let Some(body) = body.take()
            && !body.is_end_stream()
        {
            *leftover.body.lock() = Some(body);
        }
    }
}

fn timeout() -> S3Error {
    S3Error::new(S3Code::RequestTimeout)
}

/// The next data frame that is not empty. HTTP trailers are dropped: nothing in S3 speaks through them.
async fn next_data(incoming: &mut Incoming, waited: &mut Duration) -> S3Result<Option<Bytes>> {
    loop {
        let began = Instant::now();
        let frame =
            tokio::time::timeout(limits::BODY_IDLE_TIMEOUT, poll_fn(|cx| Pin::new(&mut *incoming).poll_frame(cx)));
        let frame = frame.await.map_err(|_| timeout())?;
        *waited += began.elapsed();
        match frame {
            None => return Ok(None),
            Some(Err(e)) => {
                tracing::debug!(error = %e, "a body broke off");
                return Err(S3Error::new(S3Code::IncompleteBody));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Only the time we waited for the client counts, not the time the store needed.
fn check_rate(received: u64, waited: Duration) -> S3Result<()> {
    let slow =
        waited > limits::BODY_RATE_GRACE && received / waited.as_secs().max(1) < limits::BODY_MIN_BYTES_PER_SECOND;
    if slow { Err(timeout()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_55_a_body_that_trickles_is_a_timeout() {
        let seconds = Duration::from_secs;
        assert!(check_rate(1, seconds(60)).is_ok(), "within the grace");
        assert!(check_rate(61 << 10, seconds(61)).is_ok());
        assert_eq!(check_rate(60 << 10, seconds(61)).map_err(|e| e.code), Err(S3Code::RequestTimeout));
        assert_eq!(check_rate(0, seconds(3600)).map_err(|e| e.code), Err(S3Code::RequestTimeout));
    }
}
