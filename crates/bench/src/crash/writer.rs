//! One client of a crash run: random mutations on keys of its own, each remembered.
//!
//! Promises: the model is changed only by an answer, or by the lack of one; an answer that should not come ends the run.
//! Refuses to know: when the server will be killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::model::{KeyState, Object};
use crate::BenchError;
use crate::client::{Client, ClientError, Target};
use crate::content::{Content, Dice};

/// Keys of one writer: few, so that overwrites and deletes are frequent.
const KEYS: u64 = 24;
/// Smallest part that is not the last.
const PART_BYTES: u64 = 5 << 20;

/// What a writer did in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub acknowledged: u64,
    pub unknown: u64,
}

impl Counters {
    pub(super) fn add(&mut self, other: &Counters) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
    }
}

/// A version of a key that a PUT made.
pub(super) struct Version {
    pub key: String,
    pub id: String,
    pub object: Object,
}

/// Versions a writer keeps before it deletes some: few, for each is read after each kill.
const OLD_VERSIONS_MAX: usize = 12;

pub(super) struct Writer {
    number: u32,
    dice: Dice,
    pub keys: BTreeMap<String, KeyState>,
    /// Versions that were certainly followed by another version of their key.
    pub old: Vec<Version>,
    /// Versions of our last acknowledged PUT of a key.
    newest: BTreeMap<String, Version>,
}

impl Writer {
    pub(super) fn new(number: u32, seed: u64) -> Writer {
        let dice = Dice::new(seed ^ (u64::from(number + 1) << 40));
        Writer { number, dice, keys: BTreeMap::new(), old: Vec::new(), newest: BTreeMap::new() }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Works until an operation gets no answer, which is how a kill is seen.
    pub(super) async fn work(
        &mut self,
        target: &Target,
        bucket: &str,
        stop: &AtomicBool,
    ) -> Result<Counters, BenchError> {
        let mut client = Client::new(target);
        let mut counters = Counters::default();
        while !stop.load(Ordering::Relaxed) {
            let key = format!("w{:02}/k{:03}", self.number, self.dice.below(KEYS));
            match self.operate(&mut client, bucket, &key).await {
                Ok(mutated) => counters.acknowledged += u64::from(mutated),
                Err(error) if error.leaves_outcome_unknown() && error.status().is_none() => {
                    counters.unknown += 1;
                    break;
                }
                Err(error) => return Err(BenchError::Broken(format!("{key}: {error}"))),
            }
        }
        Ok(counters)
    }

    async fn operate(&mut self, client: &mut Client, bucket: &str, key: &str) -> Result<bool, ClientError> {
        let path = format!("/{bucket}/{key}");
        if self.old.len() > OLD_VERSIONS_MAX {
            return self.delete_version(client, bucket).await.map(|()| true);
        }
        match self.dice.below(100) {
            0..40 => self.put(client, &path, key, 1, 16 << 10).await?,
            40..55 => self.put(client, &path, key, 16 << 10, 300 << 10).await?,
            55..62 => self.put(client, &path, key, 1 << 20, 3 << 20).await?,
            62..72 => self.delete(client, &path, key).await?,
            72..82 => return self.copy(client, bucket, &path, key).await,
            82..87 => self.multipart(client, &path, key).await?,
            _ => {
                self.read(client, &path, key).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes the outcome of a mutation that leads to `state`.
    fn note<T>(&mut self, key: &str, state: Option<Object>, result: Result<T, ClientError>) -> Result<T, ClientError> {
        let known = self.keys.entry(key.to_owned()).or_default();
        match &result {
            Ok(_) => {
                known.acknowledged(state);
                self.old.extend(self.newest.remove(key));
            }
            Err(error) if error.leaves_outcome_unknown() => known.unknown(state),
            Err(_) => {}
        }
        result
    }

    async fn put(&mut self, client: &mut Client, path: &str, key: &str, from: u64, to: u64) -> Result<(), ClientError> {
        let len = from + self.dice.below(to - from);
        let (object, bytes) = Object::plain(Content::new(self.dice.roll()), len);
        let result = client.put(path, &bytes).await;
        let sent_etag = object.etag.clone();
        let response = self.note(key, Some(object.clone()), result)?;
        // Only a bucket with versions names them.
        if let Some(id) = response.version_id {
            self.newest.insert(key.to_owned(), Version { key: key.to_owned(), id, object });
        }
        if response.etag == sent_etag {
            Ok(())
        } else {
            Err(ClientError::Protocol("PUT answered with the ETag of other bytes"))
        }
    }

    async fn delete(&mut self, client: &mut Client, path: &str, key: &str) -> Result<(), ClientError> {
        let result = client.delete(path).await;
        self.note(key, None, result).map(|_| ())
    }

    /// Deletes an old version for good. Without an answer nothing is known of it, so it is forgotten first.
    async fn delete_version(&mut self, client: &mut Client, bucket: &str) -> Result<(), ClientError> {
        let at = usize::try_from(self.dice.below(self.old.len() as u64)).unwrap_or(0);
        let Version { key, id, .. } = self.old.swap_remove(at);
        client.delete_version(&format!("/{bucket}/{key}"), &id).await.map(drop)
    }

    /// Copies another key of ours, or the key onto itself's neighbour; nothing if there is no certain source.
    async fn copy(&mut self, client: &mut Client, bucket: &str, path: &str, key: &str) -> Result<bool, ClientError> {
        let source = format!("w{:02}/k{:03}", self.number, self.dice.below(KEYS));
        let state = self.keys.get(&source).and_then(KeyState::certain).cloned().flatten();
        // A copy onto itself without a change is refused by S3.
        let Some(object) = state.filter(|_| source != key) else { return Ok(false) };
        let result = client.copy(&format!("/{bucket}/{source}"), path).await;
        self.note(key, Some(object.copied()), result)?;
        Ok(true)
    }

    async fn multipart(&mut self, client: &mut Client, path: &str, key: &str) -> Result<(), ClientError> {
        let parts = [
            (Content::new(self.dice.roll()), PART_BYTES),
            (Content::new(self.dice.roll()), 1 + self.dice.below(1 << 20)),
        ];
        let upload = client.create_upload(path).await?;
        let mut etags = Vec::new();
        for (index, (content, len)) in parts.iter().enumerate() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            etags.push(client.upload_part(path, &upload, number, &content.bytes(*len as usize)).await?);
        }
        // Some uploads are given up, some are left for the verifier to find.
        match self.dice.below(8) {
            0 => return client.abort_upload(path, &upload).await,
            1 => return Ok(()),
            _ => {}
        }
        let result = client.complete_upload(path, &upload, &etags).await;
        self.note(key, Some(Object::of_parts(&parts)), result).map(|_| ())
    }

    async fn read(&mut self, client: &mut Client, path: &str, key: &str) -> Result<(), ClientError> {
        match self.keys.get(key).and_then(KeyState::certain) {
            Some(Some(object)) => client.get(path, &object.expected).await.map(|_| ()),
            Some(None) => match client.head(path).await {
                Err(error) if error.status() == Some(404) => Ok(()),
                Ok(_) => Err(ClientError::Status {
                    status: 200,
                    code: "Present".into(),
                    message: "a deleted object is visible".into(),
                }),
                Err(error) => Err(error),
            },
            None => Ok(()),
        }
    }
}
