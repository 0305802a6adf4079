//! What bytes an object has: a function of a seed and the offset, so that nothing need be kept to check a body.
//!
//! Promises: any range can be made or compared alone; two contents of different seeds differ within their first words.
//! Refuses to know: keys' meaning, requests.

/// The golden ratio in 64 bits: consecutive words get well-spread inputs.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Splitmix64's finaliser: every input bit reaches every output bit.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The endless bytes of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

impl Content {
    /// The content with this seed.
    pub fn new(seed: u64) -> Content {
        Content { seed: mix(seed.wrapping_add(GOLDEN)) }
    }

    /// The content of `key` in a run with `seed`.
    pub fn of_key(seed: u64, key: &str) -> Content {
        // FNV-1a: the mixing above does the rest.
        let hash =
            key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Content::new(seed ^ hash)
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self.seed.wrapping_add(index.wrapping_mul(GOLDEN))).to_le_bytes()
    }

    /// Writes the bytes from `offset` on into `out`.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let mut index = offset / 8;
        let skip = (offset % 8) as usize;
        let mut rest = out;
        if skip != 0 {
            let head_bytes = (8 - skip).min(rest.len());
            let (head, tail) = rest.split_at_mut(head_bytes);
            head.copy_from_slice(&self.word(index)[skip..skip + head_bytes]);
            rest = tail;
            index += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.word(index));
            index += 1;
        }
        let last = words.into_remainder();
        let last_bytes = last.len();
        last.copy_from_slice(&self.word(index)[..last_bytes]);
    }

    /// The first `len` bytes.
    pub fn bytes(self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(0, &mut out);
        out
    }

    /// Where `bytes`, read at `offset`, first differ from what they must be.
    pub fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 4096];
        let mut at = offset;
        for part in bytes.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            self.fill(at, expected);
            if let Some(i) = differing_index(part, expected) {
                return Some(at + i as u64);
            }
            at += part.len() as u64;
        }
        None
    }
}

fn differing_index(left: &[u8], right: &[u8]) -> Option<usize> {
    // The comparison of whole slices is the fast path; the search runs only when a byte is known to differ.
    if left == right { None } else { left.iter().zip(right).position(|(a, b)| a != b) }
}

/// A stream of pseudo-random numbers for choosing keys, sizes and moments; a function of its seed.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The stream with this seed.
    pub fn new(seed: u64) -> Dice {
        Dice { state: mix(seed) }
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.roll() % bound }
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, Dice};

    #[test]
    fn any_range_of_a_content_equals_the_same_range_of_the_whole() {
        let content = Content::of_key(7, "a/key");
        let whole = content.bytes(5000);
        for (offset, len) in [(0, 5000), (1, 7), (3, 2), (8, 16), (4095, 905), (13, 4096), (4999, 1), (20, 0)] {
            let mut part = vec![0; len];
            content.fill(offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "at {offset}, {len} bytes");
        }
    }

    #[test]
    fn one_flipped_bit_is_found_at_its_offset() {
        let content = Content::new(1);
        let mut bytes = content.bytes(9000);
        assert_eq!(content.first_difference(0, &bytes), None);
        bytes[8191] ^= 1;
        assert_eq!(content.first_difference(0, &bytes), Some(8191));
        assert_eq!(content.first_difference(100, &bytes[100..]), Some(8191));
    }

    #[test]
    fn contents_of_different_seeds_differ_in_their_first_word() {
        assert_ne!(Content::of_key(1, "k").bytes(8), Content::of_key(2, "k").bytes(8));
        assert_ne!(Content::of_key(1, "k").bytes(8), Content::of_key(1, "l").bytes(8));
    }

    #[test]
    fn dice_repeat_for_the_same_seed() {
        let (mut a, mut b) = (Dice::new(3), Dice::new(3));
        assert_eq!((0..9).map(|_| a.below(10)).collect::<Vec<_>>(), (0..9).map(|_| b.below(10)).collect::<Vec<_>>());
    }
}
