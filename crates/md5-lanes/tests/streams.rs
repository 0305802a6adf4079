//! Streams that share lanes, against the md-5 crate: random lengths, splits, interleavings, ends.

use bytes::Bytes;
use md5::{Digest, Md5};
use md5_lanes::limits::{ALONE_BYTES, BACKLOG_MAX_BYTES, EAGER_BYTES, LANES};
use md5_lanes::{Kernel, Lanes, Stream};
use proptest::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Bytes that no other seed has.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn reference(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

fn settled(mut stream: Stream) -> [u8; 16] {
    block_on(stream.settle());
    stream.digest().expect("it is settled")
}

/// A stream under test: what is still to be pushed, and what its digest must be.
struct Running {
    stream: Stream,
    rest: Bytes,
    want: [u8; 16],
}

impl Running {
    fn new(lanes: &Lanes, seed: u64, len: usize) -> Running {
        let rest = noise(seed, len);
        Running { stream: Stream::new(lanes), want: reference(&rest), rest }
    }

    /// Pushes up to `n` bytes, as a body does: once it may.
    fn push(&mut self, n: usize) {
        block_on(self.stream.ready());
        self.stream.push(self.rest.split_to(n.min(self.rest.len())));
    }

    fn finish(mut self, piece: usize) -> bool {
        while !self.rest.is_empty() {
            self.push(piece.max(1));
        }
        settled(self.stream) == self.want
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { stream: usize, bytes: usize },
    Finish { stream: usize, piece: usize },
    Drop { stream: usize },
}

fn piece() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..200, 200usize..20_000, 20_000usize..300_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<usize>(), piece()).prop_map(|(stream, bytes)| Step::Push { stream, bytes }),
        1 => (any::<usize>(), piece()).prop_map(|(stream, piece)| Step::Finish { stream, piece: piece.max(1000) }),
        1 => any::<usize>().prop_map(|stream| Step::Drop { stream }),
    ]
}

fn budget() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(100_000), Just(16 << 20)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_others_do_each_stream_gets_the_digest_of_its_bytes(
        lens in prop::collection::vec(prop_oneof![Just(0usize), 0usize..1000, 0usize..600_000], 1..40),
        steps in prop::collection::vec(step(), 0..160),
        budget in budget(),
    ) {
        for kernel in Kernel::available() {
            let lanes = Lanes::new(kernel, budget);
            let mut running: Vec<Running> =
                lens.iter().enumerate().map(|(i, len)| Running::new(&lanes, i as u64, *len)).collect();
            for step in &steps {
                if running.is_empty() {
                    break;
                }
                let at = |stream: usize| stream % running.len();
                match *step {
                    Step::Push { stream, bytes } => {
                        let at = at(stream);
                        running[at].push(bytes);
                    }
                    Step::Finish { stream, piece } => {
                        let at = at(stream);
                        prop_assert!(running.swap_remove(at).finish(piece), "{:?}", kernel);
                    }
                    Step::Drop { stream } => {
                        let at = at(stream);
                        drop(running.swap_remove(at));
                    }
                }
            }
            while let Some(next) = running.pop() {
                prop_assert!(next.finish(70_000), "{:?}", kernel);
            }
            prop_assert_eq!(lanes.backlog(), 0);
        }
    }
}

#[test]
fn streams_on_many_threads_get_the_digests_of_their_bytes() {
    let lanes = Lanes::new(Kernel::detect(), 1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let lanes = &lanes;
            scope.spawn(move || {
                for round in 0..12 {
                    let seed = thread * 100 + round;
                    let len = (seed as usize * 77_777) % 900_000;
                    let mut next = Running::new(lanes, seed, len);
                    if seed.is_multiple_of(5) {
                        // Dropped in the middle, perhaps while another thread has its state.
                        next.push(200_000);
                        continue;
                    }
                    assert!(next.finish(10_000 + (seed as usize * 7919) % 100_000), "thread {thread}, round {round}");
                }
            });
        }
    });
    assert_eq!(lanes.backlog(), 0);
}

#[test]
fn a_stream_by_itself_holds_nothing_back() {
    let lanes = Lanes::new(Kernel::detect(), 16 << 20);
    let mut lone = Running::new(&lanes, 1, 1_000_000);
    while !lone.rest.is_empty() {
        lone.push(50_000);
        assert!(lanes.backlog() < EAGER_BYTES);
    }
    assert_eq!(settled(lone.stream), lone.want);
}

#[test]
fn streams_that_come_together_take_their_steps_together() {
    let lanes = Lanes::new(Kernel::detect(), 16 << 20);
    if lanes.kernel().lanes() == 1 {
        return;
    }
    let mut running: Vec<Running> = (0..LANES as u64).map(|seed| Running::new(&lanes, seed, 1 << 20)).collect();
    for _ in 0..16 {
        running.iter_mut().for_each(|r| r.push(64 << 10));
    }
    assert!(running.into_iter().all(|r| r.finish(1)));
    let work = lanes.work();
    let all = ((LANES as u64) << 20) / 64;
    // Each hashes its first 64 KiB by itself, and the first to join does so while it is the only one.
    assert_eq!(work.lane_blocks + work.lone_blocks, all - LANES as u64 * ALONE_BYTES / 64);
    assert!(work.lane_blocks > all * 8 / 10, "{work:?}");
    assert!(work.steps * 12 < work.lane_blocks, "at least twelve lanes of sixteen are taken: {work:?}");
}

#[test]
fn small_objects_never_meet_the_others() {
    let lanes = Lanes::new(Kernel::detect(), 16 << 20);
    let mut stalled = Running::new(&lanes, 1, 300_000);
    stalled.push(300_000);
    let before = (lanes.work(), lanes.backlog());
    let mut small = Running::new(&lanes, 2, ALONE_BYTES as usize);
    small.push(1000);
    assert!(small.finish(1 << 20));
    assert_eq!((lanes.work(), lanes.backlog()), before);
}

#[test]
fn what_streams_hold_back_is_within_the_budget() {
    let budget = 2 << 20;
    let lanes = Lanes::new(Kernel::detect(), budget);
    let piece = 100_000;
    // One that stalls keeps the others from finding that everybody is ready.
    let mut running: Vec<Running> = (0..10).map(|seed| Running::new(&lanes, seed, 3_000_000)).collect();
    running[0].push(piece);
    for _ in 0..25 {
        for next in &mut running[1..] {
            next.push(piece);
            block_on(next.stream.ready());
            assert!(lanes.backlog() <= budget, "{}", lanes.backlog());
        }
    }
    assert!(running.into_iter().all(|r| r.finish(piece)));
}

#[test]
fn two_streams_hold_back_no_more_than_a_stream_may() {
    let lanes = Lanes::new(Kernel::detect(), 1 << 30);
    let mut stalled = Running::new(&lanes, 1, 200_000);
    stalled.push(70_000);
    stalled.push(100);
    let mut other = Running::new(&lanes, 2, 8 << 20);
    while !other.rest.is_empty() {
        other.push(256 << 10);
        block_on(other.stream.ready());
        assert!(lanes.backlog() <= BACKLOG_MAX_BYTES + 100);
    }
    assert!(other.finish(1) && stalled.finish(1 << 20));
}

#[test]
fn a_stream_that_is_dropped_leaves_nothing_behind() {
    let lanes = Lanes::new(Kernel::detect(), 16 << 20);
    let mut others: Vec<Running> = (0..3).map(|seed| Running::new(&lanes, seed, 400_000)).collect();
    others.iter_mut().for_each(|r| r.push(70_000));
    let before = lanes.backlog();
    let mut gone = Running::new(&lanes, 9, 400_000);
    gone.push(66_000);
    gone.push(5_000);
    drop(gone);
    assert!(lanes.backlog() <= before);
    assert!(others.into_iter().all(|r| r.finish(10_000)));
    assert_eq!(lanes.backlog(), 0);
}

#[test]
fn a_wait_that_is_dropped_can_be_taken_up_again() {
    let lanes = Lanes::new(Kernel::detect(), 0);
    let mut other = Running::new(&lanes, 1, 70_000);
    other.push(70_000);
    let mut next = Running::new(&lanes, 2, 2 << 20);
    while !next.rest.is_empty() {
        next.push(1 << 20);
        // Polled once: a batch of 256 KiB is done, the future goes away.
        let _ = pin!(next.stream.settle()).poll(&mut Context::from_waker(Waker::noop()));
        if next.stream.digest().is_some() {
            unreachable!("more than one batch is owed");
        }
    }
    assert!(next.finish(1) && other.finish(1));
}
