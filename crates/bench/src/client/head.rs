//! The head of an HTTP/1.1 response.
//!
//! Promises: bytes from the network never panic; a head is taken only when it is complete.
//! Refuses to know: bodies, connections.

use std::str;

/// What the rest of the client needs of a response head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub content_length: Option<u64>,
    pub chunked: bool,
    pub close: bool,
    pub etag: Option<String>,
    pub version_id: Option<String>,
}

/// A complete head and the bytes it took, `None` if more bytes are needed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, &'static str> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = str::from_utf8(&bytes[..end]).map_err(|_| "response head is not text")?;
    let mut lines = text.split("\r\n");
    let mut head = parse_status_line(lines.next().unwrap_or_default()).ok_or("malformed status line")?;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("header line without a colon")?;
        head.take_header(name, value.trim())?;
    }
    Ok(Some((head, end + 4)))
}

fn parse_status_line(line: &str) -> Option<Head> {
    let mut words = line.split(' ');
    let version = words.next()?;
    let status = words.next()?.parse().ok()?;
    version.starts_with("HTTP/1.").then(|| Head { status, close: version == "HTTP/1.0", ..Head::default() })
}

impl Head {
    fn take_header(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        let is = |other| name.eq_ignore_ascii_case(other);
        if is("content-length") {
            self.content_length = Some(value.parse().map_err(|_| "content-length is not a number")?);
        } else if is("transfer-encoding") {
            self.chunked = value.eq_ignore_ascii_case("chunked");
        } else if is("connection") {
            self.close = value.eq_ignore_ascii_case("close");
        } else if is("etag") {
            self.etag = Some(value.to_owned());
        } else if is("x-amz-version-id") {
            self.version_id = Some(value.to_owned());
        }
        Ok(())
    }
}

/// The size in a chunk's first line and the bytes that line took, `None` if more bytes are needed.
pub(super) fn parse_chunk_line(bytes: &[u8]) -> Result<Option<(u64, usize)>, &'static str> {
    let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") else {
        return if bytes.len() > 64 { Err("endless chunk line") } else { Ok(None) };
    };
    let line = str::from_utf8(&bytes[..end]).map_err(|_| "chunk line is not text")?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    let size = u64::from_str_radix(digits, 16).map_err(|_| "chunk size is not a number")?;
    Ok(Some((size, end + 2)))
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_chunk_line};

    #[test]
    fn a_head_is_taken_only_when_it_is_complete() {
        let bytes =
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 12\r\nETag: \"x\"\r\nConnection: close\r\n\r\nbody";
        for cut in 0..bytes.len() - 4 {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        let (head, used) = parse(bytes).expect("well formed").expect("complete");
        assert_eq!((head.status, head.content_length, head.close, used), (206, Some(12), true, bytes.len() - 4));
        assert_eq!(head.etag.as_deref(), Some("\"x\""));
    }

    #[test]
    fn garbage_is_an_error_and_not_a_panic() {
        for bytes in [
            &b"\r\n\r\n"[..],
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 2x0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nfoo\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(parse_chunk_line(b"zz\r\n").is_err());
        assert_eq!(parse_chunk_line(b"1f;ext=1\r\nrest"), Ok(Some((31, 10))));
        assert_eq!(parse_chunk_line(b"1"), Ok(None));
    }
}
