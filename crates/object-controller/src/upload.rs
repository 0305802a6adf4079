//! The bytes of one content on their way to the disks: cut into extents, a bounded window of them in flight.
//!
//! Promises: never holds a buffer while it waits for another one, so that any number of uploads gets on with a budget of one
//! buffer; every address that was ever allotted is in the ledger, whatever happens to the future that writes.
//! Refuses to know: where the bytes come from, what they are committed as.

use crate::api::StoreError;
use crate::groups::{Extent, Groups, Placed, Requirement};
use crate::ledger::Ledger;
use crate::limits;
use crate::runs::{self, Address};
use bytes::Bytes;
use env::buf::{BufPool, PooledBuf};
use metadata::rows::{ContentBytes, Location};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use types::limits::{BLOCK_BYTES, CONTENT_MAX_BYTES, EXTENT_BYTES};
use types::{DiskId, GroupId};

/// Writes one content.
pub(crate) struct Upload {
    groups: Arc<Groups>,
    pool: BufPool,
    ledger: Arc<Ledger>,
    requirement: Requirement,
    /// The extent being filled; its payload begins behind the header's block.
    filling: Option<PooledBuf>,
    /// Bytes of the body, if the client said so: sizes the last buffer.
    expected_bytes: Option<u64>,
    taken_bytes: u64,
    window: Window,
}

impl Upload {
    /// Writes nothing yet.
    pub(crate) fn new(
        groups: Arc<Groups>,
        pool: BufPool,
        ledger: Arc<Ledger>,
        requirement: Requirement,
        expected_bytes: Option<u64>,
    ) -> Upload {
        let (filling, taken_bytes, window) = (None, 0, Window::default());
        Upload { groups, pool, ledger, requirement, filling, expected_bytes, taken_bytes, window }
    }

    /// Takes the next bytes in: one copy, into the buffer that goes to the disks.
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        if self.taken_bytes + bytes.len() as u64 > CONTENT_MAX_BYTES {
            return Err(StoreError::TooLarge);
        }
        while !bytes.is_empty() {
            let mut buf = match self.filling.take() {
                Some(buf) => self.with_room(buf).await,
                None => self.next_buffer().await?,
            };
            let piece = bytes.split_to(room_in(&buf).min(bytes.len()));
            buf.extend_from_slice(&piece);
            self.taken_bytes += piece.len() as u64;
            // The last one too is on its way to the disks while the digests of the body are being finished.
            if buf.len() == BLOCK_BYTES + EXTENT_BYTES || self.expected_bytes == Some(self.taken_bytes) {
                self.send(buf);
            } else {
                self.filling = Some(buf);
            }
        }
        Ok(())
    }

    /// Bytes it took in.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Waits for `future` while the window gets on. An append that failed for good ends the wait.
    pub(crate) async fn alongside<T>(&mut self, future: impl Future<Output = T>) -> Result<T, StoreError> {
        let mut future = std::pin::pin!(future);
        poll_fn(|context| {
            if let Err(error) = self.window.poll_all(context) {
                return Poll::Ready(Err(error));
            }
            future.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Durable on all replicas: everything that was taken. Says where it lies.
    pub(crate) async fn finish(mut self) -> Result<ContentBytes, StoreError> {
        if let Some(buf) = self.filling.take() {
            self.send(buf);
        }
        self.window.shrink_to(0).await?;
        Ok(self.window.content_bytes())
    }

    /// A buffer for the next extent. With extents in flight it is their buffers that are waited for.
    async fn next_buffer(&mut self) -> Result<PooledBuf, StoreError> {
        self.window.shrink_to(limits::UPLOAD_WINDOW_EXTENTS - 1).await?;
        let capacity = BLOCK_BYTES + self.next_payload_bytes();
        let buf = loop {
            if let Some(buf) = self.pool.try_take(capacity) {
                break buf;
            }
            match self.window.in_flight() {
                0 => break self.pool.take(capacity).await,
                some => self.window.shrink_to(some - 1).await?,
            }
        };
        Ok(begun(buf))
    }

    fn next_payload_bytes(&self) -> usize {
        let left = self.expected_bytes.map_or(u64::MAX, |all| all.saturating_sub(self.taken_bytes));
        if left == 0 { EXTENT_BYTES } else { left.min(EXTENT_BYTES as u64) as usize }
    }

    /// The buffer itself, or a full-sized one with its content where the client sends more than it announced.
    async fn with_room(&mut self, buf: PooledBuf) -> PooledBuf {
        if room_in(&buf) > 0 {
            return buf;
        }
        // Let go first: whoever holds one buffer must not wait for another.
        let taken = buf[BLOCK_BYTES..].to_vec();
        drop(buf);
        let mut larger = begun(self.pool.take(limits::FRAME_MAX_BYTES).await);
        larger.extend_from_slice(&taken);
        larger
    }

    fn send(&mut self, frame: PooledBuf) {
        let index = self.window.next_index();
        let extent = Extent { ledger: self.ledger.clone(), requirement: self.requirement, index, buf: frame };
        self.window.push(Box::pin(self.groups.clone().append(extent)));
    }
}

/// Payload bytes that still fit.
fn room_in(buf: &PooledBuf) -> usize {
    buf.capacity().min(BLOCK_BYTES + EXTENT_BYTES) - buf.len()
}

/// With room left for the header.
fn begun(mut buf: PooledBuf) -> PooledBuf {
    buf.resize_zeroed(BLOCK_BYTES);
    buf
}

type Append = Pin<Box<dyn Future<Output = Result<Placed, StoreError>> + Send>>;

/// Extents in flight, and where those lie that are durable.
#[derive(Default)]
struct Window {
    pending: Vec<(usize, Append)>,
    placed: Vec<Option<Address>>,
    disks: BTreeMap<GroupId, Vec<DiskId>>,
}

impl Window {
    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn next_index(&self) -> u32 {
        self.placed.len() as u32
    }

    fn push(&mut self, append: Append) {
        self.pending.push((self.placed.len(), append));
        self.placed.push(None);
    }

    /// Polls every append; the first that failed for good is the answer.
    fn poll_all(&mut self, context: &mut Context<'_>) -> Result<(), StoreError> {
        let mut at = 0;
        while at < self.pending.len() {
            let (index, append) = &mut self.pending[at];
            match append.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(placed)) => {
                    self.placed[*index] = Some(placed.address);
                    self.disks.entry(placed.address.group).or_insert(placed.disks);
                    drop(self.pending.swap_remove(at));
                }
            }
        }
        Ok(())
    }

    /// Waits until at most `count` are in flight.
    async fn shrink_to(&mut self, count: usize) -> Result<(), StoreError> {
        poll_fn(|context| match self.poll_all(context) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if self.pending.len() <= count => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    fn content_bytes(self) -> ContentBytes {
        let runs = runs::gather(self.placed.into_iter().flatten());
        let locations = self.disks.into_iter().map(|(group, disks)| Location { group, disks }).collect();
        ContentBytes::Extents { runs, locations }
    }
}
