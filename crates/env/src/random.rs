//! Randomness.
//!
//! Promises: [`SystemRandom`] is the kernel's generator, fit for keys and ids; [`SimRandom`] is a function of its seed and
//! fit for simulation only. Refuses to know: what the bytes are for.

use parking_lot::Mutex;

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
    /// A random number.
    fn next_u64(&self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// Bytes fetched from the kernel at once; ids take 8 to 32, so one system call serves many.
const BUFFER_BYTES: usize = 512;

/// The kernel's generator, read through a small buffer.
#[derive(Default)]
pub struct SystemRandom {
    buffer: Mutex<Vec<u8>>,
}

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        if bytes.len() > BUFFER_BYTES / 4 {
            return fill_from_kernel(bytes);
        }
        let mut buffer = self.buffer.lock();
        if buffer.len() < bytes.len() {
            buffer.resize(BUFFER_BYTES, 0);
            fill_from_kernel(&mut buffer);
        }
        let rest = buffer.len() - bytes.len();
        bytes.copy_from_slice(&buffer[rest..]);
        // What was handed out does not stay behind in memory.
        buffer[rest..].fill(0);
        buffer.truncate(rest);
    }
}

fn fill_from_kernel(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel's generator does not fail once it is seeded");
}

/// xoshiro256** seeded by splitmix64: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Xoshiro {
    state: [u64; 4],
}

impl Xoshiro {
    pub(crate) fn new(seed: u64) -> Xoshiro {
        let mut mix = seed;
        Xoshiro { state: [(); 4].map(|()| splitmix(&mut mix)) }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`. The bias is below 2^-32 for the small bounds of a simulation.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "a choice among nothing");
        (self.next_u64() % bound as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seeded generator: the same seed gives the same bytes. Not for secrets.
#[derive(Debug)]
pub struct SimRandom {
    generator: Mutex<Xoshiro>,
}

impl SimRandom {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> SimRandom {
        SimRandom { generator: Mutex::new(Xoshiro::new(seed)) }
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.generator.lock().fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, SimRandom, SystemRandom, splitmix};

    #[test]
    fn splitmix_gives_the_published_first_value_of_seed_zero() {
        assert_eq!(splitmix(&mut 0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let draw = |seed| {
            let random = SimRandom::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn system_random_does_not_repeat_across_its_buffer() {
        let random = SystemRandom::default();
        let mut seen = std::collections::BTreeSet::new();
        for size in [8, 16, 100, 300] {
            for _ in 0..50 {
                let mut bytes = vec![0; size];
                random.fill(&mut bytes);
                assert!(seen.insert(bytes), "a repeated draw of {size} bytes");
            }
        }
    }
}
