//! One other node as its disks are reached: calls, what was heard of it, what is known of its disks.
//!
//! Promises: a node that was last silent is waited for only briefly until something is heard of it again; no call is ever
//! repeated here: a lost answer may be an act. Refuses to know: what the calls do; which node leads or belongs to the cluster.

use crate::away::Away;
use crate::limits;
use crate::wire::{Answer, Fault, Request, Status, What};
use bytes::Bytes;
use env::Env;
use parking_lot::Mutex;
use rpc::{Message, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use types::{DiskId, NodeId};

/// The way to one node.
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) env: Env,
    transport: Arc<dyn Transport>,
    silent: AtomicBool,
    heard: Mutex<Heard>,
    /// Appends under way.
    pub(crate) appends: Arc<Semaphore>,
}

#[derive(Default)]
struct Heard {
    /// When the last answer came.
    at: Duration,
    disks: BTreeMap<DiskId, (Duration, Status)>,
}

impl Link {
    pub(crate) fn new(node: NodeId, transport: Arc<dyn Transport>, env: Env) -> Arc<Link> {
        Arc::new(Link {
            node,
            env,
            transport,
            silent: AtomicBool::new(false),
            heard: Mutex::default(),
            appends: Arc::new(Semaphore::new(limits::APPENDS_UNDER_WAY)),
        })
    }

    /// Whether the last that is known of the node is that it did not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// What the failure detector says of the node; corrected by the next answer or silence.
    pub(crate) fn set_silent(&self, silent: bool) {
        if self.silent.swap(silent, Ordering::Relaxed) != silent {
            tracing::info!(node = self.node, silent, "a node's disks");
        }
    }

    /// Asks once.
    pub(crate) async fn ask(
        &self,
        disk: DiskId,
        what: What,
        body: Bytes,
        patience: Duration,
    ) -> Result<(Answer, Bytes), Away> {
        let patience = if self.is_silent() { patience.min(limits::SILENT_PATIENCE) } else { patience };
        let head = Request { disk, what }.encode().into();
        let began = self.env.clock.monotonic();
        let answered = self.transport.call(self.node, limits::DISKS, Message { head, body }, patience).await;
        match answered {
            Ok(answer) => {
                self.heard();
                match Answer::decode(&answer.head) {
                    // What the node does not have now it may have later.
                    Ok(Answer::Fault(Fault::NoDisk)) => Err(Away::NoDisk),
                    Ok(Answer::Fault(Fault::Closed)) => Err(Away::Closing),
                    Ok(head) => Ok((head, answer.body)),
                    Err(malformed) => Err(Away::Nonsense(self.node, malformed)),
                }
            }
            Err(error) => {
                match &error {
                    rpc::CallError::Refused(..) => self.heard(),
                    // One slow call of many is no silence.
                    _ if self.heard.lock().at <= began => self.set_silent(true),
                    _ => {}
                }
                Err(error.into())
            }
        }
    }

    fn heard(&self) {
        self.heard.lock().at = self.env.clock.monotonic();
        self.set_silent(false);
    }

    /// What was last known of a disk.
    pub(crate) fn known(&self, disk: DiskId) -> Option<Status> {
        self.heard.lock().disks.get(&disk).map(|(_, status)| *status)
    }

    /// How a disk is; as it was a moment ago, if it was asked then.
    pub(crate) async fn status(&self, disk: DiskId, age: Duration, patience: Duration) -> Result<Status, Away> {
        let now = self.env.clock.monotonic();
        let known = self.heard.lock().disks.get(&disk).copied();
        if let Some((at, status)) = known
            && now.saturating_sub(at) < age
            && !self.is_silent()
        {
            return Ok(status);
        }
        match self.ask(disk, What::Status, Bytes::new(), patience).await? {
            (Answer::Status(status), _) => {
                let now = self.env.clock.monotonic();
                self.heard.lock().disks.insert(disk, (now, status));
                Ok(status)
            }
            (Answer::Fault(fault), _) => Err(Away::Refused(self.node, format!("{fault:?}"))),
            _ => Err(self.nonsense()),
        }
    }

    pub(crate) fn nonsense(&self) -> Away {
        Away::Nonsense(self.node, crate::wire::Malformed("not an answer to this question"))
    }
}
