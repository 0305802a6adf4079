//! Sixteen lanes in AVX-512 registers, where a rotation and any function of three words are one instruction each.
//!
//! Promises: an [`Avx512`] exists only where the processor has AVX-512F. Refuses to know: who sits in a lane.
#![allow(unsafe_code)]

use super::Rows;
use super::steps::{K, steps};
use crate::hash::BLOCK;
use crate::limits::LANES;
use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm512_add_epi32, _mm512_castsi128_si512, _mm512_inserti32x4,
    _mm512_loadu_si512, _mm512_rol_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};

/// Registers side by side: one holds all lanes.
const ONE: usize = 1;

/// Proof that the processor has AVX-512F.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, if it holds.
    pub(super) fn detect() -> Option<Avx512> {
        is_x86_feature_detected!("avx512f").then_some(Avx512(()))
    }

    /// Hashes `blocks` blocks of every lane.
    pub(super) fn advance(self, rows: &mut Rows, inputs: &[&[u8]; LANES], blocks: usize) {
        assert!(inputs.iter().all(|i| i.len() >= blocks * BLOCK), "an input is shorter than {blocks} blocks");
        // SAFETY: `self` proves AVX-512F; every input holds the blocks.
        unsafe { advance(rows, inputs, blocks) }
    }
}

/// # Safety
/// The processor has AVX-512F; each input holds `blocks` blocks.
#[target_feature(enable = "avx512f")]
unsafe fn advance(rows: &mut Rows, inputs: &[&[u8]; LANES], blocks: usize) {
    let mut state = [[_mm512_setzero_si512(); ONE]; 4];
    for (row, v) in rows.iter().zip(&mut state) {
        // SAFETY: a row is 64 bytes; the load needs no alignment.
        v[0] = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
    }
    for block in 0..blocks {
        // SAFETY: each input holds more than `block` blocks.
        let m = unsafe { message(inputs, block * BLOCK) };
        let before = state;
        steps!(state, m, ONE, f, g, h, i);
        for (v, before) in state.iter_mut().zip(before) {
            v[0] = _mm512_add_epi32(v[0], before[0]);
        }
    }
    for (row, v) in rows.iter_mut().zip(state) {
        // SAFETY: a row is 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), v[0]) };
    }
}

/// The sixteen words of a block of every lane: vector `w` holds word `w` of each.
///
/// # Safety
/// The processor has AVX-512F; each input holds `offset + 64` bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn message(inputs: &[&[u8]; LANES], offset: usize) -> [[__m512i; ONE]; 16] {
    let mut m = [[_mm512_setzero_si512(); ONE]; 16];
    for quarter in 0..4 {
        // A quarter of a block: 16 bytes of lane `j`, beside it those of lanes `j + 4`, `j + 8` and `j + 12`.
        let four = |j: usize| {
            // SAFETY: 16 bytes within the 64 that the caller promised.
            let part = |lane: usize| unsafe { load(inputs[lane], offset + 16 * quarter) };
            let v = _mm512_castsi128_si512(part(j));
            let v = _mm512_inserti32x4::<1>(v, part(j + 4));
            let v = _mm512_inserti32x4::<2>(v, part(j + 8));
            _mm512_inserti32x4::<3>(v, part(j + 12))
        };
        let (p0, p1, p2, p3) = (four(0), four(1), four(2), four(3));
        let (t0, t1) = (_mm512_unpacklo_epi32(p0, p1), _mm512_unpackhi_epi32(p0, p1));
        let (t2, t3) = (_mm512_unpacklo_epi32(p2, p3), _mm512_unpackhi_epi32(p2, p3));
        m[4 * quarter][0] = _mm512_unpacklo_epi64(t0, t2);
        m[4 * quarter + 1][0] = _mm512_unpackhi_epi64(t0, t2);
        m[4 * quarter + 2][0] = _mm512_unpacklo_epi64(t1, t3);
        m[4 * quarter + 3][0] = _mm512_unpackhi_epi64(t1, t3);
    }
    m
}

/// # Safety
/// `offset + 16` bytes are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(input: &[u8], offset: usize) -> __m128i {
    debug_assert!(offset + 16 <= input.len());
    // SAFETY: the caller's promise; the load needs no alignment.
    unsafe { _mm_loadu_si128(input.as_ptr().add(offset).cast()) }
}

/// What all steps do once the round's function is known: `b + rotate(a + m + k + mixed)`.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn<const L: i32>(a: __m512i, b: __m512i, m: __m512i, k: u32, mixed: __m512i) -> __m512i {
    let known = _mm512_add_epi32(_mm512_add_epi32(m, _mm512_set1_epi32(k as i32)), a);
    _mm512_add_epi32(_mm512_rol_epi32::<L>(_mm512_add_epi32(known, mixed)), b)
}

/// `b ? c : d`, as the table of its value for each `b c d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn f<const L: i32, const R: i32>(a: __m512i, b: __m512i, c: __m512i, d: __m512i, m: __m512i, k: u32) -> __m512i {
    turn::<L>(a, b, m, k, _mm512_ternarylogic_epi32::<0xca>(b, c, d))
}

/// `d ? b : c`, as the table of its value for each `b c d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn g<const L: i32, const R: i32>(a: __m512i, b: __m512i, c: __m512i, d: __m512i, m: __m512i, k: u32) -> __m512i {
    turn::<L>(a, b, m, k, _mm512_ternarylogic_epi32::<0xe4>(b, c, d))
}

/// `b ^ c ^ d`, as the table of its value for each `b c d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn h<const L: i32, const R: i32>(a: __m512i, b: __m512i, c: __m512i, d: __m512i, m: __m512i, k: u32) -> __m512i {
    turn::<L>(a, b, m, k, _mm512_ternarylogic_epi32::<0x96>(b, c, d))
}

/// `c ^ (b | !d)`, as the table of its value for each `b c d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn i<const L: i32, const R: i32>(a: __m512i, b: __m512i, c: __m512i, d: __m512i, m: __m512i, k: u32) -> __m512i {
    turn::<L>(a, b, m, k, _mm512_ternarylogic_epi32::<0x39>(b, c, d))
}
