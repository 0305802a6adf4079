//! Memory aligned for O_DIRECT, pooled because the first touch of fresh memory is dear.
//!
//! Promises: every block starts on a [`ALIGN`] boundary and is initialised; a [`BufPool`] never holds more memory than
//! its budget, buffers in use and buffers kept for reuse together. A recycled buffer comes back with length 0: what its
//! last user left in it cannot be read as content unless the caller asks for [`AlignedBuf::set_len_for_overwrite`].
//! Refuses to know: what the bytes mean.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Where blocks start and what their capacities are multiples of, in bytes: what direct I/O asks for.
pub const ALIGN: usize = crate::disk::DIRECT_ALIGN;

/// A heap block on a [`ALIGN`] boundary with a length and a fixed capacity (a multiple of [`ALIGN`]).
///
/// Dereferences to its first `len` bytes. It never reallocates: going past the capacity is a mistake of the caller and
/// is asserted.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the block is owned by this value alone, as a Vec owns its own; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference gives only `&[u8]`; all mutation takes `&mut self`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer with room for at least `capacity` bytes (rounded up to [`ALIGN`], at least one block), zeroed.
    pub fn new(capacity: usize) -> AlignedBuf {
        let capacity = round_up(capacity.max(1));
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuf { start, len: 0, capacity }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::new(len);
        buf.len = len;
        buf
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.capacity - self.len
    }

    /// Forgets the content; the capacity stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Shortens to `len`; does nothing if it is shorter already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends `bytes`. Asserts that they fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining(), "{} bytes into {} of room", bytes.len(), self.remaining());
        self.spare_mut()[..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Sets the length; bytes that become visible are zero. Asserts that `len` fits.
    pub fn resize_zeroed(&mut self, len: usize) {
        let old = self.len;
        self.set_len_for_overwrite(len);
        if len > old {
            self[old..].fill(0);
        }
    }

    /// Sets the length without clearing: bytes that become visible hold whatever the memory held. For callers that
    /// overwrite them at once (a disk read). Asserts that `len` fits.
    pub fn set_len_for_overwrite(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} above capacity {}", self.capacity);
        self.len = len;
    }

    /// The room behind the content, to be filled and then taken in with [`AlignedBuf::advance`]. Holds stale bytes.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        // SAFETY: `[len, capacity)` lies inside the block, which is initialised (zeroed at allocation) and borrowed
        // mutably through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(self.len), self.capacity - self.len) }
    }

    /// Takes `count` bytes of [`AlignedBuf::spare_mut`] into the content. Asserts that they exist.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining(), "{count} bytes beyond {} of room", self.remaining());
        self.len += count;
    }

    /// Appends zeros up to the next multiple of [`ALIGN`].
    pub fn pad_to_alignment(&mut self) {
        self.resize_zeroed(round_up(self.len));
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and not freed before.
        unsafe { dealloc(self.start.as_ptr(), layout(self.capacity)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity`, and the block is initialised and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content is never printed: it may be an object's bytes.
        f.debug_struct("AlignedBuf").field("len", &self.len).field("capacity", &self.capacity).finish()
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN).expect("a capacity below isize::MAX with a power-of-two alignment")
}

fn round_up(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGN).expect("a buffer smaller than the address space")
}

/// A pool of [`AlignedBuf`]s with a budget in bytes. Cheap to clone; all clones share the budget.
#[derive(Clone)]
pub struct BufPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    budget_bytes: usize,
    /// One permit for each [`ALIGN`] bytes of the budget; held by the buffers in use.
    permits: Arc<Semaphore>,
    state: Mutex<PoolState>,
}

struct PoolState {
    in_use_bytes: usize,
    idle_bytes: usize,
    /// Buffers kept for reuse, by capacity. An entry is never empty.
    idle: BTreeMap<usize, Vec<AlignedBuf>>,
}

impl BufPool {
    /// A pool that never holds more than `budget_bytes` (rounded down to [`ALIGN`]).
    pub fn new(budget_bytes: usize) -> BufPool {
        let pages = budget_bytes / ALIGN;
        let state = PoolState { in_use_bytes: 0, idle_bytes: 0, idle: BTreeMap::new() };
        BufPool {
            shared: Arc::new(PoolShared {
                budget_bytes: pages * ALIGN,
                permits: Arc::new(Semaphore::new(pages)),
                state: Mutex::new(state),
            }),
        }
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.shared.budget_bytes
    }

    /// Bytes of the budget in buffers that are out (frozen ones included).
    pub fn in_use_bytes(&self) -> usize {
        self.shared.state.lock().in_use_bytes
    }

    /// Bytes kept for reuse.
    pub fn idle_bytes(&self) -> usize {
        self.shared.state.lock().idle_bytes
    }

    /// An empty buffer with room for at least `capacity` bytes; waits, first come first served, until the budget has
    /// room. Asserts that `capacity` can ever fit. Whoever holds one buffer while waiting for another may wait for ever.
    pub async fn take(&self, capacity: usize) -> PooledBuf {
        let (class, pages) = self.class_and_pages(capacity);
        let permits = self.shared.permits.clone().acquire_many_owned(pages).await;
        self.hand_out(class, permits.expect("the semaphore is never closed"))
    }

    /// As [`BufPool::take`], but `None` where it would have to wait.
    pub fn try_take(&self, capacity: usize) -> Option<PooledBuf> {
        let (class, pages) = self.class_and_pages(capacity);
        let permits = self.shared.permits.clone().try_acquire_many_owned(pages).ok()?;
        Some(self.hand_out(class, permits))
    }

    fn class_and_pages(&self, capacity: usize) -> (usize, u32) {
        // Near the top of the budget the class may be larger than the budget although the request is not.
        let class = size_class(capacity).min(self.shared.budget_bytes.max(ALIGN));
        assert!(capacity <= class, "a buffer of {capacity} bytes from a budget of {}", self.shared.budget_bytes);
        let pages = u32::try_from(class / ALIGN).expect("a buffer below 16 TiB");
        assert!(class <= self.shared.budget_bytes, "a budget below one block");
        (class, pages)
    }

    fn hand_out(&self, class: usize, permits: OwnedSemaphorePermit) -> PooledBuf {
        let mut evicted = Vec::new();
        let reused = self.shared.state.lock().hand_out(class, self.shared.budget_bytes, &mut evicted);
        // Freed before the new block is allocated, and both outside the lock: either may take milliseconds.
        drop(evicted);
        let buf = reused.unwrap_or_else(|| AlignedBuf::new(class));
        PooledBuf { buf: Some(buf), pool: self.shared.clone(), permits: Some(permits) }
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool").field("budget_bytes", &self.shared.budget_bytes).finish_non_exhaustive()
    }
}

impl PoolState {
    /// Accounts for one more buffer of `class` bytes: an idle one, or (`None`) one to be allocated, for which other
    /// idle ones had to go so that the sum stays within the budget.
    fn hand_out(&mut self, class: usize, budget: usize, evicted: &mut Vec<AlignedBuf>) -> Option<AlignedBuf> {
        let reused = self.pop_idle(class);
        self.in_use_bytes += class;
        while self.in_use_bytes + self.idle_bytes > budget {
            let largest = *self.idle.keys().next_back().expect("buffers in use alone hold permits for what they take");
            evicted.extend(self.pop_idle(largest));
        }
        reused
    }

    fn pop_idle(&mut self, class: usize) -> Option<AlignedBuf> {
        let list = self.idle.get_mut(&class)?;
        let buf = list.pop();
        if list.is_empty() {
            self.idle.remove(&class);
        }
        self.idle_bytes -= class;
        buf
    }

    fn take_back(&mut self, mut buf: AlignedBuf) {
        buf.clear();
        self.in_use_bytes -= buf.capacity();
        self.idle_bytes += buf.capacity();
        self.idle.entry(buf.capacity()).or_default().push(buf);
    }
}

/// The capacity handed out for a request: four steps between powers of two, so that at most a quarter is wasted.
fn size_class(capacity: usize) -> usize {
    let pages = round_up(capacity.max(1)) / ALIGN;
    let step = (pages.next_power_of_two() / 8).max(1);
    pages.next_multiple_of(step) * ALIGN
}

/// An [`AlignedBuf`] lent by a [`BufPool`]; goes back when dropped.
#[derive(Debug)]
pub struct PooledBuf {
    /// Always there until `drop`.
    buf: Option<AlignedBuf>,
    pool: Arc<PoolShared>,
    permits: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolShared").field("budget_bytes", &self.budget_bytes).finish_non_exhaustive()
    }
}

impl PooledBuf {
    /// The content as shareable [`Bytes`], without a copy. The memory goes back to the pool when the last clone or
    /// slice of it is dropped; until then it counts against the budget.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for PooledBuf {
    type Target = AlignedBuf;
    fn deref(&self) -> &AlignedBuf {
        self.buf.as_ref().expect("taken out only by drop")
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut AlignedBuf {
        self.buf.as_mut().expect("taken out only by drop")
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.pool.state.lock().take_back(buf);
        }
        // Only now, so that whoever was waiting for the budget finds the buffer to reuse.
        drop(self.permits.take());
    }
}
