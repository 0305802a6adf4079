//! Every kernel of this machine against `md5::compress`.
//!
//! Under Miri the first of them runs the AVX-512 kernel on machines that have none (docs/adr/0005-md5-in-lanes.md).

use super::*;
use md5::block_api::compress;
use proptest::prelude::*;

/// Bytes that differ from place to place and from lane to lane.
fn noise(lane: usize, len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(lane as u64 + 1);
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(next).collect()
}

/// Blocks beyond the first `blocks` must not matter: lanes have some more of them.
fn agrees(kernel: Kernel, lanes: usize, blocks: usize) {
    let data: Vec<Vec<u8>> = (0..lanes).map(|lane| noise(lane, (blocks + lane % 3) * BLOCK + lane)).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let start = |lane: usize| [1, 0x8000_0000, 7, u32::MAX].map(|w: u32| w.wrapping_mul(2 * lane as u32 + 1));
    let mut got: Vec<[u32; 4]> = (0..lanes).map(start).collect();
    let mut want = got.clone();
    kernel.advance(&mut got, &inputs, blocks);
    for (words, input) in want.iter_mut().zip(&inputs) {
        compress(words, &input.as_chunks::<BLOCK>().0[..blocks]);
    }
    assert_eq!(got, want, "{kernel:?}, {lanes} lanes, {blocks} blocks");
}

#[test]
fn every_kernel_hashes_each_lane_as_if_it_were_alone() {
    // An interpreter needs a second a block.
    let counts = if cfg!(miri) { vec![2, 8, 9, 16] } else { (0..=LANES).collect() };
    for kernel in Kernel::available() {
        for lanes in counts.clone() {
            for blocks in if cfg!(miri) { 2..=2 } else { 0..=3 } {
                agrees(kernel, lanes, blocks);
            }
        }
    }
}

#[test]
fn the_widest_kernel_is_the_one_detected() {
    let lanes: Vec<usize> = Kernel::available().into_iter().map(Kernel::lanes).collect();
    assert!(lanes.is_sorted());
    assert_eq!(Kernel::detect().lanes(), lanes[lanes.len() - 1]);
    #[cfg(target_arch = "x86_64")]
    assert_eq!(is_x86_feature_detected!("avx2"), lanes.len() > 1);
}

#[test]
#[should_panic(expected = "shorter than 2 blocks")]
fn an_input_that_is_too_short_is_our_own_mistake() {
    let long = [0; 3 * BLOCK];
    Kernel::detect().advance(&mut [[0; 4]; 2], &[&long, &long[..2 * BLOCK - 1]], 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_words_and_any_blocks_agree(
        lanes in prop::collection::vec((any::<[u32; 4]>(), prop::collection::vec(any::<u8>(), 4 * BLOCK)), 1..=LANES),
        blocks in 0usize..=4,
    ) {
        for kernel in Kernel::available() {
            let inputs: Vec<&[u8]> = lanes.iter().map(|(_, bytes)| bytes.as_slice()).collect();
            let mut got: Vec<[u32; 4]> = lanes.iter().map(|(words, _)| *words).collect();
            let mut want = got.clone();
            kernel.advance(&mut got, &inputs, blocks);
            for (words, input) in want.iter_mut().zip(&inputs) {
                compress(words, &input.as_chunks::<BLOCK>().0[..blocks]);
            }
            prop_assert_eq!(&got, &want, "{:?}", kernel);
        }
    }
}
