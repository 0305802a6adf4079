//! Which handler takes the messages of which service.
//!
//! Promises: fixed before the first message. Refuses to know: what the services are.

use crate::{CallError, Handler, Message, Service};
use env::Env;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::NodeId;

/// The handlers of one node. Cheap to clone.
#[derive(Clone, Default)]
pub struct Handlers {
    by_service: Arc<BTreeMap<Service, Arc<dyn Handler>>>,
}

impl Handlers {
    /// None yet.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// And this one for that service, in place of a former one.
    pub fn with(mut self, service: Service, handler: Arc<dyn Handler>) -> Handlers {
        Arc::make_mut(&mut self.by_service).insert(service, handler);
        self
    }

    pub(crate) fn get(&self, service: Service) -> Option<Arc<dyn Handler>> {
        self.by_service.get(&service).cloned()
    }

    /// A call of the node to itself. The handler runs in a task of its own, as for others: it goes on if the caller does not wait.
    pub(crate) async fn call_here(
        self,
        env: Env,
        node: NodeId,
        service: Service,
        message: Message,
        timeout: Duration,
    ) -> Result<Message, CallError> {
        let handler = self.get(service).ok_or_else(|| CallError::Refused(node, no_such_service(service)))?;
        let (reply, answer) = oneshot::channel();
        env.tasks.spawn(async move {
            let _ = reply.send(handler.call(node, message).await);
        });
        match env.timers.timeout(timeout, answer).await {
            Some(Ok(answer)) => answer.map_err(|reason| CallError::Refused(node, reason)),
            // Too late, or the handler panicked.
            Some(Err(_)) | None => Err(CallError::Lost(node)),
        }
    }

    /// A message of the node to itself.
    pub(crate) fn receive_here(&self, node: NodeId, service: Service, message: Message) {
        if let Some(handler) = self.get(service) {
            handler.receive(node, message);
        }
    }
}

/// What a caller of an unknown service reads.
pub(crate) fn no_such_service(service: Service) -> String {
    format!("no service {}", service.0)
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_service.keys()).finish()
    }
}
