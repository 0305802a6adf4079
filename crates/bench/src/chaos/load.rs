//! One client of a chaos run: random operations on keys that all clients share, each noted with its interval.
//!
//! Promises: what has no answer, or a 5xx, is noted as unknown (promise P5); a request that failed is sent once more, as a new
//! operation, to the next address. Refuses to know: what is done to the cluster meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::history::{History, etag_of};
use super::linear::{Action, Operation, Verdict};
use crate::client::{BodySink, Client, ClientError, PageRequest, Request, Target};
use crate::content::{Content, Dice};
use crate::{BenchError, clock};

/// Keys that all clients use: few, so that they meet.
const HOT_KEYS: u64 = 20;
/// After two failures a client rests, as clients do.
const REST: Duration = Duration::from_millis(100);
/// A request without an answer for so long is given up and sent to another node: above the servers' own patience of 2 s.
const PATIENCE: Duration = Duration::from_millis(2500);

/// What all clients of a run share.
pub(super) struct Shared {
    pub(super) bucket: String,
    pub(super) targets: Vec<Target>,
    pub(super) history: History,
    pub(super) stop: AtomicBool,
    pub(super) numbers: AtomicU64,
    pub(super) tally: Mutex<Tally>,
}

/// What became of the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) tried: u64,
    pub(super) failed_once: u64,
    pub(super) failed_twice: u64,
    pub(super) acknowledged_writes: u64,
    /// Of reads and of writes: when one last succeeded, and the longest time between two that did.
    last: [Option<Duration>; 2],
    pub(super) gaps: [Duration; 2],
    pub(super) samples: BTreeMap<String, u64>,
}

impl Tally {
    fn succeeded(&mut self, is_write: bool, at: Duration) {
        let kind = usize::from(is_write);
        if let Some(last) = self.last[kind].replace(at) {
            self.gaps[kind] = self.gaps[kind].max(at.saturating_sub(last));
        }
        self.acknowledged_writes += u64::from(is_write);
    }

    /// Gaps are counted from now on.
    pub(super) fn reset_gaps(&mut self) {
        (self.last, self.gaps) = ([None; 2], [Duration::ZERO; 2]);
    }
}

impl Shared {
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client.
pub(super) struct Worker {
    shared: Arc<Shared>,
    clients: Vec<Client>,
    next: usize,
    dice: Dice,
    number: u64,
    cold: u64,
}

/// An operation to be done.
enum Wanted {
    Put(usize),
    PutIfAbsent(usize),
    PutIfIs(usize),
    Get,
    Head,
    Delete,
    List,
}

impl Wanted {
    fn is_write(&self) -> bool {
        !matches!(self, Wanted::Get | Wanted::Head | Wanted::List)
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, number: u64, seed: u64) -> Worker {
        let clients = shared.targets.iter().map(|target| Client::impatient(target, PATIENCE)).collect();
        let next = number as usize;
        Worker { shared, clients, next, dice: Dice::new(seed ^ (number + 1) << 32), number, cold: 0 }
    }

    /// Works until it is told to stop.
    pub(super) async fn work(mut self) -> Result<(), BenchError> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let (key, wanted) = self.choose();
            self.shared.tally().tried += 1;
            if self.once(&key, &wanted).await? {
                continue;
            }
            self.shared.tally().failed_once += 1;
            if !self.once(&key, &wanted).await? {
                self.shared.tally().failed_twice += 1;
                tokio::time::sleep(REST).await;
            }
        }
        Ok(())
    }

    fn choose(&mut self) -> (String, Wanted) {
        let hot = format!("hot/{:02}", self.dice.below(HOT_KEYS));
        let small = 1 + self.dice.below(12 << 10) as usize;
        match self.dice.below(100) {
            0..25 => (hot, Wanted::Put(small)),
            25..32 => (hot, Wanted::Put((32 << 10) + self.dice.below(1500 << 10) as usize)),
            32..42 => {
                self.cold += 1;
                (format!("cold/{:02}-{:06}", self.number, self.cold), Wanted::Put(small))
            }
            42..47 => (hot, Wanted::PutIfAbsent(small)),
            47..52 => (hot, Wanted::PutIfIs(small)),
            52..60 => (hot, Wanted::Delete),
            60..63 => ("hot/".to_owned(), Wanted::List),
            63..75 => (hot, Wanted::Head),
            _ => (hot, Wanted::Get),
        }
    }

    /// One request; whether it was answered as it should be.
    async fn once(&mut self, key: &str, wanted: &Wanted) -> Result<bool, BenchError> {
        let at = self.next % self.clients.len();
        self.next += 1;
        let (good, why) = match wanted {
            Wanted::Put(len) => self.write(at, key, *len, None).await?,
            Wanted::PutIfAbsent(len) => {
                self.write(at, key, *len, Some((None, ("if-none-match", "*".to_owned())))).await?
            }
            Wanted::PutIfIs(len) => match self.newest(at, key).await? {
                Ok(Some((number, etag))) => self.write(at, key, *len, Some((Some(number), ("if-match", etag)))).await?,
                Ok(None) => (true, None),
                Err(error) => (false, Some(error)),
            },
            Wanted::Delete => self.delete(at, key).await,
            Wanted::List => self.list(at, key).await?,
            Wanted::Get => self.read(at, key, true).await?,
            Wanted::Head => self.read(at, key, false).await?,
        };
        let mut tally = self.shared.tally();
        if good {
            tally.succeeded(wanted.is_write(), clock::monotonic());
        }
        if let Some(error) = why {
            *tally.samples.entry(error.chars().take(80).collect()).or_default() += 1;
        }
        Ok(good)
    }

    /// What a HEAD finds, for a condition.
    async fn newest(&mut self, at: usize, key: &str) -> Result<Result<Option<(u64, String)>, String>, BenchError> {
        let path = format!("/{}/{key}", self.shared.bucket);
        let called = now();
        let found = self.clients[at].head(&path).await;
        match found {
            Ok(response) => {
                let etag = response.etag.unwrap_or_default();
                let number = self.shared.history.write_of(key, &etag)?;
                self.note(key, called, Action::Read(Some(number)), Verdict::Done);
                Ok(Ok(Some((number, etag))))
            }
            Err(error) if error.status() == Some(404) => {
                self.note(key, called, Action::Read(None), Verdict::Done);
                Ok(Ok(None))
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn note(&self, key: &str, called: u64, action: Action, verdict: Verdict) {
        self.shared.history.note(key, Operation { called, returned: now(), action, verdict });
    }

    /// A PUT, with a condition on the write of that number or on absence.
    async fn write(
        &mut self,
        at: usize,
        key: &str,
        len: usize,
        condition: Option<(Option<u64>, (&str, String))>,
    ) -> Result<(bool, Option<String>), BenchError> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let body = Content::new(number).bytes(len.max(8));
        let etag = etag_of(&body);
        self.shared.history.announce(number, &etag);
        let path = format!("/{}/{key}", self.shared.bucket);
        let action = match &condition {
            None => Action::Write(number),
            Some((None, _)) => Action::WriteIfAbsent(number),
            Some((Some(is), _)) => Action::WriteIfIs(*is, number),
        };
        let headers: Vec<(&str, String)> = condition.into_iter().map(|(_, header)| header).collect();
        let request =
            Request { method: "PUT", path: &path, headers: &headers, body: Some(&body), ..Request::default() };
        let called = now();
        match self.clients[at].call(&request, 200, BodySink::Count).await {
            Ok(response) if response.etag.as_deref() == Some(&etag) => {
                self.note(key, called, action, Verdict::Done);
                Ok((true, None))
            }
            Ok(response) => Err(BenchError::Broken(format!("{key}: a PUT was answered with ETag {:?}", response.etag))),
            Err(ClientError::Status { status: 412 | 404, .. }) if !headers.is_empty() => {
                self.note(key, called, action, Verdict::Refused);
                Ok((true, None))
            }
            // Another conditional write was under way: S3 lets this be said, and it says that nothing happened.
            Err(ClientError::Status { status: 409, .. }) if !headers.is_empty() => Ok((true, None)),
            Err(error) => {
                if may_have_happened(&error) {
                    self.note(key, called, action, Verdict::Unknown);
                }
                Ok((false, Some(error.to_string())))
            }
        }
    }

    async fn delete(&mut self, at: usize, key: &str) -> (bool, Option<String>) {
        let path = format!("/{}/{key}", self.shared.bucket);
        let called = now();
        match self.clients[at].delete(&path).await {
            Ok(_) => {
                self.note(key, called, Action::Delete, Verdict::Done);
                (true, None)
            }
            Err(error) => {
                if may_have_happened(&error) {
                    self.note(key, called, Action::Delete, Verdict::Unknown);
                }
                (false, Some(error.to_string()))
            }
        }
    }

    async fn read(&mut self, at: usize, key: &str, body: bool) -> Result<(bool, Option<String>), BenchError> {
        let called = now();
        match fetch(&mut self.clients[at], &self.shared, key, body).await? {
            Ok(found) => {
                self.note(key, called, Action::Read(found), Verdict::Done);
                Ok((true, None))
            }
            Err(error) => Ok((false, Some(error.to_string()))),
        }
    }

    async fn list(&mut self, at: usize, prefix: &str) -> Result<(bool, Option<String>), BenchError> {
        let called = now();
        match list(&mut self.clients[at], &self.shared, prefix).await? {
            Ok(listed) => {
                self.shared.history.note_list(prefix, called, now(), &listed);
                Ok((true, None))
            }
            Err(error) => Ok((false, Some(error.to_string()))),
        }
    }
}

/// Whether a write that got this may or may not have happened. Where nobody listens nothing was sent.
fn may_have_happened(error: &ClientError) -> bool {
    let refused = matches!(error, ClientError::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused);
    !refused && error.leaves_outcome_unknown()
}

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    u64::try_from(clock::monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// Which write's bytes a key holds, every byte of them compared by its digest. Bytes that are nobody's end the run.
pub(super) async fn fetch(
    client: &mut Client,
    shared: &Shared,
    key: &str,
    body: bool,
) -> Result<Result<Option<u64>, ClientError>, BenchError> {
    let path = format!("/{}/{key}", shared.bucket);
    let method = if body { "GET" } else { "HEAD" };
    let request = Request { method, path: &path, ..Request::default() };
    match client.call(&request, 200, BodySink::Keep).await {
        Ok(response) => {
            let etag = response.etag.unwrap_or_default();
            if body && etag_of(&response.body) != etag {
                return Err(BenchError::Broken(format!("{key}: WRONG BYTES: a body that does not have ETag {etag}")));
            }
            shared.history.write_of(key, &etag).map(|number| Ok(Some(number)))
        }
        Err(error) if error.status() == Some(404) => Ok(Ok(None)),
        Err(error) => Ok(Err(error)),
    }
}

/// Everything of a prefix, in one page.
pub(super) async fn list(
    client: &mut Client,
    shared: &Shared,
    prefix: &str,
) -> Result<Result<BTreeMap<String, u64>, ClientError>, BenchError> {
    let page = PageRequest { prefix, delimiter: None, token: None, max_keys: 1000 };
    let (_, page) = match client.list(&shared.bucket, &page).await {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    if !page.objects.is_sorted_by(|a, b| a.0 < b.0) || page.next.is_some() {
        return Err(BenchError::Broken(format!("a list of {prefix} is out of order or has more than a page")));
    }
    let mut listed = BTreeMap::new();
    for (key, etag, _) in page.objects {
        let number = shared.history.write_of(&key, &etag)?;
        listed.insert(key, number);
    }
    Ok(Ok(listed))
}
