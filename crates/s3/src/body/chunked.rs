//! The aws-chunked framing, decoded as it arrives.
//!
//! Promises: data is handed on as slices of what came in, a chunk is never gathered; whatever the split of the input, the same
//! bytes give the same result; a signature is checked at its chunk's end, so the caller must not commit before
//! [`ChunkDecoder::finish`]. Memory is one framing line and the trailers.

use crate::auth::ChunkSigner;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use bytes::{Buf, Bytes};

enum State {
    /// In a line `size[;chunk-signature=…]`.
    Size,
    /// In a chunk's data.
    Data(u64),
    /// In the CRLF after a chunk's data.
    DataEnd,
    /// After the last chunk: trailers, one a line, ended by an empty line.
    Trailers,
    /// Nothing may follow.
    End,
}

/// Decodes one body.
pub struct ChunkDecoder {
    state: State,
    signer: Option<ChunkSigner>,
    trailers_allowed: bool,
    /// A line that has not ended yet.
    line: Vec<u8>,
    trailers: Vec<(String, String)>,
    trailer_bytes: usize,
    /// Size of the data chunk before.
    last_size: Option<u64>,
    signature: [u8; 64],
}

fn malformed(why: &'static str) -> S3Error {
    S3Error::with(S3Code::InvalidRequest, why)
}

fn incomplete() -> S3Error {
    S3Error::new(S3Code::IncompleteBody)
}

impl ChunkDecoder {
    /// A decoder; `signer` if every chunk is signed.
    pub fn new(signer: Option<ChunkSigner>, trailers_allowed: bool) -> Self {
        ChunkDecoder {
            state: State::Size,
            signer,
            trailers_allowed,
            line: Vec::new(),
            trailers: Vec::new(),
            trailer_bytes: 0,
            last_size: None,
            signature: [0; 64],
        }
    }

    /// The next data in `input`, consuming what it used; `None` once all of `input` is used up.
    pub fn decode(&mut self, input: &mut Bytes) -> S3Result<Option<Bytes>> {
        loop {
            match self.state {
                State::Data(left) => {
                    if let Some(data) = self.take_data(left, input) {
                        return Ok(Some(data));
                    }
                    if !matches!(self.state, State::DataEnd) {
                        return Ok(None);
                    }
                }
                State::Size => match self.take_line(input, limits::CHUNK_LINE_MAX_BYTES)? {
                    Some(line) => self.begin_chunk(&line)?,
                    None => return Ok(None),
                },
                State::DataEnd => match self.take_line(input, 0)? {
                    Some(_) => self.end_chunk()?,
                    None => return Ok(None),
                },
                State::Trailers => {
                    let room = limits::TRAILERS_MAX_BYTES - self.trailer_bytes;
                    match self.take_line(input, room)? {
                        Some(line) => self.take_trailer(&line)?,
                        None => return Ok(None),
                    }
                }
                State::End if input.is_empty() => return Ok(None),
                State::End => return Err(malformed("There is data after the last chunk")),
            }
        }
    }

    /// To be called when no more input comes; answers the trailers.
    pub fn finish(&mut self) -> S3Result<Vec<(String, String)>> {
        match self.state {
            State::End => {}
            // The empty line after the trailers is often left out.
            State::Trailers if self.line.is_empty() => {}
            _ => return Err(incomplete()),
        }
        self.state = State::End;
        if self.trailers_allowed {
            self.check_trailer_signature()?;
        }
        Ok(std::mem::take(&mut self.trailers))
    }

    fn take_data(&mut self, left: u64, input: &mut Bytes) -> Option<Bytes> {
        if left == 0 {
            self.state = State::DataEnd;
            return None;
        }
        if input.is_empty() {
            return None;
        }
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let data = input.split_to(n);
        self.state = State::Data(left - n as u64);
        if let Some(s) = &mut self.signer {
            s.update(&data);
        }
        Some(data)
    }

    /// A line without its CRLF, if it ended within `input`. At most `max` bytes.
    fn take_line(&mut self, input: &mut Bytes, max: usize) -> S3Result<Option<Vec<u8>>> {
        let end = memchr::memchr(b'\n', input);
        let take = end.map_or(input.len(), |i| i + 1);
        if self.line.len() + take > max + 2 {
            return Err(malformed("A line of the chunked body is too long or lacks its CRLF"));
        }
        self.line.extend_from_slice(&input[..take]);
        input.advance(take);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop();
        if line.pop() != Some(b'\r') || line.contains(&b'\r') {
            return Err(malformed("A line of the chunked body lacks its CRLF"));
        }
        Ok(Some(line))
    }

    fn begin_chunk(&mut self, line: &[u8]) -> S3Result<()> {
        let (size, extension) = match memchr::memchr(b';', line) {
            Some(i) => (&line[..i], Some(&line[i + 1..])),
            None => (line, None),
        };
        let size = parse_size(size)?;
        self.take_signature(extension)?;
        if size > 0 {
            if self.last_size.is_some_and(|s| s < limits::CHUNK_MIN_BYTES) {
                return Err(S3Error::new(S3Code::InvalidChunkSizeError));
            }
            self.last_size = Some(size);
            self.state = State::Data(size);
            return Ok(());
        }
        self.check_chunk_signature()?;
        self.state = State::Trailers;
        Ok(())
    }

    fn take_signature(&mut self, extension: Option<&[u8]>) -> S3Result<()> {
        match (&self.signer, extension) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(malformed("Chunk extensions are not allowed here")),
            (Some(_), None) => Err(malformed("A chunk lacks its signature")),
            (Some(_), Some(e)) => {
                let signature = e.strip_prefix(b"chunk-signature=").and_then(|s| s.try_into().ok());
                self.signature = signature.ok_or_else(|| malformed("A chunk signature is malformed"))?;
                Ok(())
            }
        }
    }

    fn end_chunk(&mut self) -> S3Result<()> {
        self.check_chunk_signature()?;
        self.state = State::Size;
        Ok(())
    }

    fn check_chunk_signature(&mut self) -> S3Result<()> {
        let good = self.signer.as_mut().is_none_or(|s| s.verify_chunk(&self.signature));
        if good { Ok(()) } else { Err(S3Error::new(S3Code::SignatureDoesNotMatch)) }
    }

    fn take_trailer(&mut self, line: &[u8]) -> S3Result<()> {
        if line.is_empty() {
            self.state = State::End;
            return Ok(());
        }
        if !self.trailers_allowed || self.trailers.len() >= limits::TRAILERS_MAX {
            return Err(malformed("Trailers are not allowed here"));
        }
        self.trailer_bytes += line.len() + 2;
        let bad = || S3Error::new(S3Code::MalformedTrailerError);
        let text = std::str::from_utf8(line).map_err(|_| bad())?;
        let (name, value) = text.split_once(':').ok_or_else(bad)?;
        if name.is_empty() || name.trim() != name {
            return Err(bad());
        }
        self.trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        Ok(())
    }

    /// The signature is over the trailers before it, in the order sent.
    fn check_trailer_signature(&mut self) -> S3Result<()> {
        let Some(signer) = &mut self.signer else { return Ok(()) };
        let mismatch = || S3Error::new(S3Code::SignatureDoesNotMatch);
        let (last, signed) = self.trailers.split_last().ok_or_else(mismatch)?;
        let given: &[u8; 64] = last.1.as_bytes().try_into().map_err(|_| mismatch())?;
        if last.0 != "x-amz-trailer-signature" || !signer.verify_trailers(signed, given) {
            return Err(mismatch());
        }
        Ok(())
    }
}

fn parse_size(digits: &[u8]) -> S3Result<u64> {
    let bad = || malformed("A chunk size is malformed");
    if digits.is_empty() || digits.len() > limits::CHUNK_SIZE_DIGITS_MAX {
        return Err(bad());
    }
    digits.iter().try_fold(0u64, |n, c| {
        let digit = char::from(*c).to_digit(16).ok_or_else(bad)?;
        Ok(n << 4 | u64::from(digit))
    })
}
