//! What happens to the bytes of a response body.
//!
//! Promises: a compared body is compared to its last byte, and one that is too long or too short is an error.
//! Refuses to know: how bytes arrive.

use std::time::Duration;

use super::head::Head;
use super::{ClientError, Response};
use crate::content::Content;
use crate::limits::ERROR_BODY_KEPT_BYTES;

/// Consecutive pieces of contents that together make a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Content, offset in it, length in bytes.
    pub pieces: Vec<(Content, u64, u64)>,
}

impl Expected {
    /// One content from `offset` on.
    pub fn range(content: Content, offset: u64, len: u64) -> Expected {
        Expected { pieces: vec![(content, offset, len)] }
    }

    /// Length of the whole body.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|(_, _, len)| len).sum()
    }

    /// Whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Compares `bytes`, which stand at `at` in the body.
    fn check(&self, at: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let (mut piece_start, mut at, mut rest) = (0, at, bytes);
        for (content, offset, len) in &self.pieces {
            let piece_end = piece_start + len;
            if at < piece_end && !rest.is_empty() {
                let take = usize::try_from(piece_end - at).unwrap_or(usize::MAX).min(rest.len());
                let inner = at - piece_start;
                if let Some(found) = content.first_difference(offset + inner, &rest[..take]) {
                    return Err(ClientError::WrongBytes { at: piece_start + (found - offset) });
                }
                at += take as u64;
                rest = &rest[take..];
            }
            piece_start = piece_end;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(ClientError::WrongLength { expected: self.len(), found: at + rest.len() as u64 })
        }
    }
}

/// What to do with a response body. Bodies of errors are kept for the report in any case.
pub enum BodySink<'a> {
    /// Count the bytes only.
    Count,
    /// Gather them in the response.
    Keep,
    /// Compare every byte.
    Compare(&'a Expected),
}

pub(super) struct SinkState<'s, 'e> {
    sink: &'s mut BodySink<'e>,
    is_error: bool,
    received_bytes: u64,
    kept: Vec<u8>,
}

impl<'s, 'e> SinkState<'s, 'e> {
    pub(super) fn new(sink: &'s mut BodySink<'e>, status: u16) -> SinkState<'s, 'e> {
        SinkState { sink, is_error: status >= 300, received_bytes: 0, kept: Vec::new() }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.is_error {
            let room = ERROR_BODY_KEPT_BYTES.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        } else {
            match self.sink {
                BodySink::Count => {}
                BodySink::Keep => self.kept.extend_from_slice(bytes),
                BodySink::Compare(expected) => expected.check(self.received_bytes, bytes)?,
            }
        }
        self.received_bytes += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn into_response(self, head: Head, ttfb: Duration, total: Duration) -> Result<Response, ClientError> {
        if let (BodySink::Compare(expected), false) = (&*self.sink, self.is_error)
            && expected.len() != self.received_bytes
        {
            return Err(ClientError::WrongLength { expected: expected.len(), found: self.received_bytes });
        }
        Ok(Response {
            status: head.status,
            content_length: head.content_length,
            etag: head.etag,
            version_id: head.version_id,
            received_bytes: self.received_bytes,
            body: self.kept,
            ttfb,
            total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Expected;
    use crate::client::ClientError;
    use crate::content::Content;

    #[test]
    fn a_body_of_two_pieces_is_compared_across_their_border() {
        let (a, b) = (Content::new(1), Content::new(2));
        let expected = Expected { pieces: vec![(a, 0, 10), (b, 5, 10)] };
        let mut body = a.bytes(10);
        body.extend_from_slice(&b.bytes(15)[5..]);
        for (at, end) in [(0, 20), (9, 11), (10, 20), (3, 3), (0, 10)] {
            assert!(expected.check(at as u64, &body[at..end]).is_ok(), "{at}..{end}");
        }
        body[12] ^= 4;
        assert!(matches!(expected.check(8, &body[8..]), Err(ClientError::WrongBytes { at: 12 })));
    }

    #[test]
    fn a_body_that_is_too_long_is_refused() {
        let expected = Expected::range(Content::new(1), 0, 4);
        assert!(matches!(
            expected.check(0, &Content::new(1).bytes(5)),
            Err(ClientError::WrongLength { expected: 4, found: 5 })
        ));
    }
}
