//! What clients saw of each key, gathered while they work and judged at the end.
//!
//! Promises: every body is known by the digest of exactly one write; a body that is nobody's is a broken promise at once.
//! Refuses to know: who asked and why.

use super::linear::{self, Action, Operation, Verdict};
use crate::BenchError;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps of the search for one key's order before it is given up: a few seconds.
const SEARCH_STEPS: u64 = 20_000_000;

/// All keys of a run.
#[derive(Default)]
pub(super) struct History {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    keys: BTreeMap<String, Vec<Operation>>,
    /// ETag of each write.
    writes: BTreeMap<String, u64>,
}

/// ETag of a body, with its quotes.
pub(super) fn etag_of(body: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Md5::digest(body)))
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a write is sent: these bytes are its.
    pub(super) fn announce(&self, number: u64, etag: &str) {
        self.lock().writes.insert(etag.to_owned(), number);
    }

    /// Which write has that ETag.
    pub(super) fn write_of(&self, key: &str, etag: &str) -> Result<u64, BenchError> {
        let found = self.lock().writes.get(etag).copied();
        found.ok_or_else(|| BenchError::Broken(format!("{key}: ETag {etag} belongs to nothing that was ever written")))
    }

    /// Notes an operation.
    pub(super) fn note(&self, key: &str, operation: Operation) {
        let mut inner = self.lock();
        match inner.keys.get_mut(key) {
            Some(operations) => operations.push(operation),
            None => drop(inner.keys.insert(key.to_owned(), vec![operation])),
        }
    }

    /// Notes that everything of that prefix was listed: of each key that anybody ever touched what the list said.
    pub(super) fn note_list(&self, prefix: &str, called: u64, returned: u64, listed: &BTreeMap<String, u64>) {
        let mut inner = self.lock();
        let of_prefix = inner.keys.iter_mut().filter(|(key, _)| key.starts_with(prefix));
        for (key, operations) in of_prefix {
            let action = Action::Read(listed.get(key).copied());
            operations.push(Operation { called, returned, action, verdict: Verdict::Done });
        }
    }

    /// Keys that anybody touched.
    pub(super) fn keys(&self) -> Vec<String> {
        self.lock().keys.keys().cloned().collect()
    }

    /// Looks for the order of each key. Answers operations and keys.
    pub(super) fn judge(&self) -> Result<(u64, u64), BenchError> {
        let inner = self.lock();
        let mut count = 0;
        for (key, operations) in &inner.keys {
            count += operations.len() as u64;
            linear::check(operations, SEARCH_STEPS)
                .map_err(|why| BenchError::Broken(format!("{key} has no linear history: {why}")))?;
        }
        Ok((count, inner.keys.len() as u64))
    }
}
