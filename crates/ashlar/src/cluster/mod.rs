//! A node among others: its key, the map, messages, members, and how it joins.
//!
//! Promises: a node takes part under the identity that its folders hold, and under no other; what it tells the cluster of itself at
//! its start is committed before it serves clients. Refuses to know: S3, extents.

mod health;
pub mod join;
mod late;
mod map;
mod members;
mod placement;
mod raft;
mod root;
mod tasks;

pub use health::Viewer;
pub use map::MapWatch;
pub use root::Gate;

use crate::birth::Place;
use crate::credentials::RootKeys;
use cluster::detector::Me;
use cluster::heartbeats::{self, ClusterService, Heartbeats};
use cluster::identity::file::NodeFile;
use cluster::root::{Root, Started, StartedDisk, announce, change};
use env::Env;
use env::buf::BufPool;
use extent_store::StoreSet;
use late::Late;
use metadata::node::{Metadata, Peers};
use metadata::shard::ROOT;
use object_controller::Controller;
use object_controller::Copies;
use object_controller::nodes::{self, Link, Served};
use placement::Placement;
use raft::{RaftPeers, RaftService};
use replicas::Replicas;
use rpc::Service;
use rpc::handlers::Handlers;
use rpc::tcp::{Admission, Listener, Pace, Peers as NodePeers, TcpConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use types::DiskId;
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{Addresses, Map, NodeStart, NodeState};

/// The service of disks, whose messages are bulk.
const DISKS: Service = Service(3);
/// Newest cluster version that this program speaks.
const VERSION: u32 = 1;
/// How often a start tries again to tell the cluster of itself.
const TELL_AGAIN: Duration = Duration::from_millis(200);
/// Of those tries, how many pass between two words about it.
const SAY_EVERY: u64 = 25;

/// What a node is made of towards the others, before its metadata is open.
pub struct Fabric {
    place: Place,
    file: NodeFile,
    env: Env,
    map: MapWatch,
    tcp: TcpConfig,
    handlers: Handlers,
    transport: Arc<NodePeers>,
    raft: Late,
    gateway: Late,
    disks: Late,
    gate: Gate,
    heartbeats: Heartbeats,
}

/// The node while it runs.
pub struct Running {
    fabric: Fabric,
    listener: Listener,
    tasks: Tasks,
    link: Link,
}

impl Fabric {
    /// Of the node that the folders are. Nothing is sent or taken yet.
    pub fn new(place: Place, file: NodeFile, memory: usize, env: &Env) -> Result<Fabric, String> {
        let map = MapWatch::default();
        let (raft, gateway, disks, late) = (Late::default(), Late::default(), Late::default(), Late::default());
        let handlers = Handlers::new()
            .with(raft::SERVICE, Arc::new(raft.clone()))
            .with(nodes::SERVICE, Arc::new(gateway.clone()))
            .with(DISKS, Arc::new(disks.clone()))
            .with(heartbeats::SERVICE, Arc::new(late.clone()));
        let tcp = TcpConfig {
            node: place.node,
            identity: file.key.tls(),
            trust: Arc::new(map.clone()),
            env: env.clone(),
            bulk: Arc::new([DISKS]),
            call_memory: BufPool::new(memory),
            answer_memory: BufPool::new(memory),
            pace: Pace::default(),
        };
        let transport = Arc::new(NodePeers::new(tcp.clone(), handlers.clone()));
        let me = Me { cluster: place.cluster, node: place.node, incarnation: file.incarnation };
        let gate = Gate::new(map.clone());
        let heartbeats = Heartbeats::new(me, env.clone(), Arc::new(gate.clone()));
        let service = ClusterService::new(heartbeats.clone(), file.key.hash());
        late.connect(Arc::new(service));
        let env = env.clone();
        Ok(Fabric { place, file, env, map, tcp, handlers, transport, raft, gateway, disks, gate, heartbeats })
    }

    /// Takes the map that the cluster gave.
    pub fn learn(&self, map: Map) {
        self.map.take(map);
    }

    /// The way to the other nodes' metadata.
    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(RaftPeers::new(self.transport.clone()))
    }

    /// The other nodes, for the controller: those of the map as it is applied here when it is asked, so that after a barrier none is
    /// left out.
    fn link(&self, metadata: &Metadata) -> Link {
        let (map, metadata, node) = (self.map.clone(), metadata.clone(), self.place.node);
        let others = move || {
            map.look(&metadata);
            map.others(node)
        };
        Link { transport: self.transport.clone(), others: Arc::new(others) }
    }
}

/// Where this node is to be reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Where to listen for other nodes; with port 0 the one that the map names of this node, else a free one.
    pub rpc: SocketAddr,
    /// URL of the S3 endpoint.
    pub s3: String,
    /// URL of the admin endpoint.
    pub admin: String,
    /// Its rack.
    pub rack: Option<String>,
}

impl Fabric {
    /// Listens to the other nodes, and lets time pass in the metadata.
    pub async fn run(self, metadata: &Metadata, reach: &Reach) -> Result<Running, String> {
        self.map.look(metadata);
        self.raft.connect(Arc::new(RaftService(metadata.clone())));
        let listener = self.listen(reach.rpc).await?;
        let mut tasks = Tasks::start(metadata, &self.map);
        tasks.beat(self.heartbeats.clone(), self.transport.clone());
        let link = self.link(metadata);
        tasks.follow(self.heartbeats.clone(), link.clone(), &self.map);
        Ok(Running { fabric: self, listener, tasks, link })
    }

    /// At the address it was given; with port 0 where the other nodes look for it, if that is free still.
    async fn listen(&self, wanted: SocketAddr) -> Result<Listener, String> {
        let known = self.map.now().and_then(|map| Some(map.nodes.get(&self.place.node)?.start.addresses.rpc.clone()));
        let known = known.and_then(|address| address.parse::<SocketAddr>().ok());
        if let Some(known) = known.filter(|known| wanted.port() == 0 && known.ip() == wanted.ip())
            && let Ok(listener) = self.bind(known).await
        {
            return Ok(listener);
        }
        self.bind(wanted).await.map_err(|e| format!("cannot listen on {wanted} for other nodes: {e}"))
    }
}

/// What a node says of this start.
pub fn start_of(file: &NodeFile, reach: &Reach, rpc: SocketAddr) -> NodeStart {
    let addresses = Addresses { rpc: rpc.to_string(), s3: reach.s3.clone(), admin: reach.admin.clone() };
    NodeStart { incarnation: file.incarnation, version: VERSION, addresses, rack: reach.rack.clone() }
}

impl Fabric {
    /// Members may say everything; whoever wants to join may ask for that.
    async fn bind(&self, address: SocketAddr) -> std::io::Result<Listener> {
        let admission = Admission::StrangersTo(heartbeats::SERVICE);
        Listener::bind(self.tcp.clone(), address, admission, self.handlers.clone()).await
    }
}

impl Running {
    /// The other nodes, for the controller.
    pub fn link(&self) -> Link {
        self.link.clone()
    }

    /// Waits until this node holds root and keys, and knows who leads them: for ever, if there is no majority.
    pub async fn led(&self, metadata: &Metadata) {
        for count in 0u64.. {
            let shards: Vec<_> = metadata.shards().map(|shard| shard.id).collect();
            let led = shards.iter().all(|shard| metadata.leader(*shard).is_some());
            if led && shards.len() > 1 && shards.contains(&ROOT) {
                return;
            }
            if count.is_multiple_of(SAY_EVERY) {
                tracing::info!(shards = shards.len(), "waiting for a majority of the nodes that hold the metadata");
            }
            self.fabric.env.timers.sleep(TELL_AGAIN).await;
        }
    }

    /// The root keys, as another node has them.
    pub async fn root_keys(&self) -> RootKeys {
        loop {
            if let Some(root) = nodes::ask_for_root(&self.link).await {
                return RootKeys { access_key: root.access_key, secret_key: root.secret_key };
            }
            tracing::info!("waiting for a node that says the root keys");
            self.fabric.env.timers.sleep(TELL_AGAIN).await;
        }
    }

    /// Where other nodes reach it.
    pub fn rpc_address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers the other nodes from now on.
    pub fn serve(&self, served: &Served) {
        self.fabric.gateway.connect(Arc::new(served.clone()));
    }

    /// The disks of this node, shown to the others, with theirs, as the map has them. `missing` are those of this node that its
    /// operator gave up; `copies` follows the number of nodes, but is never less than it was at first.
    pub fn share_disks(&mut self, local: StoreSet, missing: &[DiskId], copies: &Copies) -> Replicas {
        let Fabric { place, env, map, transport, disks, .. } = &self.fabric;
        disks.connect(replicas::serve(local.clone(), env.clone()));
        let replicas = Replicas::new(local, place.cluster, transport.clone(), env.clone());
        let placement = Placement::new(place.node, replicas.clone(), missing.iter().copied().collect(), copies.clone());
        placement.follow(map.now().as_deref());
        self.tasks.place(placement, map);
        replicas
    }

    /// The newest map.
    pub fn map(&self) -> &MapWatch {
        &self.fabric.map
    }

    /// Serves what the controller answers, tells the cluster of this start, and looks after members from now on.
    pub async fn go_on(
        &mut self,
        controller: &Controller,
        disks: &[(DiskId, u64, u64)],
        reach: &Reach,
    ) -> Result<(), String> {
        self.fabric.gate.open(controller.clone());
        self.tell(disks, reach).await?;
        self.tasks.go_on(controller, &self.fabric.map);
        Ok(())
    }

    /// Tells root of this start, and that the node is in service. An error ends the start: what is in the folders is not what the
    /// cluster knows.
    async fn tell(&self, disks: &[(DiskId, u64, u64)], reach: &Reach) -> Result<(), String> {
        let Fabric { place, file, env, gate, .. } = &self.fabric;
        let started = Started {
            cluster: place.cluster,
            node: place.node,
            file: file.clone(),
            start: start_of(file, reach, self.rpc_address()),
            disks: disks
                .iter()
                .map(|(id, total_bytes, starts)| StartedDisk {
                    disk: NewDisk { id: *id, total_bytes: *total_bytes },
                    incarnation: *starts,
                })
                .collect(),
        };
        let announced =
            announce(gate, env, &started).await.map_err(|e| format!("the cluster refuses this node: {e}"))?;
        if let Some((disk, refusal)) = announced.refused.first() {
            return Err(format!("the cluster refuses disk {disk}: {refusal}"));
        }
        let state = gate.map().and_then(|map| Some(map.nodes.get(&place.node)?.state));
        if matches!(state, Some(NodeState::Joining | NodeState::Maintenance)) {
            let command = ClusterCommand::SetNodeState { node: place.node, state: NodeState::Active, at_epoch: None };
            change(gate, env, command).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// What the curator sees of the cluster's disks.
    pub fn viewer(&self, replicas: &Replicas, copies: &Copies) -> Viewer {
        let Fabric { place, env, map, heartbeats, .. } = &self.fabric;
        Viewer::new(place.node, env.clone(), map.clone(), heartbeats.clone(), replicas.clone(), copies.clone())
    }

    /// What is thought of the nodes.
    pub fn heartbeats(&self) -> Heartbeats {
        self.fabric.heartbeats.clone()
    }

    /// Root, for what an operator wants of the cluster.
    pub fn gate(&self) -> Gate {
        self.fabric.gate.clone()
    }

    /// Ends what it began.
    pub async fn end(self) {
        self.fabric.heartbeats.stop();
        self.tasks.end().await;
        self.listener.stop().await;
    }
}
