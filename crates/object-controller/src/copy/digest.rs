//! Digests that are not stored, computed while the bytes are read (protocols.md 3).

use crate::api::{ReadBody, StoreError};
use crc_fast::CrcAlgorithm;
use md5::Digest as _;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind};

/// MD5 and, if one is wanted, an additional checksum of the bytes it is given.
pub(crate) struct Digests {
    md5: md5::Md5,
    checksum: Option<(ChecksumAlgorithm, Running)>,
    size: u64,
}

enum Running {
    Crc(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl Digests {
    /// Of nothing yet.
    pub(crate) fn new(algorithm: Option<ChecksumAlgorithm>) -> Digests {
        let checksum = algorithm.map(|algorithm| (algorithm, Running::new(algorithm)));
        Digests { md5: md5::Md5::new(), checksum, size: 0 }
    }

    /// Takes the next bytes in.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.md5.update(bytes);
        if let Some((_, running)) = &mut self.checksum {
            running.update(bytes);
        }
    }

    /// Size, MD5 and checksum of all of them.
    pub(crate) fn finish(self) -> (u64, [u8; 16], Option<Checksum>) {
        let checksum = self.checksum.map(|(algorithm, running)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            digest: running.finish(algorithm),
        });
        (self.size, self.md5.finalize().into(), checksum)
    }

    /// Reads a body to its end.
    pub(crate) async fn read_through(mut self, body: &mut dyn ReadBody) -> Result<Self, StoreError> {
        while let Some(chunk) = body.next().await? {
            self.update(&chunk);
        }
        Ok(self)
    }
}

impl Running {
    fn new(algorithm: ChecksumAlgorithm) -> Running {
        match algorithm {
            ChecksumAlgorithm::Crc32 => Running::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
            ChecksumAlgorithm::Crc32c => Running::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)),
            ChecksumAlgorithm::Crc64Nvme => Running::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
            ChecksumAlgorithm::Sha1 => Running::Sha1(sha1::Sha1::new()),
            ChecksumAlgorithm::Sha256 => Running::Sha256(sha2::Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Crc(crc) => crc.update(bytes),
            Running::Sha1(sha) => sha.update(bytes),
            Running::Sha256(sha) => sha.update(bytes),
        }
    }

    fn finish(self, algorithm: ChecksumAlgorithm) -> Vec<u8> {
        match self {
            // The low bytes of the value are the CRC, whatever its width.
            Running::Crc(crc) => crc.finalize().to_be_bytes()[8 - algorithm.digest_bytes()..].to_vec(),
            Running::Sha1(sha) => sha.finalize().to_vec(),
            Running::Sha256(sha) => sha.finalize().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Digests;
    use types::ChecksumAlgorithm;

    #[test]
    fn digests_in_pieces_are_those_of_the_catalogues() {
        let expected = [
            (ChecksumAlgorithm::Crc32, "cbf43926"),
            (ChecksumAlgorithm::Crc32c, "e3069283"),
            (ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888"),
            (ChecksumAlgorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (ChecksumAlgorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ];
        for (algorithm, hex) in expected {
            let mut digests = Digests::new(Some(algorithm));
            digests.update(b"1234");
            digests.update(b"56789");
            let (size, md5, checksum) = digests.finish();
            let digest = checksum.expect("one was asked for").digest;
            let text: String = digest.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!((size, text.as_str()), (9, hex));
            assert_eq!(md5[..4], [0x25, 0xf9, 0xe7, 0x94]);
        }
    }
}
