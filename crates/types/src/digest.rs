//! ETags and the additional checksums of S3, as values.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What S3 calls the entity tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ETag {
    /// MD5 of the bytes.
    Md5([u8; 16]),
    /// MD5 of the parts' MD5s, and how many parts.
    Multipart {
        /// MD5 of the parts' MD5s, one after the other.
        md5: [u8; 16],
        /// Number of parts.
        parts: u32,
    },
}

/// Hex digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    table
};

impl ETag {
    /// Hands its text on, ASCII without quotes: `9a03…`, or `9a03…` and then `-4`. Not `Display`, which costs ten times as much:
    /// ETags stand in every answer and a thousand times in a page of a listing.
    #[inline]
    pub fn text(&self, mut to: impl FnMut(&[u8])) {
        let (ETag::Md5(md5) | ETag::Multipart { md5, .. }) = self;
        let mut digits = [[0; 2]; 16];
        for (pair, byte) in digits.iter_mut().zip(md5) {
            *pair = HEX[usize::from(*byte)];
        }
        to(digits.as_flattened());
        if let ETag::Multipart { parts, .. } = self {
            to(format!("-{parts}").as_bytes());
        }
    }
}

impl fmt::Display for ETag {
    /// Without quotes: `9a03…` or `9a03…-4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.text(|text| {
            let text = std::str::from_utf8(text).expect("digits are ASCII");
            result = result.and_then(|()| f.write_str(text));
        });
        result
    }
}

/// The algorithms a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ChecksumAlgorithm {
    /// CRC-32 (ISO-HDLC), 4 bytes.
    Crc32,
    /// CRC-32C (Castagnoli), 4 bytes.
    Crc32c,
    /// CRC-64/NVME, 8 bytes.
    Crc64Nvme,
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
}

impl ChecksumAlgorithm {
    /// All of them.
    pub const ALL: [ChecksumAlgorithm; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As in `x-amz-sdk-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// As in `x-amz-checksum-…`.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Bytes of a digest.
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// By its name, any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }
}

/// Whether a checksum covers the object's bytes or the parts' checksums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// Of all the bytes.
    FullObject,
    /// Of the parts' checksums, one after the other.
    Composite {
        /// Number of parts; 0 while the upload is not complete.
        parts: u32,
    },
}

/// One additional checksum of an object or part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checksum {
    /// Algorithm.
    pub algorithm: ChecksumAlgorithm,
    /// What it covers.
    pub kind: ChecksumKind,
    /// The raw digest, big-endian for CRCs, `digest_bytes()` long.
    pub digest: Vec<u8>,
}

impl Checksum {
    /// As in the headers and XML: base64, with `-N` for a composite one.
    pub fn text(&self) -> String {
        let b64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &self.digest);
        match self.kind {
            ChecksumKind::FullObject => b64,
            ChecksumKind::Composite { parts } => format!("{b64}-{parts}"),
        }
    }
}
