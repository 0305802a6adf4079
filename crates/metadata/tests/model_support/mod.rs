//! What the tests of apply and listing share: rows in a plain map with their reads counted, and a store of one to three shards
//! in which every entry is followed by the check of all invariants.
#![allow(dead_code, clippy::panic)]

use bytes::Bytes;
use metadata::apply::{Schema, check_invariants};
use metadata::command::{
    Command, Entry, KeyCommand, KeyOp, NewVersion, Outcome, PartBytes, PutOutcome, Refusal, RootCommand, ShardCommand,
};
use metadata::format::key::Parsed;
use metadata::read::content;
use metadata::rows::{
    BodyId, BodyRow, BucketRow, ContentBytes, DataRef, Home, Location, ObjectRow, OutboxRow, Reference, Run,
};
use metadata::shard::{KeyRange, ROOT, Shard, ShardId, StateMachine};
use metadata::tree::{Read, Row, TreeError, WriteBatch};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use types::bucket::Versioning;
use types::object::{DeleteConditions, ObjectMeta, PutConditions};
use types::{AttemptId, BucketId, DiskId, ETag, GroupId, ObjectKey, VersionId};

/// Bytes of every content that is not inline: enough for a part that is not the last.
pub const CONTENT_BYTES: u64 = 6 << 20;
/// The bucket of most tests.
pub const BUCKET: BucketId = BucketId(1);

/// Rows in a map; point reads, seeks and rows read are counted.
#[derive(Default)]
pub struct Rows {
    pub map: BTreeMap<Vec<u8>, Bytes>,
    pub gets: AtomicU64,
    pub seeks: AtomicU64,
    pub rows: AtomicU64,
}

type Walk<'a> = Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a>;

impl Rows {
    pub fn write(&mut self, batch: WriteBatch) {
        for (key, value) in batch.rows {
            match value {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }

    pub fn counts(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (of(&self.gets), of(&self.seeks), of(&self.rows))
    }

    fn walk(&self, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = Result<Row, TreeError>> + Send + use<'_> {
        self.seeks.fetch_add(1, Ordering::Relaxed);
        let bounds = (Bound::Included(from), Bound::Excluded(to.max(from)));
        self.map.range::<[u8], _>(bounds).map(|(key, value)| {
            self.rows.fetch_add(1, Ordering::Relaxed);
            Ok((Bytes::copy_from_slice(key), value.clone()))
        })
    }
}

impl Read for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        Ok(self.map.get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Walk<'_> {
        Box::new(self.walk(from, to))
    }

    fn range_back(&self, from: &[u8], to: &[u8]) -> Walk<'_> {
        Box::new(self.walk(from, to).rev())
    }
}

pub fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a valid key")
}

pub fn home(text: &str) -> Home {
    Home { bucket: BUCKET, key: key(text) }
}

/// Root and one to three shards of keys over one map of rows.
pub struct Store {
    pub rows: Rows,
    pub schema: Schema,
    pub shards: Vec<Shard>,
    pub now_ms: u64,
    pub session: u32,
    pub generation: u64,
    next: u64,
}

impl Store {
    /// One shard with every key, and the bucket without versioning.
    pub fn new() -> Self {
        Store::cut(&[])
    }

    /// Shards cut at these keys of the bucket.
    pub fn cut(cuts: &[&str]) -> Self {
        let mut bounds = vec![None];
        bounds.extend(cuts.iter().map(|cut| Some(home(cut))));
        bounds.push(None);
        let shard = |(pair, id): (&[Option<Home>], u32)| Shard {
            id: ShardId(id),
            range: KeyRange { from: pair[0].clone(), to: pair[1].clone() },
            version: 1,
        };
        let shards = bounds.windows(2).zip(1..).map(shard).collect();
        let (rows, schema) = (Rows::default(), Schema::default());
        let mut store = Store { rows, schema, shards, now_ms: 1_000_000, session: 1, generation: 0, next: 0 };
        store.set_versioning(Versioning::Off);
        store
    }

    pub fn set_versioning(&mut self, versioning: Versioning) {
        self.generation += 1;
        let row = BucketRow { generation: self.generation, versioning, deleting: false };
        self.raise(row);
    }

    pub fn raise(&mut self, row: BucketRow) -> Vec<Outcome> {
        let command = ShardCommand::RaiseBucket { bucket: BUCKET, row };
        (0..self.shards.len()).map(|i| self.shard(i, command.clone())).collect()
    }

    pub fn attempt(&mut self) -> AttemptId {
        self.next += 1;
        AttemptId { node: 1, session: self.session, sequence: self.next }
    }

    pub fn shard_of(&self, key: &ObjectKey) -> usize {
        self.shards.iter().position(|s| s.range.contains(BUCKET, key)).expect("the shards hold every key")
    }

    pub fn entry(&self, attempt: AttemptId, command: Command) -> Entry {
        Entry { attempt, deadline_ms: self.now_ms + 60_000, stamp_ms: self.now_ms, command }
    }

    /// Applies one entry; time goes on a little.
    pub fn apply(&mut self, shard: &Shard, entry: &Entry) -> Outcome {
        let mut batch = WriteBatch::default();
        let outcome = self.schema.apply(shard, entry, &self.rows, &mut batch).expect("the rows can be read");
        for (row, _) in &batch.rows {
            assert!(is_of(shard, row), "{:?} writes a row that is not its own: {row:02x?}", shard.id);
        }
        self.rows.write(batch);
        self.now_ms += 7;
        let wrong = check_invariants(&self.rows, &KeyRange::ALL).expect("the rows can be read");
        assert!(wrong.is_empty(), "after {:?}: {wrong:#?}", entry.command);
        outcome
    }

    pub fn shard(&mut self, index: usize, command: ShardCommand) -> Outcome {
        let attempt = self.attempt();
        self.shard_as(index, attempt, command)
    }

    pub fn shard_as(&mut self, index: usize, attempt: AttemptId, command: ShardCommand) -> Outcome {
        let (shard, entry) = (self.shards[index].clone(), self.entry(attempt, Command::Shard(command)));
        self.apply(&shard, &entry)
    }

    pub fn root(&mut self, command: RootCommand) -> Outcome {
        let attempt = self.attempt();
        let shard = Shard { id: ROOT, range: KeyRange::ALL, version: 1 };
        let entry = self.entry(attempt, Command::Root(command));
        self.apply(&shard, &entry)
    }

    pub fn key_as(&mut self, attempt: AttemptId, text: &str, op: KeyOp) -> Outcome {
        let key = key(text);
        let shard = self.shards[self.shard_of(&key)].clone();
        let command = KeyCommand { bucket: BUCKET, generation: self.generation, key, op };
        let entry = self.entry(attempt, Command::Key(command));
        self.apply(&shard, &entry)
    }

    pub fn key(&mut self, text: &str, op: KeyOp) -> Outcome {
        let attempt = self.attempt();
        self.key_as(attempt, text, op)
    }

    /// Puts extents; the attempt is the content.
    pub fn put(&mut self, text: &str) -> (AttemptId, PutOutcome) {
        let attempt = self.attempt();
        let outcome = self.key_as(attempt, text, put_op(attempt, PutConditions::default()));
        (attempt, made(outcome))
    }

    pub fn put_if(&mut self, text: &str, conditions: PutConditions) -> (AttemptId, Outcome) {
        let attempt = self.attempt();
        (attempt, self.key_as(attempt, text, put_op(attempt, conditions)))
    }

    pub fn put_inline(&mut self, text: &str, bytes: &'static [u8]) -> PutOutcome {
        let object =
            NewVersion { size: bytes.len() as u64, ..new_version(AttemptId { node: 9, session: 9, sequence: 9 }) };
        let bytes = ContentBytes::Inline(Bytes::from_static(bytes));
        made(self.key(text, KeyOp::Put { object, bytes, conditions: PutConditions::default() }))
    }

    pub fn delete(&mut self, text: &str, version: Option<VersionId>) -> Outcome {
        self.key(text, KeyOp::Delete { version, conditions: DeleteConditions::default() })
    }

    /// What a version is made of, in order: the contents, and the bytes of inline ones.
    pub fn pieces(&self, text: &str, object: &ObjectRow) -> Vec<Piece> {
        let at = home(text);
        match object.data {
            DataRef::Body(id) => vec![self.piece(&at, BodyId::whole(id))],
            DataRef::Manifest { id, parts } => {
                let manifest = content::manifest(&self.rows, BUCKET, &at.key, id, 0, usize::MAX).expect("readable");
                assert_eq!(manifest.len(), parts as usize);
                manifest.iter().map(|part| self.piece(&at, part.body_id(id))).collect()
            }
        }
    }

    pub fn piece(&self, at: &Home, id: BodyId) -> Piece {
        match content::body(&self.rows, at.bucket, &at.key, id).expect("readable").expect("the body is there") {
            BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. } => Piece::Inline(bytes),
            BodyRow::Content { .. } => Piece::Content(at.key.as_str().to_owned(), id.id),
            BodyRow::Reference(reference) => {
                assert_eq!(reference.runs, runs(reference.content), "the repeated addresses are the content's");
                Piece::Content(reference.home.key.as_str().to_owned(), reference.content)
            }
        }
    }

    /// A reference to the whole of a content.
    pub fn reference(&self, source: &str, content: AttemptId) -> Reference {
        Reference {
            home: home(source),
            content,
            offset: 0,
            size: CONTENT_BYTES,
            content_size: CONTENT_BYTES,
            runs: runs(content),
            locations: locations(content),
        }
    }

    /// Contents in extents that are there, condemned ones included.
    pub fn contents(&self) -> Vec<AttemptId> {
        let bodies = content::bodies(&self.rows, &KeyRange::ALL).map(|row| row.expect("readable"));
        let extents =
            bodies.filter(|(_, _, body)| matches!(body, BodyRow::Content { bytes: ContentBytes::Extents { .. }, .. }));
        extents.map(|(_, id, _)| id.id).collect()
    }

    /// Ids of condemned contents (`manifests`: of condemned manifests), with their homes.
    pub fn condemned(&self, shard: usize, manifests: bool) -> Vec<(Home, AttemptId)> {
        let range = &self.shards[shard].range;
        let all = content::condemned(&self.rows, range, None).map(|row| row.expect("readable"));
        let is_manifest = |what| matches!(what, metadata::rows::Condemned::Manifest { .. });
        all.filter(|(_, _, row)| is_manifest(row.what) == manifests).map(|(home, id, _)| (home, id)).collect()
    }

    /// Delivers every outbox row of a shard; answers the groups of the runs it calls dead, which are the contents' sequences.
    pub fn deliver(&mut self, index: usize) -> Vec<GroupId> {
        let id = self.shards[index].id;
        let owed: Vec<_> = metadata::read::shard::outbox(&self.rows, id, 0).map(|row| row.expect("readable")).collect();
        let mut dead = Vec::new();
        for (_, row) in &owed {
            match row {
                OutboxRow::Dead { runs } => dead.extend(runs.iter().map(|run| run.group)),
                OutboxRow::ReleaseOwner { home, content, owner } => {
                    let to = self.shard_of(&home.key);
                    let owners = vec![(home.clone(), *content, *owner)];
                    assert_eq!(self.shard(to, ShardCommand::ReleaseOwners { owners }), Outcome::Done);
                }
            }
        }
        let sequences = owed.into_iter().map(|(sequence, _)| sequence).collect();
        assert_eq!(self.shard(index, ShardCommand::OutboxDelivered { sequences }), Outcome::Done);
        dead
    }

    /// Expands every condemned manifest of a shard.
    pub fn expand(&mut self, index: usize) {
        for (home, manifest) in self.condemned(index, true) {
            let command = ShardCommand::ExpandManifest { home, manifest };
            while self.shard(index, command.clone()) != Outcome::Left(0) {}
        }
    }

    /// Reclaims every condemned content of a shard.
    pub fn reclaim(&mut self, index: usize) {
        let contents = self.condemned(index, false);
        assert_eq!(self.shard(index, ShardCommand::Reclaim { contents }), Outcome::Left(0));
    }

    /// Does all background work until none is left; answers the groups of dead runs.
    pub fn settle_down(&mut self) -> Vec<GroupId> {
        let mut dead = Vec::new();
        loop {
            let before = self.rows.map.len();
            for index in 0..self.shards.len() {
                dead.extend(self.deliver(index));
                self.expand(index);
                self.reclaim(index);
                dead.extend(self.deliver(index));
            }
            if self.rows.map.len() == before {
                return dead;
            }
        }
    }
}

/// Whether a row belongs to this shard: a node's tree holds those of all.
fn is_of(shard: &Shard, row: &[u8]) -> bool {
    match row[0] {
        0x01..=0x04 => row[1..5] == shard.id.0.to_be_bytes(),
        0x10..=0x19 => {
            let at = Parsed::new(row).and_then(|parsed| parsed.home()).expect("a key of ours");
            shard.id != ROOT && shard.range.contains(at.bucket, &at.key)
        }
        _ => shard.id == ROOT,
    }
}

/// One content of a version.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Piece {
    Inline(Bytes),
    /// Home and content.
    Content(String, AttemptId),
}

pub fn made(outcome: Outcome) -> PutOutcome {
    match outcome {
        Outcome::Put(put) => put,
        other => panic!("not put: {other:?}"),
    }
}

pub fn refused(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// The one run of a content, in a group that bears its sequence.
pub fn runs(content: AttemptId) -> Vec<Run> {
    vec![Run { group: GroupId(content.sequence), offset: 4096, extents: 6, last_bytes: 1 << 20 }]
}

pub fn locations(content: AttemptId) -> Vec<Location> {
    vec![Location { group: GroupId(content.sequence), disks: vec![DiskId(1)] }]
}

pub fn extents(content: AttemptId) -> ContentBytes {
    ContentBytes::Extents { runs: runs(content), locations: locations(content) }
}

pub fn md5_of(content: AttemptId) -> [u8; 16] {
    content.to_bytes()
}

pub fn new_version(content: AttemptId) -> NewVersion {
    NewVersion {
        size: CONTENT_BYTES,
        etag: ETag::Md5(md5_of(content)),
        checksum: None,
        meta: ObjectMeta::default(),
        tags: Vec::new(),
    }
}

pub fn put_op(content: AttemptId, conditions: PutConditions) -> KeyOp {
    KeyOp::Put { object: new_version(content), bytes: extents(content), conditions }
}

pub fn part_op(upload: AttemptId, number: u32, content: AttemptId) -> KeyOp {
    let (size, md5) = (CONTENT_BYTES, md5_of(content));
    KeyOp::PutPart { upload, number, size, md5, checksum: None, bytes: PartBytes::New(extents(content)) }
}

pub fn etag_text(content: AttemptId) -> String {
    ETag::Md5(md5_of(content)).to_string()
}
