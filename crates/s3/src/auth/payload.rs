//! What `x-amz-content-sha256` says.

use crate::error::{S3Error, S3Result};

/// What binds the body to the signature. An unknown mode is an error, never one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadMode {
    /// Nothing.
    Unsigned,
    /// This SHA-256 of the bytes.
    Sha256([u8; 32]),
    /// aws-chunked, each chunk signed.
    StreamingSigned,
    /// aws-chunked, each chunk and the trailers signed.
    StreamingSignedTrailer,
    /// aws-chunked with trailers, nothing but the head signed.
    StreamingUnsignedTrailer,
}

impl PayloadMode {
    /// Reads the header's value.
    pub fn parse(value: &str) -> S3Result<Self> {
        match value {
            "UNSIGNED-PAYLOAD" => Ok(PayloadMode::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(PayloadMode::StreamingSigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(PayloadMode::StreamingSignedTrailer),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(PayloadMode::StreamingUnsignedTrailer),
            hex => {
                let mut digest = [0; 32];
                match hex::decode_to_slice(hex, &mut digest) {
                    Ok(()) => Ok(PayloadMode::Sha256(digest)),
                    Err(_) => Err(S3Error::invalid_argument(
                        "x-amz-content-sha256",
                        value,
                        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a streaming mode that is supported, or a SHA-256 in hex",
                    )),
                }
            }
        }
    }

    /// Each chunk carries a signature.
    pub fn signs_chunks(self) -> bool {
        match self {
            PayloadMode::StreamingSigned | PayloadMode::StreamingSignedTrailer => true,
            PayloadMode::Unsigned | PayloadMode::Sha256(_) | PayloadMode::StreamingUnsignedTrailer => false,
        }
    }
}
