//! The aws-chunked decoder: what it must read, attacks on it, and that no split of the input matters.

use super::chunked::ChunkDecoder;
use crate::auth::{ChunkSigner, Scope, SigningKey};
use crate::error::S3Code;
use crate::limits;
use bytes::Bytes;
use proptest::prelude::*;

type Decoded = Result<(Vec<u8>, Vec<(String, String)>), S3Code>;

fn run(mut decoder: ChunkDecoder, input: &[u8], step: usize) -> Decoded {
    let mut data = Vec::new();
    for piece in input.chunks(step.max(1)) {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(d) = decoder.decode(&mut piece).map_err(|e| e.code)? {
            assert!(!d.is_empty());
            data.extend_from_slice(&d);
        }
        assert!(piece.is_empty(), "input is used up when no data comes");
    }
    let trailers = decoder.finish().map_err(|e| e.code)?;
    Ok((data, trailers))
}

fn unsigned(input: &[u8]) -> Decoded {
    run(ChunkDecoder::new(None, true), input, input.len())
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

#[test]
fn chunks_and_trailers_are_read() {
    let big = vec![7u8; 9000];
    let body = [chunk(&big), chunk(b"end"), b"0\r\nX-Amz-Checksum-Crc32: AAAAAA== \r\n\r\n".to_vec()].concat();
    let (data, trailers) = unsigned(&body).expect("well-formed");
    assert_eq!(data, [&big[..], b"end"].concat());
    assert_eq!(trailers, [("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())]);
}

#[test]
fn case_106_empty_bodies_end_in_all_the_ways_clients_end_them() {
    for end in ["0\r\n", "0\r\n\r\n", "0\r\na:b\r\n", "0\r\na:b\r\n\r\n", "000\r\n\r\n"] {
        assert_eq!(unsigned(end.as_bytes()).expect("well-formed").0, b"", "{end:?}");
    }
    let plain = run(ChunkDecoder::new(None, false), b"0\r\n\r\n", 1);
    assert_eq!(plain, Ok((Vec::new(), Vec::new())));
}

#[test]
fn row_10_malformed_framing_is_refused() {
    for (input, want) in [
        (&b""[..], S3Code::IncompleteBody),
        (b"5\r\nab", S3Code::IncompleteBody),
        (b"2\r\nab\r\n", S3Code::IncompleteBody),
        (b"0", S3Code::IncompleteBody),
        (b"0\r\na:b", S3Code::IncompleteBody),
        (b"ffffffffffffffff\r\nab", S3Code::IncompleteBody),
        (b"8000000000000000\r\nab", S3Code::IncompleteBody),
        (b"10000000000000000\r\nab", S3Code::InvalidRequest),
        (b"00000000000000000\r\n", S3Code::InvalidRequest),
        (b"+1\r\na\r\n0\r\n", S3Code::InvalidRequest),
        (b"-1\r\na\r\n0\r\n", S3Code::InvalidRequest),
        (b" 1\r\na\r\n0\r\n", S3Code::InvalidRequest),
        (b"0x1\r\na\r\n0\r\n", S3Code::InvalidRequest),
        (b"\r\n", S3Code::InvalidRequest),
        (b"1\na\r\n0\r\n", S3Code::InvalidRequest),
        (b"1\r\nab\r\n0\r\n", S3Code::InvalidRequest),
        (b"1\r\na0\r\n", S3Code::InvalidRequest),
        (b"1;x=y\r\na\r\n0\r\n", S3Code::InvalidRequest),
        (b"0\r\n\r\nmore", S3Code::InvalidRequest),
        (b"0\r\nno colon\r\n", S3Code::MalformedTrailerError),
        (b"0\r\n: x\r\n", S3Code::MalformedTrailerError),
        (b"0\r\na : x\r\n", S3Code::MalformedTrailerError),
        (b"0\r\n\xff: x\r\n", S3Code::MalformedTrailerError),
    ] {
        assert_eq!(unsigned(input), Err(want), "{}", String::from_utf8_lossy(input));
    }
}

#[test]
fn row_10_lines_and_trailers_are_bounded() {
    let long = vec![b'0'; 1 << 20];
    assert_eq!(unsigned(&long), Err(S3Code::InvalidRequest));
    let many = [b"0\r\n".to_vec(), b"a:b\r\n".repeat(limits::TRAILERS_MAX + 1)].concat();
    assert_eq!(unsigned(&many), Err(S3Code::InvalidRequest));
    let wide = [b"0\r\na:".to_vec(), vec![b'x'; limits::TRAILERS_MAX_BYTES + 1]].concat();
    assert_eq!(unsigned(&wide), Err(S3Code::InvalidRequest));
}

#[test]
fn case_105_a_small_chunk_that_is_not_the_last_is_refused() {
    let body = [chunk(&[1; 1024]), chunk(&[2; 9000]), b"0\r\n\r\n".to_vec()].concat();
    assert_eq!(unsigned(&body), Err(S3Code::InvalidChunkSizeError));
    let body = [chunk(&[1; limits::CHUNK_MIN_BYTES as usize]), chunk(&[2; 1]), b"0\r\n\r\n".to_vec()].concat();
    assert!(unsigned(&body).is_ok());
}

#[test]
fn a_chunk_is_never_gathered() {
    // A chunk of 5 GiB: what has arrived is handed on at once, as a slice of the input.
    let mut decoder = ChunkDecoder::new(None, false);
    let mut input = Bytes::from_static(b"140000000\r\n");
    assert!(decoder.decode(&mut input).expect("well-formed").is_none());
    let piece = Bytes::from(vec![1u8; 64 << 10]);
    for _ in 0..100 {
        let mut input = piece.clone();
        let out = decoder.decode(&mut input).expect("well-formed").expect("data");
        assert_eq!(out.as_ptr(), piece.as_ptr());
        assert!(decoder.decode(&mut input).expect("well-formed").is_none());
    }
}

const SCOPE: Scope<'static> = Scope { date: "20130524", region: "us-east-1", service: "s3" };
const SEED: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

fn signer() -> ChunkSigner {
    let key = SigningKey::derive("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", &SCOPE);
    ChunkSigner::new(key, "20130524T000000Z", &SCOPE, SEED)
}

/// AWS's published example with trailers.
fn signed_example() -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [
        (65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        (1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
    ] {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.resize(body.len() + size, b'a');
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n");
    body.extend_from_slice(b"x-amz-checksum-crc32c:sOO8/Q==\r\n");
    body.extend_from_slice(
        b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    );
    body
}

fn signed(body: &[u8]) -> Decoded {
    run(ChunkDecoder::new(Some(signer()), true), body, 4096)
}

#[test]
fn a_signed_body_with_a_signed_trailer_is_read() {
    let (data, trailers) = signed(&signed_example()).expect("AWS's own example");
    assert_eq!(data.len(), 66560);
    assert_eq!(trailers[0].1, "sOO8/Q==");
}

#[test]
fn row_12_an_altered_chunk_signature_or_byte_is_refused() {
    let good = signed_example();
    let find = |text: &[u8]| memchr::memmem::find(&good, text).expect("there");
    for at in [find(b"b474"), find(b"1c13"), find(b"2ca2"), find(b"d81f"), find(b"sOO8"), 100, 66_000] {
        let mut bad = good.clone();
        bad[at] = if bad[at] == b'0' { b'1' } else { b'0' };
        assert_eq!(signed(&bad), Err(S3Code::SignatureDoesNotMatch), "{at}");
    }
}

#[test]
fn row_12_a_missing_signature_is_refused() {
    let text = signed_example();
    let end = memchr::memmem::find(&text, b"x-amz-trailer-signature").expect("there");
    assert_eq!(signed(&text[..end]), Err(S3Code::SignatureDoesNotMatch));
    let end = memchr::memmem::find(&text, b"x-amz-checksum").expect("there");
    assert_eq!(signed(&text[..end]), Err(S3Code::SignatureDoesNotMatch));
    assert_eq!(signed(b"0\r\n\r\n"), Err(S3Code::InvalidRequest));
    assert_eq!(signed(b"0;chunk-signature=abc\r\n"), Err(S3Code::InvalidRequest));
    // Trailers in a mode that does not sign them.
    let decoder = ChunkDecoder::new(Some(signer()), false);
    assert_eq!(run(decoder, &text, 4096), Err(S3Code::InvalidRequest));
}

proptest! {
    #[test]
    fn any_split_of_a_good_body_gives_the_same_result(
        chunks in proptest::collection::vec(8192usize..8300, 0..3),
        last in 1usize..50,
        step in 1usize..2000,
    ) {
        let mut body: Vec<u8> = chunks.iter().enumerate().flat_map(|(i, n)| chunk(&vec![i as u8; *n])).collect();
        body.extend_from_slice(&chunk(&vec![b'\r'; last]));
        body.extend_from_slice(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
        let whole = unsigned(&body);
        prop_assert!(whole.is_ok());
        prop_assert_eq!(run(ChunkDecoder::new(None, true), &body, step), whole);
    }

    #[test]
    fn any_split_of_any_bytes_gives_the_same_result(
        parts in proptest::collection::vec(prop_oneof![
            Just(b"3\r\nabc\r\n".to_vec()), Just(b"0\r\n".to_vec()), Just(b"\r\n".to_vec()), Just(b"a:b\r\n".to_vec()),
            Just(b"2001\r\n".to_vec()), Just(vec![b'x'; 0x2001]), Just(b";chunk-signature=".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..5),
        ], 0..10),
        step in 1usize..20,
    ) {
        let body = parts.concat();
        let whole = run(ChunkDecoder::new(None, true), &body, body.len());
        prop_assert_eq!(run(ChunkDecoder::new(None, true), &body, step), whole);
    }
}
