//! The request target: path and host to bucket and key.
//!
//! Promises: decoded exactly once, then split; so what is signed, authorised and stored is one value. NUL, invalid UTF-8 and
//! malformed percent-encoding are refused.

use super::{Query, RequestBucket};
use crate::error::{S3Code, S3Error, S3Result};
use std::borrow::Cow;
use types::{BucketName, ObjectKey};

/// Where a request points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The decoded path, as signed.
    pub path: String,
    /// Bucket.
    pub bucket: Option<RequestBucket>,
    /// Key.
    pub key: Option<ObjectKey>,
    /// Query.
    pub query: Query,
    /// The bucket came from the host.
    pub virtual_host: bool,
}

impl Target {
    /// Parses the raw path and query, with the host (port allowed) and the domains under which buckets are hosts.
    pub fn parse(raw_path: &str, raw_query: &str, host: &str, domains: &[String]) -> S3Result<Self> {
        let path = percent_decode(raw_path, false)?;
        let Some(rest) = path.strip_prefix('/') else {
            return Err(S3Error::new(S3Code::InvalidURI));
        };
        let from_host = bucket_of_host(host, domains);
        let virtual_host = from_host.is_some();
        let (bucket, key) = match &from_host {
            Some(bucket) => (bucket.as_ref(), rest),
            None => rest.split_once('/').unwrap_or((rest, "")),
        };
        let key = if key.is_empty() { None } else { Some(ObjectKey::new(key)?) };
        if bucket.is_empty() && key.is_some() {
            return Err(S3Error::new(S3Code::InvalidBucketName).extra("BucketName", ""));
        }
        let bucket =
            (!bucket.is_empty()).then(|| RequestBucket { raw: bucket.to_owned(), name: BucketName::new(bucket).ok() });
        let query = Query::parse(raw_query)?;
        Ok(Target { bucket, key, query, virtual_host, path })
    }
}

/// `bucket` of `bucket.domain:port`; `None` if the host is the domain itself or not below one.
fn bucket_of_host<'a>(host: &'a str, domains: &[String]) -> Option<Cow<'a, str>> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    for domain in domains {
        let Some(split) = name.len().checked_sub(domain.len() + 1).filter(|s| name.is_char_boundary(*s)) else {
            continue;
        };
        let (bucket, suffix) = name.split_at(split);
        if let Some(s) = suffix.strip_prefix('.')
            && s.eq_ignore_ascii_case(domain)
            && !bucket.is_empty()
        {
            let upper = bucket.bytes().any(|c| c.is_ascii_uppercase());
            return Some(if upper { Cow::Owned(bucket.to_ascii_lowercase()) } else { Cow::Borrowed(bucket) });
        }
    }
    None
}

fn invalid_uri() -> S3Error {
    S3Error::new(S3Code::InvalidURI)
}

/// Decodes `%XX` once (and `+` to a space if `plus`). Refuses malformed escapes, NUL and what is not UTF-8.
pub fn percent_decode(raw: &str, plus: bool) -> S3Result<String> {
    let bytes = raw.as_bytes();
    if memchr::memchr2(b'%', if plus { b'+' } else { b'%' }, bytes).is_none() {
        return if bytes.contains(&0) { Err(invalid_uri()) } else { Ok(raw.to_owned()) };
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        let c = match c {
            b'%' => {
                let [hi, lo, tail @ ..] = rest else { return Err(invalid_uri()) };
                rest = tail;
                hex_digit(*hi).zip(hex_digit(*lo)).map(|(h, l)| h << 4 | l).ok_or_else(invalid_uri)?
            }
            b'+' if plus => b' ',
            c => c,
        };
        if c == 0 {
            return Err(invalid_uri());
        }
        out.push(c);
    }
    String::from_utf8(out).map_err(|_| invalid_uri())
}

fn hex_digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(path: &str, host: &str) -> S3Result<Target> {
        Target::parse(path, "", host, &["s3.example.com".to_owned(), "localhost".to_owned()])
    }

    fn key(path: &str) -> Option<String> {
        target(path, "127.0.0.1:9000").expect("valid").key.map(|k| k.as_str().to_owned())
    }

    #[test]
    fn row_22_keys_are_literal_and_never_normalised() {
        for (path, want) in [
            ("/b/a//b", "a//b"),
            ("/b//lead", "/lead"),
            ("/b/a/../b", "a/../b"),
            ("/b/a/./b", "a/./b"),
            ("/b/trail/", "trail/"),
            ("/b/../other/x", "../other/x"),
            ("/b/%2e%2e%2fx", "../x"),
            ("/b/..%5Cx", "..\\x"),
            ("/b/x.", "x."),
            ("/b//", "/"),
            ("/b/a+b", "a+b"),
            ("/b/%252F", "%2F"),
        ] {
            assert_eq!(key(path).as_deref(), Some(want), "{path}");
        }
        assert_eq!(key("/b"), None);
        assert_eq!(key("/b/"), None);
    }

    #[test]
    fn row_66_malformed_percent_encoding_nul_and_bad_utf8_are_refused() {
        for path in ["/b/%", "/b/%4", "/b/%zz", "/b/%00", "/b/a%00b", "/b/%ff", "/%", "/b/%c3%28", "b", "*", ""] {
            assert_eq!(target(path, "h").map_err(|e| e.code), Err(S3Code::InvalidURI), "{path}");
        }
        assert!(Query::parse("a=%").is_err());
        assert!(Query::parse("%00").is_err());
    }

    #[test]
    fn row_53_a_key_of_1025_bytes_is_too_long() {
        let long = format!("/b/{}", "k".repeat(1025));
        assert_eq!(target(&long, "h").map_err(|e| e.code), Err(S3Code::KeyTooLongError));
        assert_eq!(key(&format!("/b/{}", "%E2%82%AC".repeat(341))).map(|k| k.len()), Some(1023));
    }

    #[test]
    fn row_25_names_of_the_system_are_no_valid_buckets() {
        let t = target("/.sys/x", "h").expect("parses");
        assert_eq!(t.bucket, Some(RequestBucket { raw: ".sys".into(), name: None }));
    }

    #[test]
    fn a_bucket_may_stand_in_the_host() {
        for host in ["my.bucket.localhost:9000", "My.Bucket.LOCALHOST", "my.bucket.s3.example.com:80"] {
            let t = target("/a//b", host).expect("valid");
            assert!(t.virtual_host);
            assert_eq!(t.bucket.map(|b| b.raw).as_deref(), Some("my.bucket"), "{host}");
            assert_eq!(t.key.map(|k| k.as_str().to_owned()).as_deref(), Some("a//b"));
        }
        assert_eq!(target("/k", "b.localhost").expect("the second domain").bucket.map(|b| b.raw).as_deref(), Some("b"));
        for host in ["localhost:9000", ".localhost", "xlocalhost", "[::1]:80", "é"] {
            assert!(!target("/b/k", host).expect("valid").virtual_host, "{host}");
        }
    }

    #[test]
    fn the_query_keeps_order_flags_and_repeats() {
        let q = Query::parse("uploads&prefix=a+b%2B&x=1&x=2&&e=").expect("valid");
        assert!(q.has("uploads"));
        assert_eq!(q.get("prefix"), Some("a b+"));
        assert_eq!(q.iter().filter(|(n, _)| *n == "x").count(), 2);
        assert_eq!(q.get("e"), Some(""));
        assert_eq!(q.get("absent"), None);
    }

    proptest! {
        /// Whatever is sent, it is refused or every part of it is found again.
        #[test]
        fn no_target_panics(path in "/?[ -~é%/]{0,30}", query in "[ -~&=+%]{0,30}", host in "\\PC{0,20}") {
            if let Ok(t) = Target::parse(&path, &query, &host, &["localhost".to_owned(), "é".to_owned()]) {
                let bucket = t.bucket.map_or(String::new(), |b| b.raw);
                let key = t.key.map_or(String::new(), |k| k.as_str().to_owned());
                if !t.virtual_host && !key.is_empty() {
                    prop_assert_eq!(format!("/{bucket}/{key}"), t.path);
                }
            }
        }
    }
}
