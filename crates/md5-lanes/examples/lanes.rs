//! GB per second of CPU for every kernel and number of streams:
//! `cargo run --release -p ashlar-md5-lanes --example lanes [MiB a stream]`.
//!
//! Time is the thread's own on the processor as the kernel counts it, so that other processes matter little.

#![allow(clippy::print_stdout)]

use bytes::Bytes;
use md5_lanes::{Kernel, Lanes, Stream};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const PIECE: usize = 256 << 10;

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(8);
    println!("{:8} {:>7} {:>8} {:>14}", "kernel", "streams", "GB/s", "CPU s per GB");
    for kernel in Kernel::available() {
        for streams in [1, 2, 3, 4, 6, 8, 12, 16] {
            let bytes = (streams * mib) << 20;
            let seconds = (0..15).map(|_| hash(kernel, streams, mib << 20)).fold(f64::MAX, f64::min);
            let gb = bytes as f64 / 1e9;
            println!("{:8} {streams:>7} {:>8.2} {:>14.3}", kernel.name(), gb / seconds, seconds / gb);
        }
    }
}

/// Streams that are all as fast, in pieces as a socket gives them, some MiB in all so that they come out of the cache.
fn hash(kernel: Kernel, streams: usize, len: usize) -> f64 {
    let lanes = Lanes::new(kernel, 16 << 20);
    let data: Vec<Bytes> = (0..streams).map(|s| Bytes::from(vec![s as u8 ^ 0x35; PIECE])).collect();
    let mut all: Vec<Stream> = (0..streams).map(|_| Stream::new(&lanes)).collect();
    let began = on_processor_ns();
    for _ in 0..len / PIECE {
        for (stream, piece) in all.iter_mut().zip(&data) {
            finish(stream.ready());
            stream.push(piece.clone());
        }
    }
    all.iter_mut().for_each(|stream| finish(stream.settle()));
    let ended = on_processor_ns();
    assert!(all.iter().all(|stream| stream.digest().is_some()));
    (ended - began) as f64 / 1e9
}

fn finish(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {}
}

fn on_processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}
