//! The canonical request of S3's SigV4.
//!
//! Promises: the path is the decoded path encoded once, never normalised; so two spellings of one key have one signature and two
//! keys never share one.

use super::Head;
use crate::error::{S3Code, S3Error, S3Result};
use http::HeaderMap;
use std::borrow::Cow;

/// What a signature covers.
pub struct SignedParts<'a, 'h> {
    /// The head.
    pub head: &'a Head<'h>,
    /// Sorted names.
    pub signed_headers: &'a [&'h str],
    /// As sent.
    pub payload: &'a str,
}

impl SignedParts<'_, '_> {
    /// The canonical request; for a presigned URL without its signature.
    pub fn canonical_request(&self, presigned: bool) -> S3Result<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(self.head.method.as_bytes());
        out.push(b'\n');
        uri_encode(&mut out, self.head.path, true);
        out.push(b'\n');
        self.query(&mut out, presigned);
        out.push(b'\n');
        for name in self.signed_headers {
            header_line(&mut out, self.head.headers, name)?;
        }
        out.push(b'\n');
        for (i, name) in self.signed_headers.iter().enumerate() {
            if i > 0 {
                out.push(b';');
            }
            out.extend_from_slice(name.as_bytes());
        }
        out.push(b'\n');
        out.extend_from_slice(self.payload.as_bytes());
        Ok(out)
    }

    fn query(&self, out: &mut Vec<u8>, presigned: bool) {
        if self.head.query.is_empty() {
            return;
        }
        let mut pairs: Vec<(Encoded<'_>, Encoded<'_>)> = self
            .head
            .query
            .iter()
            .filter(|(n, _)| !(presigned && *n == "X-Amz-Signature"))
            .map(|(n, v)| (encoded(n), encoded(v)))
            .collect();
        pairs.sort_unstable();
        for (i, (name, value)) in pairs.iter().enumerate() {
            if i > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
}

/// Borrowed where nothing had to be encoded.
type Encoded<'a> = Cow<'a, [u8]>;

fn encoded(text: &str) -> Encoded<'_> {
    if text.bytes().all(is_unreserved) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    uri_encode(&mut out, text, false);
    Cow::Owned(out)
}

const fn is_unreserved(c: u8) -> bool {
    /// One look-up a byte: every key of every request passes here.
    const UNRESERVED: [bool; 256] = {
        let mut table = [false; 256];
        let mut c = 0;
        while c < 256 {
            table[c] = (c as u8).is_ascii_alphanumeric() || matches!(c as u8, b'-' | b'.' | b'_' | b'~');
            c += 1;
        }
        table
    };
    UNRESERVED[c as usize]
}

/// Percent-encodes all but the unreserved characters (and slashes if `keep_slash`), upper-case hex.
pub fn uri_encode(out: &mut Vec<u8>, text: &str, keep_slash: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &c) in bytes.iter().enumerate() {
        if is_unreserved(c) || (keep_slash && c == b'/') {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(&[b'%', HEX[usize::from(c >> 4)], HEX[usize::from(c & 15)]]);
        from = at + 1;
    }
    out.extend_from_slice(&bytes[from..]);
}

/// `name:value\n`: values trimmed, inner runs of blanks one space, several values joined by commas.
fn header_line(out: &mut Vec<u8>, headers: &HeaderMap, name: &str) -> S3Result<()> {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    let mut any = false;
    for value in headers.get_all(name) {
        if any {
            out.push(b',');
        }
        any = true;
        if memchr::memchr2(b' ', b'\t', value.as_bytes()).is_none() {
            out.extend_from_slice(value.as_bytes());
            continue;
        }
        let words = value.as_bytes().split(|c| *c == b' ' || *c == b'\t').filter(|w| !w.is_empty());
        for (i, word) in words.enumerate() {
            if i > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(word);
        }
    }
    if !any {
        return Err(S3Error::with(S3Code::SignatureDoesNotMatch, "A header that was signed is not in the request")
            .extra("HeaderNotSent", name));
    }
    out.push(b'\n');
    Ok(())
}
