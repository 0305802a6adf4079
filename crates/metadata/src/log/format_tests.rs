//! The log's bytes do not change by accident.

use super::{FrameHeader, HardState, Item, LogEntry, LogSetRecord, Position, SegmentHeader};
use crate::shard::ShardId;
use bytes::Bytes;

fn items() -> Vec<Item> {
    let entry = LogEntry { shard: ShardId(1), index: 7, term: 2, kind: 0, data: Bytes::from_static(b"data") };
    vec![
        Item::Entry(entry),
        Item::HardState(ShardId(1), HardState { term: 2, vote: 1, commit: 6 }),
        Item::Truncated(ShardId(0), 5, 1),
        Item::Oldest(3),
        Item::Local(ShardId(2), 9, Bytes::from_static(b"x")),
        Item::LogSet(LogSetRecord { version: 4, members: vec![0xa, 0xb] }),
        Item::End(12),
    ]
}

fn payload() -> Bytes {
    let mut out = Vec::new();
    items().iter().for_each(|item| item.encode(&mut out));
    out.into()
}

#[test]
fn items_have_their_golden_bytes() {
    let golden = "01010000000700000000000000020000000000000000040000006461746102010000000200000000000000010000000000000006000000\
                  00000000030000000005000000000000000100000000000000040300000000000000050200000009000000000000000100000078\
                  060400000000000000020000000a000000000000000b00000000000000070c00000000000000";
    assert_eq!(hex(&payload()), golden);
    assert_eq!(Item::decode_all(payload(), 7), Some(items()));
    let sum: usize = items().iter().map(Item::encoded_bytes).sum();
    assert_eq!(sum, payload().len());
}

#[test]
fn headers_have_their_golden_bytes() {
    let previous_end = Position { segment: 8, offset: 0x3000 };
    let header = SegmentHeader { segment_bytes: 1 << 22, log: 0xf0, segment: 9, oldest: 4, previous_end };
    let block = header.encode();
    assert_eq!(hex(&block[..64]), GOLDEN_SEGMENT);
    assert_eq!(SegmentHeader::decode(&block), Some(header));

    let payload = payload();
    let at = Position { segment: 9, offset: 0x2000 };
    let (previous, synced) = (previous_end, Position { segment: 8, offset: 0x4000 });
    let frame = FrameHeader { at, previous, synced, log: 0xf0, payload_bytes: payload.len() as u32, items: 7 };
    let mut bytes = frame.encode(&payload);
    assert_eq!(hex(&bytes), GOLDEN_FRAME);
    bytes.extend_from_slice(&payload);
    let peeked = FrameHeader::peek(&bytes).expect("a frame");
    assert_eq!(peeked, frame);
    assert!(peeked.proves(&bytes));
}

#[test]
fn no_flipped_bit_of_a_frame_or_header_is_accepted() {
    let payload = payload();
    let at = Position { segment: 9, offset: 0x2000 };
    let frame = FrameHeader { at, previous: at, synced: at, log: 1, payload_bytes: payload.len() as u32, items: 7 };
    let mut bytes = frame.encode(&payload);
    bytes.extend_from_slice(&payload);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let accepted = FrameHeader::peek(&flipped).is_some_and(|header| header.proves(&flipped));
        assert!(!accepted, "bit {bit}");
    }
    let header = SegmentHeader { segment_bytes: 1, log: 2, segment: 3, oldest: 4, previous_end: at }.encode();
    for bit in 0..64 * 8 {
        let mut flipped = header.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SegmentHeader::decode(&flipped), None, "bit {bit}");
    }
}

#[test]
fn cut_or_random_items_are_refused_without_panic() {
    let whole = payload();
    for len in 0..whole.len() {
        assert_eq!(Item::decode_all(whole.slice(..len), 7), None, "{len} bytes");
    }
    assert_eq!(Item::decode_all(whole.clone(), 6), None, "bytes left over");
    assert_eq!(Item::decode_all(Bytes::from_static(&[6, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]), 1), None);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

// Both computed by another program (a bitwise CRC in Python).
const GOLDEN_SEGMENT: &str = "4153484c57414c310100000000004000f0000000000000000900000000000000040000000000000008000000000000000030000000000000bcc765fff928f485";
const GOLDEN_FRAME: &str = "4146524d9100000007000000002000000900000000000000080000000000000008000000000000000030000000400000f000000000000000c2680b1b5f256d69";
