//! The messages of service 3: their bytes, and that no bytes make a reader panic.

use extent_store::format::FormatError;
use extent_store::{
    Damage, Depth, Fence, FoundFile, FrameAddress, FrameHeader, FrameOrigin, Quarantined, ReadRequest, ScanPage,
    Scanned, SliceCrcs,
};
use proptest::prelude::*;
use replicas::wire::{
    Answer, Fault, IoFault, Request, Status, What, decode_files, decode_quarantined, decode_scan, encode_files,
    encode_quarantined, encode_scan,
};
use types::{AttemptId, BucketId, ClusterId, DiskId, GroupId, ObjectKey};

const GROUP: GroupId = GroupId(0x0102_0304_0506_0708);
const ADDRESS: FrameAddress = FrameAddress { group: GROUP, generation: 9, offset: 0x1000 };

fn requests() -> Vec<(What, &'static str)> {
    let content = AttemptId { node: 1, session: 2, sequence: 3 };
    let wanted = ReadRequest { address: ADDRESS, content, index: 4, payload_bytes: 100, range: 10..20 };
    vec![
        (
            What::Create { group: GROUP, generation: 9, preallocate_bytes: 1 << 20 },
            "010d000000000000000108070605040302010900000000001000000000 00",
        ),
        (What::Append(ADDRESS), "010d0000000000000002080706050403020109000000 0010000000000000"),
        (What::Fence { group: GROUP, generation: 9 }, "010d0000000000000003080706050403020109000000"),
        (
            What::Read(wanted),
            "010d0000000000000004080706050403020109000000 0010000000000000 01000000 02000000 0300000000000000 04000000 64000000 0a000000 14000000",
        ),
        (What::ReadFrame(ADDRESS), "010d0000000000000005080706050403020109000000 0010000000000000"),
        (
            What::Scan { group: GROUP, generation: 9, depth: Depth::Payloads, from: 5 },
            "010d0000000000000006080706050403020109000000 01 0500000000000000",
        ),
        (What::Status, "010d0000000000000007"),
        (What::Files(Some((GROUP, 9))), "010d0000000000000008 01 080706050403020109000000"),
        (
            What::Punch { group: GROUP, generation: 9, ranges: vec![(4096, 8192)] },
            "010d0000000000000009080706050403020109000000 01000000 0010000000000000 0020000000000000",
        ),
        (What::Drop { group: GROUP, generation: 9 }, "010d000000000000000a080706050403020109000000"),
        (What::ForgetFence(GROUP), "010d000000000000000b0807060504030201"),
        (
            What::Quarantine { group: GROUP, generation: 9, reason: "why".into() },
            "010d000000000000000c080706050403020109000000 0300 776879",
        ),
        (What::Quarantined("a".into()), "010d000000000000000d 0100 61"),
        (
            What::BeginCopy { group: GROUP, generation: 9, sealed_length: 4096, token: 7 },
            "010d000000000000000e080706050403020109000000 0010000000000000 0700000000000000",
        ),
        (What::PutCopy { token: 7, sequence: 2 }, "010d000000000000000f 0700000000000000 0200000000000000"),
        (What::FinishCopy { token: 7, frames: 2 }, "010d0000000000000010 0700000000000000 0200000000000000"),
        (What::EndCopy { token: 7 }, "010d0000000000000011 0700000000000000"),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn requests_are_these_bytes() {
    for (what, golden) in requests() {
        let request = Request { disk: DiskId(13), what };
        let bytes = request.encode();
        assert_eq!(hex(&bytes), golden.replace(' ', ""), "{request:?}");
        assert_eq!(Request::decode(&bytes), Ok(request));
    }
}

fn faults() -> Vec<Fault> {
    let damages = [
        Damage::FileHeader(FormatError::Version(3)),
        Damage::ForeignFile("disk"),
        Damage::Header(FormatError::Field("key length")),
        Damage::Misplaced("generation"),
        Damage::OtherExtent("content"),
        Damage::Slice(15),
        Damage::Truncated,
        Damage::Unreadable,
        Damage::Padding,
    ];
    let mut faults: Vec<Fault> = damages.map(Fault::Damaged).to_vec();
    faults.extend([
        Fault::NoSpace,
        Fault::Io(IoFault { code: 24, transient: true, text: "too many open files".into() }),
        Fault::Fenced(2),
        Fault::Stale,
        Fault::OutOfOrder(4096),
        Fault::Full,
        Fault::Busy,
        Fault::Closed,
        Fault::Exists,
        Fault::Missing,
        Fault::Invalid,
        Fault::NotFenced,
        Fault::NotWholeFrames(4096, 8192),
        Fault::ForeignFrame,
        Fault::NotReadBack,
        Fault::NoDisk,
    ]);
    faults
}

#[test]
fn answers_are_these_bytes_and_every_error_comes_back_as_it_was() {
    let status = Status { total_bytes: 2, free_bytes: 1, suspect: true, strangers: 3 };
    let golden = [
        (Answer::Done, "0100"),
        (Answer::Fault(Fault::Damaged(Damage::Slice(15))), "01010a05000f000000"),
        (Answer::Length(4096), "01020010000000000000"),
        (Answer::Status(status), "0103020000000000000001000000000000000103000000000000 00"),
        (Answer::Flag(true), "010401"),
        (Answer::Next(Some(1)), "0105010100000000000000"),
        (Answer::More(false), "010600"),
        (Answer::Name("a".into()), "0107010061"),
    ];
    for (answer, bytes) in golden {
        assert_eq!(hex(&answer.encode()), bytes.replace(' ', ""), "{answer:?}");
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    for fault in faults() {
        let answer = Answer::Fault(fault);
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
}

fn header(offset: u64, key: &str) -> FrameHeader {
    FrameHeader {
        cluster: ClusterId(1),
        address: FrameAddress { offset, ..ADDRESS },
        origin: FrameOrigin {
            content: AttemptId { node: 1, session: 2, sequence: offset },
            index: 7,
            bucket: BucketId(3),
            key: ObjectKey::new(key).expect("a key"),
        },
        crcs: SliceCrcs::of(&[1; 70_000]),
    }
}

#[test]
fn a_page_of_a_walk_comes_back_as_it_was() {
    let items = vec![
        Scanned::Frame(header(4096, "a")),
        Scanned::Hole { offset: 80_000, bytes: 4096 },
        Scanned::Damaged { offset: 90_000, bytes: 4096, damage: Damage::Unreadable, header: None },
        Scanned::Damaged {
            offset: 100_000,
            bytes: 4096,
            damage: Damage::Slice(1),
            header: Some(Box::new(header(100_000, &"k".repeat(1024)))),
        },
    ];
    let (body, next) = encode_scan(&ScanPage { items: items.clone(), next: Some(5) });
    let page = decode_scan(&body, next).expect("sound");
    assert_eq!((page.items, page.next), (items, Some(5)));
}

#[test]
fn a_page_that_is_too_long_for_a_message_goes_on_where_it_was_cut() {
    let items: Vec<Scanned> = (1..=900).map(|index| Scanned::Frame(header(index * 4096, &"k".repeat(1024)))).collect();
    let (body, next) = encode_scan(&ScanPage { items: items.clone(), next: None });
    assert!(body.len() <= replicas::limits::LIST_BYTES);
    let page = decode_scan(&body, next).expect("sound");
    let count = page.items.len();
    assert!(count > 300 && count < 900, "{count}");
    assert_eq!(page.items, items[..count]);
    assert_eq!(next, Some((count as u64 + 1) * 4096));
}

#[test]
fn lists_of_files_come_back_as_they_were() {
    let files = vec![
        FoundFile { group: GROUP, generation: 1, fence: Some(Fence { generation: 2, length: 4096 }) },
        FoundFile { group: GROUP, generation: 3, fence: None },
    ];
    assert_eq!(decode_files(&encode_files(&files)), Ok(files));
    let set_aside = vec![Quarantined {
        name: "n".into(),
        group: GROUP,
        generation: 1,
        since_ms: 5,
        reason: "why".into(),
        allocated_bytes: 9,
    }];
    assert_eq!(decode_quarantined(&encode_quarantined(&set_aside)), Ok(set_aside));
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Request::decode(&bytes);
        let _ = Answer::decode(&bytes);
        let _ = decode_scan(&bytes, None);
        let _ = decode_files(&bytes);
        let _ = decode_quarantined(&bytes);
    }

    #[test]
    fn a_message_with_a_changed_byte_is_another_message_or_none(
        which in 0usize..17, at in any::<prop::sample::Index>(), to in any::<u8>(),
    ) {
        let request = Request { disk: DiskId(13), what: requests()[which].0.clone() };
        let mut bytes = request.encode();
        let at = at.index(bytes.len());
        let before = std::mem::replace(&mut bytes[at], to);
        match Request::decode(&bytes) {
            Ok(read) => prop_assert!(read != request || before == to),
            Err(_) => prop_assert!(before != to),
        }
    }

    #[test]
    fn a_message_that_is_cut_short_is_none(which in 0usize..17, at in any::<prop::sample::Index>()) {
        let bytes = Request { disk: DiskId(13), what: requests()[which].0.clone() }.encode();
        prop_assert!(Request::decode(&bytes[..at.index(bytes.len())]).is_err());
    }
}
