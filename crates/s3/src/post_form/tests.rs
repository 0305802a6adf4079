//! Forms: what must be accepted, and what a policy must keep out.

use super::*;
use crate::auth::{AuthConfig, CredentialSource};
use crate::request::{Query, RequestBucket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use object_controller::api::{Account, BodySource, BodySummary, Credential};
use proptest::prelude::*;
use std::sync::Arc;
use types::BucketName;

const SECRET: &str = "a secret of the tests";
/// 2026-11-30T00:00:00Z
const NOW: u64 = 1_795_996_800_000;
const LATER: &str = "2026-11-30T01:00:00Z";

struct OneCredential;

impl CredentialSource for OneCredential {
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        let account =
            Account { canonical_id: "c".into(), display_name: "n".into(), email: String::new(), is_root: false };
        (access_key == "AK")
            .then(|| Arc::new(Credential { access_key: "AK".into(), secret_key: SECRET.into(), account }))
    }
}

fn request(body: RequestBody, content_type: &str) -> S3Request {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, content_type.parse().expect("valid"));
    S3Request {
        method: http::Method::POST,
        bucket: Some(RequestBucket { raw: "bucket".into(), name: BucketName::new("bucket").ok() }),
        key: None,
        query: Query::default(),
        headers,
        virtual_host: false,
        uri: http::Uri::from_static("/bucket"),
        remote: ([127, 0, 0, 1], 1).into(),
        identity: Identity::Anonymous,
        authentication: AuthenticationKind::None,
        body,
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

fn encode(fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        // As Python's requests does, with a file name on every field.
        out.extend_from_slice(
            format!(
                "--BoUnD\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .as_bytes(),
        );
    }
    if let Some((file_name, bytes)) = file {
        let head =
            format!("--BoUnD\r\nContent-Disposition: form-data; name=\"file\"{file_name}\r\nContent-Type: x/y\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"--BoUnD--\r\n");
    out
}

fn read_in_pieces(raw: &[u8], step: usize) -> S3Result<(PostForm, Vec<u8>, BodySummary)> {
    let config = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(|| NOW) };
    let authenticator = Authenticator::new(config, Arc::new(OneCredential));
    let source = Source::pieces(raw.chunks(step.max(1)).map(Bytes::copy_from_slice));
    let body = RequestBody::new(source, Expectations::default(), None);
    let mut request = request(body, "multipart/form-data; boundary=BoUnD");
    block_on(async {
        let mut form = PostForm::read(&mut request, &authenticator).await?;
        let mut data = Vec::new();
        while let Some(piece) = BodySource::next(&mut form.body).await? {
            data.extend_from_slice(&piece);
        }
        let summary = BodySource::finish(&mut form.body)?;
        Ok((form, data, summary))
    })
}

fn read(raw: &[u8]) -> S3Result<(PostForm, Vec<u8>, BodySummary)> {
    read_in_pieces(raw, raw.len())
}

fn code_of(raw: &[u8]) -> S3Code {
    read(raw).err().expect("must be refused").code
}

/// A signed form: `conditions` is the inside of the list.
fn signed(conditions: &str, fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
    signed_document(&format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{conditions}]}}"), fields, file)
}

fn signed_document(document: &str, fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
    let policy = STANDARD.encode(document);
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(SECRET.as_bytes()).expect("any length");
    mac.update(policy.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let mut all = vec![("AWSAccessKeyId", "AK"), ("signature", &signature), ("pOLICy", &policy)];
    all.extend_from_slice(fields);
    encode(&all, Some(("", file)))
}

const COVER: &str = r#"{"bucket":"bucket"},["starts-with","$key","foo"]"#;

#[test]
fn an_anonymous_form_is_anonymous() {
    let raw = encode(&[("key", "foo.txt"), ("acl", "public-read"), ("Content-Type", "text/plain")], Some(("", b"bar")));
    let (form, data, summary) = read(&raw).expect("good");
    assert_eq!((form.key.as_str(), data.as_slice(), summary.size), ("foo.txt", &b"bar"[..], 3));
    assert_eq!(form.identity, Identity::Anonymous);
    let headers = form.headers().expect("valid");
    assert_eq!(headers["content-type"], "text/plain");
    assert_eq!(headers["x-amz-acl"], "public-read");
    assert_eq!(headers.len(), 2);
}

#[test]
fn a_signed_form_whose_policy_holds_is_the_accounts() {
    let conditions = r#"{"bUcKeT":"bucket"},["StArTs-WiTh","$KeY","foo"],{"AcL":"private"},["starts-with","$Content-Type","text/plain"],["content-length-range",0,1024]"#;
    let fields = [("kEy", "foo.txt"), ("aCl", "private"), ("Content-Type", "text/plain"), ("x-ignore-foo", "bar")];
    let (form, data, _) = read(&signed(conditions, &fields, b"bar")).expect("good");
    assert!(matches!(&form.identity, Identity::Account(c) if c.access_key == "AK"));
    assert_eq!(form.authentication, AuthenticationKind::PostForm);
    assert_eq!(data, b"bar");
    assert_eq!(form.field("acl"), Some("private"));
}

#[test]
fn row_19_the_bucket_is_the_urls() {
    let other = r#"{"bucket":"other"},["starts-with","$key",""]"#;
    assert_eq!(code_of(&signed(other, &[("key", "k")], b"x")), S3Code::AccessDenied);
    assert_eq!(code_of(&signed(other, &[("key", "k"), ("bucket", "other")], b"x")), S3Code::AccessDenied);
    assert_eq!(code_of(&signed(COVER, &[("key", "foo"), ("bucket", "other")], b"x")), S3Code::AccessDenied);
    let anonymous = encode(&[("key", "k"), ("bucket", "other")], Some(("", b"x")));
    assert_eq!(code_of(&anonymous), S3Code::AccessDenied);
    // A policy that does not speak of the bucket would be good for every bucket.
    assert_eq!(code_of(&signed(r#"["starts-with","$key",""]"#, &[("key", "k")], b"x")), S3Code::AccessDenied);
}

#[test]
fn row_20_conditions_must_hold_and_cover_every_field() {
    for (conditions, fields) in [
        ("", &[("key", "bar")][..]),
        ("", &[("key", "foo"), ("acl", "private")]),
        ("", &[("key", "foo"), ("x-amz-meta-a", "b")]),
        ("", &[("key", "foo"), ("x-amz-storage-class", "b")]),
        (r#",{"acl":"private"}"#, &[("key", "foo"), ("acl", "public-read")]),
        (r#",{"acl":"private"}"#, &[("key", "foo")]),
        (r#",["eq","$x-amz-meta-a",""]"#, &[("key", "foo"), ("x-amz-meta-a", "b")]),
        (r#",["starts-with","$x-amz-meta-a","bar"]"#, &[("key", "foo")]),
        (r#",["starts-with","$Content-Type","image/"]"#, &[("key", "foo"), ("Content-Type", "text/html")]),
    ] {
        let raw = signed(&format!("{COVER}{conditions}"), fields, b"x");
        assert_eq!(code_of(&raw), S3Code::AccessDenied, "{conditions} {fields:?}");
    }
    let good =
        signed(&format!(r#"{COVER},["eq","$x-amz-meta-a","b"]"#), &[("key", "foo"), ("x-amz-meta-a", "b")], b"x");
    assert!(read(&good).is_ok());
}

#[test]
fn row_20_the_size_range_holds_while_the_file_streams() {
    let with = |range: &str, file: &[u8]| signed(&format!("{COVER},{range}"), &[("key", "foo")], file);
    let range = r#"["content-length-range",2,4]"#;
    assert!(read(&with(range, b"ab")).is_ok());
    assert!(read(&with(range, b"abcd")).is_ok());
    assert_eq!(code_of(&with(range, b"a")), S3Code::EntityTooSmall);
    assert_eq!(code_of(&with(range, b"abcde")), S3Code::EntityTooLarge);
    assert_eq!(code_of(&with(r#"["content-length-range",0,0]"#, b"a")), S3Code::EntityTooLarge);
    for bad in ["0", "-1,0", "5,4", "\"x\",1", "0,1.5", "0,1,2"] {
        let raw = with(&format!(r#"["content-length-range",{bad}]"#), b"a");
        assert_eq!(code_of(&raw), S3Code::InvalidPolicyDocument, "{bad}");
    }
}

#[test]
fn row_20_expired_and_malformed_policies_are_refused() {
    let expired = format!("{{\"expiration\":\"2026-11-29T23:59:59Z\",\"conditions\":[{COVER}]}}");
    assert_eq!(code_of(&signed_document(&expired, &[("key", "foo")], b"x")), S3Code::AccessDenied);
    for document in [
        "not json".to_owned(),
        "[]".to_owned(),
        format!("{{\"conditions\":[{COVER}]}}"),
        format!("{{\"EXPIRATION\":\"{LATER}\",\"conditions\":[{COVER}]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"CONDITIONS\":[{COVER}]}}"),
        format!("{{\"expiration\":\"{LATER}\"}}"),
        format!("{{\"expiration\":\"2026-12-30 00:00:00.0+00:00\",\"conditions\":[{COVER}]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{{}}]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{COVER},7]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{COVER},[\"like\",\"$acl\",\"x\"]]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{COVER},[\"eq\",\"acl\",\"x\"]]}}"),
        format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{COVER},{{\"acl\":1}}]}}"),
    ] {
        let raw = signed_document(&document, &[("key", "foo")], b"x");
        assert_eq!(code_of(&raw), S3Code::InvalidPolicyDocument, "{document}");
    }
}

#[test]
fn signatures_and_their_fields_must_be_complete_and_right() {
    let policy = STANDARD.encode(format!("{{\"expiration\":\"{LATER}\",\"conditions\":[{COVER}]}}"));
    let form = |fields: &[(&str, &str)]| encode(&[&[("key", "foo")], fields].concat(), Some(("", b"x")));
    let policy = policy.as_str();
    assert_eq!(
        code_of(&form(&[("policy", policy), ("AWSAccessKeyId", "AK"), ("signature", "x")])),
        S3Code::SignatureDoesNotMatch
    );
    assert_eq!(
        code_of(&form(&[("policy", policy), ("AWSAccessKeyId", "no"), ("signature", "x")])),
        S3Code::InvalidAccessKeyId
    );
    for fields in [
        &[("policy", policy)][..],
        &[("policy", policy), ("AWSAccessKeyId", "AK")],
        &[("policy", policy), ("signature", "x")],
        &[("AWSAccessKeyId", "AK"), ("signature", "x")],
        &[("x-amz-signature", "x")],
    ] {
        assert_eq!(code_of(&form(fields)), S3Code::InvalidArgument, "{fields:?}");
    }
}

#[test]
fn case_171_and_174_keys_and_file_names() {
    let (form, ..) =
        read(&encode(&[("key", "up/${filename}")], Some(("; filename=\"C:\\x\\foo.txt\"", b"x")))).expect("good");
    assert_eq!(form.key, "up/foo.txt");
    let (form, data, _) = read(&encode(&[("key", "filename")], Some(("", b"")))).expect("good");
    assert_eq!((form.key.as_str(), data.len()), ("filename", 0));
    assert_eq!(code_of(&encode(&[("acl", "x")], Some(("", b"x")))), S3Code::UserKeyMustBeSpecified);
    assert_eq!(code_of(&encode(&[("key", "${filename}")], Some(("", b"x")))), S3Code::UserKeyMustBeSpecified);
}

#[test]
fn case_176_a_checksum_field_is_verified_and_needs_no_cover() {
    let with = |sum| signed(COVER, &[("key", "foo"), ("x-amz-checksum-crc32", sum)], b"123456789");
    let (_, _, summary) = read(&with("y/Q5Jg==")).expect("good");
    assert_eq!(summary.checksum.expect("kept").text(), "y/Q5Jg==");
    assert_eq!(code_of(&with("AAAAAA==")), S3Code::BadDigest);
    assert_eq!(code_of(&with("sailorjerry")), S3Code::BadDigest);
}

#[test]
fn malformed_and_oversized_forms_are_refused() {
    let good = encode(&[("key", "foo")], Some(("", b"bar")));
    let end = memchr::memmem::find(&good, b"bar").expect("there");
    for cut in 1..end {
        assert!(read(&good[..cut]).is_err(), "{cut}");
    }
    assert_eq!(code_of(&good[..end + 4]), S3Code::IncompleteBody);
    assert_eq!(code_of(&encode(&[("key", "foo")], None)), S3Code::IncorrectNumberOfFilesInPostRequest);
    assert_eq!(code_of(&encode(&[("key", "a"), ("KEY", "b")], Some(("", b"x")))), S3Code::InvalidArgument);
    let large = "x".repeat(21 << 10);
    assert_eq!(code_of(&encode(&[("key", &large)], Some(("", b"x")))), S3Code::MaxPostPreDataLengthExceededError);
    assert_eq!(code_of(&vec![b'x'; 1 << 20]), S3Code::MaxPostPreDataLengthExceededError);
    let many: Vec<(String, &str)> = (0..101).map(|i| (format!("f{i}"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    assert_eq!(code_of(&encode(&many, Some(("", b"x")))), S3Code::MaxPostPreDataLengthExceededError);
    assert_eq!(code_of(&encode(&[("key", "k"), ("Content-Type", "a\nb")], Some(("", b"x")))), S3Code::InvalidArgument);
}

#[test]
fn a_form_in_a_request_that_is_signed_otherwise_is_refused() {
    let config = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(|| NOW) };
    let authenticator = Authenticator::new(config, Arc::new(OneCredential));
    let raw = Bytes::from(encode(&[("key", "k")], Some(("", b"x"))));
    let mut signed = request(RequestBody::from_bytes(raw.clone()), "multipart/form-data; boundary=BoUnD");
    signed.authentication = AuthenticationKind::Header;
    let read = |mut r: S3Request| block_on(PostForm::read(&mut r, &authenticator)).err().expect("refused").code;
    assert_eq!(read(signed), S3Code::InvalidArgument);
    // Row 3: a framing that this handler would not undo.
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-decoded-content-length", HeaderValue::from_static("9"));
    let chunked = Expectations::of(&headers, &crate::auth::PayloadMode::StreamingUnsignedTrailer);
    let body = RequestBody::new(Source::bytes(raw), chunked, None);
    assert_eq!(read(request(body, "multipart/form-data; boundary=BoUnD")), S3Code::InvalidRequest);
}

proptest! {
    #[test]
    fn any_split_of_a_form_gives_the_same_file(
        file in proptest::collection::vec(prop_oneof![
            Just(b"\r\n--BoUn".to_vec()), Just(b"\r\n".to_vec()), Just(b"--BoUnD".to_vec()), Just(b"\r".to_vec()),
            Just(b"\r\n--".to_vec()), proptest::collection::vec(any::<u8>(), 0..20),
        ], 0..12),
        step in 1usize..40,
    ) {
        let file = file.concat();
        prop_assume!(memchr::memmem::find(&file, b"\r\n--BoUnD").is_none());
        let raw = encode(&[("key", "k")], Some(("", &file)));
        let (_, data, summary) = read_in_pieces(&raw, step).expect("good");
        prop_assert_eq!(summary.size, file.len() as u64);
        prop_assert_eq!(data, file);
    }
}
