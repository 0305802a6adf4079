//! Digests of whole byte strings, in the plainest way.

use crc_fast::CrcAlgorithm;
use md5::Digest;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind};

/// MD5 of `bytes`.
pub fn md5_of(bytes: &[u8]) -> [u8; 16] {
    md5::Md5::digest(bytes).into()
}

/// The raw digest of `bytes`, big-endian for CRCs.
pub fn checksum_of(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Vec<u8> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => crc32(CrcAlgorithm::Crc32IsoHdlc, bytes),
        ChecksumAlgorithm::Crc32c => crc32(CrcAlgorithm::Crc32Iscsi, bytes),
        ChecksumAlgorithm::Crc64Nvme => crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes().to_vec(),
        ChecksumAlgorithm::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
        ChecksumAlgorithm::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
    }
}

fn crc32(algorithm: CrcAlgorithm, bytes: &[u8]) -> Vec<u8> {
    (crc_fast::checksum(algorithm, bytes) as u32).to_be_bytes().to_vec()
}

/// The checksum of an object made of `parts`, each given by its bytes.
pub fn checksum_of_parts<'a>(
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: impl Iterator<Item = &'a [u8]>,
) -> Checksum {
    let mut input = Vec::new();
    let mut count = 0;
    for part in parts {
        count += 1;
        match kind {
            ChecksumKind::FullObject => input.extend_from_slice(part),
            ChecksumKind::Composite { .. } => input.extend_from_slice(&checksum_of(algorithm, part)),
        }
    }
    let kind = match kind {
        ChecksumKind::FullObject => kind,
        ChecksumKind::Composite { .. } => ChecksumKind::Composite { parts: count },
    };
    Checksum { algorithm, kind, digest: checksum_of(algorithm, &input) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_crc_catalogue_hold() {
        let digits = b"123456789";
        assert_eq!(checksum_of(ChecksumAlgorithm::Crc32, digits), [0xcb, 0xf4, 0x39, 0x26]);
        assert_eq!(checksum_of(ChecksumAlgorithm::Crc32c, digits), [0xe3, 0x06, 0x92, 0x83]);
        assert_eq!(checksum_of(ChecksumAlgorithm::Crc64Nvme, digits), [0xae, 0x8b, 0x14, 0x86, 0x0a, 0x79, 0x98, 0x88]);
    }
}
