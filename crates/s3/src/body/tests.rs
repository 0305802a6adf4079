//! Bodies against what their heads promised.

use super::*;
use crate::auth::PayloadMode;
use base64::Engine;
use http::HeaderMap;
use object_controller::api::BodySource;
use sha2::{Digest, Sha256};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().expect("valid"))).collect()
}

fn body(bytes: &[u8], mode: PayloadMode, pairs: &[(&'static str, &str)]) -> RequestBody {
    let expectations = Expectations::of(&headers(pairs), &mode);
    RequestBody::new(Source::bytes(Bytes::copy_from_slice(bytes)), expectations, None)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

/// Reads it as a store would.
fn upload(mut body: RequestBody) -> Result<(Vec<u8>, BodySummary), S3Code> {
    block_on(async move {
        let mut data = Vec::new();
        let code = |e: BodyError| S3Code::parse(e.code).expect("a code of ours");
        while let Some(piece) = BodySource::next(&mut body).await.map_err(code)? {
            data.extend_from_slice(&piece);
        }
        let summary = BodySource::finish(&mut body).map_err(code)?;
        Ok((data, summary))
    })
}

fn code_of(body: RequestBody) -> S3Code {
    upload(body).expect_err("must be refused")
}

const TRAILER: PayloadMode = PayloadMode::StreamingUnsignedTrailer;

#[test]
fn a_plain_upload_gets_md5_and_the_default_checksum() {
    let (data, summary) = upload(body(b"bar", PayloadMode::Unsigned, &[("content-length", "3")])).expect("good");
    assert_eq!((data.as_slice(), summary.size), (&b"bar"[..], 3));
    assert_eq!(hex::encode(summary.md5), "37b51d194a7513e45b56f6524f2d51f2");
    let checksum = summary.checksum.expect("AWS keeps one by default");
    assert_eq!(checksum.algorithm, ChecksumAlgorithm::Crc64Nvme);
    assert_eq!(checksum.digest, crc_fast::crc64_nvme(b"bar").to_be_bytes());
}

#[test]
fn every_algorithm_is_verified_and_kept() {
    for (name, good) in [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ] {
        let result = upload(body(b"123456789", PayloadMode::Unsigned, &[(name, good)]));
        let (_, summary) = result.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let checksum = summary.checksum.expect("kept");
        assert_eq!((checksum.algorithm.header(), checksum.text().as_str()), (name, good));
        assert_eq!(code_of(body(b"123456780", PayloadMode::Unsigned, &[(name, good)])), S3Code::BadDigest, "{name}");
        assert_eq!(code_of(body(b"x", PayloadMode::Unsigned, &[(name, "sailorjerry")])), S3Code::BadDigest);
        assert_eq!(code_of(body(b"x", PayloadMode::Unsigned, &[(name, "")])), S3Code::BadDigest);
    }
}

#[test]
fn case_112_content_md5() {
    let with = |md5| body(b"bar", PayloadMode::Unsigned, &[("content-md5", md5)]);
    assert!(upload(with("N7UdGUp1E+RbVvZSTy1R8g==")).is_ok());
    assert_eq!(code_of(with("")), S3Code::InvalidDigest);
    assert_eq!(code_of(with("YWJyYWNhZGFicmE=")), S3Code::InvalidDigest);
    assert_eq!(code_of(with("AWS HAHAHA")), S3Code::InvalidDigest);
    assert_eq!(code_of(with("rL0Y20xC+Fzt72VPzMSk2A==")), S3Code::BadDigest);
}

#[test]
fn row_9_a_concrete_hash_binds_the_body() {
    let mode = PayloadMode::Sha256(Sha256::digest(b"bar").into());
    assert!(upload(body(b"bar", mode, &[])).is_ok());
    assert_eq!(code_of(body(b"baz", mode, &[])), S3Code::XAmzContentSHA256Mismatch);
    let mut small = body(b"baz", mode, &[]);
    let e = block_on(small.read_all(100)).expect_err("also small bodies");
    assert_eq!(e.code, S3Code::XAmzContentSHA256Mismatch);
}

fn framed(data: &[u8], trailer: &str) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend_from_slice(data);
    out.extend_from_slice(format!("\r\n0\r\n{trailer}\r\n").as_bytes());
    out
}

const ANNOUNCED: (&str, &str) = ("x-amz-trailer", "x-amz-checksum-crc32");

#[test]
fn case_101_the_framing_never_gets_into_the_object() {
    let raw = framed(b"123456789", "x-amz-checksum-crc32:y/Q5Jg==\r\n");
    let pairs = [ANNOUNCED, ("x-amz-decoded-content-length", "9"), ("x-amz-sdk-checksum-algorithm", "CRC32")];
    let framed_body = body(&raw, TRAILER, &pairs);
    assert_eq!(framed_body.declared_size(), Some(9));
    assert_eq!(framed_body.declared_checksum(), Some(ChecksumAlgorithm::Crc32));
    let (data, summary) = upload(framed_body).expect("good");
    assert_eq!(data, b"123456789");
    assert_eq!(summary.checksum.expect("kept").text(), "y/Q5Jg==");
}

#[test]
fn case_103_wrong_and_garbage_trailers() {
    for (trailer, want) in [
        ("x-amz-checksum-crc32:AAAAAA==\r\n", S3Code::BadDigest),
        ("x-amz-checksum-crc32:garbage\r\n", S3Code::InvalidRequest),
        ("", S3Code::MalformedTrailerError),
        ("x-amz-checksum-sha1:98O8HYCOBHMq32eZZczDTKeuNEE=\r\n", S3Code::MalformedTrailerError),
        ("x-amz-checksum-crc32:y/Q5Jg==\r\nx-other:1\r\n", S3Code::MalformedTrailerError),
    ] {
        let raw = framed(b"123456789", trailer);
        assert_eq!(
            code_of(body(&raw, TRAILER, &[ANNOUNCED, ("x-amz-decoded-content-length", "9")])),
            want,
            "{trailer}"
        );
    }
    let raw = framed(b"123456789", "x-amz-checksum-crc32:AAAAAA==\r\n");
    let unannounced = body(&raw, TRAILER, &[("x-amz-decoded-content-length", "9")]);
    assert_eq!(code_of(unannounced), S3Code::MalformedTrailerError);
    let plain = body(b"x", PayloadMode::Unsigned, &[ANNOUNCED]);
    assert_eq!(code_of(plain), S3Code::InvalidRequest);
}

#[test]
fn row_11_the_decoded_length_must_hold() {
    let raw = framed(b"123456789", "");
    let with = |n| body(&raw, TRAILER, &[("x-amz-decoded-content-length", n)]);
    assert!(upload(with("9")).is_ok());
    for (n, want) in [
        ("8", S3Code::IncompleteBody),
        ("10", S3Code::IncompleteBody),
        ("-1", S3Code::InvalidArgument),
        ("x", S3Code::InvalidArgument),
        ("", S3Code::InvalidArgument),
        ("5368709121", S3Code::EntityTooLarge),
        ("99999999999999999999999", S3Code::EntityTooLarge),
    ] {
        assert_eq!(code_of(with(n)), want, "{n}");
    }
    assert_eq!(code_of(body(&raw, TRAILER, &[])), S3Code::MissingContentLength);
}

#[test]
fn row_74_lengths_above_5_gib_are_refused_before_the_first_byte() {
    let too_large = body(b"", PayloadMode::Unsigned, &[("content-length", "5368709121")]);
    assert_eq!(too_large.check().expect_err("too large").code, S3Code::EntityTooLarge);
    assert!(body(b"", PayloadMode::Unsigned, &[("content-length", "5368709120")]).check().is_ok());
}

#[test]
fn case_114_unknown_or_contradicting_algorithms_are_refused() {
    for pairs in [
        &[("x-amz-sdk-checksum-algorithm", "MD4")][..],
        &[("x-amz-checksum-md5", "N7UdGUp1E+RbVvZSTy1R8g==")],
        &[("x-amz-checksum-xxhash64", "AAAA")],
        &[("x-amz-trailer", "x-amz-checksum-md5")],
        &[("x-amz-trailer", "x-other")],
        &[("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-checksum-crc32c", "4waSgw==")],
        &[("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-sdk-checksum-algorithm", "SHA1")],
        &[("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-trailer", "x-amz-checksum-crc32")],
    ] {
        assert_eq!(code_of(body(b"123456789", PayloadMode::Unsigned, pairs)), S3Code::InvalidRequest, "{pairs:?}");
    }
    let other = [("x-amz-checksum-mode", "ENABLED"), ("x-amz-checksum-type", "FULL_OBJECT")];
    assert!(upload(body(b"x", PayloadMode::Unsigned, &other)).is_ok());
}

#[test]
fn an_operation_chooses_which_checksum_is_kept() {
    let mut b = body(b"123456789", PayloadMode::Unsigned, &[("x-amz-checksum-crc32", "y/Q5Jg==")]);
    b.keep_checksum(ChecksumAlgorithm::Sha1);
    let (_, summary) = upload(b).expect("good");
    assert_eq!(summary.checksum.expect("kept").text(), "98O8HYCOBHMq32eZZczDTKeuNEE=");
    let mut b = body(b"123456780", PayloadMode::Unsigned, &[("x-amz-checksum-crc32", "y/Q5Jg==")]);
    b.keep_checksum(ChecksumAlgorithm::Sha1);
    assert_eq!(code_of(b), S3Code::BadDigest);
}

#[test]
fn small_bodies_are_bounded_and_verified() {
    let sum = ("x-amz-checksum-crc32", "y/Q5Jg==");
    let read =
        |bytes: &[u8], limit| block_on(body(bytes, PayloadMode::Unsigned, &[sum]).read_all(limit)).map_err(|e| e.code);
    assert_eq!(read(b"123456789", 9).as_deref(), Ok(&b"123456789"[..]));
    assert_eq!(read(b"123456789", 8), Err(S3Code::MaxMessageLengthExceeded));
    assert_eq!(read(b"12345678x", 9), Err(S3Code::BadDigest));
    // CompleteMultipartUpload: the header speaks of the object.
    let mut complete = body(b"<x/>", PayloadMode::Unsigned, &[sum]);
    complete.checksum_headers_name_the_object();
    assert_eq!(block_on(complete.read_all(9)).expect("not compared"), "<x/>");
}

#[test]
fn a_body_that_was_not_read_has_no_summary() {
    let mut b = body(b"bar", PayloadMode::Unsigned, &[]);
    assert!(BodySource::finish(&mut b).is_err());
    let first = block_on(BodySource::next(&mut b)).expect("good").expect("data");
    assert_eq!(first, "bar");
    assert!(BodySource::finish(&mut b).is_err());
}

#[test]
fn an_error_is_final() {
    let mut b = body(b"bar", PayloadMode::Unsigned, &[("content-length", "2")]);
    assert_eq!(block_on(BodySource::next(&mut b)).expect_err("too long").code, "IncompleteBody");
    assert_eq!(BodySource::finish(&mut b).expect_err("still").code, "IncompleteBody");
    assert_eq!(b.failure().map(|e| e.code), Some(S3Code::IncompleteBody));
}

#[test]
fn requests_can_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<crate::request::S3Request>();
}

/// Bodies of these sizes in pieces of `piece` bytes, all sharing lanes, and what they are made of.
fn sharing(sizes: &[usize], piece: usize) -> (md5_lanes::Lanes, Vec<(RequestBody, Vec<u8>)>) {
    let lanes = md5_lanes::Lanes::new(md5_lanes::Kernel::detect(), 1 << 20);
    let bodies = sizes.iter().enumerate().map(|(i, size)| {
        let bytes: Vec<u8> = (0..*size).map(|at| ((at * (2 * i + 3)) >> 7) as u8).collect();
        let source = Source::pieces(bytes.chunks(piece).map(Bytes::copy_from_slice));
        (RequestBody::new(source, Expectations::default(), None).sharing(Some(lanes.clone())), bytes)
    });
    let bodies = bodies.collect();
    (lanes, bodies)
}

#[test]
fn bodies_that_share_lanes_get_the_digests_of_their_own_bytes() {
    let (lanes, mut bodies) = sharing(&[500_000, 100, 300_000, 700_000, 65_537, 0], 30_001);
    block_on(async {
        for _ in 0..8 {
            for (body, _) in &mut bodies {
                BodySource::next(body).await.expect("good");
            }
        }
        for (mut body, bytes) in bodies {
            while BodySource::next(&mut body).await.expect("good").is_some() {}
            let summary = BodySource::finish(&mut body).expect("good");
            assert_eq!((summary.size, summary.md5), (bytes.len() as u64, md5::Md5::digest(&bytes).into()));
        }
    });
    assert_eq!(lanes.backlog(), 0);
    assert_eq!(lanes.work().lane_blocks > 0, lanes.kernel().lanes() > 1);
}

#[test]
fn a_wait_for_lanes_that_is_dropped_loses_no_piece() {
    let (_lanes, mut bodies) = sharing(&[3_000_000, 200_000], 400_000);
    let (mut other, _) = bodies.pop().expect("two");
    let (mut body, bytes) = bodies.pop().expect("two");
    block_on(async {
        BodySource::next(&mut other).await.expect("good");
        let mut data = Vec::new();
        loop {
            // Polled once and dropped, again and again.
            let polled =
                std::future::poll_fn(|cx| std::task::Poll::Ready(BodySource::next(&mut body).as_mut().poll(cx)));
            match polled.await {
                std::task::Poll::Pending => {}
                std::task::Poll::Ready(Err(e)) => unreachable!("{e:?}"),
                std::task::Poll::Ready(Ok(None)) => break,
                std::task::Poll::Ready(Ok(Some(piece))) => data.extend_from_slice(&piece),
            }
        }
        assert!(data == bytes);
        assert_eq!(BodySource::finish(&mut body).expect("good").md5, <[u8; 16]>::from(md5::Md5::digest(&bytes)));
    });
}

#[test]
fn a_digest_that_does_not_match_is_found_in_shared_lanes_too() {
    let (lanes, mut bodies) = sharing(&[200_000, 200_000], 50_000);
    let (mut other, _) = bodies.pop().expect("two");
    let bytes = vec![7u8; 200_000];
    let want = base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(&bytes[1..]));
    let expectations = Expectations::of(&headers(&[("content-md5", &want)]), &PayloadMode::Unsigned);
    let bad = RequestBody::new(Source::bytes(bytes.into()), expectations, None).sharing(Some(lanes));
    block_on(async {
        BodySource::next(&mut other).await.expect("good");
        BodySource::next(&mut other).await.expect("good");
    });
    assert_eq!(code_of(bad), S3Code::BadDigest);
}
