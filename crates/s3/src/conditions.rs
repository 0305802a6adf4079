//! Conditions in headers: read into the store's types, and judged for reads.
//!
//! Promises: only ever judged after the caller was authorised, so that a condition reveals nothing. An ETag condition
//! outweighs the date condition beside it (RFC 9110 13.2.2). Refuses to know: where the ETag comes from.

use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use http::{HeaderMap, HeaderName, header};
use object_controller::api::{DeleteConditions, PutConditions, ReadConditions};
use std::time::UNIX_EPOCH;
use types::ETag;

/// What a condition of a read says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Go on.
    Proceed,
    /// 304.
    NotModified,
    /// 412, naming the condition.
    Failed(&'static str),
}

/// The text of a header; empty and unreadable values count as absent (case 64).
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|v| !v.is_empty())
}

/// An ETag as a client writes it, with or without quotes, weak or not.
pub fn bare_etag(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text)
}

fn etags(text: &str) -> Vec<String> {
    text.split(',').map(|e| bare_etag(e).to_owned()).filter(|e| !e.is_empty()).collect()
}

/// Seconds since the epoch; a date that is none is ignored, as RFC 9110 asks.
fn date(text: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// The four conditions of a read under these header names.
fn read_from(headers: &HeaderMap, names: [HeaderName; 4]) -> ReadConditions {
    let [if_match, if_none_match, if_modified_since, if_unmodified_since] = names;
    ReadConditions {
        if_match: text(headers, if_match).map(etags),
        if_none_match: text(headers, if_none_match).map(etags),
        if_modified_since: text(headers, if_modified_since).and_then(date),
        if_unmodified_since: text(headers, if_unmodified_since).and_then(date),
    }
}

/// Conditions of GET and HEAD.
pub fn of_read(headers: &HeaderMap) -> ReadConditions {
    read_from(
        headers,
        [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE],
    )
}

/// Conditions on the source of a copy.
pub fn of_copy_source(headers: &HeaderMap) -> ReadConditions {
    read_from(
        headers,
        [
            HeaderName::from_static("x-amz-copy-source-if-match"),
            HeaderName::from_static("x-amz-copy-source-if-none-match"),
            HeaderName::from_static("x-amz-copy-source-if-modified-since"),
            HeaderName::from_static("x-amz-copy-source-if-unmodified-since"),
        ],
    )
}

/// Conditions of a write: `If-None-Match: *` or `If-Match`; what AWS does not have is 501 (case 56).
pub fn of_put(headers: &HeaderMap) -> S3Result<PutConditions> {
    let unsupported = |name: &str| {
        S3Error::with(S3Code::NotImplemented, "A header you provided implies functionality that is not implemented")
            .extra("Header", name)
    };
    let none_match = text(headers, header::IF_NONE_MATCH);
    let if_match = text(headers, header::IF_MATCH).map(|e| bare_etag(e).to_owned());
    for name in [header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE] {
        if headers.contains_key(&name) {
            return Err(unsupported(name.as_str()));
        }
    }
    match (none_match, &if_match) {
        (Some(_), Some(_)) => Err(unsupported("If-None-Match")),
        (Some(value), None) if value != "*" => Err(unsupported("If-None-Match")),
        (value, _) => Ok(PutConditions { must_not_exist: value.is_some(), if_match }),
    }
}

/// Conditions of a delete.
pub fn of_delete(headers: &HeaderMap) -> S3Result<DeleteConditions> {
    let bad = |name: &str, value: &str| S3Error::invalid_argument(name, value, "The condition is not valid");
    let if_match_last_modified = match text(headers, names::X_AMZ_IF_MATCH_LAST_MODIFIED_TIME) {
        Some(v) => Some(any_date(v).ok_or_else(|| bad("x-amz-if-match-last-modified-time", v))?),
        None => None,
    };
    let if_match_size = match text(headers, names::X_AMZ_IF_MATCH_SIZE) {
        Some(v) => Some(v.parse().map_err(|_| bad("x-amz-if-match-size", v))?),
        None => None,
    };
    let if_match = text(headers, header::IF_MATCH).map(|e| bare_etag(e).to_owned());
    Ok(DeleteConditions { if_match, if_match_last_modified, if_match_size })
}

/// A date in any form S3 clients send: of HTTP, or ISO 8601.
pub fn any_date(text: &str) -> Option<u64> {
    use time::format_description::well_known::Rfc3339;
    let iso = || time::OffsetDateTime::parse(text, &Rfc3339).ok().and_then(|t| u64::try_from(t.unix_timestamp()).ok());
    date(text).or_else(iso)
}

/// Judges a read of a version with that ETag and time.
pub fn judge(conditions: &ReadConditions, etag: &ETag, modified_ms: u64) -> Judgement {
    let seconds = modified_ms / 1000;
    let any = |wanted: &[String]| {
        !wanted.is_empty() && {
            let etag = etag.to_string();
            wanted.iter().any(|w| w == "*" || *w == etag)
        }
    };
    match (&conditions.if_match, conditions.if_unmodified_since) {
        (Some(wanted), _) if !any(wanted) => return Judgement::Failed("If-Match"),
        (None, Some(since)) if seconds > since => return Judgement::Failed("If-Unmodified-Since"),
        _ => {}
    }
    match (&conditions.if_none_match, conditions.if_modified_since) {
        (Some(wanted), _) if any(wanted) => Judgement::NotModified,
        (None, Some(since)) if seconds <= since => Judgement::NotModified,
        _ => Judgement::Proceed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: ETag = ETag::Md5([0xab; 16]);

    fn judged(pairs: &[(&'static str, &str)]) -> Judgement {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().expect("a header value"));
        }
        judge(&of_read(&headers), &ETAG, 784_111_777_500)
    }

    #[test]
    fn case_65_dates_are_compared_in_whole_seconds() {
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        let before = "Sun, 06 Nov 1994 08:49:36 GMT";
        assert_eq!(judged(&[("if-modified-since", same)]), Judgement::NotModified);
        assert_eq!(judged(&[("if-modified-since", before)]), Judgement::Proceed);
        assert_eq!(judged(&[("if-unmodified-since", same)]), Judgement::Proceed);
        assert_eq!(judged(&[("if-unmodified-since", before)]), Judgement::Failed("If-Unmodified-Since"));
    }

    #[test]
    fn an_etag_outweighs_the_date_beside_it() {
        let own = format!("\"{ETAG}\"");
        let before = "Sun, 06 Nov 1994 08:49:36 GMT";
        assert_eq!(judged(&[("if-match", &own), ("if-unmodified-since", before)]), Judgement::Proceed);
        assert_eq!(
            judged(&[("if-none-match", "\"x\""), ("if-modified-since", "Sun, 06 Nov 2094 08:49:36 GMT")]),
            Judgement::Proceed
        );
        assert_eq!(judged(&[("if-none-match", &format!("\"x\", W/{own}"))]), Judgement::NotModified);
        assert_eq!(judged(&[("if-match", "*")]), Judgement::Proceed);
        assert_eq!(judged(&[("if-none-match", "")]), Judgement::Proceed);
    }

    #[test]
    fn case_56_conditions_that_a_write_does_not_have_are_not_implemented() {
        for pairs in [[("if-none-match", "\"abc\""), ("x", "y")], [("if-none-match", "*"), ("if-match", "\"a\"")]] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name, value.parse().expect("a header value"));
            }
            assert_eq!(of_put(&headers).map_err(|e| e.code), Err(S3Code::NotImplemented));
        }
    }
}
