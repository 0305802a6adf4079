//! One stream as fast as one can be, or few side by side.
//!
//! A step waits for the one before it, so what counts is how many operations stand between a step's newest word, `b`, and its
//! result. All else (`a`, the message, the constant) is added up ahead of it, see [`held`].
//!
//! Promises: the words of RFC 1321. Refuses to know: lanes.
#![allow(unsafe_code, clippy::needless_range_loop)]

use super::steps::{K, steps};
use crate::hash::BLOCK;

/// Hashes blocks into `words`.
pub(crate) fn compress(words: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
    let [a, b, c, d] = *words;
    let [[a], [b], [c], [d]] = interleaved([[a], [b], [c], [d]], [blocks], blocks.len());
    *words = [a, b, c, d];
}

/// Hashes the first `blocks` blocks of two streams. A stream leaves most of the machine idle, so this takes little longer than one.
pub(super) fn compress_two(words: [&mut [u32; 4]; 2], inputs: [&[[u8; BLOCK]]; 2], blocks: usize) {
    spread(words, inputs, blocks);
}

/// And of three, which is as many as there are registers for.
pub(super) fn compress_three(words: [&mut [u32; 4]; 3], inputs: [&[[u8; BLOCK]]; 3], blocks: usize) {
    spread(words, inputs, blocks);
}

#[inline(always)]
fn spread<const G: usize>(words: [&mut [u32; 4]; G], inputs: [&[[u8; BLOCK]]; G], blocks: usize) {
    let rows = std::array::from_fn(|row| std::array::from_fn(|stream| words[stream][row]));
    let rows = interleaved(rows, inputs, blocks);
    for (stream, words) in words.into_iter().enumerate() {
        *words = rows.map(|row| row[stream]);
    }
}

/// The state of `G` streams after that of `rows` and `blocks` blocks, a step of each stream after the other. Loops by number
/// throughout, for an iterator that is not compiled away here costs more than the hashing.
#[inline(always)]
fn interleaved<const G: usize>(rows: [[u32; G]; 4], inputs: [&[[u8; BLOCK]]; G], blocks: usize) -> [[u32; G]; 4] {
    let mut state = rows;
    for block in 0..blocks {
        let m = message(&inputs, block);
        let before = state;
        steps!(state, m, G, f, g, h, i);
        for row in 0..4 {
            for stream in 0..G {
                state[row][stream] = state[row][stream].wrapping_add(before[row][stream]);
            }
        }
    }
    state
}

#[inline(always)]
fn message<const G: usize>(inputs: &[&[[u8; BLOCK]]; G], block: usize) -> [[u32; G]; 16] {
    let mut m = [[0; G]; 16];
    for stream in 0..G {
        let bytes = &inputs[stream][block];
        for word in 0..16 {
            let at = 4 * word;
            m[word][stream] = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        }
    }
    m
}

/// The word itself. But the compiler is not told so, and hence leaves the sum it is of as it stands: else it would add a
/// constant last, and that would be one operation more to wait for in each of the 64 steps, a fifth of all the time.
#[inline(always)]
fn held(word: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let word = {
        let mut word = word;
        unsafe {
            // SAFETY: no instruction at all, only a comment.
            std::arch::asm!("/* {0:e} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word
    };
    word
}

/// What all steps do once the round's function is known: `b + rotate(ahead + mixed)`, where only `mixed` waits for `b`.
#[inline(always)]
fn turn<const L: i32>(b: u32, ahead: u32, mixed: u32) -> u32 {
    held(ahead).wrapping_add(mixed).rotate_left(L as u32).wrapping_add(b)
}

#[inline(always)]
fn sum(a: u32, m: u32, k: u32) -> u32 {
    a.wrapping_add(m).wrapping_add(k)
}

#[inline(always)]
fn f<const L: i32, const R: i32>(a: u32, b: u32, c: u32, d: u32, m: u32, k: u32) -> u32 {
    turn::<L>(b, sum(a, m, k), d ^ (b & (c ^ d)))
}

#[inline(always)]
fn g<const L: i32, const R: i32>(a: u32, b: u32, c: u32, d: u32, m: u32, k: u32) -> u32 {
    // The two halves share no bit, so they can be added: the one that does not need `b` ahead of it.
    turn::<L>(b, sum(a, m, k).wrapping_add(c & !d), b & d)
}

#[inline(always)]
fn h<const L: i32, const R: i32>(a: u32, b: u32, c: u32, d: u32, m: u32, k: u32) -> u32 {
    turn::<L>(b, sum(a, m, k), b ^ (c ^ d))
}

#[inline(always)]
fn i<const L: i32, const R: i32>(a: u32, b: u32, c: u32, d: u32, m: u32, k: u32) -> u32 {
    turn::<L>(b, sum(a, m, k), c ^ (b | !d))
}
