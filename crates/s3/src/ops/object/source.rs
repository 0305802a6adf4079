//! Where CopyObject and UploadPartCopy read.

use crate::access::Access;
use crate::conditions;
use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::{Service, expect_owner, headers};
use crate::policy::Action;
use crate::request::{S3Request, percent_decode};
use http::HeaderName;
use object_controller::api::{CopySource, ObjectStore, ReadConditions};
use types::{BucketName, ObjectKey, VersionId};

const HEADER: &str = "x-amz-copy-source";

/// The source as the header names it: decoded exactly once.
#[derive(Debug)]
pub struct Source {
    pub bucket: BucketName,
    pub key: ObjectKey,
    pub version: Option<VersionId>,
}

/// Reads `bucket/key` or `/bucket/key`, percent-encoded, with or without `?versionId=…`.
pub fn parse_source(header: &[u8]) -> S3Result<Source> {
    let bad = |message: &'static str| S3Error::with(S3Code::InvalidArgument, message).extra("ArgumentName", HEADER);
    let format = || bad("Copy Source must mention the source bucket and key: sourcebucket/sourcekey");
    let text = std::str::from_utf8(header).map_err(|_| format())?;
    let (path, version) = match text.rsplit_once("?versionId=") {
        Some((path, version)) => (path, Some(headers::version_from_text(version)?)),
        None => (text, None),
    };
    let decoded = percent_decode(path, false).map_err(|_| bad("Invalid copy source encoding"))?;
    let decoded = decoded.strip_prefix('/').unwrap_or(&decoded);
    let (bucket, key) = decoded.split_once('/').ok_or_else(format)?;
    if key.is_empty() {
        return Err(format());
    }
    let bucket = BucketName::new(bucket).map_err(|_| bad("Invalid copy source bucket name"))?;
    Ok(Source { bucket, key: ObjectKey::new(key)?, version })
}

/// The source of a request, with the caller's right to read it checked.
pub fn check_source_access<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<CopySource> {
    let header = request.headers.get(HEADER).ok_or_else(|| S3Error::new(S3Code::InvalidRequest))?;
    let source = parse_source(header.as_bytes())?;
    let bucket = service.find_bucket(&source.bucket)?;
    expect_owner(&request.headers, HeaderName::from_static("x-amz-source-expected-bucket-owner"), &bucket)?;
    let access = Access::new(&service.policies, &request.identity, &bucket);
    let action = if source.version.is_some() { Action::GetObjectVersion } else { Action::GetObject };
    access.require_key(action, &source.key)?;
    let conditions: ReadConditions = conditions::of_copy_source(&request.headers);
    Ok(CopySource { bucket: bucket.clone(), key: source.key, version: source.version, conditions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_126_and_127_a_source_is_decoded_exactly_once() {
        for text in
            ["/bucket/a%20b%2Bc%7B%7D/%C3%A9%3F.txt", "bucket/a%20b+c{}/é%3F.txt", "bucket%2Fa%20b+c{}%2Fé%3F.txt"]
        {
            let source = parse_source(text.as_bytes()).expect("a source");
            assert_eq!((source.bucket.as_str(), source.key.as_str()), ("bucket", "a b+c{}/é?.txt"), "{text}");
        }
        assert_eq!(parse_source(b"bucket/%252F").expect("a source").key.as_str(), "%2F");
        assert_eq!(parse_source(b"bucket//lead").expect("a source").key.as_str(), "/lead");
        let with_version = parse_source(b"bucket/k?versionId=null").expect("a source");
        assert_eq!((with_version.key.as_str(), with_version.version), ("k", Some(VersionId::Null)));
    }

    #[test]
    fn row_28_an_empty_or_broken_source_is_refused() {
        for bad in ["", "/", "bucket", "bucket/", "/bucket", "b/k", "bucket/%", "bucket/k?versionId=x", "bucket/%00"] {
            assert_eq!(parse_source(bad.as_bytes()).map_err(|e| e.code).err(), Some(S3Code::InvalidArgument), "{bad}");
        }
    }
}
