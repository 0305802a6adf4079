//! ETag and checksums of a multipart object, computed from those of its parts.

use crate::command::{ListedPart, Refusal};
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use types::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag};

/// MD5 of the parts' MD5s.
pub(super) fn etag<'a>(md5s: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> ETag {
    let parts = md5s.len() as u32;
    let mut hasher = Md5::new();
    for md5 in md5s {
        hasher.update(md5);
    }
    ETag::Multipart { md5: hasher.finalize().into(), parts }
}

/// Whether AWS knows the algorithm with that type: CRCs of the whole follow from those of the parts, hashes do not, and
/// CRC-64 is only ever of the whole.
pub(super) fn possible(algorithm: ChecksumAlgorithm, kind: ChecksumKind) -> bool {
    match kind {
        ChecksumKind::FullObject => crc(algorithm).is_some(),
        ChecksumKind::Composite { .. } => algorithm != ChecksumAlgorithm::Crc64Nvme,
    }
}

fn crc(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256 => None,
    }
}

/// The checksum of the whole from digests and sizes of the parts.
pub(super) fn of_parts(
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: &[(&[u8], u64)],
) -> Result<Checksum, Refusal> {
    let (kind, digest) = match kind {
        ChecksumKind::FullObject => (kind, full_object(algorithm, parts)?),
        ChecksumKind::Composite { .. } => {
            let kind = ChecksumKind::Composite { parts: parts.len() as u32 };
            (kind, composite(algorithm, parts.iter().map(|(digest, _)| *digest)))
        }
    };
    Ok(Checksum { algorithm, kind, digest })
}

fn full_object(algorithm: ChecksumAlgorithm, parts: &[(&[u8], u64)]) -> Result<Vec<u8>, Refusal> {
    let no_crc = || Refusal::Invalid(format!("{} is no CRC", algorithm.name()));
    let crc = crc(algorithm).ok_or_else(no_crc)?;
    let mut whole = crc_fast::checksum(crc, &[]);
    for (digest, size) in parts {
        whole = crc_fast::checksum_combine(crc, whole, number(digest), *size);
    }
    Ok(bytes(algorithm, whole))
}

fn composite<'a>(algorithm: ChecksumAlgorithm, digests: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let all: Vec<u8> = digests.flatten().copied().collect();
    match algorithm {
        ChecksumAlgorithm::Sha1 => Sha1::digest(&all).to_vec(),
        ChecksumAlgorithm::Sha256 => Sha256::digest(&all).to_vec(),
        ChecksumAlgorithm::Crc32 => bytes(algorithm, crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &all)),
        ChecksumAlgorithm::Crc32c => bytes(algorithm, crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &all)),
        ChecksumAlgorithm::Crc64Nvme => bytes(algorithm, crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &all)),
    }
}

fn number(digest: &[u8]) -> u64 {
    digest.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn bytes(algorithm: ChecksumAlgorithm, crc: u64) -> Vec<u8> {
    crc.to_be_bytes()[8 - algorithm.digest_bytes().min(8)..].to_vec()
}

/// Tells one list of (number, ETag) from another: whether a Complete is the same again.
pub(super) fn of_list(parts: &[ListedPart]) -> u64 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
    for (number, etag, _) in parts {
        digest.update(&number.to_be_bytes());
        digest.update(etag.as_bytes());
        digest.update(&[0]);
    }
    digest.finalize()
}
