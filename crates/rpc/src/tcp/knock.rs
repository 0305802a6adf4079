//! One call by a node that is not a member yet.
//!
//! Promises: the answer comes from the holder of the key it was told. Refuses to know: what is asked, how a node becomes a member.

use super::trust::{KeySha256, Trust};
use super::{Identity, Pace, Peers, TcpConfig};
use crate::handlers::Handlers;
use crate::limits::{MAX_BODY_BYTES, MAX_HEAD_BYTES};
use crate::{CallError, Message, Service, Transport};
use env::Env;
use env::buf::BufPool;
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

/// Calls `node`, which listens at `address` (host:port) and must prove that it has `key`, showing `identity`, a key that the map need
/// not list. The other side's listener must admit strangers to this service.
pub async fn knock(
    env: &Env,
    identity: &Identity,
    door: (NodeId, &str, KeySha256),
    service: Service,
    message: Message,
    timeout: Duration,
) -> Result<Message, CallError> {
    let (node, address, key) = door;
    let memory = BufPool::new(2 * (MAX_HEAD_BYTES + MAX_BODY_BYTES));
    let config = TcpConfig {
        node: NOBODY,
        identity: identity.clone(),
        trust: Arc::new(Door { node, address: address.to_owned(), key }),
        env: env.clone(),
        bulk: Arc::new([]),
        call_memory: memory.clone(),
        answer_memory: memory,
        pace: Pace::default(),
    };
    Peers::new(config, Handlers::new()).call(node, service, message, timeout).await
}

/// What handlers see in place of a node's number; nodes begin at 1.
pub(super) const NOBODY: NodeId = 0;

/// A map of one node.
struct Door {
    node: NodeId,
    address: String,
    key: KeySha256,
}

impl Trust for Door {
    fn node_of(&self, key: KeySha256) -> Option<NodeId> {
        (key == self.key).then_some(self.node)
    }

    fn key_of(&self, node: NodeId) -> Option<KeySha256> {
        (node == self.node).then_some(self.key)
    }

    fn address_of(&self, node: NodeId) -> Option<String> {
        (node == self.node).then(|| self.address.clone())
    }
}
