//! Messages between the nodes of a cluster: calls that are answered, and messages that may be lost.
//!
//! Promises: a message arrives whole and from the node it names, or not at all; a call ends by its answer or by its timeout, and its
//! error says whether the other side can have acted. Refuses to know: which services exist and what messages mean.

pub mod handlers;
pub mod limits;
pub mod sim;
pub mod tcp;
mod wire;

use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use types::NodeId;

/// What a message is for: the number of the handler that takes it at the other side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service(pub u8);

/// A small part that is always decoded, and bulk bytes that are only passed on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Encoded by the service; at most `limits` say.
    pub head: Bytes,
    /// Bulk, such as the frame of an extent.
    pub body: Bytes,
}

/// A call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// It was not sent: the other side did nothing.
    #[error("node {0} cannot be reached")]
    Unreachable(NodeId),
    /// It was sent, and no answer came in time: the other side may have acted or may still.
    #[error("node {0} did not answer")]
    Lost(NodeId),
    /// The other side has no such service, or its handler failed; it did nothing.
    #[error("node {0} refused: {1}")]
    Refused(NodeId, String),
}

/// A future on the heap.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to other nodes, for any thread. Calls to the node itself are answered too, without a network; a message it sends to itself is taken within
/// [`Transport::send`].
pub trait Transport: Send + Sync + 'static {
    /// This node.
    fn node(&self) -> NodeId;
    /// Sends and waits for the answer. Sent when the future is first polled; dropping it forgets the answer. A message above the
    /// limits is refused.
    fn call(
        &self,
        to: NodeId,
        service: Service,
        message: Message,
        timeout: Duration,
    ) -> Boxed<Result<Message, CallError>>;
    /// Sends without an answer, in order per node and service as long as nothing is lost; dropped if the queue to that node is full,
    /// if the node cannot be reached, or if the message is above the limits.
    fn send(&self, to: NodeId, service: Service, message: Message);
}

/// What takes the messages of one service.
pub trait Handler: Send + Sync + 'static {
    /// Answers a call. `Err` says that nothing was done. Goes on to its end whether or not anybody still waits.
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>>;
    /// Takes a message that is not answered. Must not block.
    fn receive(&self, from: NodeId, message: Message);
}
