//! One keep-alive HTTP/1.1 connection with one request in flight.
//!
//! Promises: time to first byte is taken at the first byte of the response; a body is handed on while it arrives and never
//! gathered unless asked; after any error the next request opens a new connection.
//! Refuses to know: S3, signatures. TCP_NODELAY is set; acknowledgements are delayed as the kernel does by default, so a
//! server that leaves Nagle's algorithm on is seen to stall.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::body::{BodySink, SinkState};
use super::head::{self, Head};
use super::{ClientError, Response};
use crate::clock;
use crate::limits::{READ_BUFFER_BYTES, RESPONSE_HEAD_MAX_BYTES};

/// Bodies up to this size leave in one write together with the head.
const ONE_WRITE_MAX_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    address: String,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Connection {
    pub(super) fn new(address: String) -> Connection {
        Connection { address, stream: None, buffer: vec![0; READ_BUFFER_BYTES], start: 0, end: 0 }
    }

    /// Sends one request and reads its response; `head` ends with the empty line.
    pub(super) async fn exchange(
        &mut self,
        head: &[u8],
        body: &[u8],
        answer_has_body: bool,
        sink: &mut BodySink<'_>,
    ) -> Result<Response, ClientError> {
        let result = self.try_exchange(head, body, answer_has_body, sink).await;
        // A response before the end of the request leaves a stream that cannot be used again.
        if result.as_ref().map_or(true, |(_, reusable)| !reusable) {
            self.close();
        }
        result.map(|(response, _)| response)
    }

    pub(super) fn close(&mut self) {
        self.stream = None;
        (self.start, self.end) = (0, 0);
    }

    async fn try_exchange(
        &mut self,
        head: &[u8],
        body: &[u8],
        answer_has_body: bool,
        sink: &mut BodySink<'_>,
    ) -> Result<(Response, bool), ClientError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let began = clock::monotonic();
        let sent_whole = send(&mut stream, head, body).await;
        self.stream = Some(stream);
        let (head, first_byte) = match self.read_head().await {
            Ok(found) => found,
            // The reason why sending failed says more than the closed connection that followed.
            Err(error) => return Err(sent_whole.err().map_or(error, ClientError::Io)),
        };
        let mut state = SinkState::new(sink, head.status);
        let ended_by_close = self.read_body(&head, answer_has_body, &mut state).await?;
        let reusable = !head.close && !ended_by_close && sent_whole.unwrap_or(false);
        let total = clock::monotonic() - began;
        Ok((state.into_response(head, first_byte.saturating_sub(began), total)?, reusable))
    }

    async fn connect(&mut self) -> io::Result<TcpStream> {
        (self.start, self.end) = (0, 0);
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn read_head(&mut self) -> Result<(Head, Duration), ClientError> {
        let mut first_byte = None;
        loop {
            self.fill("before the response").await?;
            let seen = *first_byte.get_or_insert_with(clock::monotonic);
            while let Some((head, used)) = head::parse(&self.buffer[self.start..self.end])? {
                self.start += used;
                if head.status >= 200 {
                    return Ok((head, seen));
                }
            }
            if self.end - self.start > RESPONSE_HEAD_MAX_BYTES {
                return Err(ClientError::Protocol("response head too large"));
            }
        }
    }

    /// Whether the body ended by the close of the connection.
    async fn read_body(
        &mut self,
        head: &Head,
        has_body: bool,
        state: &mut SinkState<'_, '_>,
    ) -> Result<bool, ClientError> {
        if !has_body || matches!(head.status, 204 | 304) {
            return Ok(false);
        }
        if head.chunked {
            self.read_chunks(state).await?;
        } else if let Some(length) = head.content_length {
            self.read_exactly(length, state).await?;
        } else {
            self.read_to_close(state).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn read_chunks(&mut self, state: &mut SinkState<'_, '_>) -> Result<(), ClientError> {
        loop {
            match head::parse_chunk_line(&self.buffer[self.start..self.end])? {
                Some((size, used)) => {
                    self.start += used;
                    self.read_exactly(size, state).await?;
                    while self.end - self.start < 2 {
                        self.fill("in a chunk").await?;
                    }
                    self.start += 2;
                    if size == 0 {
                        return Ok(());
                    }
                }
                None => self.fill("in a chunk line").await?,
            }
        }
    }

    async fn read_exactly(&mut self, mut left: u64, state: &mut SinkState<'_, '_>) -> Result<(), ClientError> {
        while left > 0 {
            if self.start == self.end {
                self.fill("in the body").await?;
            }
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(self.end - self.start);
            state.take(&self.buffer[self.start..self.start + take])?;
            self.start += take;
            left -= take as u64;
        }
        Ok(())
    }

    async fn read_to_close(&mut self, state: &mut SinkState<'_, '_>) -> Result<(), ClientError> {
        loop {
            state.take(&self.buffer[self.start..self.end])?;
            self.start = self.end;
            match self.fill("").await {
                Ok(()) => {}
                Err(ClientError::Closed(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads at least one more byte.
    async fn fill(&mut self, place: &'static str) -> Result<(), ClientError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let stream = self.stream.as_mut().ok_or(ClientError::Closed(place))?;
        match stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(ClientError::Closed(place)),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

/// Whether all was sent; `false` means that the server answered first.
async fn send(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<bool> {
    if body.len() <= ONE_WRITE_MAX_BYTES {
        let mut both = Vec::with_capacity(head.len() + body.len());
        both.extend_from_slice(head);
        both.extend_from_slice(body);
        stream.write_all(&both).await?;
        return Ok(true);
    }
    let (reader, mut writer) = stream.split();
    let write = async {
        writer.write_all(head).await?;
        writer.write_all(body).await
    };
    tokio::select! {
        biased;
        written = write => written.map(|()| true),
        readable = reader.readable() => readable.map(|()| false),
    }
}
