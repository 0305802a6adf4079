//! Raft's messages and snapshots over rpc: service 1.
//!
//! Promises: nothing is waited for on the thread of the log. Refuses to know: what the messages are.

use bytes::Bytes;
use metadata::node::{Boxed, Metadata, Peers};
use rpc::{Handler, Message, Service, Transport};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use types::NodeId;

/// The number of the service.
pub const SERVICE: Service = Service(1);

/// How long a chunk of a snapshot may take.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// The way to the other nodes' metadata.
pub struct RaftPeers {
    transport: Arc<dyn Transport>,
    runtime: Handle,
}

impl RaftPeers {
    /// Over this transport, on the runtime this is called in.
    pub fn new(transport: Arc<dyn Transport>) -> RaftPeers {
        RaftPeers { transport, runtime: Handle::current() }
    }
}

impl Peers for RaftPeers {
    fn send(&self, to: NodeId, batch: Bytes) {
        let _runtime = self.runtime.enter();
        self.transport.send(to, SERVICE, Message { head: Bytes::new(), body: batch });
    }

    fn fetch(&self, from: NodeId, request: Bytes) -> Boxed<Result<Bytes, String>> {
        let (reply, answer) = oneshot::channel();
        let call = self.transport.call(from, SERVICE, Message { head: request, body: Bytes::new() }, CHUNK_TIMEOUT);
        self.runtime.spawn(async move {
            let answer = call.await.map(|message| message.body).map_err(|e| e.to_string());
            // Whoever asked may have given up.
            let _ = reply.send(answer);
        });
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err("the runtime ended".to_owned())) })
    }
}

/// Hands what comes to the metadata.
pub struct RaftService(pub Metadata);

impl Handler for RaftService {
    fn call(&self, from: NodeId, message: Message) -> rpc::Boxed<Result<Message, String>> {
        let served = self.0.serve(from, message.head);
        Box::pin(async move { Ok(Message { head: Bytes::new(), body: served.await? }) })
    }

    fn receive(&self, from: NodeId, message: Message) {
        self.0.receive(from, message.body);
    }
}
