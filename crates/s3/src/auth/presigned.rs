//! Presigned URLs: the same claim, in query parameters.

use super::{Claim, Head, Scope, date, header, parse_signed_headers};
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::names;
use crate::request::Query;

fn malformed(why: &'static str) -> S3Error {
    S3Error::with(S3Code::AuthorizationQueryParametersError, why)
}

/// Whether the query holds any sign of credentials, also of mechanisms that are then refused.
pub fn is_presigned(query: &Query) -> bool {
    query.iter().any(|(n, _)| {
        let amz = ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders"];
        amz.iter().any(|a| a.eq_ignore_ascii_case(n)) || n == "AWSAccessKeyId" || n == "Signature"
    })
}

/// A session token belongs to temporary credentials, of which there are none.
pub(super) fn refuse_token(head: &Head<'_>) -> S3Result<()> {
    if head.headers.contains_key(names::X_AMZ_SECURITY_TOKEN) || head.query.has("X-Amz-Security-Token") {
        return Err(S3Error::new(S3Code::InvalidToken));
    }
    Ok(())
}

/// The one parameter of that name.
fn only<'a>(query: &'a Query, name: &str) -> S3Result<&'a str> {
    let mut values = query.iter().filter(|(n, _)| *n == name).map(|(_, v)| v);
    match (values.next(), values.next()) {
        (Some(v), None) => Ok(v),
        _ => Err(malformed(
            "Query-string authentication needs X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, \
             X-Amz-SignedHeaders and X-Amz-Expires, each once",
        )),
    }
}

/// What the query claims; its life is judged here.
pub fn claim<'a>(head: &Head<'a>, now_ms: u64) -> S3Result<Claim<'a>> {
    let query = head.query;
    if query.has("AWSAccessKeyId") || query.has("Signature") {
        return Err(header::unsupported());
    }
    if only(query, "X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
        return Err(malformed("X-Amz-Algorithm only supports AWS4-HMAC-SHA256"));
    }
    let (access_key, scope) = Scope::of_credential(only(query, "X-Amz-Credential")?)
        .ok_or_else(|| malformed("The X-Amz-Credential is malformed"))?;
    let signed_headers = parse_signed_headers(only(query, "X-Amz-SignedHeaders")?, &malformed)?;
    let signature = only(query, "X-Amz-Signature")?;
    let date_ms = date::parse_amz_date(only(query, "X-Amz-Date")?)
        .ok_or_else(|| malformed("X-Amz-Date must be in the form yyyyMMddTHHmmssZ"))?;
    check_life(only(query, "X-Amz-Expires")?, date_ms, now_ms)?;
    refuse_token(head)?;
    let payload = match head.headers.get(names::X_AMZ_CONTENT_SHA256) {
        Some(v) => v.to_str().unwrap_or(""),
        None => query.get("X-Amz-Content-Sha256").unwrap_or("UNSIGNED-PAYLOAD"),
    };
    Ok(Claim { access_key, scope, signed_headers, signature, date_ms, payload, presigned: true })
}

fn check_life(expires: &str, date_ms: u64, now_ms: u64) -> S3Result<()> {
    let denied = |why: &'static str| S3Error::with(S3Code::AccessDenied, why).extra("X-Amz-Expires", expires);
    let digits = !expires.is_empty() && expires.bytes().all(|c| c.is_ascii_digit());
    let seconds = expires.parse::<u64>().ok().filter(|_| digits);
    let seconds = seconds
        .filter(|s| (1..=limits::PRESIGN_MAX_SECONDS).contains(s))
        .ok_or_else(|| denied("X-Amz-Expires must be a number of seconds from 1 to 604800"))?;
    let server_time = crate::response::iso_date(now_ms);
    if date_ms > now_ms + limits::CLOCK_SKEW_MS {
        return Err(denied("Request is not valid yet").extra("ServerTime", server_time));
    }
    let end_ms = date_ms + seconds * 1000;
    if now_ms > end_ms {
        return Err(denied("Request has expired")
            .extra("Expires", crate::response::iso_date(end_ms))
            .extra("ServerTime", server_time));
    }
    Ok(())
}
