//! `ashlar server`: wires the parts of a node together, serves, and ends well.
//!
//! Start: folders, root keys, metadata, identities, disks, controller, curator, listeners. End: the same backwards.

use crate::birth;
use crate::cli::{Io, ServerArgs};
use crate::cluster::{Fabric, Reach, Viewer};
use crate::credentials::{self, RootKeys};
use crate::memory::Budget;
use crate::node::Node;
use crate::pressure::Pressure;
use admin::metrics::Metrics;
use admin::{AdminConfig, Operations};
use cluster::identity::file::{self, NodeFile};
use env::Env;
use env::buf::BufPool;
use env::disk::Disk;
use env::ring::Ring;
use extent_store::{DiskStore, StoreConfig, StoreSet};
use metadata::directory::Directory;
use metadata::node::{Birth, FolderConfig, Metadata, MetadataConfig, Peers, StartError};
use metadata::read::{ReadError, root};
use object_controller::api::{Account, Credential};
use object_controller::nodes::Served;
use object_controller::{Controller, ControllerConfig, Copies};
use s3::auth::{AuthConfig, Authenticator};
use s3::ops::Service;
use s3::server::ServerConfig;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use types::cluster::Map;
use types::{ClusterId, DiskId};

/// Anything that ends the server, as a sentence for its operator.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Region in the scope of admin signatures, whatever the store's own region.
const ADMIN_REGION: &str = "us-east-1";

/// How long a start waits for flushes and compactions, and how often it looks.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);
const CATCH_UP_CHECK: Duration = Duration::from_millis(50);

/// Runs a server until it is told to end.
pub async fn run(args: ServerArgs) -> Result<(), Failure> {
    check(&args)?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let env = Env::system(threads.max(2) * 4);
    let ring = ring(args.io)?;
    let wanted = birth::Wanted {
        paths: &args.data_dirs,
        rf: args.rf,
        lost: &args.lost_disks,
        add: args.add_disk,
        ring: ring.as_ref(),
    };
    let folders = birth::open(&wanted, &env)?;
    let place = credentials::Place { folders: &args.data_dirs, copies: args.rf.into(), newborn: folders.newborn };
    let (listener, admin_listener) =
        (bind(args.listen, "--listen").await?, bind(args.admin_listen, "--admin-listen").await?);
    let reach = Reach {
        rpc: args.rpc_listen,
        s3: format!("http://{}", listener.local_addr()?),
        admin: format!("http://{}", admin_listener.local_addr()?),
        rack: args.rack.clone(),
    };
    let metrics = Metrics::new();
    // Made before the store is born: a crash in between leaves keys without a store, never a store without keys.
    let found = match &args.join {
        Some(_) if folders.newborn => None,
        _ => Some(credentials::find_or_make(&place, |bytes| env.random.fill(bytes))?),
    };
    let identity = Identity::of(&args, folders, &reach, &env).await?;
    let (node, keys, made) = open_node(&args, env, identity, &reach, &place, found, metrics.clone()).await?;
    let authenticators = Authenticators::new(&args, &node);
    let service = Arc::new(Service::new(node.controller(), authenticators.s3.clone()));
    let endpoint = listener.local_addr()?;
    let admin_endpoint = admin_listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let admin_config = AdminConfig {
        store: node.controller(),
        authenticator: authenticators.admin,
        operations: node.clone() as Arc<dyn Operations>,
        metrics: metrics.clone(),
    };
    let admin_server = tokio::spawn(admin::serve(admin_listener, admin_config, until(stopped.clone())));
    crate::banner::show(&args, endpoint, admin_endpoint, &keys, made);
    let budget = Budget::of(args.memory, args.metadata_cache)?;
    let server_config = ServerConfig {
        domains: args.domain.clone(),
        host_id: node.name(),
        max_requests: budget.requests,
        md5_backlog_bytes: budget.md5_backlog_bytes,
        max_connections: crate::sizes::connections(ServerConfig::default().max_connections),
        ..ServerConfig::default()
    };
    let shutdown = end_asked(stop, node.clone());
    let cut = s3::server::serve(listener, server_config, authenticators.s3, service, metrics, shutdown).await;
    if cut > 0 {
        tracing::warn!(connections = cut, "requests were cut off at the end");
    }
    admin_server.abort();
    node.close().await?;
    tracing::info!("ended");
    Ok(())
}

fn check(args: &ServerArgs) -> Result<(), Failure> {
    if args.memory < crate::memory::MIN_MEMORY_BYTES {
        return Err("--memory must be at least 64MiB".into());
    }
    Budget::of(args.memory, args.metadata_cache)?;
    Ok(())
}

/// What begins reads of data files, if anything but threads does.
fn ring(io: Io) -> Result<Option<Ring>, Failure> {
    if io == Io::Threads {
        return Ok(None);
    }
    match Ring::start() {
        Ok(ring) => Ok(Some(ring)),
        Err(error) if io == Io::Auto => {
            tracing::info!(%error, "io_uring is not to be had here; data is read by threads");
            Ok(None)
        }
        Err(error) => {
            Err(format!("io_uring is not to be had here ({error}); leave --io out to read by threads").into())
        }
    }
}

async fn bind(address: std::net::SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| {
        format!("cannot listen on {address}: {e}; name another address with {flag} (port 0 takes a free one)").into()
    })
}

fn root_credential(keys: &RootKeys, _args: &ServerArgs) -> Credential {
    let canonical_id = hex::encode(Sha256::digest(b"ashlar root account"));
    let account = Account { canonical_id, display_name: "root".to_owned(), email: String::new(), is_root: true };
    Credential { access_key: keys.access_key.clone(), secret_key: keys.secret_key.clone(), account }
}

/// Opens everything that lies on disks, away from the async threads.
async fn open_node(
    args: &ServerArgs,
    env: Env,
    identity: Identity,
    reach: &Reach,
    place: &credentials::Place<'_>,
    found: Option<(RootKeys, bool)>,
    metrics: Arc<Metrics>,
) -> Result<(Arc<Node>, RootKeys, bool), Failure> {
    let Identity { folders, file, joined } = identity;
    let fabric = Fabric::new(folders.place(), file, rpc_memory(args), &env)?;
    let joining = joined.is_some();
    let birth = if joining { Birth::Joining } else { Birth::First };
    joined.into_iter().for_each(|map| fabric.learn(map));
    let peers = fabric.peers();
    let budget = Budget::of(args.memory, args.metadata_cache)?;
    let read_buffers = BufPool::new(budget.read_bytes);
    let directory = Arc::new(Directory::default());
    let cluster = folders.cluster;
    let warnings = folders.shared_devices(args.rf);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let pressure = Arc::new(Pressure::default());
    let opened = {
        let syncs = SyncTimes { metrics, pressure: pressure.clone() };
        let (args, env, read_buffers) = (args.clone(), env.clone(), read_buffers.clone());
        let directory = directory.clone();
        tokio::task::spawn_blocking(move || {
            open_disks(&args, &env, &folders, &budget, read_buffers, directory, syncs, (peers, birth))
        })
        .await??
    };
    caught_up(&opened.metadata).await;
    let mut running = fabric.run(&opened.metadata, reach, joining).await?;
    running.led(&opened.metadata).await;
    let (keys, made) = match found {
        Some(found) => found,
        None => (running.root_keys().await, false),
    };
    if args.join.is_some() {
        credentials::keep(place, &keys)?;
    }
    let root = root_credential(&keys, args);
    let disks: Vec<_> = opened.disks.iter().map(described).collect();
    let served = Served::new(opened.metadata.clone(), &env, Some(running.link()), root.clone());
    running.serve(&served);
    let copies = Copies::from(args.rf);
    let replicas = running.share_disks(opened.disks, &opened.missing, &copies);
    let controller = Controller::open(ControllerConfig {
        env: env.clone(),
        metadata: opened.metadata.clone(),
        directory,
        disks: replicas.clone(),
        cluster,
        rf: copies.clone(),
        write_buffers: BufPool::new(budget.write_bytes),
        read_buffers,
        inline_bytes: types::limits::INLINE_BYTES,
        group_bytes: args.group_size,
        preallocate_bytes: types::limits::GROUP_PREALLOCATE_BYTES,
        root,
        nodes: Some(served),
    })
    .await?;
    let lost = opened.missing.iter().chain(&args.lost_disks).copied().collect();
    running.go_on(&controller, &disks, &lost, reach).await?;
    let viewer = Arc::new(running.viewer(&replicas, &copies));
    let config = curator_config(args, &controller, (viewer.clone(), pressure), &env);
    let curators = running.join_curators(curator::Curator::start(controller.clone(), config));
    let among = (running, viewer);
    let node = Node::new(cluster, env, opened.metadata, opened.missing, controller, curators, warnings, among);
    Ok((Arc::new(node), keys, made))
}

/// For long messages of other nodes, in either direction: a sixteenth of all.
fn rpc_memory(args: &ServerArgs) -> usize {
    usize::try_from(args.memory / 16).unwrap_or(usize::MAX)
}

/// A disk's id, the bytes of its file system, and how often it was started.
fn described(disk: &DiskStore) -> (DiskId, u64, u64) {
    let bytes = disk.space().map_or(0, |space| space.total_bytes);
    (disk.id(), bytes, disk.identity().incarnation)
}

/// Whose the data folders are.
struct Identity {
    folders: birth::Folders,
    file: NodeFile,
    /// The map that the cluster gave, if the node joined just now.
    joined: Option<Map>,
}

impl Identity {
    /// The node's key, made if it has none; its cluster and id: those it has, those that it is given by the cluster that it joins, or
    /// those of the first node of a new one.
    async fn of(args: &ServerArgs, mut folders: birth::Folders, reach: &Reach, env: &Env) -> Result<Identity, Failure> {
        let disks = folders.disks();
        let file = file::start(&disks, &*env.random)?;
        let (file, joined) = match (file.member, &args.join) {
            (None, Some(token)) if folders.newborn => {
                let start = crate::cluster::start_of(&file, reach, reach.rpc);
                let (file, _, map) =
                    crate::cluster::join::join(token, &disks, &file, start, folders.sizes(), env).await?;
                (file, Some(map))
            }
            (None, _) => {
                let place = folders.place();
                (file::become_member(&disks, &file, place.cluster, place.node)?, None)
            }
            // Born while it was cut off: again as that node.
            (Some(_), _) => (file, None),
        };
        let Some((cluster, node)) = file.member else { return Err("the node has no place in a cluster".into()) };
        folders.settle(birth::Place { cluster, node })?;
        Ok(Identity { folders, file, joined })
    }
}

/// A start after a crash may find so much to compact that nothing is taken. Waits, but not for ever: then the start says so.
async fn caught_up(metadata: &Metadata) {
    let mut waited = Duration::ZERO;
    while metadata.is_behind() && waited < CATCH_UP_MAX {
        if waited.is_zero() {
            tracing::info!("waiting for flushes and compactions that the last run left undone");
        }
        tokio::time::sleep(CATCH_UP_CHECK).await;
        waited += CATCH_UP_CHECK;
    }
}

fn curator_config(
    args: &ServerArgs,
    controller: &Controller,
    (viewer, pressure): (Arc<Viewer>, Arc<Pressure>),
    env: &Env,
) -> curator::Config {
    let caretaker = controller.clone();
    curator::Config {
        reclaim_delay: Duration::from_millis(args.reclaim_delay),
        leads: Arc::new(move || caretaker.is_caretaker()),
        view: Arc::new(move || viewer.view()),
        pressed: Arc::new(move || pressure.is_high()),
        ..curator::Config::new(env.clone())
    }
}

struct Opened {
    metadata: Metadata,
    disks: StoreSet,
    /// Lost disks that groups still name.
    missing: Vec<DiskId>,
}

fn open_disks(
    args: &ServerArgs,
    env: &Env,
    folders: &birth::Folders,
    budget: &Budget,
    read_buffers: BufPool,
    directory: Arc<Directory>,
    syncs: SyncTimes,
    others: (Arc<dyn Peers>, Birth),
) -> Result<Opened, Failure> {
    let metadata = open_metadata(args, env, folders, budget, directory, syncs.clone(), others)?;
    let missing = folders.judge_named(&disks_of_groups(&metadata)?)?;
    for disk in &missing {
        tracing::error!(%disk, "a disk is lost: what is on it alone cannot be read, what has copies has one less");
    }
    let list = folders.write_list(&missing)?;
    let identities = folders.identify()?;
    folders.write_starts(list, &identities)?;
    let mut stores = Vec::new();
    for (folder, identity) in folders.folders.iter().zip(identities) {
        let mut config = StoreConfig::new(read_buffers.clone());
        config.group_bytes = args.group_size;
        config.observer = Some(Arc::new(syncs.clone()));
        let (store, _) = DiskStore::open(env, folder.disk.clone() as Arc<dyn Disk>, identity, config)
            .map_err(|e| format!("data folder {}: {e}", folder.path.display()))?;
        stores.push(store);
    }
    Ok(Opened { metadata, disks: StoreSet::new(stores)?, missing })
}

/// Disks of this node on which extents are or were to be.
fn disks_of_groups(metadata: &Metadata) -> Result<BTreeSet<DiskId>, ReadError> {
    let (snapshot, node) = (metadata.snapshot(), metadata.node());
    let map = root::map(&snapshot)?;
    // Before the cluster has a map there is one node.
    let of_others = |disk: &DiskId| map.as_ref().and_then(|m| m.disks.get(disk)).is_some_and(|d| d.node != node);
    let mut disks = BTreeSet::new();
    for group in root::groups(&snapshot) {
        disks.extend(group?.1.replicas.iter().map(|replica| replica.disk).filter(|disk| !of_others(disk)));
    }
    Ok(disks)
}

fn open_metadata(
    args: &ServerArgs,
    env: &Env,
    folders: &birth::Folders,
    budget: &Budget,
    directory: Arc<Directory>,
    syncs: SyncTimes,
    (peers, birth): (Arc<dyn Peers>, Birth),
) -> Result<Metadata, Failure> {
    let disks = folders.metadata_disks(args.rf)?;
    let metadata_folders = disks.into_iter().map(|disk| FolderConfig { disk, dir: String::new() }).collect();
    let mut config = MetadataConfig::new(env.clone(), folders.node, metadata_folders);
    config.create = folders.newborn;
    config.birth = birth;
    config.peers = Some(peers);
    config.lost = folders.lost_metadata();
    config.cache_bytes = budget.block_cache_bytes;
    config.object_cache_bytes = budget.object_cache_bytes;
    config.memtable_bytes = budget.memtable_bytes;
    crate::sizes::fit(&mut config);
    config.observer = Some(Arc::new(move |took: Duration| extent_store::Observer::synced(&syncs, took, 0)));
    let machine = Box::new(metadata::apply::Schema::new(directory));
    Metadata::open(config, machine).map_err(|e| match e {
        StartError::Set(_) => format!(
            "{e}. If the disk of one that cannot be read is gone for good, leave out its --data-dir: the next start says how to \
             go on without it"
        )
        .into(),
        e => e.into(),
    })
}

/// Told of every sync. Cheap to clone.
#[derive(Clone)]
struct SyncTimes {
    metrics: Arc<Metrics>,
    pressure: Arc<Pressure>,
}

impl extent_store::Observer for SyncTimes {
    fn synced(&self, took: Duration, _appends: usize) {
        self.metrics.observe_sync(took.as_secs_f64());
        self.pressure.synced(took);
    }
}

struct Authenticators {
    s3: Arc<Authenticator>,
    admin: Arc<Authenticator>,
}

impl Authenticators {
    fn new(args: &ServerArgs, node: &Node) -> Authenticators {
        let clock = node.env().clock.clone();
        let now_ms: s3::auth::NowMs = Arc::new(move || clock.wall_ms());
        let make = |region: &str, service| {
            let config = AuthConfig { region: region.to_owned(), service, now_ms: now_ms.clone() };
            Arc::new(Authenticator::new(config, node.controller()))
        };
        Authenticators { s3: make(&args.region, "s3"), admin: make(ADMIN_REGION, "ashlar") }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Waits for SIGTERM, SIGINT, or a failure of the metadata that ends the node (rule R3).
async fn end_asked(stop: watch::Sender<bool>, node: Arc<Node>) {
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(e) => {
            tracing::error!(error = %e, "cannot listen for SIGTERM");
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
        _ = tokio::signal::ctrl_c() => tracing::info!("interrupted: ending"),
        reason = node.failed() => tracing::error!(%reason, "the metadata cannot go on; ending"),
    }
    let _ = stop.send(true);
}

/// Identifies the cluster in logs.
pub fn describe(cluster: ClusterId) -> String {
    format!("ashlar-{cluster}")
}
