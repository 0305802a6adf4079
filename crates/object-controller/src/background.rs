//! Stories that outlive the request that began them: abandons of dropped uploads, seals, opening the next group.
//!
//! Promises: what is spawned is polled to its end by one worker, in the real world and in the simulation alike; the owner
//! can wait until nothing is left. Only a dead process leaves a story unfinished. Refuses to know: what the stories do.

use crate::limits;
use env::tasks::{Tasks, Worker};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::{Notify, oneshot};

type Story = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The worker that polls, and how many stories it has. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Background {
    worker: Worker<Arc<Job>>,
    live: Arc<Live>,
}

#[derive(Default)]
struct Live {
    count: AtomicUsize,
    ended: Notify,
}

/// One story and whether it is queued to be polled.
struct Job {
    story: Mutex<Option<Story>>,
    queued: AtomicBool,
    worker: Worker<Arc<Job>>,
    live: Arc<Live>,
}

impl Background {
    /// Starts the worker.
    pub(crate) fn start(tasks: &Tasks) -> Background {
        let poll_all = |jobs: Vec<Arc<Job>>| jobs.iter().for_each(Job::poll);
        let worker = Worker::spawn(tasks, "background", limits::BACKGROUND_QUEUE, 64, poll_all);
        Background { worker, live: Arc::default() }
    }

    /// Has `story` polled until it is done.
    pub(crate) fn spawn(&self, story: impl Future<Output = ()> + Send + 'static) {
        self.live.count.fetch_add(1, Ordering::SeqCst);
        let job = Job {
            story: Mutex::new(Some(Box::pin(story))),
            queued: AtomicBool::new(false),
            worker: self.worker.clone(),
            live: self.live.clone(),
        };
        Arc::new(job).wake();
    }

    /// Has `story` polled until it is done, also if this future is dropped, and gives its result. `None` only if the worker ended.
    pub(crate) async fn run<T: Send + 'static>(&self, story: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (reply, result) = oneshot::channel();
        self.spawn(async move {
            // Whoever waited may be gone: the story ran for its effects.
            let _ = reply.send(story.await);
        });
        result.await.ok()
    }

    /// Waits until no story is left.
    pub(crate) async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.live.ended.notified());
            ended.as_mut().enable();
            if self.live.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Job {
    fn poll(self: &Arc<Job>) {
        // Cleared first: a wake during the poll must queue it again.
        self.queued.store(false, Ordering::SeqCst);
        let mut slot = self.story.lock();
        let Some(story) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        if let Poll::Ready(()) = story.as_mut().poll(&mut Context::from_waker(&waker)) {
            let done = slot.take();
            drop(slot);
            drop(done);
            self.live.count.fetch_sub(1, Ordering::SeqCst);
            self.live.ended.notify_waiters();
        }
    }
}

impl Wake for Job {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let worker = self.worker.clone();
        if let Err(refused) = worker.submit(self) {
            // Each live story is queued at most once, and there are never as many as the queue is long.
            tracing::error!(error = ?refused, "a background story was lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Background;
    use env::Env;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::oneshot;

    #[test]
    fn a_story_is_polled_to_its_end_and_idle_waits_for_it() {
        let sim = Env::simulated(1);
        let background = Background::start(&sim.env.tasks);
        let done = Arc::new(AtomicU32::new(0));
        let (sender, receiver) = oneshot::channel::<u32>();
        let seen = done.clone();
        background.spawn(async move { seen.store(receiver.await.unwrap_or(99), Ordering::SeqCst) });
        sim.scheduler.drain();
        assert_eq!(done.load(Ordering::SeqCst), 0);
        sender.send(7).expect("the story waits");
        let waiting = background.clone();
        sim.scheduler.block_on(async move { waiting.idle().await });
        assert_eq!(done.load(Ordering::SeqCst), 7);
    }
}
