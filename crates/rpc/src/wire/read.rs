//! Frames out of a stream of bytes.
//!
//! Promises: a frame is given whole and verified, or not at all; at most one frame is in the making, in 32 KiB and a block from the
//! pool, which is taken before a byte of a long payload is read. A long payload for which there is no memory is read past. A body above
//! [`SMALL_BYTES`] begins on a border of [`ALIGN`] bytes, as direct I/O asks for. Refuses to know: TLS, what frames are for.

use super::frame::{FrameError, HEADER_BYTES, Header};
use crate::Message;
use crate::limits::{MEMORY_PATIENCE, SMALL_BYTES};
use bytes::{Buf, Bytes, BytesMut};
use env::buf::{ALIGN, BufPool, PooledBuf};
use env::timers::Timers;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Small messages and headers are read into this, as many as come.
const BUFFER_BYTES: usize = 32 << 10;
/// Less room than this is not worth a read.
const WORTH_READING_BYTES: usize = 4 << 10;

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) payload: Payload,
}

/// What followed the header.
#[derive(Debug)]
pub(crate) enum Payload {
    Here(Message),
    /// There was no memory for it, and it is gone.
    NoRoom,
}

/// Why there is no next frame. The stream is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("the stream ends within a frame")]
    Truncated,
    #[error("a payload of {0} bytes from a peer that may not send so much")]
    TooLong(usize),
}

/// Where memory for long payloads comes from, and how much a payload may have.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) pool: BufPool,
    pub(crate) timers: Timers,
    pub(crate) longest_bytes: usize,
}

impl Room {
    async fn take(&self, bytes: usize) -> Option<PooledBuf> {
        if bytes > self.pool.budget_bytes() {
            return None;
        }
        match self.pool.try_take(bytes) {
            Some(block) => Some(block),
            None => self.timers.timeout(MEMORY_PATIENCE, self.pool.take(bytes)).await,
        }
    }
}

/// The reading side of a connection.
pub(crate) struct FrameReader<R> {
    io: R,
    buffer: BytesMut,
    room: Room,
    /// Counts reads, for whoever watches whether the peer is alive.
    progress: Arc<AtomicU64>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(io: R, room: Room) -> FrameReader<R> {
        FrameReader { io, buffer: BytesMut::with_capacity(BUFFER_BYTES), room, progress: Arc::default() }
    }

    /// A number that changes whenever bytes arrive.
    pub(crate) fn progress(&self) -> Arc<AtomicU64> {
        self.progress.clone()
    }

    /// The next frame; `None` at the end between two of them. Not to be called again after an error or when dropped half way.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        if !self.fill(HEADER_BYTES).await? {
            return Ok(None);
        }
        let header = Header::decode(self.buffer.first_chunk().ok_or(ReadError::Truncated)?)?;
        self.buffer.advance(HEADER_BYTES);
        let bytes = header.payload_bytes();
        if bytes > self.room.longest_bytes {
            return Err(ReadError::TooLong(bytes));
        }
        let message = match bytes > SMALL_BYTES {
            false => Some(self.small(&header).await?),
            true => self.long(&header).await?,
        };
        let Some(message) = message else { return Ok(Some(Frame { header, payload: Payload::NoRoom })) };
        header.verify(&message.head, &message.body)?;
        Ok(Some(Frame { header, payload: Payload::Here(message) }))
    }

    /// A payload in memory of its own, so that it does not hold the buffer.
    async fn small(&mut self, header: &Header) -> Result<Message, ReadError> {
        let bytes = header.payload_bytes();
        if !self.fill(bytes).await? {
            return Err(ReadError::Truncated);
        }
        let mut body = Bytes::copy_from_slice(&self.buffer[..bytes]);
        self.buffer.advance(bytes);
        let head = body.split_to(header.head_bytes as usize);
        Ok(Message { head, body })
    }

    async fn long(&mut self, header: &Header) -> Result<Option<Message>, ReadError> {
        let (head_bytes, bytes) = (header.head_bytes as usize, header.payload_bytes());
        // The head lies at the end of its own blocks, so that the body begins on a border.
        let body_at = head_bytes.next_multiple_of(ALIGN);
        let Some(mut block) = self.room.take(body_at + header.body_bytes as usize).await else {
            self.skip(bytes).await?;
            return Ok(None);
        };
        block.resize_zeroed(body_at - head_bytes);
        let here = bytes.min(self.buffer.len());
        block.extend_from_slice(&self.buffer[..here]);
        self.buffer.advance(here);
        let mut left = bytes - here;
        while left > 0 {
            let count = self.io.read(&mut block.spare_mut()[..left]).await?;
            self.arrived(count)?;
            block.advance(count);
            left -= count;
        }
        let mut head = block.freeze();
        let body = head.split_off(body_at);
        head.advance(body_at - head_bytes);
        Ok(Some(Message { head, body }))
    }

    async fn skip(&mut self, bytes: usize) -> Result<(), ReadError> {
        let mut left = bytes;
        loop {
            let here = left.min(self.buffer.len());
            self.buffer.advance(here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if !self.fill(1).await? {
                return Err(ReadError::Truncated);
            }
        }
    }

    /// Reads until so many bytes, at most a small message, are in the buffer; `false` at an end with nothing in it.
    async fn fill(&mut self, bytes: usize) -> Result<bool, ReadError> {
        while self.buffer.len() < bytes {
            if self.buffer.capacity() - self.buffer.len() < WORTH_READING_BYTES {
                self.buffer.reserve(BUFFER_BYTES - self.buffer.len());
            }
            let count = self.io.read_buf(&mut self.buffer).await?;
            if count == 0 && self.buffer.is_empty() {
                return Ok(false);
            }
            self.arrived(count)?;
        }
        Ok(true)
    }

    fn arrived(&self, count: usize) -> Result<(), ReadError> {
        if count == 0 {
            return Err(ReadError::Truncated);
        }
        self.progress.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
