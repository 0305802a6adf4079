//! A batch: several streams' bytes run through the lanes until the first stream is done.
//!
//! Promises: each stream's bytes in their order; ends when the first stream has nothing left or had its share of the batch.
//! Refuses to know: whose streams these are, locks.

use crate::hash::{BLOCK, Hash};
use crate::kernel::Kernel;
use crate::lanes::Work;
use crate::limits::LANES;
use bytes::Bytes;
use std::collections::VecDeque;

/// One stream's state and what is to be hashed into it.
pub(crate) struct Job {
    pub(crate) hash: Hash,
    pub(crate) pieces: VecDeque<Bytes>,
}

impl Job {
    /// Whole blocks at the front of what is left, 0 if not one is left: then the rest is in the state already.
    fn whole_blocks(&mut self) -> usize {
        while let Some(piece) = self.pieces.front_mut() {
            self.hash.align(piece);
            let blocks = piece.len() / BLOCK;
            if blocks > 0 {
                return blocks;
            }
            self.pieces.pop_front();
        }
        0
    }

    fn front(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advanced(&mut self, words: [u32; 4], blocks: usize) {
        if let Some(piece) = self.pieces.front_mut() {
            self.hash.advanced(words, blocks, piece);
        }
    }
}

/// Runs `jobs`, at most [`LANES`], until the first has nothing left or `most_bytes` of each were taken.
pub(crate) fn run(kernel: Kernel, jobs: &mut [Job], most_bytes: usize) -> Work {
    let mut work = Work::default();
    let mut left = most_bytes / BLOCK;
    while left > 0 {
        let mut blocks = left;
        let mut seats = [0; LANES];
        let mut count = 0;
        for (index, job) in jobs.iter_mut().enumerate() {
            let whole = job.whole_blocks();
            if whole > 0 {
                blocks = blocks.min(whole);
                seats[count] = index;
                count += 1;
            } else if index == 0 {
                return work;
            }
        }
        step(kernel, jobs, &seats[..count], blocks);
        work.count(count, blocks);
        left -= blocks;
    }
    work
}

/// `blocks` blocks of the jobs at `seats`.
fn step(kernel: Kernel, jobs: &mut [Job], seats: &[usize], blocks: usize) {
    let mut words = [[0; 4]; LANES];
    let mut inputs: [&[u8]; LANES] = [&[]; LANES];
    for (lane, seat) in seats.iter().enumerate() {
        words[lane] = jobs[*seat].hash.words();
        inputs[lane] = jobs[*seat].front();
    }
    kernel.advance(&mut words[..seats.len()], &inputs[..seats.len()], blocks);
    for (words, seat) in words.into_iter().zip(seats) {
        jobs[*seat].advanced(words, blocks);
    }
}
