//! Authentication: the one function through which every request must pass.
//!
//! Promises: default deny; every signing mode is verified by the same code; credentials that were sent and are wrong never fall
//! back to anonymous; comparisons take constant time; no secret appears in errors, logs or `Debug`.
//! Refuses to know: what the identity may do.

mod canonical;
mod date;
mod header;
mod keys;
mod payload;
mod post;
mod presigned;
mod signing;
#[cfg(test)]
mod tests;

pub use canonical::uri_encode;
pub use date::{format_amz_date, parse_amz_date, parse_iso_date};
pub use payload::PayloadMode;
pub use post::PostSignature;
pub use signing::{ChunkSigner, Scope, SigningKey};

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::names;
use crate::request::{AuthenticationKind, Identity, Query};
use crate::response::BasicDate;
use canonical::SignedParts;
use http::HeaderMap;
use keys::SigningKeys;
use object_controller::api::{Credential, ObjectStore};
use std::sync::Arc;

/// Milliseconds since the epoch, as the caller's clock says.
pub type NowMs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Knows the credentials.
pub trait CredentialSource: Send + Sync + 'static {
    /// The credential of `access_key`; answered from memory.
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>>;
}

impl<S: ObjectStore> CredentialSource for S {
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        ObjectStore::credential(self, access_key)
    }
}

/// Which scope signatures must have.
#[derive(Clone)]
pub struct AuthConfig {
    /// Such as `us-east-1`.
    pub region: String,
    /// `s3`, or `ashlar` for the admin API.
    pub service: &'static str,
    /// The clock.
    pub now_ms: NowMs,
}

/// Verifies signatures.
pub struct Authenticator {
    config: AuthConfig,
    credentials: Arc<dyn CredentialSource>,
    keys: SigningKeys,
}

/// What of a request is signed.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Method.
    pub method: &'a str,
    /// The decoded path.
    pub path: &'a str,
    /// The decoded query.
    pub query: &'a Query,
    /// Headers.
    pub headers: &'a HeaderMap,
}

/// A request whose credentials hold.
#[derive(Debug)]
pub struct Authenticated {
    /// Who.
    pub identity: Identity,
    /// How.
    pub kind: AuthenticationKind,
    /// What binds the body.
    pub payload: PayloadMode,
    /// Checks the chunks of a signed streaming body.
    pub signer: Option<ChunkSigner>,
}

impl Authenticated {
    /// A CORS preflight: no credentials, no body.
    pub fn preflight() -> Self {
        Authenticated {
            identity: Identity::Anonymous,
            kind: AuthenticationKind::None,
            payload: PayloadMode::Unsigned,
            signer: None,
        }
    }
}

/// What a client claims, from either place, before anything is verified.
struct Claim<'a> {
    access_key: &'a str,
    scope: Scope<'a>,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
    /// Parsed request date.
    date_ms: u64,
    payload: &'a str,
    presigned: bool,
}

impl Authenticator {
    /// A verifier for one scope.
    pub fn new(config: AuthConfig, credentials: Arc<dyn CredentialSource>) -> Self {
        Authenticator { config, credentials, keys: SigningKeys::default() }
    }

    /// The clock it judges by.
    pub fn now_ms(&self) -> u64 {
        (self.config.now_ms)()
    }

    /// The region of its scope.
    pub fn region(&self) -> &str {
        &self.config.region
    }

    /// Authenticates a request.
    pub fn authenticate(&self, head: &Head<'_>) -> S3Result<Authenticated> {
        let by_header = head.headers.contains_key(http::header::AUTHORIZATION);
        let by_query = presigned::is_presigned(head.query);
        match (by_header, by_query) {
            (true, true) => Err(S3Error::with(S3Code::InvalidArgument, "Only one auth mechanism allowed")),
            (true, false) => self.verify(head, header::claim(head)?),
            (false, true) => self.verify(head, presigned::claim(head, self.now_ms())?),
            (false, false) => anonymous(head),
        }
    }

    fn verify(&self, head: &Head<'_>, claim: Claim<'_>) -> S3Result<Authenticated> {
        let timestamp = BasicDate::of(claim.date_ms);
        let timestamp = timestamp.as_str();
        self.check_scope(&claim, timestamp)?;
        let credential = self.credential(claim.access_key)?;
        if !claim.presigned {
            self.check_skew(claim.date_ms)?;
        }
        check_all_signed(head, &claim.signed_headers)?;
        let payload = PayloadMode::parse(claim.payload)?;
        let key = self.keys.get(&credential, &claim.scope);
        let parts = SignedParts { head, signed_headers: &claim.signed_headers, payload: claim.payload };
        let canonical = parts.canonical_request(claim.presigned)?;
        let to_sign = signing::string_to_sign(timestamp, &claim.scope, &canonical);
        if !key.verify(to_sign.as_bytes(), claim.signature) {
            return Err(mismatch(&claim, &to_sign, &canonical));
        }
        let signer = match (payload.signs_chunks(), claim.presigned) {
            (true, true) => {
                return Err(S3Error::with(S3Code::InvalidRequest, "A presigned URL cannot sign chunks"));
            }
            (true, false) => Some(ChunkSigner::new(key, timestamp, &claim.scope, claim.signature)),
            (false, _) => None,
        };
        let kind = if claim.presigned { AuthenticationKind::Presigned } else { AuthenticationKind::Header };
        Ok(Authenticated { identity: Identity::Account(credential), kind, payload, signer })
    }

    fn credential(&self, access_key: &str) -> S3Result<Arc<Credential>> {
        self.credentials
            .credential(access_key)
            .ok_or_else(|| S3Error::new(S3Code::InvalidAccessKeyId).extra("AWSAccessKeyId", access_key))
    }

    fn check_scope(&self, claim: &Claim<'_>, timestamp: &str) -> S3Result<()> {
        let malformed = |message: String| {
            let code = if claim.presigned {
                S3Code::AuthorizationQueryParametersError
            } else {
                S3Code::AuthorizationHeaderMalformed
            };
            S3Error::with(code, message)
        };
        let scope = &claim.scope;
        if scope.region != self.config.region {
            let message = format!("the region '{}' is wrong; expecting '{}'", scope.region, self.config.region);
            return Err(malformed(message).extra("Region", self.config.region.as_str()));
        }
        if scope.service != self.config.service {
            let message = format!("the service '{}' is wrong; expecting '{}'", scope.service, self.config.service);
            return Err(malformed(message));
        }
        if !timestamp.starts_with(scope.date) {
            return Err(malformed("the date of the credential does not fit the date of the request".to_owned()));
        }
        Ok(())
    }

    fn check_skew(&self, date_ms: u64) -> S3Result<()> {
        let now = self.now_ms();
        if now.abs_diff(date_ms) <= limits::CLOCK_SKEW_MS {
            return Ok(());
        }
        Err(S3Error::new(S3Code::RequestTimeTooSkewed)
            .extra("RequestTime", format_amz_date(date_ms))
            .extra("ServerTime", crate::response::iso_date(now))
            .extra("MaxAllowedSkewMilliseconds", limits::CLOCK_SKEW_MS.to_string()))
    }
}

/// No credentials at all. A mode that promises signatures is refused.
fn anonymous(head: &Head<'_>) -> S3Result<Authenticated> {
    let payload = match head.headers.get(names::X_AMZ_CONTENT_SHA256) {
        None => PayloadMode::Unsigned,
        Some(value) => PayloadMode::parse(value.to_str().unwrap_or(""))?,
    };
    if payload.signs_chunks() {
        return Err(S3Error::new(S3Code::AccessDenied));
    }
    Ok(Authenticated { identity: Identity::Anonymous, kind: AuthenticationKind::None, payload, signer: None })
}

/// Everything that could change the meaning of a request must be signed: the host and every `x-amz-*` header.
fn check_all_signed(head: &Head<'_>, signed: &[&str]) -> S3Result<()> {
    let sent = head.headers.keys().map(|n| n.as_str()).filter(|n| n.starts_with("x-amz-")).chain(["host"]);
    let mut missing = sent.filter(|n| signed.binary_search(n).is_err());
    let Some(first) = missing.next() else { return Ok(()) };
    let mut missing: Vec<&str> = [first].into_iter().chain(missing).collect();
    missing.sort_unstable();
    Err(S3Error::with(S3Code::AccessDenied, "There were headers present in the request which were not signed")
        .extra("HeadersNotSigned", missing.join(", ")))
}

/// A SignedHeaders list: lower case, ascending, each once.
fn parse_signed_headers<'a>(list: &'a str, malformed: &dyn Fn(&'static str) -> S3Error) -> S3Result<Vec<&'a str>> {
    let (mut names, mut rest) = (Vec::with_capacity(8), Some(list));
    while let Some(list) = rest.filter(|_| names.len() <= limits::SIGNED_HEADERS_MAX) {
        let (name, others) = header::cut(list, b';').map_or((list, None), |(name, others)| (name, Some(others)));
        names.push(name);
        rest = others;
    }
    let token = |name: &&str| {
        let mut plain = !name.is_empty();
        for c in name.as_bytes() {
            plain &= c.is_ascii_graphic() && !c.is_ascii_uppercase();
        }
        plain
    };
    if names.len() > limits::SIGNED_HEADERS_MAX || !names.iter().all(token) {
        return Err(malformed("SignedHeaders is malformed"));
    }
    if !names.is_sorted_by(|a, b| a < b) {
        return Err(malformed("SignedHeaders is not sorted or names a header twice"));
    }
    Ok(names)
}

fn mismatch(claim: &Claim<'_>, to_sign: &str, canonical: &[u8]) -> S3Error {
    S3Error::new(S3Code::SignatureDoesNotMatch)
        .extra("AWSAccessKeyId", claim.access_key)
        .extra("StringToSign", to_sign)
        .extra("SignatureProvided", claim.signature)
        .extra("CanonicalRequest", String::from_utf8_lossy(canonical))
}
