//! A few threads for single pieces of blocking work.
//!
//! Promises: at most `threads` pieces at once and [`QUEUED_JOBS`] waiting; a panic is caught and given to whoever waits.
//! Refuses to know: order between pieces, priorities.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, Result as ThreadResult, current};

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{Semaphore, oneshot};

/// Jobs that may wait for a thread; more wait in their callers' futures. A job is a few hundred bytes.
const QUEUED_JOBS: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads behind [`super::Tasks::run`].
pub struct Pool {
    /// `None` only while being dropped.
    jobs: Option<Sender<Job>>,
    /// Bounds the channel: a permit travels with each job until a thread takes it up.
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(super) fn new(threads: usize) -> Pool {
        let (sender, receiver) = unbounded();
        let threads = (0..threads.max(1)).map(|index| start(index, receiver.clone())).collect();
        Pool { jobs: Some(sender), room: Arc::new(Semaphore::new(QUEUED_JOBS)), threads }
    }

    pub(super) async fn run<T, F>(&self, f: F) -> ThreadResult<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let permit = self.room.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            drop(permit);
            // The receiver is gone if the caller gave up; the work was done all the same.
            let _ = reply.send(catch_unwind(AssertUnwindSafe(f)));
        });
        let jobs = self.jobs.as_ref().expect("there until the pool is dropped");
        jobs.send(job).expect("the threads receive until the pool is dropped");
        result.await.expect("a job always answers: its panic is caught")
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Closing the channel ends the threads once the queue is empty.
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by a job; that thread ends by itself.
            if thread.thread().id() != current().id() && thread.join().is_err() {
                tracing::error!("a pool thread panicked outside its jobs");
            }
        }
    }
}

fn start(index: usize, jobs: Receiver<Job>) -> JoinHandle<()> {
    let serve = move || {
        for job in jobs {
            job();
        }
    };
    Builder::new()
        .name(format!("pool-{index}"))
        .spawn(serve)
        .expect("the process may start the few threads it is built of")
}
