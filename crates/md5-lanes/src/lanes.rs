//! Where streams leave their bytes, and from where one of them takes the bytes of others along.
//!
//! Promises: a stream's state is in one place at a time, in its slot or in a batch, so its bytes are hashed in their order; a
//! stream that goes away while a batch has its state leaves nothing behind; no lock is held while hashing.
//! Refuses to know: who the streams are.

use crate::hash::Hash;
use crate::job::{self, Job};
use crate::kernel::Kernel;
use crate::limits::{BACKLOG_MAX_BYTES, BATCH_BYTES, EAGER_BYTES, LANES};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Lanes that streams share. Cheap to clone.
#[derive(Clone)]
pub struct Lanes {
    shared: Arc<Shared>,
}

struct Shared {
    kernel: Kernel,
    backlog_bytes: usize,
    seats: Mutex<Seats>,
    lone_blocks: AtomicU64,
    lane_blocks: AtomicU64,
    steps: AtomicU64,
}

/// What was hashed in batches.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Blocks of streams that nobody else was there to go with.
    pub lone_blocks: u64,
    /// Blocks of streams that went with others.
    pub lane_blocks: u64,
    /// How often the lanes took a step of one block each, for the latter.
    pub steps: u64,
}

impl Work {
    /// `blocks` blocks in each of `lanes` lanes.
    pub(crate) fn count(&mut self, lanes: usize, blocks: usize) {
        if lanes == 1 {
            self.lone_blocks += blocks as u64;
        } else {
            self.lane_blocks += (lanes * blocks) as u64;
            self.steps += blocks as u64;
        }
    }
}

/// The streams that joined.
#[derive(Default)]
struct Seats {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Streams that live.
    joined: usize,
    /// Those whose state is in its slot and that have bytes waiting; who waits longest is first.
    ready: VecDeque<usize>,
}

struct Slot {
    /// `None` while a batch has it.
    hash: Option<Hash>,
    pieces: VecDeque<Bytes>,
    /// Bytes pushed and not hashed yet, those in a batch included.
    owed: usize,
    /// Waits for the batch that has the state.
    waker: Option<Waker>,
    /// The stream is gone; the batch that comes back frees the slot.
    left: bool,
    /// The batch that had the state panicked.
    lost: bool,
}

impl Lanes {
    /// Lanes of `kernel`; all streams together hold back at most `backlog_bytes`, and beyond it a piece each.
    pub fn new(kernel: Kernel, backlog_bytes: usize) -> Lanes {
        let shared = Shared {
            kernel,
            backlog_bytes,
            seats: Mutex::default(),
            lone_blocks: AtomicU64::new(0),
            lane_blocks: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        };
        Lanes { shared: Arc::new(shared) }
    }

    /// What hashes.
    pub fn kernel(&self) -> Kernel {
        self.shared.kernel
    }

    /// What was hashed in batches so far.
    pub fn work(&self) -> Work {
        Work {
            lone_blocks: self.shared.lone_blocks.load(Ordering::Relaxed),
            lane_blocks: self.shared.lane_blocks.load(Ordering::Relaxed),
            steps: self.shared.steps.load(Ordering::Relaxed),
        }
    }

    /// Bytes that joined streams have not hashed yet.
    pub fn backlog(&self) -> usize {
        self.shared.seats.lock().slots.iter().flatten().map(|slot| slot.owed).sum()
    }

    /// A seat for a stream that has come as far as `hash`.
    pub(crate) fn join(&self, hash: Hash) -> usize {
        let mut seats = self.shared.seats.lock();
        let slot = Slot { hash: Some(hash), pieces: VecDeque::new(), owed: 0, waker: None, left: false, lost: false };
        seats.joined += 1;
        match seats.free.pop() {
            Some(seat) => {
                seats.slots[seat] = Some(slot);
                seat
            }
            None => {
                seats.slots.push(Some(slot));
                seats.slots.len() - 1
            }
        }
    }

    /// More bytes of a stream. Hashes now if nobody else could come along later: every stream has bytes waiting, or every lane
    /// would be taken.
    pub(crate) fn push(&self, seat: usize, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let batch = {
            let mut seats = self.shared.seats.lock();
            let slot = seats.slot(seat);
            slot.owed += bytes.len();
            slot.pieces.push_back(bytes);
            let owed = slot.owed;
            let here = slot.hash.is_some();
            if here && slot.pieces.len() == 1 {
                seats.ready.push_back(seat);
            }
            let company = seats.ready.len() == seats.joined || seats.ready.len() >= self.shared.kernel.lanes();
            if !here || owed < EAGER_BYTES || !company {
                return;
            }
            self.shared.gather(&mut seats, seat)
        };
        batch.run();
    }

    /// Waits until the stream owes no more than its share of the budget. At most one batch a call.
    pub(crate) fn poll_share(&self, seat: usize, context: &mut Context<'_>) -> Poll<()> {
        let share = {
            let seats = self.shared.seats.lock();
            (self.shared.backlog_bytes / seats.joined.max(1)).min(BACKLOG_MAX_BYTES)
        };
        self.poll_owed(seat, share, context)
    }

    /// Waits until everything was hashed; gives the state and the seat back. At most one batch a call.
    pub(crate) fn poll_leave(&self, seat: usize, context: &mut Context<'_>) -> Poll<Hash> {
        if self.poll_owed(seat, 0, context).is_pending() {
            return Poll::Pending;
        }
        let mut seats = self.shared.seats.lock();
        // Before anything is given up, so that the seat stays the stream's whatever comes of it.
        assert!(seats.slot(seat).hash.is_some(), "a batch took a state along that owes nothing");
        Poll::Ready(seats.leave(seat).expect("it is here"))
    }

    /// The stream is gone, wherever its state is.
    pub(crate) fn abandon(&self, seat: usize) {
        self.shared.seats.lock().leave(seat);
    }

    fn poll_owed(&self, seat: usize, most: usize, context: &mut Context<'_>) -> Poll<()> {
        let batch = {
            let mut seats = self.shared.seats.lock();
            let slot = seats.slot(seat);
            assert!(!slot.lost, "a batch that had this stream's state panicked");
            // Whose state is away owes something: that is what it is away for.
            if slot.owed <= most {
                return Poll::Ready(());
            }
            if slot.hash.is_none() {
                slot.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            self.shared.gather(&mut seats, seat)
        };
        batch.run();
        if self.shared.seats.lock().slot(seat).owed <= most {
            return Poll::Ready(());
        }
        // The thread's other tasks come first, then the next batch.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Shared {
    /// Takes `first` out, and of the others as many as there are lanes.
    fn gather<'a>(&'a self, seats: &mut Seats, first: usize) -> Batch<'a> {
        seats.ready.retain(|seat| *seat != first);
        let mut batch = Batch { shared: self, seats: Vec::with_capacity(LANES), jobs: Vec::with_capacity(LANES) };
        batch.take(seats, first);
        while batch.jobs.len() < self.kernel.lanes()
            && let Some(seat) = seats.ready.pop_front()
        {
            batch.take(seats, seat);
        }
        batch
    }
}

impl Seats {
    fn slot(&mut self, seat: usize) -> &mut Slot {
        self.slots[seat].as_mut().expect("a seat is kept while its stream or a batch has it")
    }

    /// The stream goes; with its state, if that is here.
    fn leave(&mut self, seat: usize) -> Option<Hash> {
        self.joined -= 1;
        self.ready.retain(|other| *other != seat);
        let slot = self.slot(seat);
        slot.left = true;
        let hash = slot.hash.take();
        if hash.is_some() || slot.lost {
            self.free(seat);
        }
        hash
    }

    fn free(&mut self, seat: usize) {
        self.slots[seat] = None;
        self.free.push(seat);
    }

    /// A batch brings a state back, and what it did not get to.
    fn bring_back(&mut self, seat: usize, job: Option<Job>) -> Option<Waker> {
        let slot = self.slot(seat);
        let waker = slot.waker.take();
        match job {
            _ if slot.left => self.free(seat),
            None => slot.lost = true,
            Some(Job { hash, mut pieces }) => {
                // A piece may have been used up just when the batch ended. Who owes nothing must not be taken along: it may leave.
                pieces.retain(|piece| !piece.is_empty());
                pieces.append(&mut slot.pieces);
                slot.hash = Some(hash);
                slot.owed = pieces.iter().map(Bytes::len).sum();
                slot.pieces = pieces;
                if slot.owed > 0 {
                    self.ready.push_back(seat);
                }
            }
        }
        waker
    }
}

/// States taken out of their slots. They go back when it is dropped.
struct Batch<'a> {
    shared: &'a Shared,
    seats: Vec<usize>,
    jobs: Vec<Job>,
}

impl Batch<'_> {
    fn take(&mut self, seats: &mut Seats, seat: usize) {
        let slot = seats.slot(seat);
        debug_assert!(slot.owed > 0, "nothing to be hashed");
        let hash = slot.hash.take().expect("who is ready has its state here");
        self.jobs.push(Job { hash, pieces: std::mem::take(&mut slot.pieces) });
        self.seats.push(seat);
    }

    fn run(mut self) {
        let work = job::run(self.shared.kernel, &mut self.jobs, BATCH_BYTES);
        self.shared.lone_blocks.fetch_add(work.lone_blocks, Ordering::Relaxed);
        self.shared.lane_blocks.fetch_add(work.lane_blocks, Ordering::Relaxed);
        self.shared.steps.fetch_add(work.steps, Ordering::Relaxed);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // A state that a panic cut short is worth nothing: its stream is told, and no digest comes of it.
        let whole = !std::thread::panicking();
        let mut wakers = Vec::new();
        {
            let mut seats = self.shared.seats.lock();
            for (seat, job) in self.seats.drain(..).zip(self.jobs.drain(..)) {
                wakers.extend(seats.bring_back(seat, whole.then_some(job)));
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lanes() -> Lanes {
        Lanes::new(Kernel::detect(), 0)
    }

    /// A batch that has the state of a stream of `bytes`.
    fn away<'a>(lanes: &'a Lanes, bytes: &'static [u8]) -> (usize, Batch<'a>) {
        let seat = lanes.join(Hash::default());
        // One that has nothing to give keeps the push from hashing at once.
        lanes.join(Hash::default());
        lanes.push(seat, Bytes::from_static(bytes));
        let batch = lanes.shared.gather(&mut lanes.shared.seats.lock(), seat);
        (seat, batch)
    }

    #[test]
    fn a_stream_whose_state_is_away_waits_for_it_and_is_woken() {
        let (lanes, calls) = (lanes(), Arc::new(Calls::default()));
        let waker = Waker::from(calls.clone());
        let context = &mut Context::from_waker(&waker);
        let (seat, batch) = away(&lanes, b"first,");
        lanes.push(seat, Bytes::from_static(b"second"));
        assert!(lanes.poll_leave(seat, context).is_pending());
        assert!(lanes.poll_share(seat, context).is_pending());
        assert_eq!(calls.0.load(Ordering::Relaxed), 0);
        batch.run();
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(hash) = lanes.poll_leave(seat, context) else { unreachable!("its state is back") };
        let mut want = Hash::default();
        want.update(b"first,second");
        assert_eq!(hash.finish(), want.finish());
    }

    #[test]
    fn what_a_batch_did_not_get_to_stays_ahead_of_what_came_meanwhile() {
        let lanes = lanes();
        let (seat, batch) = away(&lanes, b"first,");
        lanes.push(seat, Bytes::from_static(b"second"));
        drop(batch);
        let Poll::Ready(hash) = lanes.poll_leave(seat, &mut Context::from_waker(Waker::noop())) else {
            unreachable!("its state is back")
        };
        let mut want = Hash::default();
        want.update(b"first,second");
        assert_eq!(hash.finish(), want.finish());
    }

    #[test]
    fn who_went_along_to_the_end_of_a_piece_owes_nothing_and_is_taken_along_no_more() {
        let lanes = lanes();
        if lanes.kernel().lanes() == 1 {
            return;
        }
        let (first, other) = (lanes.join(Hash::default()), lanes.join(Hash::default()));
        lanes.push(other, Bytes::from_static(&[7; 128]));
        lanes.push(first, Bytes::from_static(&[7; 128]));
        let batch = lanes.shared.gather(&mut lanes.shared.seats.lock(), first);
        batch.run();
        let mut seats = lanes.shared.seats.lock();
        assert_eq!((seats.slot(other).owed, seats.ready.len()), (0, 0));
    }

    #[test]
    fn a_stream_that_goes_while_its_state_is_away_frees_its_seat_when_the_batch_ends() {
        let lanes = lanes();
        let (seat, batch) = away(&lanes, b"gone");
        lanes.abandon(seat);
        assert!(lanes.shared.seats.lock().free.is_empty());
        batch.run();
        let seats = lanes.shared.seats.lock();
        assert_eq!((seats.free.as_slice(), seats.joined, seats.ready.len()), (&[seat][..], 1, 0));
    }

    #[test]
    fn a_batch_that_panics_gives_no_digest() {
        let (lanes, calls) = (lanes(), Arc::new(Calls::default()));
        let waker = Waker::from(calls.clone());
        let (seat, batch) = away(&lanes, b"lost");
        assert!(lanes.poll_leave(seat, &mut Context::from_waker(&waker)).is_pending());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _batch = batch;
            panic!("in the middle of a batch");
        }));
        assert!(panicked.is_err());
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lanes.poll_leave(seat, &mut Context::from_waker(&waker)).is_ready()
        }));
        assert!(told.is_err());
        lanes.abandon(seat);
        assert_eq!(lanes.shared.seats.lock().free, [seat]);
    }
}
