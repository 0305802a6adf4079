//! The order of appends, against every order of arrival.

use super::order::{Order, Step};
use bytes::Bytes;
use env::buf::BufPool;
use extent_store::limits::{FIRST_FRAME_OFFSET, HEADER_BYTES};
use extent_store::{AppendError, Frame, FrameAddress, FrameOrigin, SliceCrcs};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::{AttemptId, BucketId, ClusterId, GroupId, ObjectKey};

const WRITER: u32 = 7;

/// A small frame; `fill` tells frames of the same place apart.
fn frame(offset: u64, fill: u8) -> Frame {
    let pool = BufPool::new(1 << 20);
    let mut buf = pool.try_take(2 * HEADER_BYTES).expect("room");
    buf.resize_zeroed(HEADER_BYTES);
    buf.extend_from_slice(&[fill; 100]);
    let crcs = SliceCrcs::of(&buf[HEADER_BYTES..]);
    let content = AttemptId { node: 1, session: 1, sequence: offset };
    let key = ObjectKey::new("k").expect("a key");
    let origin = FrameOrigin { content, index: 0, bucket: BucketId(1), key };
    Frame::build(buf, ClusterId(1), FrameAddress { group: GroupId(5), generation: 1, offset }, &origin, &crcs)
}

fn offset(index: usize) -> u64 {
    FIRST_FRAME_OFFSET + 2 * HEADER_BYTES as u64 * index as u64
}

/// A file as the disk sees it, and what waiters were told.
struct File {
    order: Order<usize>,
    handed: Vec<u64>,
    told: BTreeMap<usize, Result<(), AppendError>>,
    stored: Vec<Bytes>,
}

impl File {
    fn new() -> File {
        File { order: Order::new(WRITER), handed: Vec::new(), told: BTreeMap::new(), stored: Vec::new() }
    }

    fn arrive(&mut self, frame: Frame, who: usize) {
        let at = frame.address().offset;
        match self.order.arrive(WRITER, frame.clone(), who) {
            Step::Hand(frames) => {
                self.handed.extend(frames.iter().map(|frame| frame.address().offset));
                self.stored.extend(frames.iter().map(|frame| frame.bytes().clone()));
            }
            Step::Wait => {}
            Step::Compare(who) => {
                let index = self.handed.iter().position(|handed| *handed == at).expect("it was handed on");
                let same = self.stored[index] == *frame.bytes();
                let expected = self.order.next();
                self.told.insert(who, if same { Ok(()) } else { Err(AppendError::OutOfOrder { expected }) });
            }
            Step::Refuse(who, error) => {
                self.told.insert(who, Err(error));
            }
        }
    }

    fn answer(&mut self, at: u64, result: Result<(), AppendError>) {
        self.told.extend(self.order.answered(at, result));
    }
}

proptest! {
    #[test]
    fn whatever_the_order_of_arrival_frames_are_handed_on_once_and_by_offset(
        arrivals in proptest::collection::vec((0usize..8, any::<bool>()), 1..40),
    ) {
        let mut file = File::new();
        let mut answered = 0;
        for (who, (index, disk_answers)) in arrivals.iter().enumerate() {
            file.arrive(frame(offset(*index), 0), who);
            while *disk_answers && answered < file.handed.len() {
                file.answer(file.handed[answered], Ok(()));
                answered += 1;
            }
        }
        let expected: Vec<u64> = (0..file.handed.len()).map(offset).collect();
        prop_assert_eq!(&file.handed, &expected);
        // Whoever was told well brought a frame that the disk had acknowledged.
        for (who, told) in &file.told {
            let (index, _) = arrivals[*who];
            prop_assert!(told.is_err() || index < answered, "{} was acknowledged before the disk did", index);
        }
        while answered < file.handed.len() {
            file.answer(file.handed[answered], Ok(()));
            answered += 1;
        }
        let early: Vec<usize> = (0..arrivals.len()).filter(|who| arrivals[*who].0 >= answered).collect();
        for who in 0..arrivals.len() {
            prop_assert_eq!(file.told.contains_key(&who), !early.contains(&who));
        }
    }
}

#[test]
fn another_frame_at_a_used_place_is_refused_in_every_state() {
    let mut file = File::new();
    file.arrive(frame(offset(0), 1), 0);
    file.arrive(frame(offset(0), 2), 1);
    assert!(matches!(file.told.get(&1), Some(Err(AppendError::OutOfOrder { .. }))), "on its way to the disk");
    file.answer(offset(0), Ok(()));
    file.arrive(frame(offset(0), 2), 2);
    assert!(matches!(file.told.get(&2), Some(Err(AppendError::OutOfOrder { .. }))), "durable");
    file.arrive(frame(offset(2), 1), 3);
    file.arrive(frame(offset(2), 2), 4);
    assert!(matches!(file.told.get(&4), Some(Err(AppendError::OutOfOrder { .. }))), "too early");
    assert_eq!(file.handed, [offset(0)]);
}

#[test]
fn after_a_failure_nothing_is_handed_on_and_those_who_wait_hear_of_it() {
    let mut file = File::new();
    file.arrive(frame(offset(0), 0), 0);
    file.arrive(frame(offset(2), 0), 1);
    file.answer(offset(0), Err(AppendError::NoSpace));
    assert!(matches!(file.told.get(&0), Some(Err(AppendError::NoSpace))));
    assert!(matches!(file.told.get(&1), Some(Err(AppendError::NoSpace))), "its predecessor will never come");
    file.arrive(frame(offset(1), 0), 2);
    assert!(matches!(file.told.get(&2), Some(Err(AppendError::NoSpace))));
    assert_eq!(file.handed, [offset(0)]);
}

#[test]
fn a_frame_that_waits_in_vain_is_given_up() {
    let mut file = File::new();
    file.arrive(frame(offset(1), 0), 0);
    assert_eq!(file.order.early_frames(), 1);
    let told = file.order.give_up(offset(1));
    assert!(matches!(told[..], [(0, Err(AppendError::OutOfOrder { expected: FIRST_FRAME_OFFSET }))]));
    file.arrive(frame(offset(0), 0), 1);
    assert_eq!(file.handed, [offset(0)], "what was given up is not handed on later");
}

#[test]
fn a_stranger_does_not_append_to_a_writers_file() {
    let mut order = Order::new(WRITER);
    assert!(matches!(order.arrive(WRITER + 1, frame(offset(0), 0), 0), Step::Refuse(0, AppendError::Stale)));
}
