//! Aligned memory and its pool.
//!
//! Promises: the budget is hard, memory comes back, stale bytes do not show. Refuses to know: the allocator.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use env::buf::{ALIGN, AlignedBuf, BufPool};

const MIB: usize = 1 << 20;

#[test]
fn a_buffer_is_aligned_rounded_up_and_empty() {
    for capacity in [0, 1, 4095, 4096, 4097, 3 * MIB] {
        let buf = AlignedBuf::new(capacity);
        assert!(buf.as_ptr().addr().is_multiple_of(ALIGN));
        assert!(buf.capacity() >= capacity.max(1) && buf.capacity() < capacity.max(1) + ALIGN && buf.is_empty());
    }
}

#[test]
fn content_grows_by_appending_filling_and_padding() {
    let mut buf = AlignedBuf::new(8192);
    buf.extend_from_slice(b"abc");
    buf.spare_mut()[..2].copy_from_slice(b"de");
    buf.advance(2);
    assert_eq!(*buf, *b"abcde");
    buf.pad_to_alignment();
    assert_eq!((buf.len(), &buf[..6]), (4096, &b"abcde\0"[..]));
    buf.truncate(2);
    buf.resize_zeroed(4);
    assert_eq!(*buf, *b"ab\0\0", "a cut byte does not come back");
    assert_eq!(buf.remaining(), 8188);
}

#[test]
fn going_past_the_capacity_is_asserted() {
    let too_much = std::panic::catch_unwind(|| AlignedBuf::new(4096).extend_from_slice(&[0; 4097]));
    assert!(too_much.is_err());
}

#[test]
fn a_returned_buffer_is_used_again_and_comes_empty() {
    let pool = BufPool::new(8 * MIB);
    let mut buf = pool.try_take(MIB).unwrap();
    buf.extend_from_slice(b"secret");
    let address = buf.as_ptr();
    drop(buf);
    assert_eq!((pool.in_use_bytes(), pool.idle_bytes()), (0, MIB));
    let again = pool.try_take(MIB).unwrap();
    assert_eq!((again.as_ptr(), again.len()), (address, 0));
    assert_eq!((pool.in_use_bytes(), pool.idle_bytes()), (MIB, 0));
}

#[test]
fn a_size_class_wastes_at_most_a_quarter_and_is_shared_by_near_sizes() {
    let pool = BufPool::new(64 * MIB);
    for capacity in [1, 5000, 70_000, MIB, MIB + 4096, 3 * MIB + 1] {
        let buf = pool.try_take(capacity).unwrap();
        assert!(buf.capacity() >= capacity);
        assert!(buf.capacity() <= capacity + capacity / 4 + ALIGN, "{} for {capacity}", buf.capacity());
    }
    assert_eq!(pool.try_take(MIB + 4096).unwrap().capacity(), pool.try_take(MIB + 9000).unwrap().capacity());
}

#[test]
fn the_budget_counts_idle_buffers_too() {
    let pool = BufPool::new(4 * MIB);
    drop([pool.try_take(MIB).unwrap(), pool.try_take(MIB).unwrap(), pool.try_take(MIB).unwrap()]);
    assert_eq!(pool.idle_bytes(), 3 * MIB);
    let large = pool.try_take(2 * MIB).unwrap();
    assert!(pool.in_use_bytes() + pool.idle_bytes() <= 4 * MIB);
    assert!(pool.try_take(3 * MIB).is_none());
    drop(large);
    let whole = pool.try_take(4 * MIB).expect("the whole budget can be taken");
    assert_eq!((whole.capacity(), pool.in_use_bytes(), pool.idle_bytes()), (4 * MIB, 4 * MIB, 0));
}

#[test]
fn frozen_bytes_give_the_memory_back_with_their_last_slice() {
    let pool = BufPool::new(MIB);
    let mut buf = pool.try_take(MIB).unwrap();
    buf.extend_from_slice(b"hello world");
    let address = buf.as_ptr();
    let bytes = buf.freeze();
    assert_eq!(bytes.as_ptr(), address, "no copy");
    let slice = bytes.slice(6..);
    drop(bytes);
    assert!(pool.try_take(1).is_none());
    assert_eq!(slice, "world");
    drop(slice);
    assert_eq!(pool.try_take(MIB).unwrap().as_ptr(), address);
}

#[test]
fn taking_waits_for_the_budget_and_is_woken() {
    let pool = BufPool::new(MIB);
    let held = pool.try_take(MIB).unwrap();
    let mut waiting = pin!(pool.take(4096));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(held);
    let Poll::Ready(buf) = waiting.as_mut().poll(&mut context) else { panic!("there is room now") };
    assert_eq!(buf.capacity(), 4096);
    assert!(pool.in_use_bytes() + pool.idle_bytes() <= MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_share_the_budget_and_never_a_buffer() {
    let pool = BufPool::new(MIB);
    let users: Vec<_> = (0..8_u8)
        .map(|user| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..300_usize {
                    let mut buf = pool.take((round * 7919 + usize::from(user) * 65_537) % (MIB / 2)).await;
                    let capacity = buf.capacity();
                    buf.set_len_for_overwrite(capacity);
                    buf[0] = user;
                    buf[capacity - 1] = user;
                    tokio::task::yield_now().await;
                    assert_eq!((buf[0], buf[capacity - 1]), (user, user));
                    if round % 2 == 0 {
                        drop(buf.freeze());
                    }
                }
            })
        })
        .collect();
    for user in users {
        user.await.unwrap();
    }
    assert_eq!(pool.in_use_bytes(), 0);
    assert!(pool.idle_bytes() <= MIB);
    drop(pool.try_take(MIB).expect("all permits came back"));
}

#[test]
fn asking_for_more_than_the_budget_is_asserted() {
    assert!(std::panic::catch_unwind(|| BufPool::new(MIB).try_take(MIB + 1)).is_err());
}
