//! Appends that arrive from other nodes, file by file.
//!
//! Promises: what arrives is put in order before the disk sees it ([`super::order`]); an answer of the disk reaches everyone who
//! asked, also if the call that brought the frame is gone; a fence ends what waits and refuses what comes later, before the disk is
//! asked for it. Files that are not in the table take no appends: that is every file found at a start (rule R23). Refuses to know:
//! messages.

use super::order::{Order, Step};
use crate::limits;
use env::Env;
use extent_store::{AppendError, CreateError, DiskStore, Frame, FrameAddress};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;
use types::{DiskId, GroupId, NodeId};

type Key = (DiskId, GroupId, u32);
type Result<T> = std::result::Result<T, AppendError>;
type File = Mutex<Order<oneshot::Sender<Result<()>>>>;

/// All files that writers of other nodes append to.
pub(super) struct Appends {
    env: Env,
    files: Mutex<BTreeMap<Key, Arc<File>>>,
    early_bytes: Arc<AtomicUsize>,
}

/// Memory of one frame that waits for those before it.
struct EarlyBytes(Arc<AtomicUsize>, usize);

impl EarlyBytes {
    fn take(of: &Arc<AtomicUsize>, bytes: usize) -> Option<EarlyBytes> {
        let held = EarlyBytes(of.clone(), bytes);
        let before = of.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= limits::EARLY_BYTES).then_some(held)
    }
}

impl Drop for EarlyBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Appends {
    pub(super) fn new(env: Env) -> Appends {
        Appends { env, files: Mutex::default(), early_bytes: Arc::default() }
    }

    /// Creates a file for that writer. Asked again for the file it just created, before anything was appended, it gives the same
    /// answer: the group has one writer and one creation, so it is the same question that came twice.
    pub(super) async fn create(
        &self,
        disk: &DiskStore,
        from: NodeId,
        (group, generation): (GroupId, u32),
        preallocate_bytes: u64,
    ) -> std::result::Result<(), CreateError> {
        let key = (disk.id(), group, generation);
        self.sweep(disk);
        {
            let files = self.files.lock();
            if let Some(file) = files.get(&key) {
                let order = file.lock();
                let same = order.writer() == from && order.is_fresh();
                return if same { Ok(()) } else { Err(CreateError::Exists) };
            }
            if files.len() >= limits::OPEN_FILES {
                let full = "too many open groups of other nodes";
                return Err(CreateError::Io(io::Error::new(io::ErrorKind::WouldBlock, full)));
            }
        }
        disk.create(group, generation, preallocate_bytes).await?;
        // Nobody was told of the file yet, so nothing was appended. A fence that came between finds no file here and ends nothing:
        // the disk itself refuses what this entry would hand on.
        self.files.lock().insert(key, Arc::new(Mutex::new(Order::new(from))));
        Ok(())
    }

    /// Takes a verified frame. *Durable*, with everything before it in the file, when it answers `Ok`.
    pub(super) async fn append(&self, disk: &DiskStore, from: NodeId, frame: Frame) -> Result<()> {
        let at = frame.address();
        let file = self.files.lock().get(&(disk.id(), at.group, at.generation)).cloned();
        let Some(file) = file else { return self.absent(disk, at) };
        let (who, answer) = oneshot::channel();
        let (compare, early) = match self.arrive(&file, disk, from, &frame, who)? {
            Arrived::Compare => (true, None),
            Arrived::Handed => (false, None),
            Arrived::Early(bytes) => (false, Some(bytes)),
        };
        if compare {
            return self.compare(&file, disk, &frame).await;
        }
        drop(frame);
        let mut answer = std::pin::pin!(answer);
        if let Some(bytes) = early {
            let waited = self.env.timers.timeout(limits::EARLY_PATIENCE, answer.as_mut()).await;
            drop(bytes);
            if let Some(answer) = waited {
                return answer.unwrap_or(Err(AppendError::Closed));
            }
            // Unless those before it came at the last moment.
            tell(file.lock().give_up(at.offset));
        }
        answer.await.unwrap_or(Err(AppendError::Closed))
    }

    /// Puts the frame in its place and hands on what is next. Under the file's lock, for the disk must see offsets in order.
    fn arrive(
        &self,
        file: &Arc<File>,
        disk: &DiskStore,
        from: NodeId,
        frame: &Frame,
        who: oneshot::Sender<Result<()>>,
    ) -> Result<Arrived> {
        let mut order = file.lock();
        let early = frame.address().offset > order.next();
        let held = match early {
            true => Some(EarlyBytes::take(&self.early_bytes, frame.bytes().len()).ok_or(AppendError::Busy)?),
            false => None,
        };
        match order.arrive(from, frame.clone(), who) {
            Step::Refuse(_, error) => Err(error),
            Step::Compare(_) => Ok(Arrived::Compare),
            Step::Wait => Ok(held.map_or(Arrived::Handed, Arrived::Early)),
            Step::Hand(frames) => {
                for frame in frames {
                    let offset = frame.address().offset;
                    let (answered, file) = (disk.append(frame), file.clone());
                    // By itself: who brought the frame may be gone before the disk answers.
                    self.env.tasks.spawn(async move {
                        let result = answered.await;
                        let told = file.lock().answered(offset, result);
                        tell(told);
                    });
                }
                Ok(Arrived::Handed)
            }
        }
    }

    /// Whether the frame that stands there, durable, is this one.
    async fn compare(&self, file: &Arc<File>, disk: &DiskStore, frame: &Frame) -> Result<()> {
        match disk.read_frame(frame.address()).await {
            Ok(there) if there.bytes() == frame.bytes() => Ok(()),
            _ => Err(AppendError::OutOfOrder { expected: file.lock().next() }),
        }
    }

    fn absent(&self, disk: &DiskStore, at: FrameAddress) -> Result<()> {
        match disk.fence_of(at.group) {
            Some(fence) if fence.generation > at.generation => Err(AppendError::Fenced(fence.generation)),
            _ => Err(AppendError::Stale),
        }
    }

    /// The group is about to be fenced: what waits for predecessors is refused now, what comes later finds nothing. What the disk
    /// was handed before is in its queue before the fence, and is synced or given up before that is answered.
    pub(super) fn fence(&self, disk: DiskId, group: GroupId, generation: u32) {
        let ended: Vec<Arc<File>> = {
            let mut files = self.files.lock();
            let keys: Vec<Key> =
                files.range((disk, group, 0)..(disk, group, generation)).map(|(key, _)| *key).collect();
            keys.iter().filter_map(|key| files.remove(key)).collect()
        };
        for file in ended {
            let told = file.lock().fail(AppendError::Fenced(generation));
            tell(told);
        }
    }

    /// The file is about to go.
    pub(super) fn forget(&self, disk: DiskId, group: GroupId, generation: u32) {
        let file = self.files.lock().remove(&(disk, group, generation));
        if let Some(file) = file {
            let told = file.lock().fail(AppendError::Stale);
            tell(told);
        }
    }

    /// Forgets files whose group this node itself fenced, or whose file is gone.
    fn sweep(&self, disk: &DiskStore) {
        if self.files.lock().len() < limits::OPEN_FILES_SWEPT {
            return;
        }
        let id = disk.id();
        let fenced = |group, generation| disk.fence_of(group).is_some_and(|fence| fence.generation > generation);
        self.files.lock().retain(|(of, group, generation), _| *of != id || !fenced(*group, *generation));
    }
}

enum Arrived {
    Handed,
    Early(EarlyBytes),
    Compare,
}

/// Outside of the file's lock. Who is gone needs no answer.
fn tell(told: Vec<(oneshot::Sender<Result<()>>, Result<()>)>) {
    for (who, result) in told {
        let _ = who.send(result);
    }
}
