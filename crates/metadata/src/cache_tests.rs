//! The cache between apply and readers, step by step: actors on threads of their own, of which exactly one runs at a time, and
//! who goes on is drawn from a seed wherever one of them touches the tree. A schedule that shows a mistake shows it each time.

use super::{CurrentObject, ObjectCache, Touched};
use crate::command::{Command, Entry, Outcome, RootCommand};
use crate::format::key;
use crate::format::value::RowValue;
use crate::rows::{BodyId, BodyRow, ContentBytes, DataRef, ObjectRow, VersionRow};
use crate::shard::applier::{Applier, Folder};
use crate::shard::group::{Committed, What};
use crate::shard::shared::Shared;
use crate::shard::{KeyRange, Shard, ShardId, StateMachine};
use crate::tree::{Direction, MemTree, Pins, Read, Rows, Sequence, Snapshot, Tree, TreeError, TreeStats, WriteBatch};
use bytes::Bytes;
use env::sim_disk::SimDisk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use types::{AttemptId, BucketId, ETag, ObjectKey};

const BUCKET: BucketId = BucketId(7);
const SHARD: ShardId = ShardId(1);
/// Entries of a schedule; every fourth deletes.
const ENTRIES: u64 = 6;
const READERS: usize = 3;
const READS: usize = 5;
const SCHEDULES: u64 = 1000;

fn object_key(name: &str) -> ObjectKey {
    ObjectKey::new(name).expect("a key")
}

fn attempt(n: u64) -> AttemptId {
    AttemptId { node: 1, session: 1, sequence: n }
}

fn deletes(n: u64) -> bool {
    n.is_multiple_of(4)
}

fn version(n: u64) -> VersionRow {
    let object = ObjectRow {
        size: 8,
        etag: ETag::Md5([n as u8; 16]),
        checksum: None,
        meta: Default::default(),
        tags: Vec::new(),
        data: DataRef::Body(attempt(n)),
    };
    VersionRow { sequence: n, attempt: attempt(n), null: true, modified_ms: n, object: Some(object) }
}

/// Entry `n` makes version `n` of the one key, with a body that says so, or deletes what is there.
struct Versions;

impl StateMachine for Versions {
    fn apply(
        &mut self,
        _: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError> {
        let (n, at) = (entry.attempt.sequence, object_key("key"));
        let body = |n: u64| key::body(BUCKET, &at, BodyId::whole(attempt(n)));
        if read.get(&key::current(BUCKET, &at))?.is_some() {
            batch.remove(body(n - 1));
            batch.remove(key::current(BUCKET, &at));
        }
        if !deletes(n) {
            let bytes = ContentBytes::Inline(Bytes::copy_from_slice(&n.to_le_bytes()));
            batch.put(body(n), BodyRow::Content { size: 8, bytes }.encode());
            batch.put(key::current(BUCKET, &at), version(n).encode());
        }
        Ok(Outcome::Done)
    }
}

thread_local! {
    /// How this actor says that it has come to a point where others may go on, and waits for its turn.
    static TURN: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) };
}

fn pause() {
    TURN.with_borrow(|turn| {
        if let Some((arrived, go)) = turn {
            arrived.send(()).expect("the stage is there");
            go.recv().expect("the stage is there");
        }
    });
}

/// A tree whose every use is a point where others may go on, before and after.
struct Staged(MemTree);

fn staged<T>(work: impl FnOnce() -> T) -> T {
    pause();
    let result = work();
    pause();
    result
}

impl Tree for Staged {
    fn get_at(&self, key: &[u8], at: Sequence) -> Result<Option<Bytes>, TreeError> {
        staged(|| self.0.get_at(key, at))
    }
    fn range_at(&self, from: &[u8], to: &[u8], at: Sequence, direction: Direction) -> Rows<'static> {
        self.0.range_at(from, to, at, direction)
    }
    fn write(&self, batch: WriteBatch) -> Result<Sequence, TreeError> {
        staged(|| self.0.write(batch))
    }
    fn publish(&self, at: Sequence) {
        staged(|| self.0.publish(at));
    }
    fn pins(&self) -> &Pins {
        self.0.pins()
    }
    fn unsealed_bytes(&self) -> u64 {
        self.0.unsealed_bytes()
    }
    fn seal(&self) {
        self.0.seal();
    }
    fn flush(&self) -> Result<(), TreeError> {
        self.0.flush()
    }
    fn flush_bytes(&self) -> u64 {
        self.0.flush_bytes()
    }
    fn compact(&self) -> Result<bool, TreeError> {
        self.0.compact()
    }
    fn failure(&self) -> Option<TreeError> {
        self.0.failure()
    }
    fn stats(&self) -> TreeStats {
        self.0.stats()
    }
}

/// Numbers drawn from a seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Runs the actors one at a time to their ends. The one of the highest rank goes on; its rank is drawn anew now and then, so that
/// an actor may be left standing between two steps while others do much.
fn perform(seed: u64, actors: Vec<Box<dyn FnOnce() + Send + '_>>) {
    std::thread::scope(|scope| {
        let (mut draws, mut waiting) = (Draws(seed), Vec::new());
        for actor in actors {
            let ((arrived, arrival), (go, turn)) = (channel(), channel());
            scope.spawn(move || {
                TURN.set(Some((arrived, turn)));
                pause();
                actor();
                TURN.set(None);
            });
            waiting.push((draws.next(), arrival, go));
        }
        waiting.retain(|(_, arrival, _)| arrival.recv().is_ok());
        while let Some(chosen) = (0..waiting.len()).max_by_key(|actor| waiting[*actor].0) {
            let (rank, arrival, go) = &mut waiting[chosen];
            if draws.next().is_multiple_of(4) {
                *rank = draws.next();
            }
            go.send(()).expect("it waits");
            if arrival.recv().is_err() {
                waiting.remove(chosen);
            }
        }
    });
}

struct Scene {
    shared: Arc<Shared>,
    /// State (number of entries) that somebody has seen or been told of.
    known: AtomicU64,
    /// Entries that were handed to apply.
    begun: AtomicU64,
}

impl Scene {
    /// What a reader finds: the number of the version.
    fn find(&self, with_body: bool) -> Option<u64> {
        let at = object_key("key");
        let snapshot = || {
            pause();
            let snapshot = Snapshot::published(&self.shared.tree());
            pause();
            snapshot
        };
        let found = match self.shared.objects.look_unpinned(BUCKET, &at, with_body) {
            Some(found) => Some(found),
            None => self.shared.objects.current(snapshot, BUCKET, &at, with_body).expect("reads"),
        };
        found.map(|found| {
            let n = found.row.sequence;
            if with_body {
                assert_eq!(found.inline().expect("its body")[..], n.to_le_bytes(), "a body of another version");
            }
            n
        })
    }

    /// Reads, and checks that nothing older than what was known before is found.
    fn read(&self, with_body: bool, seed: u64) {
        let known = self.known.load(Ordering::SeqCst);
        let found = self.find(with_body);
        let begun = self.begun.load(Ordering::SeqCst);
        // The state that this shows: the version's, or the first deletion that may be meant.
        let shown = match found {
            Some(n) => Some(n).filter(|n| (known..=begun).contains(n)),
            None => (known..=begun).find(|n| *n == 0 || deletes(*n)),
        };
        assert!(shown.is_some(), "schedule {seed}: found {found:?}, where {known} was known and {begun} begun");
        self.known.fetch_max(shown.unwrap_or_default(), Ordering::SeqCst);
    }
}

fn applier(shared: &Arc<Shared>) -> Applier {
    let folders = vec![Folder::new(0, shared.tree())];
    let shard = Shard { id: SHARD, range: KeyRange::ALL, version: 1 };
    let (shards, applied) = (BTreeMap::from([(SHARD, shard)]), BTreeMap::from([(SHARD, (0, 0))]));
    Applier::new(folders, shards, applied, Box::new(Versions), shared.clone(), 1 << 20)
}

fn entry(n: u64) -> Committed {
    let command = Command::Root(RootCommand::DeleteUser(String::new()));
    let entry = Box::new(Entry { attempt: attempt(n), deadline_ms: u64::MAX, stamp_ms: n, command });
    Committed { shard: SHARD, index: n, term: 1, what: What::Command(entry), waiting: None }
}

#[test]
fn no_reader_finds_an_older_object_than_anybody_has_seen_or_been_told_of() {
    let mut hits = 0;
    for seed in 0..SCHEDULES {
        let tree = MemTree::open(Arc::new(SimDisk::new(1, 1 << 20)), "tree").expect("a tree");
        let shared = Arc::new(Shared::new(Arc::new(Staged(tree)), ObjectCache::new(1 << 20, seed), false));
        let scene = Scene { shared: shared.clone(), known: AtomicU64::new(0), begun: AtomicU64::new(0) };
        let writer = || {
            let mut applier = applier(&shared);
            let mut next = 1;
            while next <= ENTRIES {
                // One entry at a time, or two in one batch.
                let last = (next + u64::from(next % 3 == 1)).min(ENTRIES);
                scene.begun.store(last, Ordering::SeqCst);
                applier.apply((next..=last).map(entry).collect());
                assert_eq!(shared.failure(), None);
                // Acknowledged.
                scene.known.fetch_max(last, Ordering::SeqCst);
                pause();
                next = last + 1;
            }
        };
        let mut actors: Vec<Box<dyn FnOnce() + Send + '_>> = vec![Box::new(writer)];
        for reader in 0..READERS {
            let scene = &scene;
            actors.push(Box::new(move || {
                for read in 0..READS {
                    scene.read((reader + read) % 3 != 0, seed);
                    pause();
                }
            }));
        }
        perform(seed, actors);
        for with_body in [false, true, true] {
            scene.read(with_body, seed);
            assert_eq!(scene.find(with_body), Some(ENTRIES), "schedule {seed}: the last version in the end");
        }
        hits += shared.objects.stats().hits;
    }
    assert!(hits > SCHEDULES * 3, "{hits} reads found what they wanted in memory: the schedules test something");
}

fn kept(n: u64, bytes: usize) -> Arc<CurrentObject> {
    let body = BodyRow::Content { size: bytes as u64, bytes: ContentBytes::Inline(Bytes::from(vec![0; bytes])) };
    Arc::new(CurrentObject { row: version(n), body: Some(body) })
}

/// Reads `name` as a reader does who finds `bytes` bytes in the tree.
fn visit(cache: &ObjectCache, name: &str, bytes: usize) -> bool {
    match cache.look(BUCKET, &object_key(name), true) {
        Ok(_) => true,
        Err(fill) => {
            fill.keep(&kept(1, bytes));
            false
        }
    }
}

#[test]
fn a_walk_over_everything_leaves_what_is_read_again_and_the_bytes_are_bounded() {
    const BOUND: u64 = 8 << 20;
    let cache = ObjectCache::new(BOUND, 3);
    let hot: Vec<String> = (0..500).map(|n| format!("hot-{n}")).collect();
    for _ in 0..4 {
        for name in &hot {
            visit(&cache, name, 4096);
        }
    }
    for n in 0..20_000 {
        visit(&cache, &format!("once-{n}"), 4096);
        assert!(n % 1000 != 0 || cache.stats().bytes <= BOUND, "{:?}", cache.stats());
    }
    let found = hot.iter().filter(|name| visit(&cache, name, 4096)).count();
    assert!(found * 10 >= hot.len() * 8, "{found} of {} hot objects are left", hot.len());
}

#[test]
fn what_is_touched_is_gone_and_nothing_is_filled_in_before_the_opening() {
    let cache = ObjectCache::new(1 << 20, 5);
    let look = |name| visit(&cache, name, 100);
    assert_eq!((look("a"), look("a"), look("b"), look("b")), (false, true, false, true));
    let (key_a, early) = (object_key("a"), object_key("c"));
    let begun_before = cache.look(BUCKET, &early, true).expect_err("it is not there");
    let mut touched = Touched::default();
    touched.note(&key::current(BUCKET, &key_a));
    touched.note(&key::body(BUCKET, &early, BodyId::whole(attempt(1))));
    touched.note(&key::version(BUCKET, &object_key("b"), 1));
    let closed = cache.close(&touched);
    assert_eq!((look("a"), look("a")), (false, false), "closed");
    assert!(look("b"), "no row of it was touched that is kept here");
    closed.open();
    begun_before.keep(&kept(1, 100));
    assert_eq!((look("c"), look("a"), look("a")), (false, false, true), "who began before fills nothing in");
}

#[test]
fn an_object_without_its_body_does_for_a_head_alone() {
    let cache = ObjectCache::new(1 << 20, 9);
    let at = object_key("a");
    let fill = cache.look(BUCKET, &at, false).expect_err("it is not there");
    fill.keep(&Arc::new(CurrentObject { row: version(1), body: None }));
    assert!(cache.look_unpinned(BUCKET, &at, false).is_some() && cache.look(BUCKET, &at, false).is_ok());
    assert!(cache.look_unpinned(BUCKET, &at, true).is_none() && cache.look(BUCKET, &at, true).is_err());
    cache.clear();
    assert!(cache.look_unpinned(BUCKET, &at, false).is_none());
}
