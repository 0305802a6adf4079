//! A handler that is there before what it hands to.
//!
//! Promises: until it is connected a call is refused, so nothing was done, or answered by a stand-in that does nothing either, and
//! messages are dropped. Refuses to know: what they are.

use rpc::{Boxed, Handler, Message};
use std::sync::{Arc, OnceLock};
use types::NodeId;

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Late {
    handler: Arc<OnceLock<Arc<dyn Handler>>>,
    stand_in: Arc<OnceLock<Arc<dyn Handler>>>,
}

impl Late {
    /// Until it is connected this answers calls.
    pub fn stand_in(&self, handler: Arc<dyn Handler>) {
        // Called once.
        let _ = self.stand_in.set(handler);
    }

    /// From now on it is this.
    pub fn connect(&self, handler: Arc<dyn Handler>) {
        // Called once.
        let _ = self.handler.set(handler);
    }
}

impl Handler for Late {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        match self.handler.get().or_else(|| self.stand_in.get()) {
            Some(handler) => handler.call(from, message),
            None => Box::pin(async { Err("the node is starting".to_owned()) }),
        }
    }

    fn receive(&self, from: NodeId, message: Message) {
        if let Some(handler) = self.handler.get() {
            handler.receive(from, message);
        }
    }
}
