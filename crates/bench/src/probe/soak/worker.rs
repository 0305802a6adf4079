//! One connection of a soak, with keys that nobody else writes: so it knows what each of them must be.
//!
//! Promises: nothing is read that is not compared; the first difference, and the first error, ends it. Refuses to know: the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{BUCKET, Shared};
use crate::client::{Client, ClientError, Expected, PageRequest, Target};
use crate::content::{Content, Dice};
use crate::{BenchError, clock};

/// Small objects of a connection, and large ones: with the sizes below 0.7 and 9 MiB on average.
const SMALL_SLOTS: u64 = 64;
const LARGE_SLOTS: u64 = 6;
/// Inline, at its border, and one extent.
const SMALL_SIZES: [u64; 5] = [0, 100, 4096, 16_384, 40_000];
/// One extent, several, and a last one that is short.
const LARGE_SIZES: [u64; 3] = [256 << 10, 1 << 20, (3 << 20) + 7];
/// Parts of a multipart upload: all but the last must have 5 MiB.
const PARTS: [u64; 2] = [5 << 20, 64 << 10];

/// What a slot holds.
#[derive(Clone, Copy)]
struct Held {
    content: Content,
    size: u64,
}

/// One connection.
pub(super) struct Worker {
    number: u32,
    client: Client,
    dice: Dice,
    body: Vec<u8>,
    small: Vec<Option<Held>>,
    large: Vec<Option<Held>>,
}

/// Whether an operation is one of the small ones that latency is judged by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Small,
    Other,
}

type Done = Result<(Kind, Duration), ClientError>;

impl Worker {
    pub(super) fn new(number: u32, seed: u64, target: &Target) -> Worker {
        Worker {
            number,
            client: Client::new(target),
            dice: Dice::new(seed ^ (u64::from(number) << 32)),
            body: Vec::new(),
            small: vec![None; SMALL_SLOTS as usize],
            large: vec![None; LARGE_SLOTS as usize],
        }
    }

    /// Bytes of all it holds.
    pub(super) fn live_bytes(&self) -> u64 {
        self.small.iter().chain(&self.large).flatten().map(|held| held.size).sum()
    }

    /// Objects that it holds.
    pub(super) fn live_objects(&self) -> u64 {
        self.small.iter().chain(&self.large).flatten().count() as u64
    }

    fn prefix(&self) -> String {
        format!("w{:03}/", self.number)
    }

    fn key(&self, kind: Kind, slot: usize) -> String {
        match kind {
            Kind::Small => format!("{}s{slot:03}", self.prefix()),
            Kind::Other => format!("{}large-{slot:03}", self.prefix()),
        }
    }

    fn path(&self, kind: Kind, slot: usize) -> String {
        format!("/{BUCKET}/{}", self.key(kind, slot))
    }

    fn slot(&mut self, kind: Kind) -> &mut Vec<Option<Held>> {
        match kind {
            Kind::Small => &mut self.small,
            Kind::Other => &mut self.large,
        }
    }

    /// Something in every slot.
    pub(super) async fn fill(&mut self) -> Result<(), BenchError> {
        for kind in [Kind::Small, Kind::Other] {
            for slot in 0..self.slot(kind).len() {
                self.put(kind, slot).await.map_err(told(self.number, "filling"))?;
            }
        }
        Ok(())
    }

    /// Works until it is told to stop.
    pub(super) async fn work(mut self, shared: Arc<Shared>) -> Result<Worker, BenchError> {
        while !shared.is_over() {
            shared.turn().await;
            let before = (self.live_bytes(), self.live_objects());
            let (name, done) = self.step().await;
            let (kind, took) = done.map_err(told(self.number, name))?;
            move_by(&shared.live_bytes, before.0, self.live_bytes());
            move_by(&shared.live_objects, before.1, self.live_objects());
            let mut interval = shared.interval();
            match kind {
                Kind::Small => interval.small.record(took),
                Kind::Other => interval.other.record(took),
            }
        }
        Ok(self)
    }

    async fn step(&mut self) -> (&'static str, Done) {
        let small = self.dice.below(SMALL_SLOTS) as usize;
        let large = self.dice.below(LARGE_SLOTS) as usize;
        match self.dice.below(1000) {
            0..260 => ("PUT", self.put(Kind::Small, small).await),
            260..600 => ("GET", self.get(Kind::Small, small).await),
            600..800 => ("HEAD", self.head(small).await),
            800..890 => ("DELETE", self.delete(Kind::Small, small).await),
            890..940 => ("LIST", self.list().await),
            940..970 => ("GET of a large object", self.get(Kind::Other, large).await),
            970..990 => ("PUT of a large object", self.put(Kind::Other, large).await),
            990..996 => ("DELETE of a large object", self.delete(Kind::Other, large).await),
            _ => ("multipart upload", self.multipart(large).await),
        }
    }

    async fn put(&mut self, kind: Kind, slot: usize) -> Done {
        let sizes: &[u64] = if kind == Kind::Small { &SMALL_SIZES } else { &LARGE_SIZES };
        let size = sizes[self.dice.below(sizes.len() as u64) as usize];
        let held = Held { content: Content::new(self.dice.roll()), size };
        self.body.resize(size as usize, 0);
        held.content.fill(0, &mut self.body);
        let path = self.path(kind, slot);
        let took = self.client.put(&path, &self.body).await?.total;
        self.slot(kind)[slot] = Some(held);
        Ok((kind, took))
    }

    async fn get(&mut self, kind: Kind, slot: usize) -> Done {
        let path = self.path(kind, slot);
        let began = clock::monotonic();
        match self.slot(kind)[slot] {
            Some(held) => {
                let expected = Expected::range(held.content, 0, held.size);
                Ok((kind, self.client.get(&path, &expected).await?.total))
            }
            None => {
                let nothing = Expected::range(Content::new(0), 0, 0);
                absent(self.client.get(&path, &nothing).await.map(drop))?;
                Ok((kind, clock::monotonic() - began))
            }
        }
    }

    async fn head(&mut self, slot: usize) -> Done {
        let path = self.path(Kind::Small, slot);
        let began = clock::monotonic();
        match self.small[slot] {
            Some(held) => match self.client.head(&path).await? {
                answer if answer.content_length == Some(held.size) => Ok((Kind::Small, answer.total)),
                answer => {
                    let found = answer.content_length.unwrap_or(0);
                    Err(ClientError::WrongLength { expected: held.size, found })
                }
            },
            None => {
                absent(self.client.head(&path).await.map(drop))?;
                Ok((Kind::Small, clock::monotonic() - began))
            }
        }
    }

    async fn delete(&mut self, kind: Kind, slot: usize) -> Done {
        let path = self.path(kind, slot);
        let took = self.client.delete(&path).await?.total;
        self.slot(kind)[slot] = None;
        Ok((kind, took))
    }

    /// All its keys fit on a page.
    async fn list(&mut self) -> Done {
        let prefix = self.prefix();
        let request = PageRequest { prefix: &prefix, delimiter: None, token: None, max_keys: 1000 };
        let (answer, page) = self.client.list(BUCKET, &request).await?;
        let found: Vec<(&str, u64)> = page.objects.iter().map(|(key, _, size)| (key.as_str(), *size)).collect();
        let expected = self.listed();
        let expected: Vec<(&str, u64)> = expected.iter().map(|(key, size)| (key.as_str(), *size)).collect();
        if found == expected { Ok((Kind::Other, answer.total)) } else { Err(ClientError::Protocol(WRONG_LIST)) }
    }

    /// What a listing of its prefix must hold: `large-…` before `s…`.
    fn listed(&self) -> Vec<(String, u64)> {
        let keys_of = |kind, slots: &[Option<Held>]| -> Vec<(String, u64)> {
            let held = slots.iter().enumerate().filter_map(|(slot, held)| Some((slot, (*held)?)));
            held.map(|(slot, held)| (self.key(kind, slot), held.size)).collect()
        };
        let mut all = keys_of(Kind::Other, &self.large);
        all.extend(keys_of(Kind::Small, &self.small));
        all
    }

    async fn multipart(&mut self, slot: usize) -> Done {
        let began = clock::monotonic();
        let path = self.path(Kind::Other, slot);
        let held = Held { content: Content::new(self.dice.roll()), size: PARTS.iter().sum() };
        let upload = self.client.create_upload(&path).await?;
        let (mut offset, mut etags) = (0, Vec::new());
        for (number, size) in (1..).zip(PARTS) {
            self.body.resize(size as usize, 0);
            held.content.fill(offset, &mut self.body);
            etags.push(self.client.upload_part(&path, &upload, number, &self.body).await?);
            offset += size;
        }
        self.client.complete_upload(&path, &upload, &etags).await?;
        self.large[slot] = Some(held);
        Ok((Kind::Other, clock::monotonic() - began))
    }

    /// Everything once more; how many objects there were.
    pub(super) async fn compare_all(&mut self) -> Result<u64, BenchError> {
        self.list().await.map_err(told(self.number, "the last LIST"))?;
        for kind in [Kind::Small, Kind::Other] {
            for slot in 0..self.slot(kind).len() {
                self.get(kind, slot).await.map_err(told(self.number, "the last GET"))?;
            }
        }
        Ok(self.live_objects())
    }
}

const WRONG_LIST: &str = "WRONG LIST: it differs from what was acknowledged";

/// Nothing may be there.
fn absent(answer: Result<(), ClientError>) -> Result<(), ClientError> {
    match answer {
        Err(error) if error.status() == Some(404) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(ClientError::Protocol("a deleted object is there")),
    }
}

fn told(number: u32, what: &str) -> impl FnOnce(ClientError) -> BenchError {
    let what = format!("connection {number}, {what}");
    move |error| match error.is_wrong_data() || matches!(error, ClientError::Protocol(_)) {
        true => BenchError::Broken(format!("{what}: {error}")),
        false => BenchError::request(what)(error),
    }
}

/// Changes a sum by what one of its terms changed.
fn move_by(sum: &std::sync::atomic::AtomicU64, before: u64, after: u64) {
    sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
}
