//! Questions for read indices, gathered: while one is on its way to a leader, those who come wait for the next, all together.
//!
//! Promises: whoever asks is answered by a question that was sent after they asked; at most one is on its way per shard.
//! Refuses to know: whether this node has applied that far.

use super::Link;
use super::wire::{self, Answer, Ask};
use crate::limits;
use env::tasks::Tasks;
use metadata::shard::ShardId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use types::NodeId;

/// Who waits for the index of a shard; `None`: it was not told.
type Waiting = BTreeMap<ShardId, Vec<oneshot::Sender<Option<u64>>>>;

/// What is on its way and who waits for the next. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Rounds {
    waiting: Arc<Mutex<Waiting>>,
}

impl Rounds {
    /// The index, or `None` if that node does not lead (any more) or does not answer.
    pub(super) async fn ask(&self, tasks: &Tasks, link: &Link, shard: ShardId, node: NodeId) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting.lock();
            // An entry is there as long as somebody asks for that shard.
            let first = !waiting.contains_key(&shard);
            waiting.entry(shard).or_default().push(reply);
            first
        };
        if first {
            let (rounds, link) = (self.clone(), link.clone());
            // By itself: whoever began it may go away, and the others would wait for ever.
            tasks.spawn(async move { rounds.run(&link, shard, node).await });
        }
        answer.await.ok().flatten()
    }

    async fn run(&self, link: &Link, shard: ShardId, node: NodeId) {
        let mut guard = Unfinished { rounds: self, shard };
        while let Some(asking) = guard.next() {
            let answer = wire::call(link, node, &Ask::ReadIndex { shard }, limits::CALL_TIMEOUT).await;
            let index = if let Ok(Answer::Index(index)) = answer { Some(index) } else { None };
            for reply in asking {
                // Whoever asked may be gone.
                let _ = reply.send(index);
            }
        }
    }
}

/// However it ends, those who wait learn of it: their senders are dropped.
struct Unfinished<'a> {
    rounds: &'a Rounds,
    shard: ShardId,
}

impl Unfinished<'_> {
    /// Those who are to be answered by the next question; `None`: nobody, and the next who comes begins anew.
    fn next(&mut self) -> Option<Vec<oneshot::Sender<Option<u64>>>> {
        let mut waiting = self.rounds.waiting.lock();
        let asking = std::mem::take(waiting.get_mut(&self.shard)?);
        if asking.is_empty() {
            waiting.remove(&self.shard);
            return None;
        }
        Some(asking)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.rounds.waiting.lock().remove(&self.shard);
    }
}
