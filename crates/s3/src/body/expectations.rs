//! What the head of a request promises of its body.

use super::checksum::DeclaredChecksum;
use crate::auth::PayloadMode;
use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use types::limits::CONTENT_MAX_BYTES;

/// How the body is wrapped below HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// The bytes themselves.
    #[default]
    Plain,
    /// aws-chunked.
    AwsChunked {
        /// Trailers may follow the last chunk.
        trailers: bool,
    },
}

/// What must hold of a body.
#[derive(Clone, Debug)]
pub struct Expectations {
    /// Wrapping.
    pub framing: Framing,
    /// Bytes after unframing.
    pub size: Option<u64>,
    /// Nothing was said about a length.
    pub length_missing: bool,
    /// SHA-256 that the signature covers.
    pub sha256: Option<[u8; 32]>,
    /// Content-MD5.
    pub md5: S3Result<Option<[u8; 16]>>,
    /// Additional checksum.
    pub checksum: S3Result<DeclaredChecksum>,
    /// Fewest and most bytes allowed.
    pub size_range: (u64, u64),
    /// A length that could not be understood.
    size_error: Option<S3Error>,
}

impl Default for Expectations {
    fn default() -> Self {
        Expectations {
            framing: Framing::Plain,
            size: None,
            length_missing: false,
            sha256: None,
            md5: Ok(None),
            checksum: Ok(DeclaredChecksum::None),
            size_range: (0, CONTENT_MAX_BYTES),
            size_error: None,
        }
    }
}

impl Expectations {
    /// Reads them from the headers and the authenticated payload mode.
    pub fn of(headers: &HeaderMap, mode: &PayloadMode) -> Self {
        let (framing, sha256) = match mode {
            PayloadMode::Unsigned => (Framing::Plain, None),
            PayloadMode::Sha256(d) => (Framing::Plain, Some(*d)),
            PayloadMode::StreamingSigned => (Framing::AwsChunked { trailers: false }, None),
            PayloadMode::StreamingSignedTrailer | PayloadMode::StreamingUnsignedTrailer => {
                (Framing::AwsChunked { trailers: true }, None)
            }
        };
        let content_length = headers.get(header::CONTENT_LENGTH);
        let length_missing = content_length.is_none() && !headers.contains_key(header::TRANSFER_ENCODING);
        let size = match framing {
            Framing::Plain => parse_size(content_length),
            Framing::AwsChunked { .. } => match headers.get("x-amz-decoded-content-length") {
                None => Err(S3Error::new(S3Code::MissingContentLength)),
                value => parse_size(value),
            },
        };
        let (size, size_error) = match size {
            Ok(s) => (s, None),
            Err(e) => (None, Some(e)),
        };
        let checksum = DeclaredChecksum::of(headers);
        let md5 = parse_md5(headers);
        let size_range = (0, CONTENT_MAX_BYTES);
        Expectations { framing, size, length_missing, sha256, md5, checksum, size_range, size_error }
    }

    /// Those of a form's file: digests from its fields, sizes from its policy.
    pub fn of_form(fields: &HeaderMap, size_range: Option<(u64, u64)>) -> Self {
        let (min, max) = size_range.unwrap_or((0, CONTENT_MAX_BYTES));
        Expectations {
            md5: parse_md5(fields),
            checksum: DeclaredChecksum::of(fields),
            size_range: (min, max.min(CONTENT_MAX_BYTES)),
            ..Expectations::default()
        }
    }

    /// The length that could not be understood.
    pub fn size_error(&self) -> Option<&S3Error> {
        self.size_error.as_ref()
    }

    /// `EntityTooLarge` for that many bytes.
    pub fn too_large(&self, size: u64) -> S3Error {
        S3Error::new(S3Code::EntityTooLarge)
            .extra("ProposedSize", size.to_string())
            .extra("MaxSizeAllowed", self.size_range.1.to_string())
    }

    /// What can be refused before the first byte.
    pub fn check(&self, ignore_header_checksum: bool) -> S3Result<()> {
        if let Some(e) = &self.size_error {
            return Err(e.clone());
        }
        if let Some(size) = self.size
            && size > self.size_range.1
        {
            return Err(self.too_large(size));
        }
        if let Err(e) = &self.md5 {
            return Err(e.clone());
        }
        match &self.checksum {
            Err(e) if !ignore_header_checksum => Err(e.clone()),
            Ok(DeclaredChecksum::Trailer(_)) if self.framing != (Framing::AwsChunked { trailers: true }) => {
                Err(S3Error::with(S3Code::InvalidRequest, "A trailer was announced, but the body cannot carry one"))
            }
            _ => Ok(()),
        }
    }
}

fn parse_size(value: Option<&http::HeaderValue>) -> S3Result<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().unwrap_or("");
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(S3Error::with(S3Code::InvalidArgument, "The length is not a number"));
    }
    // More digits than a u64 holds is larger than anything allowed.
    Ok(Some(text.parse().unwrap_or(u64::MAX)))
}

fn parse_md5(headers: &HeaderMap) -> S3Result<Option<[u8; 16]>> {
    let Some(value) = headers.get(names::CONTENT_MD5) else { return Ok(None) };
    let digest = STANDARD.decode(value.as_bytes()).ok().and_then(|d| <[u8; 16]>::try_from(d).ok());
    digest.map(Some).ok_or_else(|| S3Error::new(S3Code::InvalidDigest))
}
