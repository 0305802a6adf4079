//! The digest of an image (`metadata::strip::StripRecord::digests`).

use extent_store::format::crc32c;

/// Over pieces of an image, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Digest {
    crcs: Vec<u8>,
}

impl Digest {
    /// The next piece.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.crcs.extend_from_slice(&crc32c(piece).to_le_bytes());
    }

    pub(super) fn value(self) -> u32 {
        crc32c(&self.crcs)
    }
}
