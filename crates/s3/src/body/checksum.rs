//! The additional checksums of S3 as headers and trailers say them.

use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use types::ChecksumAlgorithm;

/// What the client said of the body's checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeclaredChecksum {
    /// Nothing.
    None,
    /// Only `x-amz-sdk-checksum-algorithm`: to be computed, nothing to compare.
    Named(ChecksumAlgorithm),
    /// A header with the value.
    Header(ChecksumAlgorithm, Vec<u8>),
    /// To come in a trailer.
    Trailer(ChecksumAlgorithm),
}

impl DeclaredChecksum {
    /// Which algorithm.
    pub fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        match self {
            DeclaredChecksum::None => None,
            DeclaredChecksum::Named(a) | DeclaredChecksum::Header(a, _) | DeclaredChecksum::Trailer(a) => Some(*a),
        }
    }

    /// Reads the headers that speak of it.
    pub fn of(headers: &HeaderMap) -> S3Result<Self> {
        let named = match text(headers, names::X_AMZ_SDK_CHECKSUM_ALGORITHM)? {
            None => None,
            Some(name) => Some(ChecksumAlgorithm::parse(name).ok_or_else(|| {
                S3Error::with(S3Code::InvalidRequest, "The checksum algorithm named for the SDK is not supported")
            })?),
        };
        let header = declared_header(headers)?;
        let trailer = declared_trailer(headers)?;
        let declared = match (header, trailer) {
            (Some(_), Some(_)) => {
                return Err(S3Error::with(S3Code::InvalidRequest, "Expecting a single x-amz-checksum- value"));
            }
            (Some((a, d)), None) => DeclaredChecksum::Header(a, d),
            (None, Some(a)) => DeclaredChecksum::Trailer(a),
            (None, None) => named.map_or(DeclaredChecksum::None, DeclaredChecksum::Named),
        };
        if named.is_some() && named != declared.algorithm() {
            return Err(S3Error::with(
                S3Code::InvalidRequest,
                "The value of x-amz-sdk-checksum-algorithm does not fit the checksum that was sent",
            ));
        }
        Ok(declared)
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> S3Result<Option<&str>> {
    match headers.get(name) {
        None => Ok(None),
        Some(v) => v.to_str().map(Some).map_err(|_| S3Error::new(S3Code::InvalidRequest)),
    }
}

/// The one `x-amz-checksum-<algorithm>` header, decoded. Unknown algorithms and a second value are `InvalidRequest`; a value
/// that no body can have is `BadDigest`.
pub fn declared_header(headers: &HeaderMap) -> S3Result<Option<(ChecksumAlgorithm, Vec<u8>)>> {
    let mut found = None;
    for (name, value) in headers {
        let Some(rest) = name.as_str().strip_prefix("x-amz-checksum-") else { continue };
        if matches!(rest, "mode" | "type" | "algorithm") {
            continue;
        }
        let Some(algorithm) = ChecksumAlgorithm::parse(rest) else {
            return Err(S3Error::with(S3Code::InvalidRequest, "The checksum algorithm is not supported"));
        };
        if found.is_some() {
            return Err(S3Error::with(S3Code::InvalidRequest, "Expecting a single x-amz-checksum- header"));
        }
        let digest = decode_checksum(algorithm, value.as_bytes());
        let digest = digest.map_err(|e| S3Error { code: S3Code::BadDigest, ..e })?;
        found = Some((algorithm, digest));
    }
    Ok(found)
}

fn declared_trailer(headers: &HeaderMap) -> S3Result<Option<ChecksumAlgorithm>> {
    let mut found = None;
    for value in headers.get_all(names::X_AMZ_TRAILER) {
        let names = value.to_str().map_err(|_| S3Error::new(S3Code::InvalidRequest))?;
        for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let lower = name.to_ascii_lowercase();
            let algorithm = lower.strip_prefix("x-amz-checksum-").and_then(ChecksumAlgorithm::parse);
            match (algorithm, found) {
                (Some(a), None) => found = Some(a),
                _ => {
                    return Err(S3Error::with(
                        S3Code::InvalidRequest,
                        "The value specified in the x-amz-trailer header is not supported",
                    ));
                }
            }
        }
    }
    Ok(found)
}

/// A checksum's raw digest out of its base64; `InvalidRequest` if it is none.
pub fn decode_checksum(algorithm: ChecksumAlgorithm, value: &[u8]) -> S3Result<Vec<u8>> {
    match STANDARD.decode(value) {
        Ok(d) if d.len() == algorithm.digest_bytes() => Ok(d),
        _ => Err(S3Error::with(S3Code::InvalidRequest, format!("Value for {} header is invalid.", algorithm.header()))),
    }
}
