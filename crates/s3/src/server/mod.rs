//! Serves S3 over HTTP/1.1.
//!
//! Promises: a request reaches the handler only after its framing and its signature held; an answer that cannot be completed
//! aborts its connection. Refuses to know: operations, XML bodies, the store.

use crate::request::S3Request;
use crate::response::S3Response;
use std::future::Future;

/// What answers requests: the router of operations.
pub trait Handler: Send + Sync + 'static {
    /// Answers one authenticated request. Dropped if the client goes away.
    fn handle(&self, request: S3Request) -> impl Future<Output = S3Response> + Send;
}

/// Learns of every answered request (metrics).
pub trait Observer: Send + Sync + 'static {
    /// Called when the answer has left or its connection has ended.
    fn observe(&self, observation: &Observation);
}

/// One answered request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// The handler's name of it; `-` if it never got there.
    pub operation: &'static str,
    /// HTTP status.
    pub status: u16,
    /// From the parsed head to the end of the answer, microseconds.
    pub duration_us: u64,
    /// From the parsed head to the answer's head, microseconds.
    pub first_byte_us: u64,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// The answer was cut off.
    pub aborted: bool,
}
