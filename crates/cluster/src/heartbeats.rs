//! The failure detector at work: heartbeats over rpc (service 4), and the answers to nodes that want to join.
//!
//! Promises: one heartbeat to every other node of the map each `HEARTBEAT`, none of them waited for; verdicts are told in order by
//! [`Heartbeats::run`] and can be read at any time. Refuses to know: what is done about a verdict, how a change is proposed.

use crate::detector::{Detector, Health, Me, Verdict};
use crate::join::{JoinAnswer, JoinRequest};
use crate::limits::HEARTBEAT;
use crate::root::{Root, admit};
use crate::wire::ClusterMessage;
use env::Env;
use parking_lot::Mutex;
use rpc::{Boxed, Handler, Message, Service, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::NodeId;
use types::cluster::{ClusterRefusal, KeyHash};

/// The number of this service.
pub const SERVICE: Service = Service(4);

/// Who hears whom. Cheap to clone.
#[derive(Clone)]
pub struct Heartbeats {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    root: Arc<dyn Root>,
    detector: Mutex<(Detector, Option<u64>)>,
    stopped: AtomicBool,
}

impl Heartbeats {
    /// Of a node that begins to listen. Nothing is sent before [`Heartbeats::run`].
    pub fn new(me: Me, env: Env, root: Arc<dyn Root>) -> Heartbeats {
        let detector = Mutex::new((Detector::new(me), None));
        Heartbeats { inner: Arc::new(Inner { env, root, detector, stopped: AtomicBool::new(false) }) }
    }

    /// Sends, judges, and tells every verdict, until [`Heartbeats::stop`]; `told` must not block. For the owner to spawn and join. The
    /// transport comes only now, for it is made with the handlers of this node, [`ClusterService`] among them.
    pub async fn run(self, transport: Arc<dyn Transport>, mut told: impl FnMut(Verdict) + Send) {
        while !self.inner.stopped.load(Ordering::Relaxed) {
            let (verdicts, messages) = self.turn();
            for (to, message) in messages {
                transport.send(to, SERVICE, message);
            }
            verdicts.into_iter().for_each(&mut told);
            self.inner.env.timers.sleep(HEARTBEAT).await;
        }
    }

    /// Lets [`Heartbeats::run`] end within a heartbeat.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
    }

    fn turn(&self) -> (Vec<Verdict>, Vec<(NodeId, Message)>) {
        let map = self.inner.root.map();
        let (now, wall_ms) = (self.now(), self.inner.env.clock.wall_ms());
        let mut state = self.inner.detector.lock();
        let (detector, known) = &mut *state;
        let epoch = map.as_ref().map_or(0, |map| map.epoch);
        if let Some(map) = map.filter(|map| *known != Some(map.epoch)) {
            detector.set_map(&map, now);
            *known = Some(map.epoch);
        }
        let verdicts = detector.tick(now);
        let others = detector.others();
        let send = |to| {
            let heartbeat = ClusterMessage::Heartbeat(detector.heartbeat(to, epoch, now, wall_ms));
            (to, Message { head: heartbeat.encode().into(), ..Message::default() })
        };
        let messages = others.into_iter().map(send).collect();
        (verdicts, messages)
    }

    fn now(&self) -> Duration {
        self.inner.env.clock.monotonic()
    }

    /// What is thought of a node; `None` if the map does not have it.
    pub fn health(&self, node: NodeId) -> Option<Health> {
        self.inner.detector.lock().0.health(node)
    }

    /// Whether half of the cluster finds it slow.
    pub fn is_slow(&self, node: NodeId) -> bool {
        self.inner.detector.lock().0.is_slow(node)
    }

    /// Whether this node itself has completed no round trip with it for 2 s.
    pub fn is_silent_to_us(&self, node: NodeId) -> bool {
        self.inner.detector.lock().0.is_silent_to_us(node, self.now())
    }

    /// Whether this node hears less than half of the cluster.
    pub fn is_cut_off(&self) -> bool {
        self.inner.detector.lock().0.is_cut_off(self.now())
    }

    /// The newest epoch that anybody spoke of: with an older map there is something to wait for.
    pub fn newest_epoch(&self) -> u64 {
        self.inner.detector.lock().0.newest_epoch()
    }

    /// How far the other nodes' wall clocks are ahead of ours, in the median.
    pub fn clocks_ahead_ms(&self) -> Option<i64> {
        self.inner.detector.lock().0.clocks_ahead_ms()
    }

    /// How long a piece of work took that was asked of a node.
    pub fn observe(&self, node: NodeId, took: Duration) {
        self.inner.detector.lock().0.observe(node, took, self.now());
    }

    fn heard(&self, from: NodeId, message: &Message) {
        match ClusterMessage::decode(&message.head) {
            Ok(ClusterMessage::Heartbeat(heartbeat)) => {
                let wall_ms = self.inner.env.clock.wall_ms();
                self.inner.detector.lock().0.heard(from, heartbeat, self.now(), wall_ms);
            }
            Ok(_) => tracing::debug!(from, "a call came as a message"),
            Err(error) => tracing::debug!(from, %error, "not a heartbeat"),
        }
    }
}

/// Everything that service 4 does.
pub struct ClusterService {
    heartbeats: Heartbeats,
    /// This node's key: requests to join are signed for it.
    door: KeyHash,
}

impl ClusterService {
    /// With the key of this node.
    pub fn new(heartbeats: Heartbeats, door: KeyHash) -> ClusterService {
        ClusterService { heartbeats, door }
    }

    /// Judges the form here and lets root judge the rest.
    fn join(&self, request: &JoinRequest) -> Result<Boxed<JoinAnswer>, JoinAnswer> {
        let root = &self.heartbeats.inner.root;
        let map = root.map().ok_or(JoinAnswer::Refused(ClusterRefusal::NotBorn))?;
        let command = request.judge(&map, self.door).map_err(JoinAnswer::Refused)?;
        Ok(Box::pin(admit(root.clone(), command)))
    }
}

impl Handler for ClusterService {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let answer = match ClusterMessage::decode(&message.head) {
            Ok(ClusterMessage::Join(request)) => self.join(&request),
            Ok(_) => return Box::pin(async move { Err(format!("node {from} called what is not a call")) }),
            Err(error) => return Box::pin(async move { Err(error.to_string()) }),
        };
        Box::pin(async move {
            let answer = match answer {
                Ok(admitting) => admitting.await,
                Err(answer) => answer,
            };
            // As the body, for a map may be longer than a head.
            let body = ClusterMessage::Joined(Box::new(answer)).encode().into();
            Ok(Message { body, ..Message::default() })
        })
    }

    fn receive(&self, from: NodeId, message: Message) {
        self.heartbeats.heard(from, &message);
    }
}
