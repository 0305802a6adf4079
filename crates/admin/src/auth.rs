//! Who may use the admin API: root, by a SigV4 signature that covers the body.

use bytes::Bytes;
use http::request::Parts;
use s3::auth::{Authenticator, Head, PayloadMode};
use s3::error::{S3Code, S3Error, S3Result};
use s3::request::Query;
use sha2::{Digest, Sha256};

/// Checks that root signed this request and this body.
pub fn check_root(authenticator: &Authenticator, head: &Parts, body: &Bytes) -> S3Result<()> {
    let query = Query::parse(head.uri.query().unwrap_or(""))?;
    let signed = Head { method: head.method.as_str(), path: head.uri.path(), query: &query, headers: &head.headers };
    let authenticated = authenticator.authenticate(&signed)?;
    if !authenticated.identity.is_root() {
        return Err(S3Error::new(S3Code::AccessDenied));
    }
    match authenticated.payload {
        PayloadMode::Sha256(digest) if digest[..] == Sha256::digest(body)[..] => Ok(()),
        PayloadMode::Sha256(_) => Err(S3Error::new(S3Code::XAmzContentSHA256Mismatch)),
        PayloadMode::Unsigned
        | PayloadMode::StreamingSigned
        | PayloadMode::StreamingSignedTrailer
        | PayloadMode::StreamingUnsignedTrailer => Err(S3Error::with(
            S3Code::InvalidRequest,
            "the admin API needs the SHA-256 of the body in x-amz-content-sha256",
        )),
    }
}
