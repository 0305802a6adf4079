//! One connection of a load run and how it does each operation.
//!
//! Promises: an operation counts only if its answer was checked: status, length, every byte of a body, order of a list.
//! Refuses to know: limits and warm-up of the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Shared, Tally};
use crate::client::{Client, ClientError, Expected, PageRequest, Response};
use crate::content::{Content, Dice};
use crate::{Config, Operation, clock};

/// Ranges begin at multiples of this, as those of readers of Parquet and of block caches mostly do.
const RANGE_ALIGNMENT_BYTES: u64 = 4096;

/// One finished operation.
struct Done {
    total: Duration,
    ttfb: Duration,
    bytes: u64,
    entries: u64,
}

impl Done {
    fn of(response: &Response, bytes: u64) -> Done {
        Done { total: response.total, ttfb: response.ttfb, bytes, entries: 0 }
    }
}

pub(super) struct Worker {
    config: Arc<Config>,
    shared: Arc<Shared>,
    number: u32,
    client: Client,
    dice: Dice,
    body: Vec<u8>,
    list: ListPosition,
}

/// Where a walk over all keys stands.
#[derive(Default)]
struct ListPosition {
    token: Option<String>,
    last_key: String,
}

impl Worker {
    pub(super) fn new(config: Arc<Config>, shared: Arc<Shared>, number: u32) -> Worker {
        Worker {
            client: Client::new(&config.target),
            dice: Dice::new(config.seed ^ (u64::from(number) << 32)),
            body: vec![0; usize::try_from(config.size_bytes).unwrap_or(0)],
            list: ListPosition::default(),
            config,
            shared,
            number,
        }
    }

    pub(super) async fn work(mut self) -> Tally {
        let mut tally = Tally::default();
        while let Some(ticket) = self.shared.next_ticket() {
            let measured = self.shared.measuring.load(Ordering::Relaxed);
            match self.operate(self.config.operation, ticket).await {
                Ok(done) if measured => {
                    tally.latency.record(done.total);
                    tally.ttfb.record(done.ttfb);
                    tally.bytes += done.bytes;
                    tally.entries += done.entries;
                }
                Ok(_) => {}
                Err(error) => self.shared.failed(format!("{:?} number {ticket}: {error}", self.config.operation)),
            }
            self.shared.done.fetch_add(1, Ordering::Relaxed);
        }
        tally
    }

    async fn operate(&mut self, operation: Operation, ticket: u64) -> Result<Done, ClientError> {
        match operation {
            Operation::Put => self.put(&self.config.key(ticket)).await,
            Operation::Get => self.get().await,
            Operation::Ranged => self.ranged().await,
            Operation::Head => self.head().await,
            Operation::Delete => self.delete(&self.config.key(ticket)).await,
            Operation::List => self.list_page().await,
            Operation::Copy => self.copy(ticket).await,
            Operation::Multipart => self.multipart(ticket).await,
            Operation::Mixed => self.mixed().await,
        }
    }

    async fn put(&mut self, key: &str) -> Result<Done, ClientError> {
        Content::of_key(self.config.seed, key).fill(0, &mut self.body);
        let response = self.client.put(&self.config.path(key), &self.body).await?;
        if response.etag.as_deref().is_none_or(str::is_empty) {
            return Err(ClientError::Protocol("PutObject without an ETag"));
        }
        Ok(Done::of(&response, self.config.size_bytes))
    }

    fn random_key(&mut self) -> String {
        self.config.key(self.dice.below(self.config.objects))
    }

    async fn get(&mut self) -> Result<Done, ClientError> {
        let key = self.random_key();
        let expected = Expected::range(Content::of_key(self.config.seed, &key), 0, self.config.size_bytes);
        let response = self.client.get(&self.config.path(&key), &expected).await?;
        Ok(Done::of(&response, response.received_bytes))
    }

    async fn ranged(&mut self) -> Result<Done, ClientError> {
        let key = self.random_key();
        let room = self.config.object_bytes - self.config.size_bytes;
        let offset = self.dice.below(room / RANGE_ALIGNMENT_BYTES + 1) * RANGE_ALIGNMENT_BYTES;
        let expected = Expected::range(Content::of_key(self.config.seed, &key), offset, self.config.size_bytes);
        let response = self.client.get_range(&self.config.path(&key), offset, &expected).await?;
        Ok(Done::of(&response, response.received_bytes))
    }

    async fn head(&mut self) -> Result<Done, ClientError> {
        let key = self.random_key();
        let response = self.client.head(&self.config.path(&key)).await?;
        match response.content_length {
            Some(length) if length == self.config.size_bytes => Ok(Done::of(&response, 0)),
            found => Err(ClientError::WrongLength { expected: self.config.size_bytes, found: found.unwrap_or(0) }),
        }
    }

    async fn delete(&mut self, key: &str) -> Result<Done, ClientError> {
        let response = self.client.delete(&self.config.path(key)).await?;
        Ok(Done::of(&response, 0))
    }

    async fn list_page(&mut self) -> Result<Done, ClientError> {
        let token = self.list.token.take();
        let request = PageRequest {
            prefix: &self.config.prefix,
            delimiter: self.config.delimiter.as_deref(),
            token: token.as_deref(),
            max_keys: self.config.page_keys,
        };
        let (response, page) = self.client.list(&self.config.bucket, &request).await?;
        if token.is_none() {
            self.list.last_key.clear();
        }
        for (key, _, _) in &page.objects {
            if *key <= self.list.last_key {
                return Err(ClientError::Protocol("keys of a listing are out of order"));
            }
            self.list.last_key.clone_from(key);
        }
        let entries = (page.objects.len() + page.common_prefixes.len()) as u64;
        if entries == 0 && token.is_none() {
            return Err(ClientError::Protocol("nothing listed"));
        }
        self.list.token = page.next;
        Ok(Done { entries, ..Done::of(&response, response.received_bytes) })
    }

    async fn copy(&mut self, ticket: u64) -> Result<Done, ClientError> {
        let source = self.config.path(&self.config.key(0));
        let target = self.config.path(&format!("{}copies/{ticket:08}", self.config.prefix));
        let (response, _) = self.client.copy(&source, &target).await?;
        Ok(Done::of(&response, self.config.size_bytes))
    }

    async fn multipart(&mut self, ticket: u64) -> Result<Done, ClientError> {
        let began = clock::monotonic();
        let path = self.config.path(&self.config.key(ticket));
        let upload = self.client.create_upload(&path).await?;
        let etags = self.upload_parts(&path, &upload).await?;
        let (response, _) = self.client.complete_upload(&path, &upload, &etags).await?;
        let bytes = self.config.size_bytes * u64::from(self.config.parts);
        Ok(Done { total: clock::monotonic() - began, ..Done::of(&response, bytes) })
    }

    /// Sends the parts over several connections of their own.
    async fn upload_parts(&self, path: &str, upload: &str) -> Result<Vec<String>, ClientError> {
        let lanes = self.config.parallel_parts.min(self.config.parts);
        let mut tasks = JoinSet::new();
        for lane in 0..lanes {
            tasks.spawn(upload_lane(self.config.clone(), path.to_owned(), upload.to_owned(), lane, lanes));
        }
        let mut etags = vec![String::new(); self.config.parts as usize];
        while let Some(lane) = tasks.join_next().await {
            for (index, etag) in lane.map_err(|_| ClientError::Protocol("a part's task ended badly"))?? {
                etags[index as usize] = etag;
            }
        }
        Ok(etags)
    }

    async fn mixed(&mut self) -> Result<Done, ClientError> {
        match self.dice.below(100) {
            0..50 => self.get().await,
            50..75 => {
                let key = self.random_key();
                self.put(&key).await
            }
            75..90 => self.head().await,
            90..95 => {
                // A key of this connection alone, so that nobody reads it.
                let key = format!("{}~doomed/{}", self.config.prefix, self.number);
                self.put(&key).await?;
                self.delete(&key).await
            }
            _ => self.list_page().await,
        }
    }
}

/// Sends every `lanes`th part, from `lane` on.
async fn upload_lane(
    config: Arc<Config>,
    path: String,
    upload: String,
    lane: u32,
    lanes: u32,
) -> Result<Vec<(u32, String)>, ClientError> {
    let mut client = Client::new(&config.target);
    let mut body = vec![0; usize::try_from(config.size_bytes).unwrap_or(0)];
    let mut etags = Vec::new();
    for index in (lane..config.parts).step_by(lanes as usize) {
        Content::of_key(config.seed, &path).fill(u64::from(index) * config.size_bytes, &mut body);
        etags.push((index, client.upload_part(&path, &upload, index + 1, &body).await?));
    }
    Ok(etags)
}
