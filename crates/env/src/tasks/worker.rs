//! A worker: one state, one owner, one bounded queue.
//!
//! Promises: the handler is never called twice at once and sees messages in the order they were accepted.
//! Refuses to know: what the messages are, how to restart a worker that panicked.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;

use super::Tasks;
use super::queue::Queue;
use super::scheduler::Station;

/// Why a message was not accepted; it comes back.
#[derive(thiserror::Error)]
pub enum SubmitError<M> {
    /// The queue is at its bound: try later, or refuse the work.
    #[error("the worker's queue is full")]
    Full(M),
    /// The worker was closed, or its handler panicked.
    #[error("the worker is closed")]
    Closed(M),
}

impl<M> SubmitError<M> {
    /// The message that was not accepted.
    pub fn into_message(self) -> M {
        match self {
            SubmitError::Full(message) | SubmitError::Closed(message) => message,
        }
    }

    /// Whether the queue was full (as against closed).
    pub fn is_full(&self) -> bool {
        matches!(self, SubmitError::Full(_))
    }
}

impl<M> fmt::Debug for SubmitError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "Full" } else { "Closed" })
    }
}

/// When a free worker lets messages gather instead of taking the few that are there.
///
/// Senders that wait for their answers send again soon after them: the last batch and those who came meanwhile are about as
/// many as there are. A handler whose cost is one sync a batch then does well to wait for most of them, for a moment; alone, or
/// among few, nobody waits. Simulated workers do not look at it: there the seed makes the batches.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Senders up to which nothing is waited for.
    pub few: usize,
    /// How long is waited at most.
    pub at_most: Duration,
}

impl Gather {
    /// Nothing is ever waited for.
    pub const NEVER: Gather = Gather { few: usize::MAX, at_most: Duration::ZERO };

    /// Messages of so many senders that are not waited beyond.
    pub(super) fn enough(&self, senders: usize) -> usize {
        if senders <= self.few { 0 } else { senders - senders / 4 }
    }
}

/// The handler of the worker named here panicked; messages it had accepted may be unhandled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handler of worker {0} panicked")]
pub struct HandlerPanicked(pub String);

/// A handle on a worker. Cheap to clone. When the last clone is dropped the worker handles what is queued and ends.
pub struct Worker<M: Send + 'static> {
    owner: Arc<Owner<M>>,
}

impl<M: Send + 'static> Clone for Worker<M> {
    fn clone(&self) -> Self {
        Worker { owner: self.owner.clone() }
    }
}

impl<M: Send + 'static> fmt::Debug for Worker<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.owner.name).field("queued", &self.owner.queue.len()).finish()
    }
}

/// What the clones share. The thread holds only the queue, so that dropping the last clone can end it.
struct Owner<M: Send + 'static> {
    name: String,
    queue: Arc<Queue<M>>,
    run: Run<M>,
}

enum Run<M: Send + 'static> {
    Thread { id: ThreadId, handle: Mutex<Option<JoinHandle<()>>> },
    Simulated(Arc<SimWorker<M>>),
}

impl<M: Send + 'static> Worker<M> {
    /// Starts a worker.
    ///
    /// `queue` bounds the messages waiting; `max_batch` the messages handed over at once. `handler` gets 1 to `max_batch`
    /// messages, in the order they were submitted: with threads, whatever is there when it becomes free; simulated, as
    /// many as the seed says. Whatever the handler owns is dropped when the worker ends.
    pub fn spawn(
        tasks: &Tasks,
        name: &str,
        queue: usize,
        max_batch: usize,
        handler: impl FnMut(Vec<M>) + Send + 'static,
    ) -> Worker<M> {
        Worker::spawn_gathering(tasks, name, queue, max_batch, Gather::NEVER, handler)
    }

    /// Starts a worker that lets the messages of a crowd gather.
    pub fn spawn_gathering(
        tasks: &Tasks,
        name: &str,
        queue: usize,
        max_batch: usize,
        gather: Gather,
        handler: impl FnMut(Vec<M>) + Send + 'static,
    ) -> Worker<M> {
        assert!(max_batch > 0, "a batch of nothing");
        let queue = Arc::new(Queue::new(queue));
        let run = match tasks {
            Tasks::Threads(_) => spawn_thread(name, queue.clone(), max_batch, gather, handler),
            Tasks::Simulated(scheduler, domain) => {
                let worker =
                    SimWorker::new(&scheduler.label(*domain), name, queue.clone(), max_batch, Box::new(handler));
                scheduler.register(*domain, worker.clone());
                Run::Simulated(worker)
            }
        };
        Worker { owner: Arc::new(Owner { name: name.to_owned(), queue, run }) }
    }

    /// Hands a message over, without waiting.
    pub fn submit(&self, message: M) -> Result<(), SubmitError<M>> {
        self.owner.queue.submit(message)
    }

    /// Hands a message over, waiting for room; fails only with [`SubmitError::Closed`].
    pub async fn submit_async(&self, message: M) -> Result<(), SubmitError<M>> {
        self.owner.queue.submit_waiting(message).await
    }

    /// Messages waiting, a snapshot for metrics and for shedding load.
    pub fn queued(&self) -> usize {
        self.owner.queue.len()
    }

    /// Whether it accepts nothing any more.
    pub fn is_closed(&self) -> bool {
        self.owner.queue.is_closed()
    }

    /// Accepts nothing from now on, for any clone; what is queued is still handled.
    pub fn close(&self) {
        self.owner.queue.close();
    }

    /// Closes, and waits until what was queued is handled and the handler (with all it owns) is dropped.
    ///
    /// Blocks the calling thread; called by the handler itself it is a mistake and asserted. Simulated: handles the
    /// rest here and now.
    pub fn join(&self) -> Result<(), HandlerPanicked> {
        self.close();
        match &self.owner.run {
            Run::Thread { id, handle } => {
                assert_ne!(*id, std::thread::current().id(), "worker {} waits for itself", self.owner.name);
                self.owner.queue.wait_ended();
                if let Some(handle) = handle.lock().take() {
                    // The loop catches panics of the handler; what could be left is a panic in dropping it.
                    handle.join().map_err(|_| HandlerPanicked(self.owner.name.clone()))?;
                }
            }
            Run::Simulated(worker) => worker.drain(),
        }
        match self.owner.queue.is_poisoned() {
            true => Err(HandlerPanicked(self.owner.name.clone())),
            false => Ok(()),
        }
    }
}

impl<M: Send + 'static> Drop for Owner<M> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn spawn_thread<M: Send + 'static>(
    name: &str,
    queue: Arc<Queue<M>>,
    max_batch: usize,
    gather: Gather,
    handler: impl FnMut(Vec<M>) + Send + 'static,
) -> Run<M> {
    let worker_name = name.to_owned();
    let handle = Builder::new()
        .name(name.to_owned())
        .spawn(move || serve(&worker_name, &queue, max_batch, gather, handler))
        .expect("the process may start the few threads it is built of");
    Run::Thread { id: handle.thread().id(), handle: Mutex::new(Some(handle)) }
}

/// The thread's life: batches until closed and drained, or until the handler panics.
fn serve<M>(name: &str, queue: &Queue<M>, max_batch: usize, gather: Gather, mut handler: impl FnMut(Vec<M>)) {
    let end = EndOnDrop(queue);
    loop {
        let batch = queue.wait_batch(max_batch, gather);
        if batch.is_empty() {
            break;
        }
        if catch_unwind(AssertUnwindSafe(|| handler(batch))).is_err() {
            tracing::error!(worker = name, "the handler panicked; the worker is closed for good");
            queue.poison();
            break;
        }
    }
    // Dropped before the end is announced: whoever joins may then open the same files again.
    drop(handler);
    drop(end);
}

/// Announces the end even if dropping the handler panics.
struct EndOnDrop<'a, M>(&'a Queue<M>);

impl<M> Drop for EndOnDrop<'_, M> {
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

type Handler<M> = Box<dyn FnMut(Vec<M>) + Send>;

/// A worker without a thread.
struct SimWorker<M> {
    name: Arc<str>,
    queue: Arc<Queue<M>>,
    max_batch: usize,
    /// Gone once the worker ended.
    handler: Mutex<Option<Handler<M>>>,
}

impl<M: Send + 'static> SimWorker<M> {
    /// `label` tells it from workers of the same name in other domains.
    fn new(label: &str, name: &str, queue: Arc<Queue<M>>, max_batch: usize, handler: Handler<M>) -> Arc<SimWorker<M>> {
        let name = Arc::from(format!("{label}{name}"));
        Arc::new(SimWorker { name, queue, max_batch, handler: Mutex::new(Some(handler)) })
    }

    fn drain(&self) {
        while self.queue.len() > 0 {
            self.handle(self.max_batch);
        }
        self.end();
    }

    fn end(&self) {
        let handler = self.handler.try_lock().expect("a simulated worker waits for itself").take();
        drop(handler);
        self.queue.mark_ended();
    }
}

impl<M: Send + 'static> Station for SimWorker<M> {
    fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn max_batch(&self) -> usize {
        self.max_batch
    }

    fn is_over(&self) -> bool {
        self.queue.is_closed() && self.queue.len() == 0
    }

    fn handle(&self, count: usize) {
        let batch = self.queue.take_batch(count);
        if batch.is_empty() {
            return;
        }
        let mut slot = self.handler.try_lock().expect("a simulated worker is stepped from inside its own handler");
        let Some(handler) = slot.as_mut() else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(batch))) {
            tracing::error!(worker = &*self.name, "the handler panicked; the worker is closed for good");
            drop(slot);
            self.queue.poison();
            self.end();
            // A panic in a simulation is a finding: it must reach the test.
            resume_unwind(panic);
        }
    }

    fn finish(&self) {
        self.end();
    }

    fn abandon(&self) {
        drop(self.queue.abandon());
        self.end();
    }
}
