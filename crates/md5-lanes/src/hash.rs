//! MD5 of one stream: its four words, and the bytes that do not fill a block yet.
//!
//! Promises: RFC 1321, whatever the split of the input. Refuses to know: lanes.

use crate::kernel::compress;
use bytes::{Buf, Bytes};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 64;

/// MD5 in progress.
#[derive(Clone)]
pub(crate) struct Hash {
    words: [u32; 4],
    blocks: u64,
    tail: [u8; BLOCK],
    tail_len: usize,
}

impl Default for Hash {
    fn default() -> Self {
        let words = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Hash { words, blocks: 0, tail: [0; BLOCK], tail_len: 0 }
    }
}

impl Hash {
    /// Bytes taken so far.
    pub(crate) fn len(&self) -> u64 {
        self.blocks * BLOCK as u64 + self.tail_len as u64
    }

    /// Takes bytes, all of them, here and now.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.align(&mut bytes);
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        compress(&mut self.words, blocks);
        self.blocks += blocks.len() as u64;
        self.keep(rest);
    }

    /// Takes what it needs off the front of `piece` until the next block begins there; all of it if that is not enough.
    pub(crate) fn align(&mut self, piece: &mut impl Buf) {
        while piece.has_remaining() && (self.tail_len > 0 || piece.remaining() < BLOCK) {
            let n = piece.remaining().min(BLOCK - self.tail_len);
            piece.copy_to_slice(&mut self.tail[self.tail_len..self.tail_len + n]);
            self.tail_len += n;
            if self.tail_len < BLOCK {
                return;
            }
            compress(&mut self.words, &[self.tail]);
            self.blocks += 1;
            self.tail_len = 0;
        }
    }

    /// The words, for whoever hashes the whole blocks at the front of `piece`.
    pub(crate) fn words(&self) -> [u32; 4] {
        debug_assert_eq!(self.tail_len, 0, "a block has begun already");
        self.words
    }

    /// `words` after `blocks` blocks at the front of `piece`, which are taken off it.
    pub(crate) fn advanced(&mut self, words: [u32; 4], blocks: usize, piece: &mut Bytes) {
        self.words = words;
        self.blocks += blocks as u64;
        piece.advance(blocks * BLOCK);
    }

    /// The digest.
    pub(crate) fn finish(mut self) -> [u8; 16] {
        let bits = self.len().wrapping_mul(8);
        self.tail[self.tail_len] = 0x80;
        self.tail[self.tail_len + 1..].fill(0);
        if self.tail_len + 1 > BLOCK - 8 {
            compress(&mut self.words, &[self.tail]);
            self.tail.fill(0);
        }
        self.tail[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
        compress(&mut self.words, &[self.tail]);
        let mut digest = [0; 16];
        for (out, word) in digest.chunks_exact_mut(4).zip(self.words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }

    fn keep(&mut self, rest: &[u8]) {
        self.tail[self.tail_len..self.tail_len + rest.len()].copy_from_slice(rest);
        self.tail_len += rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::{Digest, Md5};
    use proptest::prelude::*;

    #[test]
    fn every_length_around_a_block_is_padded_right() {
        for len in 0..=200 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
            let mut hash = Hash::default();
            hash.update(&bytes);
            assert_eq!(hash.len(), len as u64);
            assert_eq!(hash.finish(), <[u8; 16]>::from(Md5::digest(&bytes)), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn no_split_of_the_input_matters(bytes in prop::collection::vec(any::<u8>(), 0..600), cuts in prop::collection::vec(0usize..600, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut hash = Hash::default();
            cuts.windows(2).for_each(|w| hash.update(&bytes[w[0]..w[1]]));
            prop_assert_eq!(hash.finish(), <[u8; 16]>::from(Md5::digest(&bytes)));
        }
    }
}
