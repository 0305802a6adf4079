//! Watches the framing of a connection's requests, before an HTTP parser sees a byte.
//!
//! Parsers serve some requests that two of them may understand differently (both lengths at once, bare line feeds, folded
//! headers, chunk extensions), which is how requests are smuggled past proxies. This machine knows just enough of RFC 9112 to
//! find each request's end, and at the first ambiguity it replaces one byte by NUL and lets nothing more through: the parser
//! behind it then refuses that very request with 400, in order, after the answers to those before it.
//!
//! Promises: a request whose framing is ambiguous never completes. Refuses to know: I/O, methods, paths.

pub mod limits;

/// Where in the stream we are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the request line.
    RequestLine,
    /// In the header lines.
    Headers,
    /// Bytes of a body of known length.
    Fixed(u64),
    /// In a chunk-size line.
    ChunkSize,
    /// Bytes of a chunk.
    Chunk(u64),
    /// In the CRLF after a chunk.
    ChunkEnd,
    /// In the trailers after the last chunk.
    Trailers,
    /// Nothing more gets through.
    Poisoned,
}

/// The machine for one connection.
pub struct Guard {
    state: State,
    line: Vec<u8>,
    head_bytes: usize,
    empty_lines: u32,
    http_1_0: bool,
    content_length: Option<u64>,
    chunked: bool,
    violated_body: bool,
}

/// The framing is ambiguous or out of bounds.
struct Violation;

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

impl Guard {
    /// At the beginning of a connection.
    pub fn new() -> Self {
        Guard {
            state: State::RequestLine,
            line: Vec::new(),
            head_bytes: 0,
            empty_lines: 0,
            http_1_0: false,
            content_length: None,
            chunked: false,
            violated_body: false,
        }
    }

    /// Whether a violation was found.
    pub fn is_poisoned(&self) -> bool {
        self.state == State::Poisoned
    }

    /// Whether a violation was found in a body, so that the parser has taken that request's head already.
    pub fn has_violated_body(&self) -> bool {
        self.violated_body
    }

    /// Whether a head has begun and not yet ended.
    pub fn is_in_head(&self) -> bool {
        self.state == State::Headers || self.state == State::RequestLine && self.head_bytes > 0
    }

    /// Looks at the next bytes; answers how many of them may be passed on. On a violation the last of them is now NUL.
    pub fn scan(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Poisoned => return at,
                State::Fixed(left) => at += self.skip(left, bytes.len() - at),
                State::Chunk(left) => at += self.skip(left, bytes.len() - at),
                _ => match self.take_line(&bytes[at..]) {
                    Ok(n) => at += n,
                    Err(offset) => {
                        self.violated_body = !matches!(self.state, State::RequestLine | State::Headers);
                        self.state = State::Poisoned;
                        bytes[at + offset] = 0;
                        return at + offset + 1;
                    }
                },
            }
        }
        at
    }

    /// Passes over body bytes.
    fn skip(&mut self, left: u64, available: usize) -> usize {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        let left = left - n as u64;
        self.state = match (self.state, left) {
            (State::Chunk(_), 0) => State::ChunkEnd,
            (State::Chunk(_), _) => State::Chunk(left),
            (_, 0) => self.next_request(),
            (_, _) => State::Fixed(left),
        };
        n
    }

    /// Takes (a part of) a line; the offset of the offending byte on a violation, which is always one not passed on yet.
    fn take_line(&mut self, bytes: &[u8]) -> Result<usize, usize> {
        let end = memchr::memchr(b'\n', bytes);
        let take = end.map_or(bytes.len(), |i| i + 1);
        self.head_bytes += take;
        if self.head_bytes > self.line_budget() {
            return Err(take - 1);
        }
        if end.is_none() {
            self.line.extend_from_slice(bytes);
            return Ok(take);
        }
        // A line that came whole is judged where it lies.
        let mut begun = std::mem::take(&mut self.line);
        let line = if begun.is_empty() {
            &bytes[..take]
        } else {
            begun.extend_from_slice(&bytes[..take]);
            &begun[..]
        };
        let verdict = match line.strip_suffix(b"\r\n") {
            Some(text) if memchr::memchr(b'\r', text).is_none() => self.end_line(text),
            _ => Err(Violation),
        };
        begun.clear();
        self.line = begun;
        verdict.map(|()| take).map_err(|Violation| take - 1)
    }

    fn line_budget(&self) -> usize {
        match self.state {
            State::ChunkSize => limits::CHUNK_SIZE_DIGITS_MAX + 2,
            State::ChunkEnd => 2,
            State::Trailers => limits::TRAILERS_MAX_BYTES,
            _ => limits::HEAD_MAX_BYTES,
        }
    }

    fn end_line(&mut self, text: &[u8]) -> Result<(), Violation> {
        match self.state {
            State::RequestLine => self.request_line(text),
            State::Headers if text.is_empty() => self.end_head(),
            State::Headers => self.header(text),
            State::ChunkSize => self.chunk_size(text),
            State::ChunkEnd if text.is_empty() => {
                self.head_bytes = 0;
                self.state = State::ChunkSize;
                Ok(())
            }
            State::Trailers if text.is_empty() => {
                self.state = self.next_request();
                Ok(())
            }
            State::Trailers => split_header(text).map(drop),
            State::ChunkEnd | State::Fixed(_) | State::Chunk(_) | State::Poisoned => Err(Violation),
        }
    }

    fn request_line(&mut self, text: &[u8]) -> Result<(), Violation> {
        if text.is_empty() {
            self.empty_lines += 1;
            return if self.empty_lines > limits::EMPTY_LINES_MAX { Err(Violation) } else { Ok(()) };
        }
        self.http_1_0 = text.ends_with(b" HTTP/1.0");
        self.state = State::Headers;
        // Some parsers mend such a target; nobody signed what they make of it.
        if target(text).iter().any(|c| c.is_ascii_control() || *c == b' ') { Err(Violation) } else { Ok(()) }
    }

    fn header(&mut self, text: &[u8]) -> Result<(), Violation> {
        let (name, value) = split_header(text)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.content_length.is_some() {
                return Err(Violation);
            }
            self.content_length = Some(decimal(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Violation);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), Violation> {
        self.head_bytes = 0;
        self.state = match (self.chunked, self.content_length) {
            (true, Some(_)) => return Err(Violation),
            (true, None) if self.http_1_0 => return Err(Violation),
            (true, None) => State::ChunkSize,
            (false, Some(0) | None) => self.next_request(),
            (false, Some(n)) => State::Fixed(n),
        };
        Ok(())
    }

    fn chunk_size(&mut self, text: &[u8]) -> Result<(), Violation> {
        self.head_bytes = 0;
        let size = hexadecimal(text)?;
        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
        Ok(())
    }

    fn next_request(&mut self) -> State {
        self.head_bytes = 0;
        self.empty_lines = 0;
        self.http_1_0 = false;
        self.content_length = None;
        self.chunked = false;
        State::RequestLine
    }
}

/// What stands between the first and the last blank of a request line; empty if there are not two.
fn target(text: &[u8]) -> &[u8] {
    match (memchr::memchr(b' ', text), memchr::memrchr(b' ', text)) {
        (Some(first), Some(last)) if first < last => &text[first + 1..last],
        _ => b"",
    }
}

/// Name and trimmed value. A name with blanks (also a folded line, which begins with one) is a violation.
fn split_header(text: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    let colon = memchr::memchr(b':', text).ok_or(Violation)?;
    let (name, value) = (&text[..colon], &text[colon + 1..]);
    if name.is_empty() || name.iter().any(|c| !c.is_ascii_graphic()) {
        return Err(Violation);
    }
    Ok((name, value.trim_ascii()))
}

fn decimal(text: &[u8]) -> Result<u64, Violation> {
    if text.is_empty() || text.len() > 19 {
        return Err(Violation);
    }
    text.iter()
        .try_fold(0u64, |n, c| if c.is_ascii_digit() { Ok(n * 10 + u64::from(c - b'0')) } else { Err(Violation) })
}

fn hexadecimal(text: &[u8]) -> Result<u64, Violation> {
    if text.is_empty() || text.len() > limits::CHUNK_SIZE_DIGITS_MAX {
        return Err(Violation);
    }
    text.iter().try_fold(0u64, |n, c| char::from(*c).to_digit(16).map(|d| n << 4 | u64::from(d)).ok_or(Violation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What gets through if the input comes in pieces of `step` bytes, and whether it was poisoned.
    fn pass(input: &[u8], step: usize) -> (Vec<u8>, bool) {
        let mut guard = Guard::new();
        let mut out = Vec::new();
        for piece in input.chunks(step) {
            let mut piece = piece.to_vec();
            let n = guard.scan(&mut piece);
            out.extend_from_slice(&piece[..n]);
        }
        (out, guard.is_poisoned())
    }

    #[test]
    fn good_requests_pass_unchanged() {
        let inputs: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
            b"\r\nPUT /k HTTP/1.1\r\ncontent-length:  3 \r\n\r\nab\nGET / HTTP/1.1\r\n\r\n",
            b"PUT /k HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nab\n\r\n00a\r\n0123\n56789\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            b"PUT /k HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
        ];
        for input in inputs {
            for step in 1..input.len() {
                assert_eq!(pass(input, step), (input.to_vec(), false), "{}", String::from_utf8_lossy(input));
            }
        }
    }

    #[test]
    fn row_57_ambiguous_requests_never_complete() {
        let inputs: [&[u8]; 24] = [
            b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length : 4\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\n A: b\r\n\r\n",
            b"GET / HTTP/1.1\nHost: h\r\n\r\n",
            b"GET /a b HTTP/1.1\r\n\r\n",
            b"GET /a\x01 HTTP/1.1\r\n\r\n",
            b"GET /a\0b HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\n\n",
            b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n",
        ];
        for input in inputs {
            for step in 1..input.len() {
                let (out, poisoned) = pass(input, step);
                assert!(poisoned, "{}", String::from_utf8_lossy(input));
                assert_eq!(out.last(), Some(&0));
                assert!(out.len() <= input.len());
            }
        }
    }

    #[test]
    fn row_54_a_head_without_end_is_cut_off() {
        let mut input = b"GET / HTTP/1.1\r\nA: ".to_vec();
        input.resize(1 << 20, b'x');
        let (out, poisoned) = pass(&input, 8192);
        assert!(poisoned && out.len() <= limits::HEAD_MAX_BYTES + 8192);
    }

    #[test]
    fn a_head_and_a_violated_body_are_told_apart() {
        let mut guard = Guard::new();
        assert!(!guard.is_in_head());
        for (piece, in_head, violated) in [
            (&b"PUT /k HT"[..], true, false),
            (b"TP/1.1\r\nTransfer-Encoding: chunked\r\n", true, false),
            (b"\r\n3\r\nab", false, false),
            (b"c\r\n1;x=y\r\n", false, true),
        ] {
            guard.scan(&mut piece.to_vec());
            assert_eq!((guard.is_in_head(), guard.has_violated_body()), (in_head, violated));
        }
        let mut guard = Guard::new();
        guard.scan(&mut b"GET / HTTP/1.1\n".to_vec());
        assert!(guard.is_poisoned() && !guard.has_violated_body());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_result(
            input in proptest::collection::vec(prop_oneof![
                Just(b"GET / HTTP/1.1\r\n".to_vec()), Just(b"Content-Length: 3\r\n".to_vec()),
                Just(b"Transfer-Encoding: chunked\r\n".to_vec()), Just(b"\r\n".to_vec()), Just(b"a: b\r\n".to_vec()),
                Just(b"3\r\nabc\r\n".to_vec()), Just(b"0\r\n".to_vec()), Just(b"abc".to_vec()), Just(b"\n".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ], 0..12),
            step in 1usize..9,
        ) {
            let input = input.concat();
            let whole = pass(&input, input.len().max(1));
            let split = pass(&input, step);
            prop_assert_eq!(whole.1, split.1);
            if !whole.1 {
                prop_assert_eq!(whole.0, split.0);
            }
        }
    }
}
