//! The connecting half: what this node says to others.
//!
//! Promises: those of [`Transport`], with the bounds of `limits`. Dropping it ends its connections; calls in flight are lost.
//! Refuses to know: who listens.

use super::link::Link;
use super::{Class, TcpConfig};
use crate::handlers::Handlers;
use crate::wire::fits;
use crate::{Boxed, CallError, Message, Service, Transport};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use types::NodeId;

/// The way to other nodes, over TCP.
pub struct Peers {
    config: TcpConfig,
    /// For what this node says to itself.
    handlers: Handlers,
    /// Where connections and timers live. Raft's messages come from the thread of the log, which knows no runtime.
    runtime: Handle,
    /// Of nodes the map lists or once listed: few.
    links: Mutex<BTreeMap<(NodeId, Class), Arc<Link>>>,
}

impl Peers {
    /// No connection is made before there is something to say. `handlers` take what the node says to itself. To be called within the
    /// runtime that is to do the work; what it is asked later may come from any thread, and its futures may be polled by any.
    pub fn new(config: TcpConfig, handlers: Handlers) -> Peers {
        Peers { config, handlers, runtime: Handle::current(), links: Mutex::default() }
    }

    fn call_on_runtime(
        &self,
        to: NodeId,
        service: Service,
        message: Message,
        timeout: Duration,
    ) -> Boxed<Result<Message, CallError>> {
        if to == self.config.node {
            return Box::pin(self.handlers.clone().call_here(self.config.env.clone(), to, service, message, timeout));
        }
        match self.link(to, service) {
            Some(link) => Box::pin(link.call(service, message, timeout)),
            None => Box::pin(async move { Err(CallError::Unreachable(to)) }),
        }
    }

    fn link(&self, to: NodeId, service: Service) -> Option<Arc<Link>> {
        // Asked each time: nothing is said to a node that was removed, and one that never was in the map leaves nothing behind.
        self.config.trust.key_of(to)?;
        let at = (to, self.config.class(service));
        Some(self.links.lock().entry(at).or_insert_with(|| Link::new(self.config.clone(), to)).clone())
    }
}

impl Transport for Peers {
    fn node(&self) -> NodeId {
        self.config.node
    }

    fn call(
        &self,
        to: NodeId,
        service: Service,
        message: Message,
        timeout: Duration,
    ) -> Boxed<Result<Message, CallError>> {
        if !fits(message.head.len(), message.body.len()) {
            return Box::pin(async move { Err(CallError::Refused(to, "the message is too long".to_owned())) });
        }
        let (runtime, mut call) = (self.runtime.clone(), self.call_on_runtime(to, service, message, timeout));
        Box::pin(poll_fn(move |context| {
            let _entered = runtime.enter();
            call.as_mut().poll(context)
        }))
    }

    fn send(&self, to: NodeId, service: Service, message: Message) {
        if !fits(message.head.len(), message.body.len()) {
            tracing::warn!(to, service = service.0, "a message is too long and was dropped");
        } else if to == self.config.node {
            self.handlers.receive_here(to, service, message);
        } else if let Some(link) = self.link(to, service) {
            let _entered = self.runtime.enter();
            link.send(service, message);
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.links.lock().values().for_each(|link| link.close());
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("node", &self.config.node).finish_non_exhaustive()
    }
}
