//! Streaming uploads over real sockets, in every mode, and what must not be stored.

use crate::support::{DATE, SCOPE, Server, read_answer, sign, signed_head};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// Frames `data` in chunks of 8 KiB, signed if `seed` is given.
fn frame(data: &[u8], seed: Option<&str>, trailer: Option<&str>) -> Vec<u8> {
    let mut previous = seed.unwrap_or("").to_owned();
    let mut out = Vec::new();
    let empty: &[u8] = b"";
    for chunk in data.chunks(8192).chain([empty]) {
        out.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
        if seed.is_some() {
            let (nothing, digest) = (hex::encode(Sha256::digest(b"")), hex::encode(Sha256::digest(chunk)));
            previous = sign(&format!("AWS4-HMAC-SHA256-PAYLOAD\n{DATE}\n{SCOPE}\n{previous}\n{nothing}\n{digest}"));
            out.extend_from_slice(format!(";chunk-signature={previous}").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !chunk.is_empty() {
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
    }
    if let Some(trailer) = trailer {
        out.extend_from_slice(format!("{trailer}\r\n").as_bytes());
        if seed.is_some() {
            let digest = hex::encode(Sha256::digest(format!("{trailer}\n").as_bytes()));
            let signature = sign(&format!("AWS4-HMAC-SHA256-TRAILER\n{DATE}\n{SCOPE}\n{previous}\n{digest}"));
            out.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A PUT in that mode; `damage` may change its framed body.
async fn put(
    server: &Server,
    mode: &str,
    data: &[u8],
    trailer: Option<&str>,
    damage: impl FnOnce(&mut Vec<u8>),
) -> String {
    let decoded = data.len().to_string();
    // The length does not depend on the signatures.
    let seed_length = if mode == UNSIGNED { None } else { Some("0".repeat(64)) };
    let length = frame(data, seed_length.as_deref(), trailer).len().to_string();
    let mut headers = vec![("content-length", length.as_str()), ("x-amz-decoded-content-length", decoded.as_str())];
    let name = trailer.and_then(|t| t.split(':').next());
    if let Some(name) = name {
        headers.push(("x-amz-trailer", name));
    }
    let (head, seed) = signed_head("PUT", "/b/k", mode, &headers);
    let mut body = frame(data, (mode != UNSIGNED).then_some(seed.as_str()), trailer);
    damage(&mut body);
    let mut stream = server.connect().await;
    stream.write_all(head.as_bytes()).await.expect("sent");
    for piece in body.chunks(1000) {
        if stream.write_all(piece).await.is_err() {
            break;
        }
    }
    read_answer(&mut stream).await
}

fn data() -> Vec<u8> {
    (0..20_000u32).map(|i| (i % 251) as u8).collect()
}

fn crc32(data: &[u8]) -> String {
    use base64::Engine;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, data) as u32;
    base64::engine::general_purpose::STANDARD.encode(sum.to_be_bytes())
}

#[tokio::test]
async fn every_mode_stores_exactly_the_bytes() {
    let server = Server::start().await;
    let data = data();
    let trailer = format!("x-amz-checksum-crc32:{}", crc32(&data));
    for (mode, trailer) in
        [(UNSIGNED, Some(trailer.as_str())), (SIGNED, None), (SIGNED_TRAILER, Some(trailer.as_str()))]
    {
        let answer = put(&server, mode, &data, trailer, |_| {}).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{mode}: {answer}");
        assert_eq!(server.stored().last().expect("stored").1, data, "{mode}");
    }
    let empty = format!("x-amz-checksum-crc32:{}", crc32(b""));
    for (mode, trailer) in [(UNSIGNED, Some(empty.as_str())), (SIGNED, None), (SIGNED_TRAILER, Some(empty.as_str()))] {
        let answer = put(&server, mode, b"", trailer, |_| {}).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "case 106, {mode}: {answer}");
    }
    assert_eq!(server.stored().len(), 6);
}

#[tokio::test]
async fn row_12_altered_bytes_signatures_and_trailers_store_nothing() {
    let server = Server::start().await;
    let data = data();
    let trailer = format!("x-amz-checksum-crc32:{}", crc32(&data));
    let flip = |text: &'static [u8], nth: usize| {
        move |body: &mut Vec<u8>| {
            let at = memchr::memmem::find_iter(body, text).nth(nth).expect("there") + text.len();
            body[at] = if body[at] == b'0' { b'1' } else { b'0' };
        }
    };
    for (mode, trailer, text, nth, want) in [
        (SIGNED, None, &b"chunk-signature="[..], 1, "SignatureDoesNotMatch"),
        (SIGNED, None, b"chunk-signature=", 3, "SignatureDoesNotMatch"),
        (SIGNED_TRAILER, Some(trailer.as_str()), b"trailer-signature:", 0, "SignatureDoesNotMatch"),
        (SIGNED_TRAILER, Some(trailer.as_str()), b"x-amz-checksum-crc32:", 0, "SignatureDoesNotMatch"),
        (UNSIGNED, Some("x-amz-checksum-crc32:AAAAAA=="), b"2000\r\n", 0, "BadDigest"),
    ] {
        let answer = put(&server, mode, &data, trailer, flip(text, nth)).await;
        assert!(answer.contains(&format!("<Code>{want}</Code>")), "{mode} {nth}: {answer}");
    }
    let answer = put(&server, UNSIGNED, &data, Some("x-amz-checksum-crc32:garbage"), |_| {}).await;
    assert!(answer.contains("<Code>InvalidRequest</Code>"), "case 103: {answer}");
    assert!(server.stored().is_empty());
}

#[tokio::test]
async fn row_1_a_forged_head_in_a_streaming_mode_never_reaches_the_handler() {
    let server = Server::start().await;
    let (head, signature) =
        signed_head("PUT", "/b/k", UNSIGNED, &[("content-length", "5"), ("x-amz-decoded-content-length", "0")]);
    let forged = head.replace(&signature, &"0".repeat(64));
    let mut stream = server.connect().await;
    stream.write_all(format!("{forged}0\r\n\r\n").as_bytes()).await.expect("sent");
    let answer = read_answer(&mut stream).await;
    assert!(answer.contains("<Code>SignatureDoesNotMatch</Code>"), "{answer}");
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_stores_nothing() {
    let server = Server::start().await;
    let (head, _) = signed_head("PUT", "/b/k", "UNSIGNED-PAYLOAD", &[("content-length", "10")]);
    let mut stream = server.connect().await;
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(b"abc").await.expect("sent");
    stream.shutdown().await.expect("half closed");
    crate::support::read_to_end(&mut stream).await;
    server.seen.wait.notify_one();
    let seen = server.seen.clone();
    server.stop().await;
    assert!(seen.stored.lock().is_empty());
}
