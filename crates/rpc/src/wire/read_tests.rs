//! Streams of frames, cut anywhere, damaged anywhere, and not frames at all.

use super::{Frame, FrameReader, Payload, ReadError, Room};
use crate::limits::{MAX_BODY_BYTES, MAX_HEAD_BYTES, SMALL_BYTES};
use crate::wire::{FrameWriter, Header, Kind};
use crate::{Message, Service};
use bytes::Bytes;
use env::buf::{ALIGN, BufPool};
use env::{Env, SimEnv};
use proptest::prelude::{Strategy, any, prop, prop_assert, proptest};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// A stream that hands out its bytes in pieces.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    /// Lengths of the pieces, over and over.
    lengths: Vec<usize>,
    next: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let length = self.lengths[self.next % self.lengths.len()];
        let length = length.min(out.remaining()).min(self.bytes.len() - self.at);
        let piece = self.at..self.at + length;
        out.put_slice(&self.bytes[piece]);
        self.at += length;
        self.next += 1;
        Poll::Ready(Ok(()))
    }
}

fn room(sim: &SimEnv, budget_bytes: usize) -> Room {
    let longest_bytes = MAX_HEAD_BYTES + MAX_BODY_BYTES;
    Room { pool: BufPool::new(budget_bytes), timers: sim.env.timers.clone(), longest_bytes }
}

const BUDGET: usize = 16 << 20;

/// All frames of a stream, and how it ended.
fn read_all(bytes: Vec<u8>, lengths: Vec<usize>, budget: usize) -> (Vec<Frame>, Result<(), ReadError>) {
    let sim = Env::simulated(1);
    let room = room(&sim, budget);
    sim.scheduler.block_on(async move {
        let mut reader = FrameReader::new(Pieces { bytes, at: 0, lengths, next: 0 }, room);
        let mut frames = Vec::new();
        loop {
            match reader.next().await {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return (frames, Ok(())),
                Err(error) => return (frames, Err(error)),
            }
        }
    })
}

fn written(messages: &[Message]) -> Vec<u8> {
    let messages = messages.to_vec();
    Env::simulated(1).scheduler.block_on(async move {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes);
        for (number, message) in messages.iter().enumerate() {
            let header = Header::of(Kind::Call, Service(2), number as u64, 1000, message);
            writer.write(&header, message).await.expect("a vector takes all");
        }
        writer.flush().await.expect("a vector takes all");
        bytes
    })
}

fn message(head_bytes: usize, body_bytes: usize) -> Message {
    let bytes = |count: usize, step: usize| (0..count).map(|n| ((n * step) >> 3) as u8).collect::<Vec<_>>();
    Message { head: bytes(head_bytes, 7).into(), body: bytes(body_bytes, 11).into() }
}

fn here(frame: Frame) -> Message {
    match frame.payload {
        Payload::Here(message) => message,
        Payload::NoRoom => unreachable!("there was room"),
    }
}

#[test]
fn small_and_long_messages_come_out_as_they_went_in() {
    let sizes =
        [(0, 0), (3, 0), (0, 5), (SMALL_BYTES, 0), (1, SMALL_BYTES), (70_000, 3), (100, 1 << 20), (30_000, 300_000)];
    let messages: Vec<Message> = sizes.iter().map(|(head, body)| message(*head, *body)).collect();
    let (frames, end) = read_all(written(&messages), vec![70_000], BUDGET);
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(frames.iter().map(|frame| frame.header.number).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert_eq!(frames.into_iter().map(here).collect::<Vec<_>>(), messages);
}

#[test]
fn a_long_body_begins_on_a_border() {
    for (head, body) in [(0, SMALL_BYTES + 1), (77, 1 << 20), (ALIGN, 50_000), (ALIGN + 1, 50_000)] {
        let (frames, _) = read_all(written(&[message(head, body)]), vec![999], BUDGET);
        let message = frames.into_iter().map(here).next().expect("a frame");
        assert_eq!(message.body.as_ptr() as usize % ALIGN, 0, "after a head of {head}");
    }
}

#[test]
fn a_payload_without_memory_is_read_past_and_the_next_frame_is_whole() {
    let messages = [message(9, 9), message(0, 1 << 20), message(10, 10), message(0, 60_000)];
    let (frames, end) = read_all(written(&messages), vec![5000], 128 << 10);
    assert!(end.is_ok(), "{end:?}");
    let here: Vec<bool> = frames.iter().map(|frame| matches!(frame.payload, Payload::Here(_))).collect();
    assert_eq!(here, [true, false, true, true]);
}

#[test]
fn memory_is_waited_for_only_so_long() {
    let sim = Env::simulated(1);
    let room = room(&sim, 128 << 10);
    let held = room.pool.try_take(100 << 10).expect("free at first");
    let bytes = written(&[message(0, 100_000)]);
    let (clock, timers) = (sim.clock.clone(), sim.env.timers.clone());
    sim.scheduler.block_on(async move {
        let mut reader =
            FrameReader::new(Pieces { bytes: bytes.clone(), at: 0, lengths: vec![9000], next: 0 }, room.clone());
        let frame = reader.next().await.expect("a frame").expect("a frame");
        assert!(matches!(frame.payload, Payload::NoRoom));
        assert_eq!(env::clock::Clock::monotonic(&*clock), crate::limits::MEMORY_PATIENCE);
        let mut reader = FrameReader::new(Pieces { bytes, at: 0, lengths: vec![9000], next: 0 }, room);
        let release = timers.sleep(crate::limits::MEMORY_PATIENCE / 2);
        let release = async {
            release.await;
            drop(held);
        };
        let (frame, ()) = futures_util::future::join(reader.next(), release).await;
        assert!(matches!(frame.expect("a frame").expect("a frame").payload, Payload::Here(_)));
    });
}

#[test]
fn a_stream_that_ends_within_a_frame_is_no_clean_end() {
    let bytes = written(&[message(10, 20), message(0, 40_000)]);
    for end in 0..bytes.len() {
        if end > 200 && end % 997 != 0 {
            continue;
        }
        let (frames, result) = read_all(bytes[..end].to_vec(), vec![4096], BUDGET);
        let whole = end == 0 || end == 70;
        assert_eq!(result.is_ok(), whole, "cut at {end}");
        assert_eq!(frames.len(), usize::from(end >= 70));
    }
}

#[test]
fn a_peer_that_may_send_little_is_cut_off_before_memory_is_taken() {
    let sim = Env::simulated(1);
    let mut room = room(&sim, BUDGET);
    room.longest_bytes = 1000;
    let (pool, bytes) = (room.pool.clone(), written(&[message(500, 500), message(500, 501)]));
    sim.scheduler.block_on(async move {
        let mut reader = FrameReader::new(Pieces { bytes, at: 0, lengths: vec![4096], next: 0 }, room);
        assert!(matches!(reader.next().await, Ok(Some(_))));
        assert!(matches!(reader.next().await, Err(ReadError::TooLong(1001))));
    });
    assert_eq!(pool.in_use_bytes() + pool.idle_bytes(), 0);
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let size = || prop::sample::select(vec![0, 1, 100, 5000, SMALL_BYTES, SMALL_BYTES + 1, 40_000]);
    prop::collection::vec((size(), size()).prop_map(|(head, body)| message(head, body)), 0..5)
}

proptest! {
    #[test]
    fn frames_come_out_the_same_however_the_stream_is_cut(
        messages in messages(),
        lengths in prop::collection::vec(1_usize..20_000, 1..6),
    ) {
        let (frames, end) = read_all(written(&messages), lengths, BUDGET);
        prop_assert!(end.is_ok());
        prop_assert!(frames.into_iter().map(here).eq(messages));
    }

    #[test]
    fn a_damaged_stream_gives_only_frames_that_were_sent_and_then_an_error(
        messages in messages(),
        at in any::<prop::sample::Index>(),
        mask in 1_u8..,
    ) {
        let mut bytes = written(&messages);
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            let (frames, end) = read_all(bytes, vec![3000], BUDGET);
            prop_assert!(end.is_err());
            prop_assert!(frames.len() < messages.len());
            prop_assert!(frames.into_iter().map(here).zip(&messages).all(|(got, sent)| got == *sent));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_in_bounded_memory(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        claimed in any::<[u32; 2]>(),
        lengths in prop::collection::vec(1_usize..100, 1..4),
    ) {
        // Bare noise, and noise behind a header that is right and claims any lengths.
        let _ = read_all(bytes.clone(), lengths.clone(), BUDGET);
        let mut header = Header::of(Kind::Send, Service(1), 0, 0, &Message { head: Bytes::new(), body: Bytes::new() });
        (header.head_bytes, header.body_bytes) = (claimed[0] >> (claimed[1] % 32), claimed[1] >> (claimed[0] % 32));
        let stream = [&header.encode()[..], &bytes].concat();
        let (frames, _) = read_all(stream, lengths, BUDGET);
        // The checksum of nothing is right for nothing alone.
        prop_assert!(frames.len() <= 1 && frames.iter().all(|frame| frame.header.payload_bytes() == 0));
    }
}
