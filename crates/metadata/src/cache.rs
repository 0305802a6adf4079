//! Current objects in memory, above the tree: the decoded version row and, once it was read, the body row, by bucket and key.
//!
//! Promises: what is found here is current at the moment it is found: once anybody could see a newer version, or the absence of
//! one, in the tree, the older is not found any more. Bounded in bytes. A walk over many objects once does not push out those
//! that are read again (Clock-PRO). Reading takes the lock of one of many parts, shared; only apply and fills take it alone.
//! Refuses to know: trees, who reads, listings (they neither read nor fill it).
//!
//! The order on which the promise rests:
//!
//! ```text
//! apply:   write rows -> close (remove the keys, make the generation of their parts odd)  -> publish -> open (even) -> answer
//! filler:  miss (note the generation) -> take a published snapshot, read rows -> insert if the generation is the same and even
//! ```
//! A filler that noted before the close finds another generation at its insert; one that noted while the part was closed never
//! inserts; one that noted after the opening took its snapshot after the publication.

use crate::format::family;
use crate::format::key::Parsed;
use crate::read::{ReadError, content, object};
use crate::rows::{BodyId, BodyRow, ContentBytes, DataRef, VersionRow};
use crate::tree::Snapshot;
use bytes::Bytes;
use parking_lot::RwLock;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{BucketId, ObjectKey};

/// Most parts; which of them are closed is a set of bits.
const PARTS_MAX: u64 = 64;
/// A part holds at least this much: ten of the largest inline bodies.
const PART_BYTES_MIN: u64 = 192 << 10;
/// What an object takes besides its key, texts and bytes: rows decoded, entries of tables, the allocator's rounding.
const OVERHEAD_BYTES: u64 = 512;
/// Larger objects (copies of long lists of runs) are not kept.
const OBJECT_BYTES_MAX: u64 = 64 << 10;
/// What an object takes on average, to size the tables.
const OBJECT_BYTES_USUAL: u64 = 2 << 10;

/// The live current version of a key as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentObject {
    /// The version; it has an object.
    pub row: VersionRow,
    /// Its body row, if that was asked for and it has one (not: a manifest).
    pub body: Option<BodyRow>,
}

impl CurrentObject {
    /// Its bytes, if they were read and lie in the row.
    pub fn inline(&self) -> Option<&Bytes> {
        match &self.body {
            Some(BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. }) => Some(bytes),
            _ => None,
        }
    }

    /// Where its bytes are.
    pub fn data(&self) -> Option<DataRef> {
        self.row.object.as_ref().map(|object| object.data)
    }

    /// Whether a reader finds everything in here: all but the bytes, or these too if `with_body`, as far as they have one row.
    fn answers(&self, with_body: bool) -> bool {
        !with_body || self.body.is_some() || matches!(self.data(), Some(DataRef::Manifest { .. }))
    }

    /// The same with inline bytes of its own: those that were read may be a slice of a whole block.
    fn detached(mut self) -> CurrentObject {
        if let Some(BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. }) = &mut self.body {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        self
    }

    fn bytes(&self) -> u64 {
        let texts = |pairs: &[(String, String)]| pairs.iter().map(|(a, b)| a.len() + b.len() + 64).sum::<usize>();
        let object = self.row.object.as_ref().map_or(0, |object| {
            let tags: usize = object.tags.iter().map(|tag| tag.key.len() + tag.value.len() + 64).sum();
            texts(&object.meta.headers) + texts(&object.meta.user) + tags
        });
        let body = match &self.body {
            None => 0,
            Some(BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. }) => bytes.len(),
            Some(BodyRow::Content { bytes: ContentBytes::Extents { runs, locations }, .. }) => {
                size_of_val(&runs[..]) + locations.len() * 64
            }
            Some(BodyRow::Reference(r)) => {
                size_of_val(&r.runs[..]) + r.locations.len() * 64 + r.home.key.as_str().len()
            }
        };
        (object + body) as u64
    }
}

/// Numbers of the cache.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// Readers that found all they wanted, since the start.
    pub hits: u64,
    /// Readers that had to read the tree, since the start.
    pub misses: u64,
    /// Bytes in use.
    pub bytes: u64,
}

/// The cache.
pub(crate) struct ObjectCache {
    parts: Box<[Part]>,
    /// Makes the places of keys unknown to those who choose the keys.
    seed: u64,
}

/// One of the parts; each has its cache line of its own.
#[repr(align(128))]
struct Part {
    state: RwLock<State>,
    hits: AtomicU64,
    misses: AtomicU64,
}

struct State {
    /// Odd while closed.
    generation: u64,
    kept: Cache<Key, Kept, Weight, BuildHasherDefault<Hashed>, DefaultLifecycle<Key, Kept>>,
}

struct Kept {
    object: Arc<CurrentObject>,
    bytes: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Kept> for Weight {
    fn weight(&self, _: &Key, kept: &Kept) -> u64 {
        kept.bytes
    }
}

/// A key of the cache.
struct Key {
    hash: u64,
    bucket: BucketId,
    key: Box<[u8]>,
}

/// The same, borrowed, hashed once.
#[derive(Clone, Copy)]
struct Place<'a> {
    hash: u64,
    bucket: BucketId,
    key: &'a [u8],
}

impl<'a> Place<'a> {
    fn new(seed: u64, bucket: BucketId, key: &'a [u8]) -> Place<'a> {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        hasher.write_u64(bucket.0);
        hasher.write(key);
        Place { hash: hasher.finish(), bucket, key }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Place<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.hash == other.hash && self.bucket == other.bucket && self.key == other.key
    }
}

impl Eq for Key {}

impl Equivalent<Key> for Place<'_> {
    fn equivalent(&self, other: &Key) -> bool {
        self.hash == other.hash && self.bucket == other.bucket && *self.key == *other.key
    }
}

/// Hands on the hash that a key carries.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Keys write one number. Anything else would still be a hash, if a poor one.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Leave to fill in what was not found, if nothing changes meanwhile. To be had before the snapshot is taken.
struct Fill<'a> {
    part: &'a Part,
    place: Place<'a>,
    generation: u64,
}

impl Fill<'_> {
    /// Keeps `object`, unless apply came between or is at work.
    fn keep(self, object: &Arc<CurrentObject>) {
        let bytes = object.bytes() + self.place.key.len() as u64 + OVERHEAD_BYTES;
        if self.generation % 2 == 1 || bytes > OBJECT_BYTES_MAX {
            return;
        }
        let Place { hash, bucket, key } = self.place;
        let (key, kept) = (Key { hash, bucket, key: key.into() }, Kept { object: object.clone(), bytes });
        let mut state = self.part.state.write();
        if state.generation == self.generation {
            state.kept.insert(key, kept);
        }
    }
}

/// Keys whose rows were written and not published. Kept by apply.
#[derive(Default)]
pub(crate) struct Touched(Vec<(BucketId, Vec<u8>)>);

impl Touched {
    /// Takes note of a row that is being written.
    pub(crate) fn note(&mut self, row: &[u8]) {
        if !matches!(row.first(), Some(&(family::CURRENT | family::BODY))) {
            return;
        }
        // What cannot be taken apart is no row of a key that anybody can ask for.
        let Ok(Parsed { bucket, key, .. }) = Parsed::new(row) else { return };
        if self.0.last().is_none_or(|(b, k)| (*b, &k[..]) != (bucket, &key[..])) {
            self.0.push((bucket, key.into_owned()));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Parts that are closed: nothing is filled in. Opens when dropped.
#[must_use = "it is open again when this is dropped"]
pub(crate) struct Closed<'a> {
    cache: &'a ObjectCache,
    parts: u64,
}

impl Closed<'_> {
    /// Lets fills be taken again. After what was written is published, before anybody is answered.
    pub(crate) fn open(self) {}
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        for (index, part) in self.cache.parts.iter().enumerate() {
            if self.parts >> index & 1 == 1 {
                part.state.write().generation += 1;
            }
        }
    }
}

impl ObjectCache {
    /// Of at most so many bytes, about. 0: keeps nothing.
    pub(crate) fn new(bytes: u64, seed: u64) -> ObjectCache {
        let parts = 1 << (bytes / PART_BYTES_MIN).clamp(1, PARTS_MAX).ilog2();
        let part_bytes = bytes / parts;
        let part = || {
            let options = OptionsBuilder::new()
                .weight_capacity(part_bytes)
                .estimated_items_capacity((part_bytes / OBJECT_BYTES_USUAL) as usize)
                .build()
                .expect("both capacities are given");
            let kept = Cache::with_options(options, Weight, BuildHasherDefault::default(), DefaultLifecycle::default());
            let state = RwLock::new(State { generation: 0, kept });
            Part { state, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
        };
        ObjectCache { parts: (0..parts).map(|_| part()).collect(), seed }
    }

    fn index(&self, hash: u64) -> usize {
        // Not the bits that the tables use first.
        (hash >> 40) as usize % self.parts.len()
    }

    /// The live current version, `with_body` with its body row if it has one, out of memory or as `snapshot` shows it, which is
    /// taken at the newest published position.
    pub(crate) fn current(
        &self,
        snapshot: impl FnOnce() -> Snapshot,
        bucket: BucketId,
        key: &ObjectKey,
        with_body: bool,
    ) -> Result<Option<Arc<CurrentObject>>, ReadError> {
        // The leave to fill is older than the snapshot: what changes in between is not filled in.
        let fill = match self.look(bucket, key, with_body) {
            Ok(found) => return Ok(Some(found)),
            Err(fill) => fill,
        };
        let snapshot = snapshot();
        let Some(row) = object::current(&snapshot, bucket, key)? else { return Ok(None) };
        let body = match row.object.as_ref().map(|object| object.data) {
            Some(DataRef::Body(id)) if with_body => content::body(&snapshot, bucket, key, BodyId::whole(id))?,
            _ => None,
        };
        let found = Arc::new(CurrentObject { row, body }.detached());
        fill.keep(&found);
        Ok(Some(found))
    }

    /// What is current and satisfies a reader, with a body if it has one and `with_body`; or the leave to fill it in.
    fn look<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a ObjectKey,
        with_body: bool,
    ) -> Result<Arc<CurrentObject>, Fill<'a>> {
        let place = Place::new(self.seed, bucket, key.as_str().as_bytes());
        let part = &self.parts[self.index(place.hash)];
        let state = part.state.read();
        match state.kept.get(&place) {
            Some(kept) if kept.object.answers(with_body) => {
                part.hits.fetch_add(1, Ordering::Relaxed);
                Ok(kept.object.clone())
            }
            _ => {
                part.misses.fetch_add(1, Ordering::Relaxed);
                Err(Fill { part, place, generation: state.generation })
            }
        }
    }

    /// The same for a reader that holds no pin of extents: only an object that needs none.
    pub(crate) fn look_unpinned(
        &self,
        bucket: BucketId,
        key: &ObjectKey,
        with_body: bool,
    ) -> Option<Arc<CurrentObject>> {
        let place = Place::new(self.seed, bucket, key.as_str().as_bytes());
        let part = &self.parts[self.index(place.hash)];
        let state = part.state.read();
        let object = &state.kept.get(&place)?.object;
        if with_body && object.inline().is_none() {
            return None;
        }
        part.hits.fetch_add(1, Ordering::Relaxed);
        Some(object.clone())
    }

    /// Forgets what was touched and refuses fills where it was, until the answer is opened.
    pub(crate) fn close(&self, touched: &Touched) -> Closed<'_> {
        let mut closed = Closed { cache: self, parts: 0 };
        for (bucket, key) in &touched.0 {
            let place = Place::new(self.seed, *bucket, key);
            let index = self.index(place.hash);
            let mut state = self.parts[index].state.write();
            if closed.parts >> index & 1 == 0 {
                closed.parts |= 1 << index;
                state.generation += 1;
            }
            state.kept.remove(&place);
        }
        closed
    }

    /// Forgets everything and refuses fills everywhere, until the answer is opened: rows are exchanged without being named.
    pub(crate) fn close_all(&self) -> Closed<'_> {
        let mut closed = Closed { cache: self, parts: 0 };
        for (index, part) in self.parts.iter().enumerate() {
            closed.parts |= 1 << index;
            let mut state = part.state.write();
            state.generation += 1;
            state.kept.clear();
        }
        closed
    }

    /// Numbers.
    pub(crate) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for part in &self.parts {
            stats.hits += part.hits.load(Ordering::Relaxed);
            stats.misses += part.misses.load(Ordering::Relaxed);
            stats.bytes += part.state.read().kept.weight();
        }
        stats
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.parts.iter().for_each(|part| part.state.write().kept.clear());
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
