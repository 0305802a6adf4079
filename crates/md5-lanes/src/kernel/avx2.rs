//! Eight lanes in AVX2 registers, or sixteen: two registers side by side, as one leaves half of the machine idle.
//!
//! Promises: an [`Avx2`] exists only where the processor has AVX2. Refuses to know: who sits in a lane.
#![allow(unsafe_code)]

use super::Rows;
use super::steps::{K, steps};
use crate::hash::BLOCK;
use crate::limits::LANES;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi128_si256,
    _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// Lanes of one register.
const WIDTH: usize = 8;
/// Streams from which on a register takes less time for all than two or three words at a time do (the example `lanes` tells).
pub(super) const WORTH_LANES: usize = 7;

/// Proof that the processor has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, if it holds.
    pub(super) fn detect() -> Option<Avx2> {
        is_x86_feature_detected!("avx2").then_some(Avx2(()))
    }

    /// Hashes `blocks` blocks of the first `lanes` lanes; those of the rest may or may not be.
    pub(super) fn advance(self, rows: &mut Rows, inputs: &[&[u8]; LANES], blocks: usize, lanes: usize) {
        assert!(inputs.iter().all(|i| i.len() >= blocks * BLOCK), "an input is shorter than {blocks} blocks");
        if lanes <= WIDTH {
            // SAFETY: `self` proves AVX2; every input holds the blocks.
            unsafe { advance::<1>(rows, inputs, blocks) }
        } else {
            // SAFETY: as above.
            unsafe { advance::<2>(rows, inputs, blocks) }
        }
    }
}

/// `G` registers side by side.
type V<const G: usize> = [__m256i; G];

/// # Safety
/// The processor has AVX2; each input holds `blocks` blocks.
#[target_feature(enable = "avx2")]
unsafe fn advance<const G: usize>(rows: &mut Rows, inputs: &[&[u8]; LANES], blocks: usize) {
    let mut state = [[_mm256_setzero_si256(); G]; 4];
    for (row, v) in rows.iter().zip(&mut state) {
        for (words, register) in row.as_chunks::<WIDTH>().0.iter().zip(v) {
            // SAFETY: `words` are 32 bytes; the load needs no alignment.
            *register = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
        }
    }
    for block in 0..blocks {
        // SAFETY: each input holds more than `block` blocks.
        let m = unsafe { message::<G>(inputs, block * BLOCK) };
        let before = state;
        steps!(state, m, G, f, g, h, i);
        for (v, before) in state.iter_mut().zip(before) {
            for (register, before) in v.iter_mut().zip(before) {
                *register = _mm256_add_epi32(*register, before);
            }
        }
    }
    for (row, v) in rows.iter_mut().zip(state) {
        for (words, register) in row.as_chunks_mut::<WIDTH>().0.iter_mut().zip(v) {
            // SAFETY: `words` are 32 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), register) };
        }
    }
}

/// The sixteen words of a block of every lane: vector `w` holds word `w` of each.
///
/// # Safety
/// The processor has AVX2; each input holds `offset + 64` bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn message<const G: usize>(inputs: &[&[u8]; LANES], offset: usize) -> [V<G>; 16] {
    let mut m = [[_mm256_setzero_si256(); G]; 16];
    for group in 0..G {
        for quarter in 0..4 {
            // A quarter of a block: 16 bytes of lane `j`, and beside it those of lane `j + 4`.
            let pair = |j: usize| {
                let (low, high) = (inputs[group * WIDTH + j], inputs[group * WIDTH + j + 4]);
                // SAFETY: 16 bytes within the 64 that the caller promised.
                let low = unsafe { load(low, offset + 16 * quarter) };
                // SAFETY: as above.
                let high = unsafe { load(high, offset + 16 * quarter) };
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
            };
            let (p0, p1, p2, p3) = (pair(0), pair(1), pair(2), pair(3));
            let (t0, t1) = (_mm256_unpacklo_epi32(p0, p1), _mm256_unpackhi_epi32(p0, p1));
            let (t2, t3) = (_mm256_unpacklo_epi32(p2, p3), _mm256_unpackhi_epi32(p2, p3));
            m[4 * quarter][group] = _mm256_unpacklo_epi64(t0, t2);
            m[4 * quarter + 1][group] = _mm256_unpackhi_epi64(t0, t2);
            m[4 * quarter + 2][group] = _mm256_unpacklo_epi64(t1, t3);
            m[4 * quarter + 3][group] = _mm256_unpackhi_epi64(t1, t3);
        }
    }
    m
}

/// # Safety
/// `offset + 16` bytes are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(input: &[u8], offset: usize) -> __m128i {
    debug_assert!(offset + 16 <= input.len());
    // SAFETY: the caller's promise; the load needs no alignment.
    unsafe { _mm_loadu_si128(input.as_ptr().add(offset).cast()) }
}

/// What all steps do once the round's function is known: `b + rotate(a + m + k + mixed)`.
#[inline]
#[target_feature(enable = "avx2")]
fn turn<const L: i32, const R: i32>(a: __m256i, b: __m256i, m: __m256i, k: u32, mixed: __m256i) -> __m256i {
    let known = _mm256_add_epi32(_mm256_add_epi32(m, _mm256_set1_epi32(k as i32)), a);
    let sum = _mm256_add_epi32(known, mixed);
    _mm256_add_epi32(_mm256_or_si256(_mm256_slli_epi32::<L>(sum), _mm256_srli_epi32::<R>(sum)), b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn f<const L: i32, const R: i32>(a: __m256i, b: __m256i, c: __m256i, d: __m256i, m: __m256i, k: u32) -> __m256i {
    turn::<L, R>(a, b, m, k, _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d))))
}

#[inline]
#[target_feature(enable = "avx2")]
fn g<const L: i32, const R: i32>(a: __m256i, b: __m256i, c: __m256i, d: __m256i, m: __m256i, k: u32) -> __m256i {
    // The two halves share no bit, so they can be added: the one that does not need `b`, the newest word, ahead of it.
    let a = _mm256_add_epi32(a, _mm256_andnot_si256(d, c));
    turn::<L, R>(a, b, m, k, _mm256_and_si256(d, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn h<const L: i32, const R: i32>(a: __m256i, b: __m256i, c: __m256i, d: __m256i, m: __m256i, k: u32) -> __m256i {
    turn::<L, R>(a, b, m, k, _mm256_xor_si256(b, _mm256_xor_si256(c, d)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn i<const L: i32, const R: i32>(a: __m256i, b: __m256i, c: __m256i, d: __m256i, m: __m256i, k: u32) -> __m256i {
    let not_d = _mm256_xor_si256(d, _mm256_set1_epi32(-1));
    turn::<L, R>(a, b, m, k, _mm256_xor_si256(c, _mm256_or_si256(b, not_d)))
}
