//! Stories that outlive the request that began them: abandons of dropped uploads, seals, opening the next group.
//!
//! Promises: what is spawned is polled to its end by one worker, in the real world and in the simulation alike; the owner
//! can wait until nothing is left. A story that panics ends alone: it is dropped, logged and counted, and the others go on.
//! Only a dead process leaves a story unfinished. Refuses to know: what the stories do.

use crate::limits;
use env::tasks::{Tasks, Worker};
use parking_lot::{Mutex, MutexGuard};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::{Notify, oneshot};

type Story = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The worker that polls, and how many stories it has. Cheap to clone. Where a tokio runtime started it, its stories are polled
/// within that runtime, for they wait for timers and for other nodes.
#[derive(Clone)]
pub(crate) struct Background {
    worker: Worker<Arc<Job>>,
    live: Arc<Live>,
}

#[derive(Default)]
struct Live {
    count: AtomicUsize,
    panicked: AtomicUsize,
    ended: Notify,
}

/// One story and whether it is queued to be polled.
struct Job {
    story: Mutex<Option<Story>>,
    queued: AtomicBool,
    /// The worker takes it no more.
    lost: AtomicBool,
    worker: Worker<Arc<Job>>,
    live: Arc<Live>,
}

impl Background {
    /// Starts the worker.
    pub(crate) fn start(tasks: &Tasks) -> Background {
        let runtime = tokio::runtime::Handle::try_current().ok();
        let poll_all = move |jobs: Vec<Arc<Job>>| {
            let _within = runtime.as_ref().map(|runtime| runtime.enter());
            jobs.iter().for_each(Job::poll);
        };
        let worker = Worker::spawn(tasks, "background", limits::BACKGROUND_QUEUE, 64, poll_all);
        Background { worker, live: Arc::default() }
    }

    /// Has `story` polled until it is done.
    pub(crate) fn spawn(&self, story: impl Future<Output = ()> + Send + 'static) {
        self.live.count.fetch_add(1, Ordering::SeqCst);
        let job = Job {
            story: Mutex::new(Some(Box::pin(story))),
            queued: AtomicBool::new(false),
            lost: AtomicBool::new(false),
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

    /// Stories that panicked since the start.
    pub(crate) fn panicked(&self) -> usize {
        self.live.panicked.load(Ordering::Relaxed)
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
        let polled = catch_unwind(AssertUnwindSafe(|| story.as_mut().poll(&mut Context::from_waker(&waker))));
        if polled.is_err() {
            self.live.panicked.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a story in the background panicked and was dropped");
        }
        if !matches!(polled, Ok(Poll::Pending)) {
            return self.end(slot.take(), slot);
        }
        drop(slot);
        self.end_if_lost();
    }

    /// Nobody polls it any more: whoever waits for it finds its end of the channel dropped.
    fn end_if_lost(&self) {
        if self.lost.load(Ordering::SeqCst)
            // Held: it is being polled, and this is asked again afterwards.
            && let Some(mut slot) = self.story.try_lock()
            && let Some(story) = slot.take()
        {
            self.end(Some(story), slot);
        }
    }

    fn end(&self, story: Option<Story>, slot: MutexGuard<'_, Option<Story>>) {
        drop(slot);
        if catch_unwind(AssertUnwindSafe(|| drop(story))).is_err() {
            tracing::error!("a story in the background panicked while it was dropped");
        }
        self.live.count.fetch_sub(1, Ordering::SeqCst);
        self.live.ended.notify_waiters();
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
            let job = refused.into_message();
            job.lost.store(true, Ordering::SeqCst);
            job.end_if_lost();
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
    fn a_story_that_panics_ends_alone() {
        let sim = Env::simulated(1);
        let background = Background::start(&sim.env.tasks);
        background.spawn(async { panic!("a bug") });
        let result = background.clone();
        let failed = sim.scheduler.block_on(async move { result.run(async { assert_eq!(1, 2, "another") }).await });
        assert_eq!(failed, None);
        let next = background.clone();
        assert_eq!(sim.scheduler.block_on(async move { next.run(async { 7 }).await }), Some(7));
        let waiting = background.clone();
        sim.scheduler.block_on(async move { waiting.idle().await });
        assert_eq!(background.panicked(), 2);
    }

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
