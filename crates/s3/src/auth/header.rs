//! The `Authorization` header.

use super::{Claim, Head, Scope, date, parse_signed_headers};
use crate::error::{S3Code, S3Error, S3Result};
use crate::names;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

fn malformed(why: &'static str) -> S3Error {
    S3Error::with(S3Code::AuthorizationHeaderMalformed, why)
}

/// What the header claims.
pub fn claim<'a>(head: &Head<'a>) -> S3Result<Claim<'a>> {
    let mut values = head.headers.get_all(http::header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(malformed("The Authorization header was sent twice"));
    }
    let value = first.and_then(|v| v.to_str().ok()).ok_or_else(|| malformed("The header is not visible ASCII"))?;
    let fields = fields_after_algorithm(value)?;
    let (credential, signed_headers, signature) = split_fields(fields)?;
    let (access_key, scope) =
        Scope::of_credential(credential).ok_or_else(|| malformed("The Credential is malformed"))?;
    let signed_headers = parse_signed_headers(signed_headers, &malformed)?;
    let date_ms = request_date(head)?;
    super::presigned::refuse_token(head)?;
    let payload = match head.headers.get(names::X_AMZ_CONTENT_SHA256) {
        Some(v) => v.to_str().unwrap_or(""),
        None => {
            return Err(S3Error::with(
                S3Code::InvalidRequest,
                "Missing required header for this request: x-amz-content-sha256",
            ));
        }
    };
    Ok(Claim { access_key, scope, signed_headers, signature, date_ms, payload, presigned: false })
}

fn fields_after_algorithm(value: &str) -> S3Result<&str> {
    let value = value.trim();
    if value.is_empty() {
        return Err(S3Error::new(S3Code::AccessDenied));
    }
    let (scheme, rest) = cut(value, b' ').unwrap_or((value, ""));
    match scheme {
        ALGORITHM => Ok(rest),
        "AWS" => Err(unsupported()),
        s if s.starts_with("AWS4-") => Err(unsupported()),
        _ => Err(malformed("The authorization mechanism is not known")),
    }
}

pub(super) fn unsupported() -> S3Error {
    S3Error::with(
        S3Code::InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
    )
}

/// Before and after the first `at`, which is ASCII.
pub(super) fn cut(text: &str, at: u8) -> Option<(&str, &str)> {
    let index = memchr::memchr(at, text.as_bytes())?;
    Some((&text[..index], &text[index + 1..]))
}

/// Credential, SignedHeaders and Signature, each exactly once.
fn split_fields(fields: &str) -> S3Result<(&str, &str, &str)> {
    let mut found: [Option<&str>; 3] = [None; 3];
    let mut rest = Some(fields);
    while let Some(fields) = rest {
        let (field, others) = cut(fields, b',').map_or((fields, None), |(field, others)| (field, Some(others)));
        rest = others;
        let (name, value) = cut(field.trim(), b'=').ok_or_else(|| malformed("A field lacks its value"))?;
        let slot = match name {
            "Credential" => 0,
            "SignedHeaders" => 1,
            "Signature" => 2,
            _ => return Err(malformed("A field is not known")),
        };
        if found[slot].replace(value).is_some() {
            return Err(malformed("A field was sent twice"));
        }
    }
    match found {
        [Some(c), Some(h), Some(s)] => Ok((c, h, s)),
        _ => Err(malformed("Credential, SignedHeaders and Signature are all required")),
    }
}

/// `x-amz-date`, or `Date` where that is missing.
fn request_date(head: &Head<'_>) -> S3Result<u64> {
    let value = head.headers.get(names::X_AMZ_DATE).or_else(|| head.headers.get(http::header::DATE));
    value.and_then(|v| v.to_str().ok()).and_then(date::parse_amz_date).ok_or_else(|| {
        S3Error::with(S3Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
    })
}
