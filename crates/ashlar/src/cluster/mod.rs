//! A node among others: its key, the map, messages, members, and how it joins.
//!
//! Promises: a node takes part under the identity that its folders hold, and under no other; what it tells the cluster of itself at
//! its start is committed before it serves clients. Refuses to know: S3, extents.

mod curators;
mod health;
pub mod join;
mod late;
mod map;
mod members;
mod placement;
mod raft;
mod root;
mod tasks;

pub use curators::Curators;
pub use health::Viewer;
pub use map::MapWatch;
pub use root::Gate;

use crate::birth::Place;
use crate::credentials::RootKeys;
use cluster::detector::Me;
use cluster::heartbeats::{self, ClusterService, Heartbeats};
use cluster::identity::file::NodeFile;
use cluster::root::{Root, Started, StartedDisk, announce, change};
use curator::Curator;
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
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use types::DiskId;
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{Addresses, DiskState, Map, NodeStart, NodeState};

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
    curator: Late,
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
        let curator = Late::default();
        let handlers = Handlers::new()
            .with(raft::SERVICE, Arc::new(raft.clone()))
            .with(nodes::SERVICE, Arc::new(gateway.clone()))
            .with(DISKS, Arc::new(disks.clone()))
            .with(heartbeats::SERVICE, Arc::new(late.clone()))
            .with(curators::SERVICE, Arc::new(curator.clone()));
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
        Ok(Fabric { place, file, env, map, tcp, handlers, transport, raft, gateway, disks, curator, gate, heartbeats })
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
    /// Listens to the other nodes, and lets time pass in the metadata. `joined`: the cluster gave it its place just now.
    pub async fn run(self, metadata: &Metadata, reach: &Reach, joined: bool) -> Result<Running, String> {
        self.map.look(metadata);
        self.gateway.stand_in(Arc::new(nodes::MapOnly(metadata.clone())));
        let listener = self.listen(reach.rpc).await?;
        if !joined {
            self.refuse_old_image(metadata).await?;
        }
        self.raft.connect(Arc::new(RaftService(metadata.clone())));
        let mut tasks = Tasks::start(metadata, &self.map);
        tasks.beat(self.heartbeats.clone(), self.transport.clone());
        let link = self.link(metadata);
        tasks.follow(self.heartbeats.clone(), link.clone(), &self.map);
        Ok(Running { fabric: self, listener, tasks, link })
    }

    /// An older image of this node has forgotten votes that it gave and entries that it acknowledged: it must not vote, not acknowledge
    /// and not answer for its disks before a majority was asked whether it knows of a later start. Without others there is nobody to
    /// ask.
    async fn refuse_old_image(&self, metadata: &Metadata) -> Result<(), String> {
        let (me, mine, link) = (self.place.node, self.file.incarnation, self.link(metadata));
        if !metadata.shards().any(|shard| shard.id == ROOT) {
            return Ok(());
        }
        for count in 0u64.. {
            let voters = metadata.members(ROOT).voters;
            if voters.is_empty() || voters.iter().all(|voter| *voter == me) {
                return Ok(());
            }
            let maps = nodes::ask_for_maps(&link).await;
            let known = maps.iter().filter_map(|(_, map)| Some(map.as_ref()?.nodes.get(&me)?.start.incarnation)).max();
            if let Some(known) = known.filter(|known| *known >= mine) {
                return Err(format!(
                    "the cluster refuses this node: an old image: it knows of {mine} starts, the cluster of {known}. Bring the \
                     newest folders back, or empty these and join as a new node"
                ));
            }
            let asked = maps.iter().filter(|(node, _)| voters.contains(node)).count();
            if 2 * (asked + usize::from(voters.contains(&me))) > voters.len() {
                return Ok(());
            }
            if count.is_multiple_of(SAY_EVERY) {
                tracing::info!(
                    "waiting for a majority of the nodes, to be told whether this is the newest image of this one"
                );
            }
            self.env.timers.sleep(TELL_AGAIN).await;
        }
        Ok(())
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

    /// Serves what the controller answers, tells the cluster of this start and of the disks that the operator gave up, and looks after
    /// members from now on.
    pub async fn go_on(
        &mut self,
        controller: &Controller,
        disks: &[(DiskId, u64, u64)],
        lost: &BTreeSet<DiskId>,
        reach: &Reach,
    ) -> Result<(), String> {
        self.fabric.gate.open(controller.clone());
        self.tell(disks, reach).await?;
        self.give_up(lost).await?;
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

    /// Only the map tells the others that a disk is lost: its groups are then rebuilt, and what comes back under its id is refused.
    async fn give_up(&self, lost: &BTreeSet<DiskId>) -> Result<(), String> {
        let Fabric { place, env, gate, .. } = &self.fabric;
        let Some(map) = gate.map() else { return Ok(()) };
        for disk in lost {
            if map.disks.get(disk).is_some_and(|known| known.node == place.node && known.state.is_here()) {
                let command = ClusterCommand::SetDiskState { disk: *disk, state: DiskState::Lost, at_epoch: None };
                change(gate, env, command).await.map_err(|e| format!("disk {disk} is not declared lost: {e}"))?;
            }
        }
        Ok(())
    }

    /// The curator of this node among those of the others, which may ask it from now on.
    pub fn join_curators(&self, curator: Curator) -> Curators {
        let curators = Curators::new(self.fabric.place.node, curator, self.link.clone());
        self.fabric.curator.connect(Arc::new(curators.clone()));
        curators
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
