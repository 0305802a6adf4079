//! How a node finds its metadata again: logs, trees, replay, and only then Raft.
//!
//! Promises: nothing is answered or served before every tree holds what its log holds. An empty folder is made into a store
//! only at birth. Refuses to know: what entries mean.

use super::history::{History, last_entry};
use super::refill::refill;
use super::space::Space;
use super::{Birth, FolderConfig, Inner, MetadataConfig, Session};
use crate::cache::ObjectCache;
use crate::dirs::create_durable;
use crate::limits::{BATCH_PROPOSALS, DRIVER_QUEUE, GATHER_AT_MOST, GATHER_FEW, LOG_SEGMENTS_MIN, MESSAGE_BYTES};
use crate::log::{Log, LogConfig, LogError, LogSet, OpenError, OpenedSet, Recovered, SetError};
use crate::rows::Home;
use crate::shard::applier::{Applier, Folder, ToApply};
use crate::shard::driver::{Driver, ToDriver};
use crate::shard::flusher::{Flusher, Slot, Slots, has_room};
use crate::shard::group::GroupConfig;
use crate::shard::install;
use crate::shard::members::{Members, read_members};
use crate::shard::rows::{Applied, put_applied, put_shard, read_shards};
use crate::shard::shared::Shared;
use crate::shard::{KeyRange, ROOT, Shard, ShardId, Spans, StateMachine};
use crate::tree::{LsmConfig, LsmTree, MemTree, Snapshot, Tree, TreeError, WriteBatch};
use env::tasks::{Gather, Worker};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The metadata did not open; nothing was acknowledged and nothing that was synced was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no store and none may be made.
    #[error("no metadata in {0}; if this is a new node, say so")]
    Missing(String),
    /// A log is damaged, of another format, or its disk failed.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The folders do not make a log set.
    #[error(transparent)]
    Set(#[from] SetError),
    /// A log refused to be written.
    #[error(transparent)]
    Append(#[from] LogError),
    /// A tree is damaged or its disk failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A disk failed.
    #[error("metadata: {0}")]
    Io(#[from] io::Error),
    /// Log and tree contradict each other.
    #[error("metadata: {0}")]
    Contradiction(String),
}

/// Where a folder keeps its logs, one directory a generation.
const LOG: &str = "log";
/// Where a folder keeps its trees, one directory a generation.
const TREE: &str = "meta";

/// Where a folder's newest generation is. A folder that was filled anew has a new one, so nothing is ever overwritten.
pub(super) struct Place {
    config: FolderConfig,
    pub(super) generation: u32,
}

impl Place {
    fn newest(config: &FolderConfig) -> io::Result<Place> {
        let mut generation = 1;
        for what in [LOG, TREE] {
            let dir = Place { config: config.clone(), generation }.parent(what);
            config.disk.create_dir_all(&dir)?;
            let names = config.disk.list(&dir)?;
            generation = names.iter().filter_map(|name| name.parse().ok()).fold(generation, u32::max);
        }
        Ok(Place { config: config.clone(), generation })
    }

    pub(super) fn next(&self) -> Place {
        Place { config: self.config.clone(), generation: self.generation + 1 }
    }

    /// `log` or `meta` within the folder: what a data folder shows.
    fn parent(&self, what: &str) -> String {
        if self.config.dir.is_empty() { what.to_owned() } else { format!("{}/{what}", self.config.dir) }
    }

    fn dir(&self, what: &str) -> String {
        format!("{}/{:04}", self.parent(what), self.generation)
    }

    pub(super) fn log(&self, config: &MetadataConfig) -> LogConfig {
        LogConfig { disk: self.config.disk.clone(), dir: self.dir(LOG), segment_bytes: config.segment_bytes }
    }

    pub(super) fn tree(&self, config: &MetadataConfig) -> Result<Arc<dyn Tree>, StartError> {
        let dir = self.dir(TREE);
        let Some(host) = self.config.disk.host_path() else {
            return Ok(Arc::new(MemTree::open(self.config.disk.clone(), &dir)?));
        };
        create_durable(&*self.config.disk, &dir)?;
        let lsm = LsmConfig {
            cache_bytes: config.cache_bytes,
            table_bytes: config.memtable_bytes,
            compress: config.compress,
        };
        Ok(Arc::new(LsmTree::open(&host.join(dir), lsm)?))
    }
}

/// A folder whose log is in the set.
pub(super) struct Found {
    folder: usize,
    tree: Arc<dyn Tree>,
    pub(super) shards: BTreeMap<ShardId, (Shard, Applied)>,
    pub(super) members: BTreeMap<ShardId, Members>,
    /// Shards whose rows came by a snapshot that the log does not know of yet.
    pub(super) ahead: BTreeMap<ShardId, Applied>,
}

pub(super) fn open(mut config: MetadataConfig, machine: Box<dyn StateMachine>) -> Result<Inner, StartError> {
    config.log_bytes = config.log_bytes.max(LOG_SEGMENTS_MIN * u64::from(config.segment_bytes));
    let places: Vec<io::Result<Place>> = config.folders.iter().map(Place::newest).collect();
    let mut logs = open_logs(&config, &places);
    if logs.iter().all(unborn) {
        if !config.create {
            return Err(StartError::Missing(
                config.folders.iter().map(|f| f.dir.as_str()).collect::<Vec<_>>().join(", "),
            ));
        }
        drop(logs);
        birth(&config, &places)?;
        logs = open_logs(&config, &places);
    }
    if let [Err(OpenError::Damaged { .. } | OpenError::Io(_))] = &logs[..] {
        return Err(logs.pop().and_then(Result::err).map_or(StartError::Missing(String::new()), StartError::Log));
    }
    let mut opened = LogSet::open(&config.env.tasks, logs, config.lost)?;
    let mut found = Vec::new();
    for folder in opened.set.folders() {
        match find(&config, folder, &places[folder], &opened, machine.spans()) {
            Ok(tree) => found.push(tree),
            // The last folder stays, however bad its tree is.
            Err(e) if opened.set.folders().len() == 1 => return Err(e),
            Err(e) => {
                opened.set.exclude(folder)?;
                opened.outside.push((folder, e.to_string()));
            }
        }
    }
    let mut history = History::new(&opened);
    let (mut set, mut outside) = (opened.set, opened.outside);
    history.catch_up(&found, &mut set)?;
    let Replayed { mut found, failed, applied, machine } = replay_all(&config, found, &history, machine)?;
    for (folder, reason) in failed {
        set.exclude(folder)?;
        outside.push((folder, reason));
    }
    for (folder, reason) in outside {
        let filled = match &places[folder] {
            Ok(place) => refill(&config, folder, place, &found[0].tree, &applied, &history, &mut set),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string()).into()),
        };
        match filled {
            Ok(tree) => found.push(Found { folder, tree, ..found[0].again() }),
            Err(e) => tracing::error!(folder, %reason, error = %e, "a metadata folder is not in use"),
        }
    }
    start(config, found, applied, history, set, machine)
}

fn open_logs(config: &MetadataConfig, places: &[io::Result<Place>]) -> Vec<Result<(Log, Recovered), OpenError>> {
    let open = |place: &io::Result<Place>| match place {
        Ok(place) => Log::open(place.log(config)),
        Err(e) => Err(io::Error::new(e.kind(), e.to_string()).into()),
    };
    places.iter().map(open).collect()
}

/// Opens the tree of a folder in the set, ends what a crash interrupted there, and compares it with the log.
fn find(
    config: &MetadataConfig,
    folder: usize,
    place: &io::Result<Place>,
    opened: &OpenedSet,
    spans: Spans,
) -> Result<Found, StartError> {
    let place = place.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    let tree = place.tree(config)?;
    install::recover(folder, &tree, spans, config.memtable_bytes).map_err(StartError::Contradiction)?;
    let rows = Snapshot::published(&tree);
    let shards = read_shards(&rows)?;
    let mut members = BTreeMap::new();
    for shard in shards.keys() {
        // A group that never had other members says nothing of them.
        let row = read_members(&rows, *shard)?;
        members.insert(*shard, row.unwrap_or_else(|| Members::single(config.node)));
    }
    let nothing = BTreeMap::new();
    let truncated = opened.truncated.get(&folder).unwrap_or(&nothing);
    let ahead = check(folder, &rows, &shards, truncated, &opened.recovered)?;
    if shards.is_empty() && config.peers.is_none() {
        return Err(StartError::Contradiction(format!("folder {folder}: the tree is empty, the log is not")));
    }
    Ok(Found { folder, tree, shards, members, ahead })
}

impl Found {
    fn again(&self) -> Found {
        let (tree, shards, members) = (self.tree.clone(), self.shards.clone(), self.members.clone());
        Found { folder: self.folder, tree, shards, members, ahead: BTreeMap::new() }
    }
}

/// No store was ever complete here.
fn unborn(log: &Result<(Log, Recovered), OpenError>) -> bool {
    match log {
        Ok((_, recovered)) => recovered.state.log_set.version == 0,
        Err(e) => matches!(e, OpenError::Missing(_)),
    }
}

/// Makes an empty store. Trees first: a log set says that everything else is there.
fn birth(config: &MetadataConfig, places: &[io::Result<Place>]) -> Result<(), StartError> {
    let mut logs = Vec::new();
    for place in places {
        let place = place.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
        let tree = place.tree(config)?;
        let held = read_shards(&Snapshot::published(&tree))?;
        if held.values().any(|(_, applied)| *applied != (0, 0)) {
            return Err(StartError::Contradiction("there are rows, but the log is gone".to_owned()));
        }
        let mut batch = WriteBatch::default();
        let shards = match config.birth {
            Birth::First => first_shards(&config.splits),
            Birth::Joining => Vec::new(),
        };
        for shard in shards {
            put_shard(&mut batch, &shard);
            put_applied(&mut batch, shard.id, (0, 0));
        }
        tree.publish(tree.write(batch)?);
        tree.seal();
        tree.flush()?;
        logs.push(Log::create(place.log(config), config.env.random.next_u64())?);
    }
    LogSet::create(&config.env.tasks, logs)?;
    Ok(())
}

/// Root, and data shards that split all keys at `splits`.
fn first_shards(splits: &[Home]) -> Vec<Shard> {
    let mut bounds: Vec<Option<Home>> = splits.iter().cloned().map(Some).collect();
    bounds.sort();
    let from = [None].into_iter().chain(bounds.iter().cloned());
    let to = bounds.iter().cloned().chain([None]);
    let data = from.zip(to).zip(1..).map(|((from, to), id)| Shard {
        id: ShardId(id),
        range: KeyRange { from, to },
        version: 1,
    });
    [Shard { id: ROOT, range: KeyRange::ALL, version: 1 }].into_iter().chain(data).collect()
}

/// The log of each shard begins at or before what the tree holds and reaches at least that far, by the same entry; or the rows came
/// by a snapshot, as a mark in the tree says, and the log is to follow: those are the answer.
fn check(
    folder: usize,
    rows: &Snapshot,
    shards: &BTreeMap<ShardId, (Shard, Applied)>,
    truncated: &BTreeMap<ShardId, Applied>,
    recovered: &Recovered,
) -> Result<BTreeMap<ShardId, Applied>, StartError> {
    let mut ahead = BTreeMap::new();
    for (id, (_, applied)) in shards {
        let begins = truncated.get(id).copied().unwrap_or_default();
        let last = last_entry(recovered, *id).0;
        let mut entries = recovered.entries.get(id).into_iter().flatten();
        let entry = entries.find(|entry| entry.index == applied.0).map(|entry| (entry.index, entry.term));
        let other = entry.is_some_and(|entry| entry.1 != applied.1);
        if begins.0 <= applied.0 && last >= applied.0 && !other {
            continue;
        }
        if begins.0 > applied.0 || install::finished(rows, *id)? != Some(*applied) {
            let text = format!(
                "folder {folder}: the tree holds shard {} up to entry {applied:?}, the log has {} (excluded) to {last}",
                id.0, begins.0
            );
            return Err(StartError::Contradiction(text));
        }
        ahead.insert(*id, *applied);
    }
    let known = recovered.entries.iter().filter(|(_, entries)| !entries.is_empty()).map(|(id, _)| id);
    match known.chain(truncated.keys()).find(|id| !shards.contains_key(id)) {
        Some(id) => {
            Err(StartError::Contradiction(format!("folder {folder}: the log knows shard {}, the tree does not", id.0)))
        }
        None => Ok(ahead),
    }
}

/// Folders after replay.
struct Replayed {
    /// Those that hold all that the log holds.
    found: Vec<Found>,
    /// Those whose tree failed, and why.
    failed: Vec<(usize, String)>,
    /// How far each shard is applied.
    applied: BTreeMap<ShardId, Applied>,
    /// What applied it.
    machine: Box<dyn StateMachine>,
}

/// Applies to each folder's tree what the log holds beyond it and is known committed.
fn replay_all(
    config: &MetadataConfig,
    folders: Vec<Found>,
    history: &History,
    mut machine: Box<dyn StateMachine>,
) -> Result<Replayed, StartError> {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let ends = history.ends(config.node, &folders);
    let by_snapshot = folders.iter().any(|folder| !folder.ahead.is_empty());
    let mut reached: Vec<BTreeMap<ShardId, Applied>> = Vec::new();
    for folder in folders {
        let mut applier = replayer(config, &folder, machine);
        let disk = &config.folders[folder.folder].disk;
        let missing = history.missing(&folder.shards, &folder.members, &ends);
        let replayed =
            missing.and_then(|missing| applier.replay(missing.into_iter(), |bytes| has_room(&**disk, bytes)));
        let now = applier.applied().clone();
        machine = applier.into_machine();
        match replayed {
            Err(reason) => failed.push((folder.folder, reason)),
            Ok(()) => {
                reached.push(now);
                found.push(folder);
            }
        }
    }
    let Some(furthest) =
        reached.iter().max_by_key(|reached| reached.values().map(|(index, _)| *index).sum::<u64>()).cloned()
    else {
        let reason = failed.first().map(|(_, reason)| reason.clone());
        return Err(StartError::Contradiction(reason.unwrap_or_else(|| "there is no tree".to_owned())));
    };
    let mut kept = Vec::new();
    for (folder, reached) in found.into_iter().zip(reached) {
        match (reached == furthest, by_snapshot) {
            (true, _) => kept.push(folder),
            // A snapshot was flushed in some folders only when the node stopped.
            (false, true) => failed.push((folder.folder, "a snapshot is not in it".to_owned())),
            (false, false) => {
                let text = format!("folder {} does not reach as far as the others", folder.folder);
                return Err(StartError::Contradiction(text));
            }
        }
    }
    for folder in &mut kept {
        folder.shards = read_shards(&Snapshot::published(&folder.tree))?;
    }
    Ok(Replayed { found: kept, failed, applied: furthest, machine })
}

fn replayer(config: &MetadataConfig, found: &Found, machine: Box<dyn StateMachine>) -> Applier {
    let applied = found.shards.iter().map(|(id, (_, applied))| (*id, *applied)).collect();
    let shards = found.shards.iter().map(|(id, (shard, _))| (*id, shard.clone())).collect();
    let folders = vec![Folder::new(found.folder, found.tree.clone())];
    // Nobody reads through it.
    let shared = Arc::new(Shared::new(found.tree.clone(), ObjectCache::new(0, 0), false));
    Applier::new(folders, shards, applied, machine, shared, config.memtable_bytes)
}

/// Takes part in the groups and starts the workers.
fn start(
    config: MetadataConfig,
    found: Vec<Found>,
    applied: BTreeMap<ShardId, Applied>,
    history: History,
    set: LogSet,
    machine: Box<dyn StateMachine>,
) -> Result<Inner, StartError> {
    let clustered = config.peers.is_some();
    let objects = ObjectCache::new(config.object_cache_bytes, config.env.random.next_u64());
    let shared = Arc::new(Shared::new(found[0].tree.clone(), objects, clustered));
    let shards: BTreeMap<ShardId, Shard> =
        found[0].shards.iter().map(|(id, (shard, _))| (*id, shard.clone())).collect();
    let group_config = GroupConfig {
        node: config.node,
        clustered,
        seed: if clustered { config.env.random.next_u64() } else { 0 },
        message_bytes: MESSAGE_BYTES.min(set.append_max_bytes() as u64 / 4),
    };
    let groups = history.groups(config.node, &found[0].tree, &applied)?;
    let spans = machine.spans();
    let (mut driver, first) = Driver::start(
        group_config,
        groups,
        set,
        config.env.clock.clone(),
        shared.clone(),
        config.observer.clone(),
        config.log_bytes,
        config.peers.clone(),
    )
    .map_err(StartError::Contradiction)?;
    let folders = found.iter().map(|found| Folder::new(found.folder, found.tree.clone())).collect();
    let mut applier = Applier::new(folders, shards.clone(), applied, machine, shared.clone(), config.memtable_bytes);
    applier.apply(first);
    if let Some(reason) = shared.failure() {
        return Err(StartError::Contradiction(reason));
    }
    for shard in shards.keys() {
        shared.stamped(applier.last_stamp_ms(*shard)?);
    }
    applier.started();

    let tasks = &config.env.tasks;
    let slots = Slots { driver: Slot::new(), apply: Slot::new() };
    let mut flushers = Vec::new();
    let spawn = |folder: usize, tree: Arc<dyn Tree>| {
        let disk = config.folders[folder].disk.clone();
        let flusher = Flusher::spawn(tasks, folder, disk, tree, slots.clone(), shared.clone());
        flushers.push(flusher.clone());
        flusher
    };
    let to_driver = slots.driver.clone();
    applier.connect(spawn, Box::new(move |message| to_driver.send(message)));
    // Every batch holds at least one proposal in flight, came from another node, or is one of the few other messages.
    let apply: Worker<ToApply> =
        Worker::spawn(tasks, "meta-apply", DRIVER_QUEUE, BATCH_PROPOSALS, move |messages| applier.handle(messages));
    driver.connect(apply.clone(), slots.driver.clone());
    let gather = Gather { few: GATHER_FEW, at_most: GATHER_AT_MOST };
    let log = move |messages| driver.handle(messages);
    let driver: Worker<ToDriver> =
        Worker::spawn_gathering(tasks, "meta-log", DRIVER_QUEUE, BATCH_PROPOSALS, gather, log);
    slots.driver.set(driver.clone());
    slots.apply.set(apply.clone());
    // A log or tree that is too long since the last run makes proposals be turned away, so nothing else would bring this up.
    if apply.submit(ToApply::Look).is_err() {
        return Err(StartError::Contradiction("apply ended at once".to_owned()));
    }
    let (node, session, closed) = (config.node, Mutex::new(Session::default()), Mutex::new(false));
    let space = Space::new(&config);
    Ok(Inner { space, env: config.env, node, spans, shared, driver, apply, flushers, slots, session, closed })
}
