//! One node's way into the simulated network.
//!
//! Promises: what the real one promises of calls: answered once, or an error that says whether the other side can have acted.
//! Refuses to know: how a real network comes to lose something; it loses in all the ways the contract allows.

use super::net::{Fate, Member, Shared, SimNet};
use super::post::Letter;
use crate::handlers::{Handlers, no_such_service};
use crate::wire::fits;
use crate::{Boxed, CallError, Message, Service, Transport};
use env::Env;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::NodeId;

const HALF: u32 = 500_000;

pub(super) struct SimPeers {
    net: SimNet,
    node: NodeId,
    env: Env,
    handlers: Handlers,
}

impl SimPeers {
    pub(super) fn new(net: SimNet, node: NodeId, env: Env, handlers: Handlers) -> SimPeers {
        SimPeers { net, node, env, handlers }
    }
}

impl Transport for SimPeers {
    fn node(&self) -> NodeId {
        self.node
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
        if to == self.node {
            return Box::pin(self.handlers.clone().call_here(self.env.clone(), to, service, message, timeout));
        }
        let (shared, env, from) = (self.net.shared.clone(), self.env.clone(), self.node);
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if env.tasks.is_alive() {
                let call = Call { shared: shared.clone(), from, to, service, reply };
                shared.outside.tasks.spawn(call.make(message));
            }
            let answer = async {
                match answer.await {
                    Ok(answer) => answer,
                    // It is lost, and nobody says so.
                    Err(_) => pending().await,
                }
            };
            env.timers.timeout(timeout, answer).await.unwrap_or(Err(CallError::Lost(to)))
        })
    }

    fn send(&self, to: NodeId, service: Service, message: Message) {
        if !fits(message.head.len(), message.body.len()) || !self.env.tasks.is_alive() {
            return;
        }
        if to == self.node {
            return self.handlers.receive_here(to, service, message);
        }
        let shared = &self.net.shared;
        let faults = shared.faults(self.node, to);
        let letter = Letter { from: self.node, to, service, message };
        let doubled = shared.chance(faults.doubled_ppm);
        if doubled {
            shared.count(|counts| counts.doubled += 1);
            post(shared, letter.clone(), false);
        }
        let overtaken = shared.chance(faults.overtaken_ppm);
        if overtaken {
            shared.count(|counts| counts.overtaken += 1);
        }
        post(shared, letter, !overtaken);
    }
}

fn post(shared: &Shared, letter: Letter, in_order: bool) {
    match shared.fate(letter.from, letter.to) {
        Fate::Lost => shared.count(|counts| counts.lost += 1),
        Fate::Arrives(delay) => shared.post.put(letter, shared.outside.clock.monotonic() + delay, in_order),
    }
}

/// A call on its way, outside of both nodes.
struct Call {
    shared: Arc<Shared>,
    from: NodeId,
    to: NodeId,
    service: Service,
    reply: oneshot::Sender<Result<Message, CallError>>,
}

impl Call {
    async fn make(self, message: Message) {
        let Some(member) = self.reach().await else {
            self.shared.count(|counts| counts.lost += 1);
            return self.fail(CallError::Unreachable).await;
        };
        self.shared.count(|counts| counts.delivered += 1);
        let result = match member.handlers.get(self.service) {
            None => Ok(Err(no_such_service(self.service))),
            Some(handler) => {
                let (done, result) = oneshot::channel();
                let from = self.from;
                // In the node's own domain: it dies and stands still with it.
                member.env.tasks.spawn(async move {
                    let _ = done.send(handler.call(from, message).await);
                });
                result.await
            }
        };
        let way_back = self.shared.fate(self.to, self.from);
        let (Ok(result), Fate::Arrives(delay)) = (result, way_back) else {
            self.shared.count(|counts| counts.lost += 1);
            return self.fail(CallError::Lost).await;
        };
        self.shared.outside.timers.sleep(delay).await;
        match self.shared.passes(self.to, self.from) {
            true => drop(self.reply.send(result.map_err(|reason| CallError::Refused(self.to, reason)))),
            false => self.fail(CallError::Lost).await,
        }
    }

    /// The way there. `None`: it was not made to the end, so the other side does nothing.
    async fn reach(&self) -> Option<Member> {
        let Fate::Arrives(delay) = self.shared.fate(self.from, self.to) else { return None };
        self.shared.outside.timers.sleep(delay).await;
        self.shared.passes(self.from, self.to).then(|| self.shared.member(self.to)).flatten()
    }

    /// The caller learns of it soon, as from a connection that breaks, or never, as from one that hangs.
    async fn fail(self, error: fn(NodeId) -> CallError) {
        if self.shared.chance(HALF) {
            let delay = self.shared.delay(&self.shared.faults(self.to, self.from));
            self.shared.outside.timers.sleep(delay).await;
            let _ = self.reply.send(Err(error(self.to)));
        }
    }
}
