//! The bytes on disk: golden, and refused when a single byte is wrong.

mod fixture;

use bytes::Bytes;
use extent_store::format::{FormatError, IdentityRecord};
use extent_store::{FileHeader, FileKind, Frame, FrameHeader, SliceCrcs};
use fixture::{CLUSTER, DISK, GROUP, World, at, extent};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use types::{AttemptId, BucketId, ObjectKey};

/// "offset: hex" of every run of non-zero bytes, 16 bytes a line: a golden file that a reader can check by hand.
fn dump(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0));
    lines.map(|(i, line)| format!("{:04x}: {}\n", i * 16, hex(line))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn version_1_of_a_frame_header_is_these_bytes() {
    let header = FrameHeader {
        cluster: CLUSTER,
        address: at(GROUP, 0x0102_0304, 0x5000),
        origin: extent_store::FrameOrigin {
            content: AttemptId { node: 0x11, session: 0x22, sequence: 0x33 },
            index: 0x44,
            bucket: BucketId(0xB1),
            key: ObjectKey::new("photos/é").expect("a key"),
        },
        crcs: SliceCrcs::of(&[7; 65_537]),
    };
    let mut block = vec![0xff; 4096];
    header.encode(&mut block);
    assert_eq!(dump(&block), include_str!("golden/frame-header-1.txt"));
    assert_eq!(FrameHeader::decode(&block), Ok(header));
}

#[test]
fn version_1_of_a_file_header_and_an_identity_is_these_bytes() {
    let header = FileHeader {
        kind: FileKind::Copy,
        cluster: CLUSTER,
        disk: DISK,
        group: GROUP,
        generation: 9,
        sealed_length: 0x0123_4567,
    };
    let mut block = vec![0xff; 4096];
    header.encode(&mut block);
    assert_eq!(dump(&block), include_str!("golden/file-header-1.txt"));
    assert_eq!(FileHeader::decode(&block), Ok(header));
    let identity = IdentityRecord { cluster: CLUSTER, node: 3, disk: DISK, incarnation: 77 };
    assert_eq!(dump(&identity.encode()), include_str!("golden/identity-1.txt"));
    assert_eq!(IdentityRecord::decode(&identity.encode()), Ok(identity));
}

#[test]
fn the_checksum_is_crc32c() {
    // Check value of the Castagnoli polynomial, RFC 3720 B.4.
    assert_eq!(extent_store::format::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn a_block_of_zeros_is_a_hole_and_a_short_one_is_short() {
    assert_eq!(FrameHeader::decode(&[0; 4096]), Err(FormatError::Hole));
    assert_eq!(FrameHeader::decode(&[0; 4095]), Err(FormatError::Short));
    assert_eq!(FileHeader::decode(&[]), Err(FormatError::Short));
    assert_eq!(IdentityRecord::decode(&[1; 65]), Err(FormatError::Field("length")));
}

#[test]
fn an_unknown_version_is_named() {
    let identity = IdentityRecord { cluster: CLUSTER, node: 3, disk: DISK, incarnation: 77 };
    let mut bytes = identity.encode();
    bytes[8] = 2;
    let crc = extent_store::format::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(IdentityRecord::decode(&bytes), Err(FormatError::Version(2)));
}

#[test]
fn a_frame_at_another_address_has_the_same_payload() {
    let world = World::simulated(1);
    let frame = world.frame(at(GROUP, 1, 4096), extent(1, 70_000));
    let buf = world.buffers.try_take(Frame::MAX_BYTES).expect("room");
    let moved = frame.readdressed(buf, at(fixture::OTHER, 4, 8192));
    assert_eq!(moved.payload(), extent(1, 70_000).payload());
    assert_eq!(Frame::verify(moved.bytes().clone()).expect("sound").address(), at(fixture::OTHER, 4, 8192));
    assert_eq!(moved.header().origin, frame.header().origin);
}

#[test]
fn a_frame_has_the_same_canonical_bytes_in_every_generation_and_a_copy_takes_them() {
    let world = World::simulated(1);
    let canonical = |generation: u32| {
        let frame = world.frame(at(GROUP, generation, 8192), extent(1, 70_000));
        [&frame.canonical_header(), &frame.bytes()[4096..]].concat()
    };
    let bytes = canonical(1);
    assert_eq!(bytes, canonical(7));
    let frame = Frame::verify(Bytes::from(bytes.clone())).expect("sound by themselves");
    assert_eq!((frame.address(), frame.header().origin), (at(GROUP, 0, 8192), extent(1, 70_000).origin()));
    let (store, _) = world.open(std::sync::Arc::new(fixture::sim_disk(1)));
    world.run(async move {
        let mut copy = store.begin_copy(GROUP, 9, 8192 + 77_824).await.expect("a copy");
        copy.put(frame).await.expect("taken");
        copy.finish().await.expect("finished");
        let read = store.read_frame(at(GROUP, 9, 8192)).await.expect("sound");
        assert_eq!([&read.canonical_header(), &read.bytes()[4096..]].concat(), bytes);
    });
}

proptest! {
    #[test]
    fn any_changed_byte_of_a_frame_is_refused(
        number in any::<u32>(),
        bytes in 1u32..140_000,
        place in any::<u32>(),
        flip in 1u8..,
    ) {
        let world = World::simulated(1);
        let frame = world.frame(at(GROUP, 3, 4096), extent(number, bytes));
        let mut copy = frame.bytes().to_vec();
        prop_assert_eq!(copy.len() % 4096, 0);
        let place = place as usize % copy.len();
        prop_assert!(Frame::verify(Bytes::from(copy.clone())).is_ok());
        copy[place] ^= flip;
        prop_assert!(Frame::verify(Bytes::from(copy)).is_err(), "byte {}", place);
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let _ = (FrameHeader::decode(&bytes), FileHeader::decode(&bytes), IdentityRecord::decode(&bytes));
        let _ = Frame::verify(Bytes::from(bytes));
    }

    #[test]
    fn headers_with_a_right_checksum_and_wild_fields_do_not_panic(
        fields in proptest::collection::vec(any::<u8>(), 200),
    ) {
        let mut block = vec![0; 4096];
        block[..200].copy_from_slice(&fields);
        block[..8].copy_from_slice(b"ASHLARFR");
        block[8..12].copy_from_slice(&1u32.to_le_bytes());
        let crc = extent_store::format::crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
        let _ = FrameHeader::decode(&block);
        let _ = Frame::verify(Bytes::from(block));
    }
}
