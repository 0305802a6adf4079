//! A disk of another node, with the operations of one that is here.
//!
//! Promises: each operation is asked for once; what a read gives was verified here against the checksums in its frame; an error of
//! the disk is the error that the disk gave, and one of the way is [`crate::Away`] inside an I/O error. Refuses to know: other
//! replicas.

use crate::away::{Away, is_away};
use crate::limits;
use crate::link::Link;
use crate::wire::{self, Answer, Fault, Malformed, Status, What};
use bytes::Bytes;
use extent_store::{
    AppendError, CopyError, CreateError, Damage, Depth, FenceError, FileError, FoundFile, Frame, FrameAddress,
    PunchError, Quarantined, ReadError, ReadRequest, ScanPage,
};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{ClusterId, DiskId, GroupId, NodeId};

/// A disk that is reached over a network. Cheap to clone.
#[derive(Clone)]
pub struct RemoteDisk {
    pub(crate) link: Arc<Link>,
    disk: DiskId,
    cluster: ClusterId,
}

/// What came back: the answer's head, or the fault in it.
type Asked<E> = Result<(Answer, Bytes), E>;

impl RemoteDisk {
    pub(crate) fn new(link: Arc<Link>, disk: DiskId, cluster: ClusterId) -> RemoteDisk {
        RemoteDisk { link, disk, cluster }
    }

    /// The disk's id.
    pub fn id(&self) -> DiskId {
        self.disk
    }

    /// The node that has it.
    pub fn node(&self) -> NodeId {
        self.link.node
    }

    /// Whether the node was silent when last asked.
    pub fn is_silent(&self) -> bool {
        self.link.is_silent()
    }

    async fn ask<E: From<Fault>>(
        &self,
        what: What,
        body: Bytes,
        patience: Duration,
        away: impl FnOnce(io::Error) -> E,
    ) -> Asked<E> {
        match self.link.ask(self.disk, what, body, patience).await {
            Ok((Answer::Fault(fault), _)) => Err(fault.into()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(away(error.into())),
        }
    }

    fn nonsense<E>(&self, error: impl FnOnce(io::Error) -> E) -> E {
        error(self.link.nonsense().into())
    }

    fn malformed<E>(&self, error: impl FnOnce(io::Error) -> E) -> impl FnOnce(Malformed) -> E {
        let node = self.link.node;
        move |malformed| error(Away::Nonsense(node, malformed).into())
    }

    /// As [`extent_store::DiskStore::create`]. An answer that is lost leaves it unknown whether the file is there: the group is
    /// given up.
    pub async fn create(&self, group: GroupId, generation: u32, preallocate_bytes: u64) -> Result<(), CreateError> {
        let what = What::Create { group, generation, preallocate_bytes };
        match self.ask(what, Bytes::new(), limits::WRITE_PATIENCE, CreateError::Io).await? {
            (Answer::Done, _) => Ok(()),
            _ => Err(self.nonsense(CreateError::Io)),
        }
    }

    /// As [`extent_store::DiskStore::append`]: on its way when this returns, also if the future is dropped. The other side applies
    /// appends in the order of their offsets, so the order in which they arrive does not matter.
    pub fn append(&self, frame: Frame) -> impl Future<Output = Result<(), AppendError>> + Send + 'static {
        let (reply, result) = oneshot::channel();
        match self.link.appends.clone().try_acquire_owned() {
            Err(_) => drop(reply.send(Err(AppendError::Busy))),
            Ok(permit) => {
                let disk = self.clone();
                self.link.env.tasks.spawn(async move {
                    let answer = disk.append_now(&frame).await;
                    drop(permit);
                    // Whoever waited may be gone; what was done stays done.
                    let _ = reply.send(answer);
                });
            }
        }
        async move { result.await.unwrap_or(Err(AppendError::Closed)) }
    }

    async fn append_now(&self, frame: &Frame) -> Result<(), AppendError> {
        let failed = |error| AppendError::Failed(Arc::new(error));
        let what = What::Append(frame.address());
        match self.ask(what, frame.bytes().clone(), limits::WRITE_PATIENCE, failed).await? {
            (Answer::Done, _) => Ok(()),
            _ => Err(self.nonsense(failed)),
        }
    }

    /// As [`extent_store::DiskStore::fence`].
    pub async fn fence(&self, group: GroupId, generation: u32) -> Result<u64, FenceError> {
        let what = What::Fence { group, generation };
        match self.ask(what, Bytes::new(), limits::WRITE_PATIENCE, FenceError::Io).await? {
            (Answer::Length(length), _) => Ok(length),
            _ => Err(self.nonsense(FenceError::Io)),
        }
    }

    /// As [`extent_store::DiskStore::read`]; verified here.
    pub async fn read(&self, wanted: ReadRequest) -> Result<Bytes, ReadError> {
        let what = What::Read(wanted.clone());
        let (answer, body) = self.ask(what, Bytes::new(), limits::READ_PATIENCE, ReadError::Io).await?;
        if answer != Answer::Done {
            return Err(self.nonsense(ReadError::Io));
        }
        wanted.verify(self.cluster, &body)
    }

    /// As [`extent_store::DiskStore::read_frame`]; verified here.
    pub async fn read_frame(&self, address: FrameAddress) -> Result<Frame, ReadError> {
        let (answer, body) =
            self.ask(What::ReadFrame(address), Bytes::new(), limits::WORK_PATIENCE, ReadError::Io).await?;
        if answer != Answer::Done {
            return Err(self.nonsense(ReadError::Io));
        }
        let frame = Frame::verify(body).map_err(ReadError::Damaged)?;
        if frame.cluster() != self.cluster || frame.address() != address {
            return Err(ReadError::Damaged(Damage::Misplaced("offset")));
        }
        Ok(frame)
    }

    /// As [`extent_store::DiskStore::scan_page`].
    pub async fn scan_page(
        &self,
        group: GroupId,
        generation: u32,
        depth: Depth,
        from: u64,
    ) -> Result<ScanPage, ReadError> {
        let what = What::Scan { group, generation, depth, from };
        match self.ask(what, Bytes::new(), limits::WORK_PATIENCE, ReadError::Io).await? {
            // A walk that does not get on would never end.
            (Answer::Next(next), body) if next.is_none_or(|next| next > from) => {
                wire::decode_scan(&body, next).map_err(self.malformed(ReadError::Io))
            }
            _ => Err(self.nonsense(ReadError::Io)),
        }
    }

    /// How the disk is, asked at most every few seconds.
    pub async fn status(&self, patience: Duration) -> Result<Status, Away> {
        self.link.status(self.disk, limits::STATUS_AGE, patience).await
    }

    /// What was last heard of it.
    pub fn known(&self) -> Option<Status> {
        self.link.known(self.disk)
    }

    /// As [`extent_store::DiskStore::list_files`].
    pub async fn list_files(&self) -> Result<Vec<FoundFile>, FileError> {
        let mut all: Vec<FoundFile> = Vec::new();
        loop {
            let after = all.last().map(|file| (file.group, file.generation));
            let what = What::Files(after);
            let (answer, body) = self.ask(what, Bytes::new(), limits::WORK_PATIENCE, FileError::Io).await?;
            let Answer::More(more) = answer else { return Err(self.nonsense(FileError::Io)) };
            let page = wire::decode_files(&body).map_err(self.malformed(FileError::Io))?;
            let gets_on = page.iter().all(|file| after.is_none_or(|after| (file.group, file.generation) > after));
            if !gets_on || (more && page.is_empty()) {
                return Err(self.nonsense(FileError::Io));
            }
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// As [`extent_store::DiskStore::quarantined`].
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, FileError> {
        let mut all: Vec<Quarantined> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |file| file.name.clone());
            let what = What::Quarantined(after.clone());
            let (answer, body) = self.ask(what, Bytes::new(), limits::WORK_PATIENCE, FileError::Io).await?;
            let Answer::More(more) = answer else { return Err(self.nonsense(FileError::Io)) };
            let page = wire::decode_quarantined(&body).map_err(self.malformed(FileError::Io))?;
            if page.iter().any(|file| file.name <= after) || (more && page.is_empty()) {
                return Err(self.nonsense(FileError::Io));
            }
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// As [`extent_store::DiskStore::punch`]; idempotent, so it may be asked again.
    pub async fn punch(&self, group: GroupId, generation: u32, ranges: &[(u64, u64)]) -> Result<(), PunchError> {
        for ranges in ranges.chunks(limits::PUNCH_RANGES) {
            let what = What::Punch { group, generation, ranges: ranges.to_vec() };
            match self.ask(what, Bytes::new(), limits::WORK_PATIENCE, PunchError::Io).await? {
                (Answer::Done, _) => {}
                _ => return Err(self.nonsense(PunchError::Io)),
            }
        }
        Ok(())
    }

    /// As [`extent_store::DiskStore::drop_file`].
    pub async fn drop_file(&self, group: GroupId, generation: u32) -> Result<(), FileError> {
        let what = What::Drop { group, generation };
        match self.ask(what, Bytes::new(), limits::WORK_PATIENCE, FileError::Io).await? {
            (Answer::Done, _) => Ok(()),
            _ => Err(self.nonsense(FileError::Io)),
        }
    }

    /// As [`extent_store::DiskStore::forget_fence`]; `false` also if it could not be asked.
    pub async fn forget_fence(&self, group: GroupId) -> bool {
        let asked = self.link.ask(self.disk, What::ForgetFence(group), Bytes::new(), limits::WORK_PATIENCE).await;
        matches!(asked, Ok((Answer::Flag(true), _)))
    }

    /// As [`extent_store::DiskStore::quarantine`].
    pub async fn quarantine(&self, group: GroupId, generation: u32, reason: &str) -> Result<String, FileError> {
        let what = What::Quarantine { group, generation, reason: reason.to_owned() };
        match self.ask(what, Bytes::new(), limits::WORK_PATIENCE, FileError::Io).await? {
            (Answer::Name(name), _) => Ok(name),
            _ => Err(self.nonsense(FileError::Io)),
        }
    }

    /// As [`extent_store::DiskStore::begin_copy`].
    pub async fn begin_copy(
        &self,
        group: GroupId,
        generation: u32,
        sealed_length: u64,
    ) -> Result<RemoteCopy, CopyError> {
        let token = self.link.env.random.next_u64();
        let what = What::BeginCopy { group, generation, sealed_length, token };
        match self.ask(what, Bytes::new(), limits::WORK_PATIENCE, CopyError::Io).await? {
            (Answer::Done, _) => Ok(RemoteCopy { disk: self.clone(), token, frames: 0, ended: false }),
            _ => Err(self.nonsense(CopyError::Io)),
        }
    }
}

/// A copy that is being written on another node. Dropped unfinished, the other side is told to give it up, or does so by itself
/// after a while.
pub struct RemoteCopy {
    disk: RemoteDisk,
    token: u64,
    frames: u64,
    ended: bool,
}

impl RemoteCopy {
    /// As [`extent_store::CopyWriter::put`].
    pub async fn put(&mut self, frame: Frame) -> Result<(), CopyError> {
        let what = What::PutCopy { token: self.token, sequence: self.frames };
        let body = frame.bytes().clone();
        match self.disk.ask(what, body, limits::WORK_PATIENCE, CopyError::Io).await? {
            (Answer::Done, _) => {
                self.frames += 1;
                Ok(())
            }
            _ => Err(self.disk.nonsense(CopyError::Io)),
        }
    }

    /// As [`extent_store::CopyWriter::finish`]. If the answer is lost the file may be there: it is named by no record.
    pub async fn finish(mut self) -> Result<(), CopyError> {
        let what = What::FinishCopy { token: self.token, frames: self.frames };
        match self.disk.ask(what, Bytes::new(), limits::WORK_PATIENCE, CopyError::Io).await? {
            (Answer::Done, _) => {
                self.ended = true;
                Ok(())
            }
            _ => Err(self.disk.nonsense(CopyError::Io)),
        }
    }
}

impl Drop for RemoteCopy {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (disk, token) = (self.disk.clone(), self.token);
        self.disk.link.env.tasks.spawn(async move {
            let what = What::EndCopy { token };
            if let Err(error) = disk.ask(what, Bytes::new(), limits::WORK_PATIENCE, CopyError::Io).await
                && !matches!(&error, CopyError::Io(error) if is_away(error))
            {
                tracing::debug!(disk = %disk.disk, %error, "a copy was not given up at once");
            }
        });
    }
}
