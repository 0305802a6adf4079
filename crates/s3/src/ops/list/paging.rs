//! What all listings share: numbers, encoding, tokens, owners.
//!
//! Promises: a token is opaque, belongs to one incarnation of one bucket, and says exactly where the next page begins.

use crate::error::{S3Code, S3Error, S3Result};
use crate::request::Query;
use crate::xml::XmlWriter;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use types::{ChecksumAlgorithm, ChecksumKind};

/// What `encoding-type=url` leaves as it is.
const URL_SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/');
/// First byte of a token: the version of its form.
const TOKEN_VERSION: u8 = 1;

/// A number of entries: absent is `max`, large is clamped to it; what is no number or negative is refused.
pub fn max_of(query: &Query, name: &str, max: u32) -> S3Result<u32> {
    let Some(text) = query.get(name).filter(|t| !t.is_empty()) else { return Ok(max) };
    match text.parse::<i32>() {
        Ok(n) if n >= 0 => Ok((n as u32).min(max)),
        Ok(_) => Err(S3Error::invalid_argument(
            name,
            text,
            format!("Argument {name} must be an integer between 0 and {}", i32::MAX),
        )),
        Err(_) => Err(S3Error::invalid_argument(
            name,
            text,
            format!("Provided {name} not an integer or within integer range"),
        )),
    }
}

/// How keys are written.
#[derive(Clone, Copy)]
pub struct Encoding(bool);

impl Encoding {
    /// `encoding-type`: `url` or nothing.
    pub fn of(query: &Query) -> S3Result<Self> {
        match query.get("encoding-type") {
            None | Some("") => Ok(Encoding(false)),
            Some(t) if t.eq_ignore_ascii_case("url") => Ok(Encoding(true)),
            Some(t) => {
                Err(S3Error::invalid_argument("encoding-type", t, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    /// A key, prefix or delimiter as it is written.
    pub fn write<'a>(self, text: &'a str) -> Cow<'a, str> {
        if self.0 { utf8_percent_encode(text, URL_SET).into() } else { Cow::Borrowed(text) }
    }

    /// Says so in the answer.
    pub fn note(self, w: &mut XmlWriter) {
        if self.0 {
            w.text("EncodingType", "url");
        }
    }
}

/// A parameter that is there and not empty.
pub fn given(query: &Query, name: &str) -> Option<String> {
    query.get(name).filter(|t| !t.is_empty()).map(str::to_owned)
}

/// Where the next page of a bucket's incarnation begins.
pub fn encode_token(after: &str, is_prefix: bool, bucket: u64) -> String {
    let mut bytes = vec![TOKEN_VERSION, u8::from(is_prefix)];
    bytes.extend_from_slice(&bucket.to_le_bytes());
    bytes.extend_from_slice(after.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place a token names; `InvalidArgument` if it is none of this bucket's.
pub fn decode_token(token: &str, bucket: u64) -> S3Result<(String, bool)> {
    let refused =
        || S3Error::invalid_argument("continuation-token", token, "The continuation token provided is incorrect");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| refused())?;
    let Some((&[TOKEN_VERSION, flag @ (0 | 1), ref of_bucket @ ..], after)) = bytes.split_first_chunk::<10>() else {
        return Err(refused());
    };
    if *of_bucket != bucket.to_le_bytes() {
        return Err(refused());
    }
    let after = std::str::from_utf8(after).map_err(|_| refused())?;
    Ok((after.to_owned(), flag == 1))
}

/// `Owner` or `Initiator`.
pub fn write_owner(w: &mut XmlWriter, element: &'static str, id: &str, name: &str) {
    w.nest(element, |w| {
        w.text("ID", id);
        w.text("DisplayName", name);
    });
}

/// Algorithm and kind of a stored checksum.
pub fn write_checksum_kind(w: &mut XmlWriter, checksum: Option<(ChecksumAlgorithm, ChecksumKind)>) {
    if let Some(checksum) = checksum {
        w.markup(&checksum_kind(checksum));
    }
}

/// The same as markup.
pub fn checksum_kind((algorithm, kind): (ChecksumAlgorithm, ChecksumKind)) -> String {
    let (algorithm, kind) = (algorithm.name(), crate::ops::headers::kind_name(kind));
    format!("<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm><ChecksumType>{kind}</ChecksumType>")
}

/// `CommonPrefixes`.
pub fn write_prefixes(w: &mut XmlWriter, prefixes: &[String], encoding: Encoding) {
    for prefix in prefixes {
        w.nest("CommonPrefixes", |w| w.text("Prefix", &encoding.write(prefix)));
    }
}

/// Markers that make no sense together.
pub fn bad_marker(name: &str, value: &str, message: &'static str) -> S3Error {
    S3Error::with(S3Code::InvalidArgument, message).extra("ArgumentName", name).extra("ArgumentValue", value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_74_numbers_are_clamped_or_refused_never_wrapped() {
        let max = |text: &str| {
            let query = Query::parse(&format!("max-keys={text}")).expect("a query");
            max_of(&query, "max-keys", 1000).map_err(|e| e.code)
        };
        assert_eq!(
            (max("0"), max("7"), max("1001"), max("2147483647"), max("")),
            (Ok(0), Ok(7), Ok(1000), Ok(1000), Ok(1000))
        );
        for bad in ["-1", "2147483648", "4294967297", "abc", "1.5", "0x10", "99999999999999999999"] {
            assert_eq!(max(bad), Err(S3Code::InvalidArgument), "{bad}");
        }
    }

    #[test]
    fn row_70_a_token_belongs_to_one_incarnation_of_one_bucket() {
        let token = encode_token("a/é", true, 7);
        assert_eq!(decode_token(&token, 7).ok(), Some(("a/é".to_owned(), true)));
        for bad in [token.as_str(), "", "AA", "junk!", "a b"] {
            assert_eq!(decode_token(bad, 8).map_err(|e| e.code), Err(S3Code::InvalidArgument), "{bad}");
        }
    }
}
