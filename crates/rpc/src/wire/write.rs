//! Frames into a stream of bytes.
//!
//! Promises: small messages leave together in one write, at the latest at [`FrameWriter::flush`]; long ones are not copied here.
//! Refuses to know: TLS, what frames are for.

use super::frame::{Header, Kind};
use crate::limits::{CORK_BYTES, SMALL_BYTES};
use crate::{Message, Service};
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// The writing side of a connection. A write that failed or was dropped half way ends its use.
pub(crate) struct FrameWriter<W> {
    io: W,
    /// What was not written yet.
    cork: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(crate) fn new(io: W) -> FrameWriter<W> {
        FrameWriter { io, cork: Vec::with_capacity(CORK_BYTES + SMALL_BYTES) }
    }

    pub(crate) async fn write(&mut self, header: &Header, message: &Message) -> io::Result<()> {
        self.cork.extend_from_slice(&header.encode());
        for part in [&message.head, &message.body] {
            if part.len() > SMALL_BYTES {
                self.push().await?;
                self.io.write_all(part).await?;
            } else {
                self.cork.extend_from_slice(part);
            }
        }
        if self.cork.len() >= CORK_BYTES {
            self.push().await?;
        }
        Ok(())
    }

    /// Asks whether the other side is there, at once.
    pub(crate) async fn ping(&mut self) -> io::Result<()> {
        let nothing = Message::default();
        self.write(&Header::of(Kind::Ping, Service(0), 0, 0, &nothing), &nothing).await?;
        self.flush().await
    }

    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.push().await?;
        self.io.flush().await
    }

    async fn push(&mut self) -> io::Result<()> {
        self.io.write_all(&self.cork).await?;
        self.cork.clear();
        Ok(())
    }
}
