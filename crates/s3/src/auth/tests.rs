//! AWS's published SigV4 examples, and the attacks of the security checklist on the verifier.

use super::canonical::SignedParts;
use super::*;
use crate::request::Target;
use http::{HeaderName, HeaderValue};
use object_controller::api::Account;
use proptest::prelude::*;

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const HOST: &str = "examplebucket.s3.amazonaws.com";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// 20130524T000000Z
const NOW: u64 = 1_369_353_600_000;

struct OneCredential;

impl CredentialSource for OneCredential {
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        let account =
            Account { canonical_id: "c".into(), display_name: "example".into(), email: String::new(), is_root: false };
        (access_key == ACCESS_KEY)
            .then(|| Arc::new(Credential { access_key: ACCESS_KEY.into(), secret_key: SECRET.into(), account }))
    }
}

fn verifier_at(now_ms: u64) -> Authenticator {
    let config = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(move || now_ms) };
    Authenticator::new(config, Arc::new(OneCredential))
}

/// A request in the making.
#[derive(Clone)]
struct Req {
    method: &'static str,
    path: String,
    query: String,
    headers: HeaderMap,
}

impl Req {
    fn new(method: &'static str, path: &str, query: &str, headers: &[(&'static str, &str)]) -> Self {
        let mut map = HeaderMap::new();
        for (n, v) in headers {
            map.append(HeaderName::from_static(n), HeaderValue::from_bytes(v.as_bytes()).expect("valid"));
        }
        Req { method, path: path.into(), query: query.into(), headers: map }
    }

    fn get(headers: &[(&'static str, &str)]) -> Self {
        let mut r = Req::new("GET", "/test.txt", "", headers);
        r.set("host", HOST);
        r.set("x-amz-content-sha256", EMPTY);
        r.set("x-amz-date", "20130524T000000Z");
        r
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).expect("valid"));
    }

    fn authorize(&mut self, signed: &str, signature: &str) {
        let value = format!(
            "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},Signature={signature}"
        );
        self.set("authorization", &value);
    }

    /// Signs with the code under test, which the vectors below have proven.
    fn sign(&mut self, signed: &str) {
        let names: Vec<&str> = signed.split(';').collect();
        let target = Target::parse(&self.path, &self.query, HOST, &[]).expect("valid");
        let head = Head { method: self.method, path: &target.path, query: &target.query, headers: &self.headers };
        let payload = self.headers["x-amz-content-sha256"].to_str().expect("text");
        let parts = SignedParts { head: &head, signed_headers: &names, payload };
        let canonical = parts.canonical_request(false).expect("all there");
        let scope = Scope { date: "20130524", region: "us-east-1", service: "s3" };
        let timestamp = self.headers["x-amz-date"].to_str().expect("text");
        let text = signing::string_to_sign(timestamp, &scope, &canonical);
        let signature = SigningKey::derive(SECRET, &scope).sign(text.as_bytes());
        self.authorize(signed, std::str::from_utf8(&signature).expect("hex"));
    }

    fn check_at(&self, now_ms: u64) -> S3Result<Authenticated> {
        let target = Target::parse(&self.path, &self.query, HOST, &[]).expect("valid");
        let head = Head { method: self.method, path: &target.path, query: &target.query, headers: &self.headers };
        verifier_at(now_ms).authenticate(&head)
    }

    fn check(&self) -> S3Result<Authenticated> {
        self.check_at(NOW)
    }

    fn code(&self) -> S3Code {
        self.check().expect_err("must be refused").code
    }
}

fn is_account(a: &Authenticated) -> bool {
    matches!(&a.identity, Identity::Account(c) if c.access_key == ACCESS_KEY)
}

#[test]
fn aws_example_get_object() {
    let mut r = Req::get(&[("range", "bytes=0-9")]);
    r.authorize(
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    let a = r.check().expect("AWS's own example");
    assert!(is_account(&a));
    assert!(matches!(a.payload, PayloadMode::Sha256(_)));
}

#[test]
fn aws_example_put_object() {
    let mut r = Req::get(&[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")]);
    r.method = "PUT";
    r.path = "/test$file.text".into();
    r.set("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    let signed = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
    r.authorize(signed, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    assert!(is_account(&r.check().expect("AWS's own example")));
    // The other spelling of the same key has the same signature.
    r.path = "/test%24file%2Etext".into();
    assert!(is_account(&r.check().expect("one canonical value")));
}

#[test]
fn aws_examples_with_queries() {
    let signed = "host;x-amz-content-sha256;x-amz-date";
    let mut r = Req::get(&[]);
    r.path = "/".into();
    r.query = "lifecycle".into();
    r.authorize(signed, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    assert!(is_account(&r.check().expect("AWS's own example")));
    for query in ["max-keys=2&prefix=J", "prefix=J&max-keys=2"] {
        r.query = query.into();
        r.authorize(signed, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
        assert!(is_account(&r.check().expect("AWS's own example")));
    }
}

const PRESIGNED: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

fn presigned(query: &str) -> Req {
    Req::new("GET", "/test.txt", query, &[("host", HOST)])
}

#[test]
fn aws_example_presigned_url() {
    let a = presigned(PRESIGNED).check().expect("AWS's own example");
    assert!(is_account(&a));
    assert_eq!(a.kind, AuthenticationKind::Presigned);
    assert_eq!(a.payload, PayloadMode::Unsigned);
}

#[test]
fn aws_example_chunk_signatures() {
    let scope = Scope { date: "20130524", region: "us-east-1", service: "s3" };
    let mut r = Req::new(
        "PUT",
        "/examplebucket/chunkObject.txt",
        "",
        &[
            ("host", "s3.amazonaws.com"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
            ("content-length", "66824"),
        ],
    );
    let signed = "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class";
    r.authorize(signed, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    let mut signer = r.check().expect("AWS's own example").signer.expect("signed chunks");
    signer.update(&[b'a'; 65536]);
    assert!(signer.verify_chunk(b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"));
    signer.update(&[b'a'; 1024]);
    assert!(signer.verify_chunk(b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"));
    assert!(signer.verify_chunk(b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"));

    let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    let mut signer = ChunkSigner::new(SigningKey::derive(SECRET, &scope), "20130524T000000Z", &scope, seed);
    signer.update(&[b'a'; 65536]);
    assert!(signer.verify_chunk(b"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"));
    signer.update(&[b'a'; 1024]);
    assert!(signer.verify_chunk(b"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"));
    assert!(signer.verify_chunk(b"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"));
    let trailers = [("x-amz-checksum-crc32c".to_owned(), "sOO8/Q==".to_owned())];
    assert!(signer.verify_trailers(&trailers, b"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"));
}

const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

#[test]
fn row_1_a_garbage_signature_in_a_streaming_mode_is_refused() {
    for mode in [
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "UNSIGNED-PAYLOAD",
    ] {
        let mut r = Req::get(&[]);
        r.set("x-amz-content-sha256", mode);
        r.authorize(SIGNED, &"0".repeat(64));
        assert_eq!(r.code(), S3Code::SignatureDoesNotMatch, "{mode}");
        r.authorize(SIGNED, "");
        assert_eq!(r.code(), S3Code::SignatureDoesNotMatch, "{mode}");
        r.sign(SIGNED);
        assert!(is_account(&r.check().expect("a good signature")));
    }
}

#[test]
fn row_2_credentials_in_the_query_are_verified_in_streaming_modes_too() {
    let mut r = presigned(&PRESIGNED.replace("aeeed9bb", "00000000"));
    assert_eq!(r.code(), S3Code::SignatureDoesNotMatch);
    r.set("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_eq!(r.code(), S3Code::AccessDenied);
    // Fewer parameters than needed are no way to become anonymous.
    let r = presigned("X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request");
    assert_eq!(r.code(), S3Code::AuthorizationQueryParametersError);
    assert_eq!(presigned("x-amz-signature=0").code(), S3Code::AuthorizationQueryParametersError);
}

#[test]
fn row_4_unknown_payload_modes_are_refused() {
    for mode in ["junk", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-FUTURE", "", "unsigned-payload"] {
        let mut r = Req::get(&[]);
        r.set("x-amz-content-sha256", mode);
        r.sign(SIGNED);
        assert_eq!(r.code(), S3Code::InvalidArgument, "{mode}");
        let mut anonymous = Req::new("PUT", "/b/k", "", &[("host", HOST)]);
        anonymous.set("x-amz-content-sha256", mode);
        assert_eq!(anonymous.code(), S3Code::InvalidArgument, "{mode}");
    }
    let mut anonymous = Req::new("PUT", "/b/k", "", &[("host", HOST)]);
    anonymous.set("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    assert_eq!(anonymous.code(), S3Code::AccessDenied);
}

#[test]
fn row_5_unsigned_amz_headers_are_refused_in_both_modes() {
    for name in ["x-amz-tagging", "x-amz-acl", "x-amz-website-redirect-location", "x-amz-copy-source"] {
        let mut r = presigned(PRESIGNED);
        r.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("a=b"));
        let e = r.check().expect_err("not signed");
        assert_eq!(e.code, S3Code::AccessDenied);
        assert!(e.extra.contains(&("HeadersNotSigned", name.to_owned())));
        let mut r = Req::get(&[]);
        r.sign(SIGNED);
        r.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("a=b"));
        assert_eq!(r.code(), S3Code::AccessDenied, "{name}");
    }
    // What is not x-amz-* need not be signed.
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    r.set("content-type", "text/plain");
    assert!(r.check().is_ok());
}

#[test]
fn row_6_header_and_query_together_are_refused() {
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    r.query = PRESIGNED.into();
    assert_eq!(r.check().expect_err("both").status(), 400);
}

#[test]
fn row_7_malformed_signed_header_lists_are_refused() {
    for list in [
        "",
        ";",
        "host;",
        "x-amz-content-sha256;host;x-amz-date",
        "host;host;x-amz-content-sha256;x-amz-date",
        "Host;x-amz-content-sha256;x-amz-date",
    ] {
        let mut r = Req::get(&[]);
        r.authorize(list, &"0".repeat(64));
        assert_eq!(r.code(), S3Code::AuthorizationHeaderMalformed, "{list}");
    }
    let mut r = Req::get(&[]);
    r.sign("x-amz-content-sha256;x-amz-date");
    let e = r.check().expect_err("host is not signed");
    assert_eq!((e.code, e.status().as_u16()), (S3Code::AccessDenied, 403));
    let many: Vec<String> = (0..200).map(|i| format!("h{i:03}")).collect();
    let mut r = Req::get(&[]);
    r.authorize(&many.join(";"), &"0".repeat(64));
    assert_eq!(r.code(), S3Code::AuthorizationHeaderMalformed);
}

#[test]
fn malformed_authorization_headers_are_refused() {
    let good = "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
    for (value, want) in [
        ("", S3Code::AccessDenied),
        ("junk", S3Code::AuthorizationHeaderMalformed),
        ("Bearer x", S3Code::AuthorizationHeaderMalformed),
        ("AWS AKIAIOSFODNN7EXAMPLE:c2ln", S3Code::InvalidRequest),
        ("AWS4-ECDSA-P256-SHA256 x", S3Code::InvalidRequest),
        ("AWS4-HMAC-SHA256", S3Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Credential", S3Code::AuthorizationHeaderMalformed),
        (&format!("AWS4-HMAC-SHA256 {good},SignedHeaders=host"), S3Code::AuthorizationHeaderMalformed),
        (
            &format!("AWS4-HMAC-SHA256 {good},{good},SignedHeaders=host,Signature=0"),
            S3Code::AuthorizationHeaderMalformed,
        ),
        (&format!("AWS4-HMAC-SHA256 {good},SignedHeaders=host,Signature=0,X=1"), S3Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Credential=a/b/c,SignedHeaders=host,Signature=0", S3Code::AuthorizationHeaderMalformed),
        (
            "AWS4-HMAC-SHA256 Credential=/20130524/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0",
            S3Code::AuthorizationHeaderMalformed,
        ),
    ] {
        let mut r = Req::get(&[]);
        r.set("authorization", value);
        assert_eq!(r.code(), want, "{value}");
    }
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    let again = r.headers["authorization"].clone();
    r.headers.append("authorization", again);
    assert_eq!(r.code(), S3Code::AuthorizationHeaderMalformed);
}

#[test]
fn row_8_dates_and_lives_are_bounded() {
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    let skew = limits::CLOCK_SKEW_MS;
    for now in [NOW - skew, NOW, NOW + skew] {
        assert!(r.check_at(now).is_ok());
    }
    for now in [NOW - skew - 1, NOW + skew + 1, 0] {
        assert_eq!(r.check_at(now).expect_err("skewed").code, S3Code::RequestTimeTooSkewed);
    }
    let url = presigned(PRESIGNED);
    assert!(url.check_at(NOW + 86_400_000).is_ok());
    let e = url.check_at(NOW + 86_400_001).expect_err("expired");
    assert_eq!((e.code, e.message.as_ref()), (S3Code::AccessDenied, "Request has expired"));
    assert_eq!(url.check_at(NOW - skew - 1).expect_err("from the future").code, S3Code::AccessDenied);
    for expires in ["0", "-7", "604801", "18446744073709551616", "18446744073709551615", "", "1e3", "+5"] {
        let r = presigned(&PRESIGNED.replace("Expires=86400", &format!("Expires={}", expires.replace('+', "%2B"))));
        let e = r.check().expect_err("bad life");
        assert_eq!((e.code, e.status().as_u16()), (S3Code::AccessDenied, 403), "{expires}");
    }
}

#[test]
fn a_missing_or_malformed_date_is_access_denied() {
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    r.set("x-amz-date", "Bad Date");
    assert_eq!(r.code(), S3Code::AccessDenied);
    r.headers.remove("x-amz-date");
    assert_eq!(r.code(), S3Code::AccessDenied);
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    r.set("x-amz-date", "20130525T000000Z");
    assert_eq!(r.code(), S3Code::AuthorizationHeaderMalformed);
}

/// Kept by review and by this look at the source: a clock would tell less.
#[test]
fn row_13_signatures_and_secrets_are_compared_in_constant_time_only() {
    let sources = [
        include_str!("mod.rs"),
        include_str!("header.rs"),
        include_str!("presigned.rs"),
        include_str!("post.rs"),
        include_str!("signing.rs"),
        include_str!("keys.rs"),
        include_str!("../body/chunked.rs"),
    ];
    let mut in_constant_time = 0;
    for line in sources.iter().flat_map(|source| source.lines()) {
        in_constant_time += line.matches(".ct_eq(").count();
        let code: String = line.split("//").next().unwrap_or_default().split('"').step_by(2).collect();
        let of_a_secret = ["signature", "secret", "previous", ".sign("].iter().any(|word| code.contains(word));
        let early_exit = ["==", "!=", ".eq(", ".cmp(", "starts_with("].iter().any(|op| code.contains(op));
        assert!(!(of_a_secret && early_exit), "{line}");
    }
    assert_eq!(in_constant_time, 4, "V4, V2, chunks, and a secret that was changed");
}

#[test]
fn row_14_and_16_an_unknown_access_key_is_never_anonymous() {
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    let value = r.headers["authorization"].to_str().expect("text").replace(ACCESS_KEY, "AKIAUNKNOWN");
    r.set("authorization", &value);
    assert_eq!(r.code(), S3Code::InvalidAccessKeyId);
    let r = presigned(&PRESIGNED.replace(ACCESS_KEY, "AKIAUNKNOWN"));
    assert_eq!(r.code(), S3Code::InvalidAccessKeyId);
}

#[test]
fn a_wrong_region_names_the_right_one() {
    let mut r = Req::get(&[]);
    r.sign(SIGNED);
    let value = r.headers["authorization"].to_str().expect("text").replace("us-east-1", "eu-west-1");
    r.set("authorization", &value);
    let e = r.check().expect_err("wrong region");
    assert_eq!(e.code, S3Code::AuthorizationHeaderMalformed);
    assert!(e.extra.contains(&("Region", "us-east-1".into())));
    let value = value.replace("eu-west-1", "us-east-1").replace("/s3/", "/ec2/");
    r.set("authorization", &value);
    assert_eq!(r.code(), S3Code::AuthorizationHeaderMalformed);
}

#[test]
fn row_24_another_key_never_shares_a_signature() {
    let mut r = Req::get(&[]);
    r.path = "/b/a%2520b".into();
    r.sign(SIGNED);
    for other in ["/b/a%20b", "/b//a%2520b", "/b/./a%2520b", "/b/a%2520b/", "/b/x/../a%2520b", "/B/a%2520b"] {
        let mut forged = r.clone();
        forged.path = other.into();
        assert_eq!(forged.code(), S3Code::SignatureDoesNotMatch, "{other}");
    }
    for same in ["/b/a%2520b", "/b%2Fa%2520b", "/%62/a%2520b"] {
        let mut spelled = r.clone();
        spelled.path = same.into();
        assert!(spelled.check().is_ok(), "{same}");
    }
}

#[test]
fn what_was_signed_cannot_be_changed() {
    let mut r = Req::get(&[("range", "bytes=0-9")]);
    r.query = "a=1&b=2".into();
    r.sign("host;range;x-amz-content-sha256;x-amz-date");
    assert!(r.check().is_ok());
    let changes: [fn(&mut Req); 7] = [
        |r| r.method = "DELETE",
        |r| r.query = "a=1&b=3".into(),
        |r| r.query = "a=1&b=2&c".into(),
        |r| r.query = String::new(),
        |r| r.set("range", "bytes=0-8"),
        |r| r.set("host", "other"),
        |r| r.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
    ];
    for change in changes {
        let mut forged = r.clone();
        change(&mut forged);
        assert_eq!(forged.code(), S3Code::SignatureDoesNotMatch);
    }
    r.headers.remove("range");
    assert_eq!(r.code(), S3Code::SignatureDoesNotMatch);
}

#[test]
fn blanks_in_signed_values_are_collapsed_and_repeated_headers_joined() {
    let mut a = Req::get(&[("x-amz-meta-a", "one  two")]);
    a.sign("host;x-amz-content-sha256;x-amz-date;x-amz-meta-a");
    a.headers.insert("x-amz-meta-a", HeaderValue::from_static("  one two "));
    assert!(a.check().is_ok());
    a.headers.append("x-amz-meta-a", HeaderValue::from_static("three"));
    assert_eq!(a.code(), S3Code::SignatureDoesNotMatch);
}

#[test]
fn case_145_signed_values_may_be_utf8() {
    let mut r = Req::get(&[("x-amz-meta-a", "é")]);
    r.sign("host;x-amz-content-sha256;x-amz-date;x-amz-meta-a");
    assert!(r.check().is_ok());
}

#[test]
fn case_120_the_host_counts_as_it_was_sent() {
    for host in ["localhost:8333", "localhost:80", "LocalHost", "[::1]:9000"] {
        let mut r = Req::get(&[]);
        r.set("host", host);
        r.sign(SIGNED);
        assert!(r.check().is_ok(), "{host}");
    }
}

#[test]
fn expect_may_be_signed() {
    let mut r = Req::get(&[("expect", "100-continue")]);
    r.sign("expect;host;x-amz-content-sha256;x-amz-date");
    assert!(r.check().is_ok());
}

#[test]
fn session_tokens_are_refused_because_nobody_gets_one() {
    let mut r = Req::get(&[("x-amz-security-token", "t")]);
    r.sign("host;x-amz-content-sha256;x-amz-date;x-amz-security-token");
    assert_eq!(r.code(), S3Code::InvalidToken);
}

#[test]
fn row_67_no_error_and_no_debug_text_holds_the_secret() {
    let mut r = Req::get(&[]);
    r.authorize(SIGNED, &"0".repeat(64));
    let e = r.check().expect_err("wrong");
    assert!(e.extra.iter().any(|(n, v)| *n == "StringToSign" && v.starts_with("AWS4-HMAC-SHA256\n20130524T000000Z\n")));
    assert!(e.extra.iter().any(|(n, v)| *n == "CanonicalRequest" && v.starts_with("GET\n/test.txt\n")));
    let scope = Scope { date: "20130524", region: "us-east-1", service: "s3" };
    let key = SigningKey::derive(SECRET, &scope);
    let text = format!("{e:?} {key:?} {:?}", ChunkSigner::new(key.clone(), "t", &scope, "s"));
    assert!(!text.contains(SECRET) && !text.contains("wJalr"));
    assert!(text.contains("SigningKey ChunkSigner"));
}

#[test]
fn a_changed_secret_counts_at_once() {
    let scope = Scope { date: "20130524", region: "us-east-1", service: "s3" };
    let keys = SigningKeys::default();
    let old = OneCredential.credential(ACCESS_KEY).expect("known");
    let mut new = (*old).clone();
    new.secret_key = "another secret".into();
    let first = keys.get(&old, &scope).sign(b"x");
    assert_eq!(first, keys.get(&OneCredential.credential(ACCESS_KEY).expect("known"), &scope).sign(b"x"));
    assert_ne!(first, keys.get(&Arc::new(new), &scope).sign(b"x"));
    let tomorrow = Scope { date: "20130525", ..scope };
    assert_ne!(first, keys.get(&old, &tomorrow).sign(b"x"));
}

#[test]
fn signatures_of_forms_hold_for_their_policy_only() {
    let v = verifier_at(NOW);
    let scope = Scope { date: "20130524", region: "us-east-1", service: "s3" };
    let signature = SigningKey::derive(SECRET, &scope).sign(b"cG9saWN5");
    let signature = std::str::from_utf8(&signature).expect("hex");
    let credential = format!("{ACCESS_KEY}/20130524/us-east-1/s3/aws4_request");
    let v4 = |credential, signature| PostSignature::V4 {
        algorithm: "AWS4-HMAC-SHA256",
        credential,
        date: "20130524T000000Z",
        signature,
    };
    assert!(v.authenticate_post(&v4(&credential, signature), "cG9saWN5").is_ok());
    let code = |s: &PostSignature<'_>, p| v.authenticate_post(s, p).expect_err("wrong").code;
    assert_eq!(code(&v4(&credential, signature), "b3RoZXI="), S3Code::SignatureDoesNotMatch);
    assert_eq!(code(&v4("x/20130524/us-east-1/s3/aws4_request", signature), "cG9saWN5"), S3Code::InvalidAccessKeyId);
    assert_eq!(code(&v4("junk", signature), "cG9saWN5"), S3Code::InvalidArgument);
    let v2 = PostSignature::V2 { access_key: ACCESS_KEY, signature: "AAAA" };
    assert_eq!(code(&v2, "cG9saWN5"), S3Code::SignatureDoesNotMatch);
}

proptest! {
    /// Whatever a client sends, the verifier answers; and only a good signature gets an account.
    #[test]
    fn no_input_panics_or_authenticates(value in "(AWS4-HMAC-SHA256 )?[ -~]{0,80}", query in "[ -~&&[^#]]{0,60}") {
        let Ok(query) = crate::request::Query::parse(&query) else { return Ok(()) };
        let mut r = Req::get(&[]);
        r.set("authorization", &value);
        let head = Head { method: "GET", path: "/k", query: &query, headers: &r.headers };
        prop_assert!(verifier_at(NOW).authenticate(&head).is_err());
    }

    /// Canonicalisation: decoding what was encoded gives the same text, so each key has exactly one canonical form.
    #[test]
    fn encoding_is_the_inverse_of_decoding(text in "\\PC{0,40}") {
        let mut encoded = Vec::new();
        uri_encode(&mut encoded, &text, true);
        let encoded = String::from_utf8(encoded).expect("ASCII");
        prop_assert!(encoded.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._~%/".contains(&c)));
        prop_assert_eq!(crate::request::percent_decode(&encoded, false).expect("valid"), text);
    }

    /// The order in which a client sends its parameters does not matter to the signature.
    #[test]
    fn queries_are_canonical_in_any_order(mut pairs in proptest::collection::vec(("[a-c+%&]{1,2}", "[a-c /=]{0,2}"), 0..5)) {
        let text = |pairs: &[(String, String)]| {
            let enc = |s: &str| { let mut o = Vec::new(); uri_encode(&mut o, s, false); String::from_utf8(o).expect("ASCII") };
            pairs.iter().map(|(n, v)| format!("{}={}", enc(n), enc(v))).collect::<Vec<_>>().join("&")
        };
        let mut r = Req::get(&[]);
        r.query = text(&pairs);
        r.sign(SIGNED);
        pairs.reverse();
        r.query = text(&pairs);
        prop_assert!(r.check().is_ok());
    }
}
