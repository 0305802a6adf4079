//! The disks of this node as other nodes reach them: service 3.
//!
//! Promises: an answer says what the disk said, after the moment that the operation promises; a message that cannot be read does
//! nothing; what was begun is brought to its end, also if the call is dropped. Nothing is removed but by the operations that the
//! other side orders by record (rules R24, R58): generations of files are never used twice, so an order that arrives late
//! cannot meet another file than the one it was meant for. Refuses to know: who may ask (the network does), which groups ought to
//! exist.

mod appends;
mod copies;
mod order;
#[cfg(test)]
mod order_tests;

use crate::limits;
use crate::wire::{self, Answer, Fault, Request, Status, What};
use appends::Appends;
use bytes::Bytes;
use copies::Copies;
use env::Env;
use extent_store::{DiskStore, FoundFile, Frame, FrameAddress, StoreSet};
use rpc::{Boxed, Handler, Message};
use std::sync::Arc;
use tokio::sync::oneshot;
use types::{GroupId, NodeId};

/// The handler of service 3 for the disks of this node. One for each set of disks: it keeps the order of appends.
pub fn serve(disks: StoreSet, env: Env) -> Arc<dyn Handler> {
    let (appends, copies) = (Appends::new(env.clone()), Copies::new(env.clone()));
    Arc::new(Server { inner: Arc::new(Inner { disks, appends, copies, env }) })
}

struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    disks: StoreSet,
    appends: Appends,
    copies: Copies,
    env: Env,
}

/// Head and body of an answer.
type Answered = Result<(Answer, Bytes), Fault>;

impl Handler for Server {
    fn call(&self, from: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let Request { disk, what } = Request::decode(&message.head).map_err(|error| error.to_string())?;
            let answered = match inner.disks.get(disk).cloned() {
                None => Err(Fault::NoDisk),
                Some(disk) if what.only_reads() => inner.look(&disk, what).await,
                Some(disk) => inner.clone().to_the_end(disk, from, what, message.body).await,
            };
            let (head, body) = answered.unwrap_or_else(|fault| (Answer::Fault(fault), Bytes::new()));
            Ok(Message { head: head.encode().into(), body })
        })
    }

    fn receive(&self, from: NodeId, _: Message) {
        tracing::warn!(from, "a message to the disks that wants no answer");
    }
}

impl What {
    /// Whether nothing is lost if it is not brought to its end.
    fn only_reads(&self) -> bool {
        matches!(
            self,
            What::Read(_)
                | What::ReadFrame(_)
                | What::Scan { .. }
                | What::Status
                | What::Files(_)
                | What::Quarantined(_)
        )
    }
}

impl Inner {
    /// Does it by a task of its own: half a creation would leave a name that is taken and a file that nobody knows.
    async fn to_the_end(self: Arc<Self>, disk: DiskStore, from: NodeId, what: What, body: Bytes) -> Answered {
        let (reply, answered) = oneshot::channel();
        let tasks = self.env.tasks.clone();
        tasks.spawn(async move {
            let answer = self.act(&disk, from, what, body).await;
            // The call may be gone: it was done for its effects.
            let _ = reply.send(answer);
        });
        answered.await.unwrap_or(Err(Fault::Closed))
    }

    async fn look(&self, disk: &DiskStore, what: What) -> Answered {
        match what {
            What::Read(wanted) => Ok((Answer::Done, disk.read_with_header(&wanted).await?)),
            What::ReadFrame(address) => Ok((Answer::Done, disk.read_frame(address).await?.bytes().clone())),
            What::Scan { group, generation, depth, from } => {
                let page = disk.scan_page(group, generation, depth, from).await?;
                let (items, next) = wire::encode_scan(&page);
                Ok((Answer::Next(next), items))
            }
            What::Status => {
                let asked = disk.clone();
                let space = self.env.tasks.run(move || asked.space()).await.map_err(|error| Fault::from(&error))?;
                let status = Status {
                    total_bytes: space.total_bytes,
                    free_bytes: space.free_bytes,
                    suspect: disk.health().suspect,
                    strangers: disk.strangers().len() as u64,
                };
                Ok((Answer::Status(status), Bytes::new()))
            }
            What::Files(after) => {
                let behind = |file: &FoundFile| after.is_none_or(|after| (file.group, file.generation) > after);
                let (page, more) = page(disk.list_files().into_iter().filter(behind), limits::LIST_FILES);
                Ok((Answer::More(more), wire::encode_files(&page)))
            }
            What::Quarantined(after) => {
                let mut files = disk.quarantined().await?;
                files.sort_by(|a, b| a.name.cmp(&b.name));
                let behind = files.into_iter().filter(|file| file.name > after);
                let (page, more) = page(behind, limits::LIST_QUARANTINED);
                Ok((Answer::More(more), wire::encode_quarantined(&page)))
            }
            _ => Err(Fault::Invalid),
        }
    }

    async fn act(&self, disk: &DiskStore, from: NodeId, what: What, body: Bytes) -> Answered {
        let head = match what {
            What::Create { group, generation, preallocate_bytes } => {
                self.appends.create(disk, from, (group, generation), preallocate_bytes).await?;
                Answer::Done
            }
            What::Append(address) => {
                let frame = frame_of(body, disk, Some(address))?;
                self.appends.append(disk, from, frame).await?;
                Answer::Done
            }
            What::Fence { group, generation } => self.fence(disk, group, generation).await?,
            What::Punch { group, generation, ranges } => {
                disk.punch(group, generation, &ranges).await?;
                Answer::Done
            }
            What::Drop { group, generation } => {
                self.appends.forget(disk.id(), group, generation);
                disk.drop_file(group, generation).await?;
                Answer::Done
            }
            What::ForgetFence(group) => Answer::Flag(disk.forget_fence(group).await),
            What::Quarantine { group, generation, reason } => {
                self.appends.forget(disk.id(), group, generation);
                Answer::Name(disk.quarantine(group, generation, &reason).await?)
            }
            What::BeginCopy { group, generation, sealed_length, token } => {
                self.copies.begin(disk, (from, token), (group, generation), sealed_length).await?;
                Answer::Done
            }
            What::PutCopy { token, sequence } => {
                let frame = frame_of(body, disk, None)?;
                self.copies.put((from, token), sequence, frame).await?;
                Answer::Done
            }
            What::FinishCopy { token, frames } => {
                self.copies.finish((from, token), frames).await?;
                Answer::Done
            }
            What::EndCopy { token } => {
                self.copies.end((from, token));
                Answer::Done
            }
            _ => return Err(Fault::Invalid),
        };
        Ok((head, Bytes::new()))
    }

    async fn fence(&self, disk: &DiskStore, group: GroupId, generation: u32) -> Result<Answer, Fault> {
        self.appends.fence(disk.id(), group, generation);
        Ok(Answer::Length(disk.fence(group, generation).await?))
    }
}

/// The frame of a message's body, verified in full: what is not sound does not reach a disk.
fn frame_of(body: Bytes, disk: &DiskStore, expected: Option<FrameAddress>) -> Result<Frame, Fault> {
    let frame = Frame::verify(body).map_err(Fault::Damaged)?;
    let foreign = frame.cluster() != disk.identity().cluster;
    if foreign || expected.is_some_and(|expected| expected != frame.address()) {
        return Err(Fault::Invalid);
    }
    Ok(frame)
}

/// The first of them, and whether there are more.
fn page<T>(items: impl Iterator<Item = T>, max: usize) -> (Vec<T>, bool) {
    let mut items = items.peekable();
    let page = items.by_ref().take(max).collect();
    (page, items.peek().is_some())
}
