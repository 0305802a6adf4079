//! A network of a simulated world: delays, loss of questions and of answers, doubles, nodes that are cut off.
#![allow(dead_code, clippy::unwrap_used)]

use env::Env;
use env::world::SimWorld;
use parking_lot::Mutex;
use rpc::{Boxed, CallError, Handler, Message, Service, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::NodeId;

pub use net_disks::{CLUSTER, DiskNode, disk_of};

/// What may happen to a message, in hundredths.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lose_question: u64,
    pub lose_answer: u64,
    pub double: u64,
    pub delay_ms: u64,
}

/// Where a node's handler runs, and the handler.
type Station = (Env, Arc<dyn Handler>);

pub struct Net {
    outside: Env,
    faults: Mutex<Faults>,
    nodes: Mutex<BTreeMap<NodeId, Station>>,
    /// Connections are refused.
    down: Mutex<BTreeSet<NodeId>>,
    /// Questions vanish.
    deaf: Mutex<BTreeSet<NodeId>>,
    /// Answers of these nodes take so much longer.
    late: Mutex<BTreeMap<NodeId, Duration>>,
    /// Who waits for what was swallowed: a network does not say that it lost something.
    swallowed: Mutex<Vec<oneshot::Sender<Answered>>>,
    /// Questions that reached a node.
    pub delivered: Mutex<u64>,
}

impl Net {
    pub fn new(world: &SimWorld) -> Arc<Net> {
        Arc::new(Net {
            outside: world.outside(),
            faults: Mutex::default(),
            nodes: Mutex::default(),
            down: Mutex::default(),
            deaf: Mutex::default(),
            late: Mutex::default(),
            swallowed: Mutex::default(),
            delivered: Mutex::default(),
        })
    }

    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    pub fn attach(&self, node: NodeId, env: Env, handler: Arc<dyn Handler>) {
        self.nodes.lock().insert(node, (env, handler));
    }

    pub fn set_down(&self, node: NodeId, down: bool) {
        let mut set = self.down.lock();
        if down {
            set.insert(node)
        } else {
            set.remove(&node)
        };
    }

    pub fn set_deaf(&self, node: NodeId, deaf: bool) {
        let mut set = self.deaf.lock();
        if deaf {
            set.insert(node)
        } else {
            set.remove(&node)
        };
    }

    pub fn set_late(&self, node: NodeId, by: Option<Duration>) {
        let mut late = self.late.lock();
        match by {
            Some(by) => late.insert(node, by),
            None => late.remove(&node),
        };
    }

    pub fn door(self: &Arc<Self>, node: NodeId, env: &Env) -> Arc<dyn Transport> {
        Arc::new(Door { node, env: env.clone(), net: self.clone() })
    }

    fn draw(&self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.outside.random.next_u64() % below }
    }

    fn happens(&self, hundredths: u64) -> bool {
        self.draw(100) < hundredths
    }

    fn delay(&self) -> Duration {
        let most = self.faults.lock().delay_ms * 1000;
        Duration::from_micros(50 + self.draw(most))
    }

    /// Brings the question to the node and its answer back, or never answers.
    fn carry(self: &Arc<Self>, from: NodeId, to: NodeId, message: Message, reply: Option<oneshot::Sender<Answered>>) {
        let net = self.clone();
        self.outside.tasks.spawn(async move {
            net.outside.timers.sleep(net.delay()).await;
            let Some((env, handler)) = net.nodes.lock().get(&to).cloned() else { return };
            if net.deaf.lock().contains(&to) {
                net.swallowed.lock().extend(reply);
                return;
            }
            *net.delivered.lock() += 1;
            let (done, answer) = oneshot::channel();
            env.tasks.spawn(async move { drop(done.send(handler.call(from, message).await)) });
            let Ok(answer) = answer.await else { return };
            let late = net.late.lock().get(&to).copied().unwrap_or_default();
            net.outside.timers.sleep(net.delay() + late).await;
            let lost = net.faults.lock().lose_answer;
            if net.happens(lost) || net.deaf.lock().contains(&to) {
                net.swallowed.lock().extend(reply);
                return;
            }
            if let Some(reply) = reply {
                let _ = reply.send(answer);
            }
        });
    }
}

type Answered = Result<Message, String>;

struct Door {
    node: NodeId,
    env: Env,
    net: Arc<Net>,
}

impl Transport for Door {
    fn node(&self) -> NodeId {
        self.node
    }

    fn call(&self, to: NodeId, _: Service, message: Message, timeout: Duration) -> Boxed<Result<Message, CallError>> {
        let (net, env, from) = (self.net.clone(), self.env.clone(), self.node);
        Box::pin(async move {
            if net.down.lock().contains(&to) {
                return Err(CallError::Unreachable(to));
            }
            let faults = *net.faults.lock();
            let (reply, answer) = oneshot::channel();
            if net.happens(faults.double) {
                net.carry(from, to, message.clone(), None);
            }
            if net.happens(faults.lose_question) {
                net.swallowed.lock().push(reply);
            } else {
                net.carry(from, to, message, Some(reply));
            }
            let waited = env.timers.timeout(timeout, answer).await;
            match waited {
                Some(Ok(Ok(answer))) => Ok(answer),
                Some(Ok(Err(why))) => Err(CallError::Refused(to, why)),
                // The connection broke.
                Some(Err(_)) | None => Err(CallError::Lost(to)),
            }
        })
    }

    fn send(&self, _: NodeId, _: Service, _: Message) {}
}

mod net_disks {
    use super::Net;
    use env::Env;
    use env::buf::BufPool;
    use env::sim_disk::SimDisk;
    use extent_store::{DiskIdentity, DiskStore, StoreConfig, StoreSet};
    use std::sync::Arc;
    use types::{ClusterId, DiskId, NodeId};

    pub const CLUSTER: ClusterId = ClusterId(0xC1);
    const MIB: u64 = 1 << 20;

    pub fn disk_of(node: NodeId) -> DiskId {
        DiskId(0xD0 + u64::from(node))
    }

    /// A node with one disk.
    pub struct DiskNode {
        pub node: NodeId,
        pub disk: SimDisk,
        pub stores: StoreSet,
    }

    impl DiskNode {
        pub fn born(node: NodeId, env: &Env, seed: u64) -> DiskNode {
            let disk = SimDisk::new(seed + u64::from(node), 512 * MIB);
            DiskIdentity::create(&disk, CLUSTER, node, disk_of(node)).expect("a new disk");
            DiskNode::start(node, env, disk)
        }

        pub fn start(node: NodeId, env: &Env, disk: SimDisk) -> DiskNode {
            let identity = DiskIdentity::start(&disk, CLUSTER, node).expect("sound").expect("ours");
            let mut config = StoreConfig::new(BufPool::new(64 << 20));
            (config.preallocate_bytes, config.group_bytes) = (MIB, 8 * MIB);
            let store = DiskStore::open(env, Arc::new(disk.clone()), identity, config).expect("a sound disk").0;
            DiskNode { node, disk, stores: StoreSet::new([store]).expect("one disk") }
        }

        pub fn store(&self) -> DiskStore {
            self.stores.iter().next().expect("one disk").clone()
        }

        /// Answers from now on.
        pub fn serve(&self, net: &Net, env: &Env) {
            net.attach(self.node, env.clone(), replicas::serve(self.stores.clone(), env.clone()));
        }
    }
}
