//! The body of a request: unframed, bounded in time, and bound to every digest the client sent.
//!
//! Promises: bytes are handed on as they arrive, without copies; [`BodySource::finish`] answers a summary only if signature,
//! sizes and digests all held. Refuses to know: what the bytes are for.

mod checksum;
mod chunked;
#[cfg(test)]
mod chunked_tests;
mod digests;
mod expectations;
mod source;
#[cfg(test)]
mod tests;

pub use checksum::{declared_header, decode_checksum};
pub use expectations::{Expectations, Framing};
pub use source::{Leftover, Source};

use crate::auth::ChunkSigner;
use crate::error::{S3Code, S3Error, S3Result};
use bytes::{Bytes, BytesMut};
use chunked::ChunkDecoder;
use digests::Digests;
use md5_lanes::Lanes;
use object_controller::api::{BodyError, BodySource, BodySummary};
use std::future::Future;
use std::pin::Pin;
use types::{ChecksumAlgorithm, ChecksumKind};

/// The body of a request.
pub struct RequestBody {
    source: Source,
    input: Bytes,
    decoder: Option<ChunkDecoder>,
    expectations: Expectations,
    /// Set by the operation: which checksum to keep, whatever was sent.
    keep: Option<ChecksumAlgorithm>,
    ignore_header_checksum: bool,
    lanes: Option<Lanes>,
    digests: Option<Digests>,
    size: u64,
    ended: bool,
    failed: Option<S3Error>,
}

impl RequestBody {
    /// A body from `source`, bound to `expectations`. `signer` checks the chunk signatures of a signed streaming body.
    pub fn new(source: Source, expectations: Expectations, signer: Option<ChunkSigner>) -> Self {
        let decoder = match expectations.framing {
            Framing::Plain => None,
            Framing::AwsChunked { trailers } => Some(ChunkDecoder::new(signer, trailers)),
        };
        RequestBody {
            source,
            input: Bytes::new(),
            decoder,
            expectations,
            keep: None,
            ignore_header_checksum: false,
            lanes: None,
            digests: None,
            size: 0,
            ended: false,
            failed: None,
        }
    }

    /// No bytes.
    pub fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }

    /// These bytes, nothing expected of them (tests, form uploads).
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self::new(Source::bytes(bytes), Expectations::default(), None)
    }

    /// The same body, sharing `lanes` for its MD5. Before the first byte.
    pub fn sharing(self, lanes: Option<Lanes>) -> Self {
        RequestBody { lanes, ..self }
    }

    /// The lanes it shares.
    pub fn lanes(&self) -> Option<Lanes> {
        self.lanes.clone()
    }

    /// Bytes to come after unframing, if the client said so.
    pub fn declared_size(&self) -> Option<u64> {
        self.expectations.size
    }

    /// Neither `Content-Length` nor `Transfer-Encoding` was sent: an upload answers 411.
    pub fn length_missing(&self) -> bool {
        self.expectations.length_missing
    }

    /// The checksum algorithm the client sent a value of, announced in a trailer, or named for the SDK.
    pub fn declared_checksum(&self) -> Option<ChecksumAlgorithm> {
        self.expectations.checksum.as_ref().ok().and_then(|c| c.algorithm())
    }

    /// Errors that the head of the request already shows: malformed digests, too large, unknown algorithms.
    pub fn check(&self) -> S3Result<()> {
        self.expectations.check(self.ignore_header_checksum)
    }

    /// Keeps a checksum by `algorithm` in the summary, instead of the client's or the default (CRC64NVME). Before the first byte.
    pub fn keep_checksum(&mut self, algorithm: ChecksumAlgorithm) {
        self.keep = Some(algorithm);
    }

    /// `x-amz-checksum-*` headers speak of the object, not of this body (CompleteMultipartUpload). Before the first byte.
    pub fn checksum_headers_name_the_object(&mut self) {
        self.ignore_header_checksum = true;
    }

    /// Reads all of a small body (an XML or JSON document) and verifies it as an upload would be.
    pub async fn read_all(&mut self, limit: usize) -> S3Result<Bytes> {
        if self.expectations.size.is_some_and(|s| s > limit as u64) {
            return Err(S3Error::new(S3Code::MaxMessageLengthExceeded));
        }
        self.begin(false)?;
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(piece) = self.pull().await? {
            if self.size > limit as u64 {
                return Err(S3Error::new(S3Code::MaxMessageLengthExceeded));
            }
            if first.is_empty() {
                first = piece;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&piece);
            }
        }
        self.verify()?;
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    /// Takes the raw source out, for a body whose framing is another (POST forms). Only before the first byte; a body bound by
    /// digests or chunk framing cannot be taken out of them.
    pub fn into_source(mut self) -> S3Result<Source> {
        if self.expectations.framing != Framing::Plain || self.expectations.sha256.is_some() {
            return Err(S3Error::with(S3Code::InvalidRequest, "The payload mode does not fit a form"));
        }
        if let Some(e) = self.expectations.size_error() {
            return Err(e.clone());
        }
        Ok(std::mem::replace(&mut self.source, Source::bytes(Bytes::new())))
    }

    fn begin(&mut self, upload: bool) -> S3Result<()> {
        if self.digests.is_none() {
            self.check()?;
            let (keep, ignore) = (self.keep, self.ignore_header_checksum);
            self.digests = Some(Digests::new(&self.expectations, keep, ignore, upload, self.lanes.as_ref()));
        }
        Ok(())
    }

    /// The next unframed bytes, counted and digested.
    async fn pull(&mut self) -> S3Result<Option<Bytes>> {
        loop {
            // Before a piece is taken, so that none is lost if this wait is dropped.
            if let Some(d) = &mut self.digests {
                d.ready().await;
            }
            if let Some(piece) = self.take_piece()? {
                self.size += piece.len() as u64;
                if self.expectations.size.is_some_and(|s| self.size > s) {
                    return Err(S3Error::new(S3Code::IncompleteBody));
                }
                if self.size > self.expectations.size_range.1 {
                    return Err(self.expectations.too_large(self.size));
                }
                if let Some(d) = &mut self.digests {
                    d.update(&piece);
                }
                return Ok(Some(piece));
            }
            match self.source.next().await? {
                Some(bytes) => self.input = bytes,
                None => {
                    if let Some(d) = &mut self.digests {
                        d.settle().await;
                    }
                    self.ended = true;
                    return Ok(None);
                }
            }
        }
    }

    /// Data out of what has arrived, `None` if more must arrive.
    fn take_piece(&mut self) -> S3Result<Option<Bytes>> {
        match &mut self.decoder {
            None if self.input.is_empty() => Ok(None),
            None => Ok(Some(std::mem::take(&mut self.input))),
            Some(decoder) => decoder.decode(&mut self.input),
        }
    }

    fn verify(&mut self) -> S3Result<BodySummary> {
        if !self.ended {
            return Err(S3Error::with(S3Code::InternalError, "the body was not read to its end"));
        }
        let trailers = match &mut self.decoder {
            Some(d) => d.finish()?,
            None => Vec::new(),
        };
        if self.expectations.size.is_some_and(|s| s != self.size) {
            return Err(S3Error::new(S3Code::IncompleteBody));
        }
        if self.size < self.expectations.size_range.0 {
            return Err(S3Error::new(S3Code::EntityTooSmall)
                .extra("ProposedSize", self.size.to_string())
                .extra("MinSizeAllowed", self.expectations.size_range.0.to_string()));
        }
        let Some(digests) = self.digests.take() else {
            return Err(S3Error::with(S3Code::InternalError, "the body was never begun"));
        };
        let done =
            digests.finish().ok_or_else(|| S3Error::with(S3Code::InternalError, "the digests are not settled"))?;
        done.verify(&self.expectations, self.ignore_header_checksum, &trailers)?;
        Ok(BodySummary { size: self.size, md5: done.md5(), checksum: done.kept(ChecksumKind::FullObject) })
    }

    fn remember<T>(&mut self, result: S3Result<T>) -> Result<T, BodyError> {
        result.map_err(|e| {
            self.failed = Some(e.clone());
            e.into()
        })
    }

    /// The error that ended this body, with its details, which [`BodyError`] cannot carry.
    pub fn failure(&self) -> Option<&S3Error> {
        self.failed.as_ref()
    }
}

impl BodySource for RequestBody {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send + '_>> {
        Box::pin(async move {
            let result = match self.begin(true) {
                Ok(()) => self.pull().await,
                Err(e) => Err(e),
            };
            self.remember(result)
        })
    }

    fn finish(&mut self) -> Result<BodySummary, BodyError> {
        let result = match &self.failed {
            Some(e) => Err(e.clone()),
            None => self.verify(),
        };
        self.remember(result)
    }
}
