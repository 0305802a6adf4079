//! Every digest of a body, computed while its bytes flow, each at most once.

use super::checksum::{DeclaredChecksum, decode_checksum};
use super::expectations::Expectations;
use crate::error::{S3Code, S3Error, S3Result};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use md5_lanes::{Lanes, Stream};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind};

/// What is kept of an object if the client named nothing, as AWS does.
const DEFAULT: ChecksumAlgorithm = ChecksumAlgorithm::Crc64Nvme;

enum Hasher {
    Crc32(Crc),
    Crc32c(Crc),
    Crc64(Crc),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Crc32 => Hasher::Crc32(Crc::new(CrcAlgorithm::Crc32IsoHdlc)),
            ChecksumAlgorithm::Crc32c => Hasher::Crc32c(Crc::new(CrcAlgorithm::Crc32Iscsi)),
            ChecksumAlgorithm::Crc64Nvme => Hasher::Crc64(Crc::new(CrcAlgorithm::Crc64Nvme)),
            ChecksumAlgorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Hasher::Sha256(Sha256::new()),
        }
    }

    fn algorithm(&self) -> ChecksumAlgorithm {
        match self {
            Hasher::Crc32(_) => ChecksumAlgorithm::Crc32,
            Hasher::Crc32c(_) => ChecksumAlgorithm::Crc32c,
            Hasher::Crc64(_) => ChecksumAlgorithm::Crc64Nvme,
            Hasher::Sha1(_) => ChecksumAlgorithm::Sha1,
            Hasher::Sha256(_) => ChecksumAlgorithm::Sha256,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crc32(d) | Hasher::Crc32c(d) | Hasher::Crc64(d) => d.update(bytes),
            Hasher::Sha1(d) => d.update(bytes),
            Hasher::Sha256(d) => d.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Hasher::Crc32(d) | Hasher::Crc32c(d) => (d.finalize() as u32).to_be_bytes().to_vec(),
            Hasher::Crc64(d) => d.finalize().to_be_bytes().to_vec(),
            Hasher::Sha1(d) => d.finalize().to_vec(),
            Hasher::Sha256(d) => d.finalize().to_vec(),
        }
    }
}

/// Digests in progress.
pub struct Digests {
    md5: Option<Stream>,
    hashers: Vec<Hasher>,
    keep: Option<ChecksumAlgorithm>,
}

impl Digests {
    /// What `expectations` and the operation need. An `upload` always gets an MD5 (its ETag) and a checksum to keep. A long body
    /// shares `lanes` with others for its MD5.
    pub fn new(
        expectations: &Expectations,
        keep: Option<ChecksumAlgorithm>,
        ignore_header_checksum: bool,
        upload: bool,
        lanes: Option<&Lanes>,
    ) -> Self {
        let declared = match &expectations.checksum {
            Ok(DeclaredChecksum::Header(..)) if ignore_header_checksum => None,
            Ok(c) => c.algorithm(),
            Err(_) => None,
        };
        let keep = keep.or(declared).or(upload.then_some(DEFAULT)).filter(|_| upload);
        let sha256 = expectations.sha256.map(|_| ChecksumAlgorithm::Sha256);
        let mut hashers: Vec<Hasher> = Vec::with_capacity(2);
        for algorithm in [keep, declared, sha256].into_iter().flatten() {
            if hashers.iter().all(|h| h.algorithm() != algorithm) {
                hashers.push(Hasher::new(algorithm));
            }
        }
        let needs_md5 = upload || matches!(expectations.md5, Ok(Some(_)));
        let md5 = needs_md5.then(|| lanes.map_or_else(Stream::alone, Stream::new));
        Digests { md5, hashers, keep }
    }

    /// Waits until more bytes may come. Nothing is lost if the wait is dropped.
    pub async fn ready(&mut self) {
        if let Some(d) = &mut self.md5 {
            d.ready().await;
        }
    }

    /// Takes the next bytes. MD5 may hold them for a while, to hash them together with those of other bodies.
    pub fn update(&mut self, bytes: &Bytes) {
        if let Some(d) = &mut self.md5 {
            d.push(bytes.clone());
        }
        for h in &mut self.hashers {
            h.update(bytes);
        }
    }

    /// Waits until all bytes were taken in. Nothing is lost if the wait is dropped.
    pub async fn settle(&mut self) {
        if let Some(d) = &mut self.md5 {
            d.settle().await;
        }
    }

    /// The results; `None` if they are not settled.
    pub fn finish(self) -> Option<Finished> {
        let md5 = match self.md5 {
            Some(d) => Some(d.digest()?),
            None => None,
        };
        Some(Finished {
            md5,
            sums: self.hashers.into_iter().map(|h| (h.algorithm(), h.finish())).collect(),
            keep: self.keep,
        })
    }
}

/// Digests of a whole body.
pub struct Finished {
    md5: Option<[u8; 16]>,
    sums: Vec<(ChecksumAlgorithm, Vec<u8>)>,
    keep: Option<ChecksumAlgorithm>,
}

impl Finished {
    /// MD5, zeros if none was computed (only where there is no ETag).
    pub fn md5(&self) -> [u8; 16] {
        self.md5.unwrap_or_default()
    }

    /// The checksum to store.
    pub fn kept(&self, kind: ChecksumKind) -> Option<Checksum> {
        let algorithm = self.keep?;
        Some(Checksum { algorithm, kind, digest: self.sum(algorithm)?.to_vec() })
    }

    fn sum(&self, algorithm: ChecksumAlgorithm) -> Option<&[u8]> {
        self.sums.iter().find(|(a, _)| *a == algorithm).map(|(_, d)| d.as_slice())
    }

    /// Compares with all that the client said in headers and `trailers`.
    pub fn verify(
        &self,
        expectations: &Expectations,
        ignore_header_checksum: bool,
        trailers: &[(String, String)],
    ) -> S3Result<()> {
        if let Some(want) = &expectations.sha256 {
            let got = self.sum(ChecksumAlgorithm::Sha256).unwrap_or_default();
            if !bool::from(got.ct_eq(want)) {
                return Err(S3Error::new(S3Code::XAmzContentSHA256Mismatch)
                    .extra("ClientComputedContentSHA256", hex::encode(want))
                    .extra("S3ComputedContentSHA256", hex::encode(got)));
            }
        }
        if let Ok(Some(want)) = &expectations.md5
            && self.md5.as_ref() != Some(want)
        {
            return Err(S3Error::new(S3Code::BadDigest));
        }
        let Ok(declared) = &expectations.checksum else { return Ok(()) };
        match declared {
            DeclaredChecksum::Header(algorithm, want) if !ignore_header_checksum => self.compare(*algorithm, want)?,
            DeclaredChecksum::Trailer(algorithm) => {
                let name = algorithm.header();
                let value = trailers.iter().find(|(n, _)| n == name).map(|(_, v)| v);
                let value = value.ok_or_else(|| S3Error::new(S3Code::MalformedTrailerError))?;
                self.compare(*algorithm, &decode_checksum(*algorithm, value.as_bytes())?)?;
            }
            _ => {}
        }
        let announced = match declared {
            DeclaredChecksum::Trailer(a) => a.header(),
            _ => "",
        };
        // A trailer that nobody announced could be a checksum that we would silently not verify.
        if trailers.iter().any(|(n, _)| n != announced && n != "x-amz-trailer-signature") {
            return Err(S3Error::new(S3Code::MalformedTrailerError));
        }
        Ok(())
    }

    fn compare(&self, algorithm: ChecksumAlgorithm, want: &[u8]) -> S3Result<()> {
        if self.sum(algorithm) == Some(want) {
            return Ok(());
        }
        Err(S3Error::with(
            S3Code::BadDigest,
            format!("The {} you specified did not match the calculated checksum.", algorithm.name()),
        ))
    }
}
