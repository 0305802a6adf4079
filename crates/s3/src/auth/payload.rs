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

/// 32 bytes in hex digits.
fn digest_of(hex: &str) -> Option<[u8; 32]> {
    /// Values of digits; 16 of what is none.
    const DIGITS: [u8; 256] = {
        let mut table = [16; 256];
        let mut value = 0;
        while value < 16 {
            table[b"0123456789abcdef"[value] as usize] = value as u8;
            table[b"0123456789ABCDEF"[value] as usize] = value as u8;
            value += 1;
        }
        table
    };
    let hex: &[u8; 64] = hex.as_bytes().try_into().ok()?;
    let (mut digest, mut seen) = ([0; 32], 0);
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | low & 15;
    }
    (seen < 16).then_some(digest)
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
                digest_of(hex).map(PayloadMode::Sha256).ok_or_else(|| {
                    S3Error::invalid_argument(
                        "x-amz-content-sha256",
                        value,
                        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a streaming mode that is supported, or a SHA-256 in hex",
                    )
                })
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
