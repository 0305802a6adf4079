//! Reads by io_uring: one thread that hands them to the kernel and waits for whichever is done first.
//!
//! Promises: the memory a read goes to stays with this thread until the kernel has answered, whatever becomes of the asker; a
//! short read is continued to the end of the file; [`IN_FLIGHT`] reads are worked on at once, [`WAITING`] may wait, more are
//! given back. Refuses to know: whether the machine allows io_uring (the start says so), order between reads.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::buf::PooledBuf;
use crate::counters::Counters;
use crate::disk::{DIRECT_ALIGN, ReadDone, Reading};

/// Reads the kernel works on at once.
const IN_FLIGHT: usize = 256;
/// Reads that may wait for one of those to end.
const WAITING: usize = 1024;
/// Entries of the submission queue: a slot for each read, and the bell.
const ENTRIES: u32 = 512;
/// The completion that is no read: somebody rang.
const BELL: u64 = u64::MAX;

/// A handle on the thread. Cheap to clone; the thread ends after the last clone is dropped and all reads are answered.
#[derive(Clone)]
pub struct Ring(Arc<Owner>);

struct Owner {
    /// `None` only while being dropped.
    jobs: Option<Sender<Read>>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is to be read where.
pub(crate) struct Job {
    pub(crate) file: Arc<File>,
    /// Whether it goes around the page cache: then no read begins within a block.
    pub(crate) direct: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) buf: PooledBuf,
    /// The part of the buffer that is filled.
    pub(crate) part: Range<usize>,
    pub(crate) offset: u64,
}

/// A job, how far it got, and who asked.
struct Read {
    job: Job,
    done: usize,
    asker: oneshot::Sender<ReadDone>,
}

impl Ring {
    /// Starts the thread. An error if the kernel or what guards it does not allow io_uring; a real read is tried.
    pub fn start() -> io::Result<Ring> {
        let (jobs, waiting) = bounded(WAITING);
        let bell = Arc::new(Bell::new()?);
        // Not one of tokio's: those refuse to be waited for by a thread that drives tasks, as the one that starts a server does.
        let (ready, is_ready) = bounded(1);
        let shared = bell.clone();
        let serve = move || match Reader::new(waiting, shared) {
            Ok(reader) => {
                // Nobody waits if `start` was given up, and then nobody sends: the thread ends at once.
                let _ = ready.try_send(Ok(()));
                reader.run();
            }
            Err(error) => drop(ready.try_send(Err(error))),
        };
        let thread = Builder::new().name("ring".into()).spawn(serve)?;
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of io_uring ended")))?;
        Ok(Ring(Arc::new(Owner { jobs: Some(jobs), bell, thread: Mutex::new(Some(thread)) })))
    }

    /// Begins a read; gives the buffer back if too many wait already.
    pub(crate) fn read(&self, job: Job) -> Result<Reading, PooledBuf> {
        let (asker, reading) = oneshot::channel();
        let jobs = self.0.jobs.as_ref().expect("there until the last handle is dropped");
        jobs.try_send(Read { job, done: 0, asker }).map_err(|refused| refused.into_inner().job.buf)?;
        self.0.bell.ring_if_asleep();
        Ok(reading)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.bell.ring();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of io_uring panicked");
        }
    }
}

/// How a sender wakes the thread while it waits for the kernel.
struct Bell {
    event: File,
    /// The thread waits, or is about to and will look at the queue once more. Set before that look, read after a send: one of
    /// the two sees the other.
    asleep: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        // SAFETY: makes a descriptor; no memory is passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and owned by nobody else.
        let event = unsafe { File::from_raw_fd(descriptor) };
        Ok(Bell { event, asleep: AtomicBool::new(false) })
    }

    fn ring_if_asleep(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only if it rings so many times over that it rings anyway.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    fn silence(&self) {
        // Fails only if it was silent.
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

/// The thread's state.
struct Reader {
    ring: IoUring,
    waiting: Receiver<Read>,
    bell: Arc<Bell>,
    /// Whether the kernel watches the bell.
    watched: bool,
    /// All handles are gone.
    closed: bool,
    /// Reads in the kernel, by the number it was given.
    slots: Vec<Option<Read>>,
    free: Vec<usize>,
}

impl Reader {
    fn new(waiting: Receiver<Read>, bell: Arc<Bell>) -> io::Result<Reader> {
        // Completions run when this thread asks for them, not by interrupting it: since Linux 6.1.
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
        let mut ring = ring.or_else(|_| IoUring::new(ENTRIES))?;
        try_read(&mut ring)?;
        let (slots, free) = ((0..IN_FLIGHT).map(|_| None).collect(), (0..IN_FLIGHT).rev().collect());
        Ok(Reader { ring, waiting, bell, watched: false, closed: false, slots, free })
    }

    fn run(mut self) {
        while !(self.closed && self.is_idle()) {
            self.take_up();
            if self.closed && self.is_idle() {
                break;
            }
            self.wait();
            while let Some(done) = self.completion() {
                match done.user_data() {
                    BELL => {
                        self.watched = false;
                        self.bell.silence();
                    }
                    slot => self.answered(slot as usize, done.result()),
                }
            }
        }
    }

    fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn is_idle(&self) -> bool {
        self.free.len() == IN_FLIGHT
    }

    /// Hands the kernel what waits, as far as slots go.
    fn take_up(&mut self) {
        while let Some(slot) = self.free.last().copied() {
            match self.waiting.try_recv() {
                Ok(read) => {
                    self.free.pop();
                    self.slots[slot] = Some(read);
                    self.submit(slot);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.closed = true;
                    break;
                }
            }
        }
    }

    /// Asks the kernel for what is missing of a read.
    fn submit(&mut self, slot: usize) {
        let read = self.slots[slot].as_mut().expect("a read lies in its slot until it is answered");
        let file = types::Fd(read.job.file.as_raw_fd());
        let (rest, offset) = read.rest();
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(file, rest.as_mut_ptr(), length).offset(offset).build().user_data(slot as u64);
        // SAFETY: buffer and descriptor are owned by the slot, which is emptied only when the kernel has answered; the
        // buffer's block does not move with its handle. `Drop` keeps this even if the thread panics.
        unsafe { self.push(&entry) }
    }

    /// # Safety
    /// What the entry names must stay valid until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(0);
        }
    }

    /// Hands over what was pushed, and waits until something is done or somebody rings.
    fn wait(&mut self) {
        if !self.watched {
            let entry = opcode::PollAdd::new(types::Fd(self.bell.event.as_raw_fd()), libc::POLLIN as u32);
            // SAFETY: the bell lives as long as the ring, and no memory is named.
            unsafe { self.push(&entry.build().user_data(BELL)) };
            self.watched = true;
        }
        self.bell.asleep.store(true, Ordering::SeqCst);
        let may_sleep = self.closed || self.free.is_empty() || self.waiting.is_empty();
        self.enter(usize::from(may_sleep));
        self.bell.asleep.store(false, Ordering::SeqCst);
    }

    fn enter(&mut self, wanted: usize) {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => {}
            // Interrupted, or the kernel is short of memory, or completions must be taken first: the loop comes back.
            Err(error) if crate::disk::is_transient(&error) || error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => panic_of_ring(&error),
        }
    }

    fn answered(&mut self, slot: usize, result: i32) {
        let read = self.slots[slot].as_mut().expect("the kernel answers a read once");
        match read.after(result) {
            None => self.submit(slot),
            Some(result) => {
                let read = self.slots[slot].take().expect("it was there a line above");
                self.free.push(slot);
                read.job.counters.read(&result);
                // Nobody may wait any more; the buffer goes back to its pool then.
                let _ = read.asker.send((read.job.buf, result));
            }
        }
    }
}

impl Read {
    /// What is still to be filled, and from where in the file.
    fn rest(&mut self) -> (&mut [u8], u64) {
        let offset = self.job.offset + self.done as u64;
        (&mut self.job.buf[self.job.part.clone()][self.done..], offset)
    }

    /// Takes in the kernel's answer; `None` if there is more to be read.
    fn after(&mut self, result: i32) -> Option<io::Result<usize>> {
        let Ok(count) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            let again = matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
            return (!again).then_some(Err(error));
        };
        self.done += count;
        // Direct reads end unaligned only at the end of the file; the next one there would be refused.
        let at_end = count == 0 || (self.job.direct && !self.done.is_multiple_of(DIRECT_ALIGN));
        (at_end || self.done == self.job.part.len()).then_some(Ok(self.done))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.is_idle() {
            // Only after a panic: the kernel still writes to buffers that would be freed now.
            tracing::error!("the thread of io_uring failed with reads in the kernel");
            std::process::abort();
        }
    }
}

#[allow(clippy::panic)]
fn panic_of_ring(error: &io::Error) -> ! {
    panic!("io_uring_enter: {error}: the ring is not usable, and what it was given cannot be taken back")
}

/// Reads a little of a file that is always there.
fn try_read(ring: &mut IoUring) -> io::Result<()> {
    let file = File::open("/proc/self/exe")?;
    let mut block = vec![0; 64];
    let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), block.as_mut_ptr(), block.len() as u32).build();
    // SAFETY: file and block outlive the wait below, or the process ends.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The entry may be in the kernel: its memory is given up.
            Err(error) => {
                std::mem::forget(block);
                return Err(error);
            }
            Ok(_) => break,
        }
    }
    match ring.completion().next().map(|done| done.result()) {
        Some(count) if count > 0 => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => {
            std::mem::forget(block);
            Err(io::Error::other("io_uring answered nothing"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::BufPool;

    /// A read of `[4096, 12288)` of the buffer from offset 40960, on a disk that is never asked.
    fn read(direct: bool) -> Read {
        let mut buf = BufPool::new(1 << 20).try_take(16384).expect("the pool is empty");
        buf.resize_zeroed(16384);
        let file = Arc::new(File::open("/dev/null").expect("always there"));
        let job = Job { file, direct, counters: Arc::default(), buf, part: 4096..12288, offset: 40960 };
        Read { job, done: 0, asker: oneshot::channel().0 }
    }

    #[tokio::test]
    async fn it_can_be_started_by_a_thread_that_drives_tasks() {
        // Where io_uring is not allowed that is an error, and no more.
        drop(Ring::start());
    }

    #[test]
    fn a_short_read_goes_on_where_it_stopped_and_ends_when_full() {
        let mut read = read(false);
        assert!(read.after(1000).is_none());
        let start = read.job.buf.as_ptr().addr();
        let (rest, offset) = read.rest();
        assert_eq!((rest.as_ptr().addr() - start, rest.len(), offset), (5096, 7192, 41960));
        assert!(read.after(-libc::EINTR).is_none() && read.after(-libc::EAGAIN).is_none());
        assert_eq!(read.rest().1, 41960);
        assert!(matches!(read.after(7192), Some(Ok(8192))));
    }

    #[test]
    fn a_read_ends_with_the_file_and_with_an_error() {
        let mut short = read(false);
        assert!(short.after(1000).is_none());
        assert!(matches!(short.after(0), Some(Ok(1000))));
        assert!(matches!(read(true).after(1000), Some(Ok(1000))), "the rest of a block is no direct read");
        assert!(read(true).after(4096).is_none());
        let failed = read(true).after(-libc::EIO);
        assert!(matches!(failed, Some(Err(error)) if error.raw_os_error() == Some(libc::EIO)));
    }
}
