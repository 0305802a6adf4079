//! The same number of blocks of several streams, hashed at once.
//!
//! Promises: every kernel gives the words of RFC 1321 for each lane by itself; a kernel that exists can run on
//! this machine. Refuses to know: where blocks come from.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod steps;
#[cfg(test)]
mod tests;

use crate::hash::BLOCK;
use crate::limits::LANES;
use std::fmt;

pub(crate) use scalar::compress;

/// The words of all lanes, one row for each of the four.
#[cfg(target_arch = "x86_64")]
type Rows = [[u32; LANES]; 4];

/// A way to hash, found at run time.
#[derive(Clone, Copy)]
pub struct Kernel(Isa);

#[derive(Clone, Copy)]
enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Kernel {
    /// One stream after the other.
    pub const SCALAR: Kernel = Kernel(Isa::Scalar);

    /// The widest that this machine has.
    pub fn detect() -> Kernel {
        Self::available().pop().unwrap_or(Self::SCALAR)
    }

    /// All that this machine has, the widest last.
    pub fn available() -> Vec<Kernel> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut kernels = vec![Self::SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(avx2::Avx2::detect().map(|k| Kernel(Isa::Avx2(k))));
            kernels.extend(avx512::Avx512::detect().map(|k| Kernel(Isa::Avx512(k))));
        }
        kernels
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
        }
    }

    /// Streams that it is worth giving to it at once.
    pub fn lanes(self) -> usize {
        match self.0 {
            Isa::Scalar => 1,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) | Isa::Avx512(_) => LANES,
        }
    }

    /// Hashes the first `blocks` blocks of `inputs[i]` into `words[i]`, for every `i`: at most [`LANES`].
    pub fn advance(self, words: &mut [[u32; 4]], inputs: &[&[u8]], blocks: usize) {
        assert!(words.len() == inputs.len() && words.len() <= LANES, "one input for each lane");
        assert!(inputs.iter().all(|i| i.len() >= blocks * BLOCK), "an input is shorter than {blocks} blocks");
        match self.0 {
            _ if inputs.len() <= 1 => side_by_side(words, inputs, blocks),
            Isa::Scalar => side_by_side(words, inputs, blocks),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) if inputs.len() < avx2::WORTH_LANES => side_by_side(words, inputs, blocks),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(kernel) => in_rows(words, inputs, |rows, all| kernel.advance(rows, all, blocks, inputs.len())),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(kernel) => in_rows(words, inputs, |rows, all| kernel.advance(rows, all, blocks)),
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Two or three streams at a time, without wide registers.
fn side_by_side(words: &mut [[u32; 4]], inputs: &[&[u8]], blocks: usize) {
    let whole = |input: &usize| inputs[*input].as_chunks().0;
    let mut first = 0;
    while let Some(words) = words.get_mut(first..).filter(|words| !words.is_empty()) {
        first += match words {
            [a, b, c, rest @ ..] if rest.len() != 1 => {
                scalar::compress_three([a, b, c], [first, first + 1, first + 2].each_ref().map(whole), blocks);
                3
            }
            [a, b, ..] => {
                scalar::compress_two([a, b], [first, first + 1].each_ref().map(whole), blocks);
                2
            }
            others => {
                compress(&mut others[0], &whole(&first)[..blocks]);
                1
            }
        };
    }
}

/// Lays the words out as the registers want them. Lanes nobody sits in read the first one's input, for nothing.
#[cfg(target_arch = "x86_64")]
fn in_rows(words: &mut [[u32; 4]], inputs: &[&[u8]], hash: impl FnOnce(&mut Rows, &[&[u8]; LANES])) {
    let mut all = [inputs[0]; LANES];
    all[..inputs.len()].copy_from_slice(inputs);
    let mut rows = [[0; LANES]; 4];
    for (lane, words) in words.iter().enumerate() {
        (0..4).for_each(|row| rows[row][lane] = words[row]);
    }
    hash(&mut rows, &all);
    for (lane, words) in words.iter_mut().enumerate() {
        (0..4).for_each(|row| words[row] = rows[row][lane]);
    }
}
