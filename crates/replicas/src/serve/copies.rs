//! Copies that the curator of another node is writing to disks of this one.
//!
//! Promises: frames go in once and in order, also if a message comes twice; a copy of which nothing is heard is given up and leaves
//! nothing; a file gets its name only with all the frames that its writer counted. Refuses to know: where the frames come from.

use crate::limits;
use crate::wire::Fault;
use env::Env;
use extent_store::{CopyWriter, DiskStore, Frame};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{GroupId, NodeId};

/// Who writes, and the number it drew for the copy.
type Key = (NodeId, u64);

/// The copies under way.
pub(super) struct Copies {
    env: Env,
    under_way: Mutex<BTreeMap<Key, Slot>>,
}

struct Slot {
    /// `None` while something is being done to it.
    writer: Option<CopyWriter>,
    /// Frames that are in it.
    frames: u64,
    heard: Duration,
}

impl Copies {
    pub(super) fn new(env: Env) -> Copies {
        Copies { env, under_way: Mutex::default() }
    }

    pub(super) async fn begin(
        &self,
        disk: &DiskStore,
        key: Key,
        (group, generation): (GroupId, u32),
        sealed_length: u64,
    ) -> Result<(), Fault> {
        let stale = self.stale();
        // Outside of the lock: dropping removes a file.
        drop(stale);
        {
            let mut under_way = self.under_way.lock();
            if under_way.len() >= limits::COPIES || under_way.contains_key(&key) {
                return Err(Fault::Busy);
            }
            under_way.insert(key, Slot { writer: None, frames: 0, heard: self.env.clock.monotonic() });
        }
        let begun = disk.begin_copy(group, generation, sealed_length).await;
        let mut under_way = self.under_way.lock();
        match (begun, under_way.get_mut(&key)) {
            (Ok(writer), Some(slot)) => {
                slot.writer = Some(writer);
                Ok(())
            }
            // Given up meanwhile: the writer is dropped, and its file with it.
            (Ok(_), None) => Err(Fault::Stale),
            (Err(error), _) => {
                under_way.remove(&key);
                Err(error.into())
            }
        }
    }

    pub(super) async fn put(&self, key: Key, sequence: u64, frame: Frame) -> Result<(), Fault> {
        let mut writer = {
            let mut under_way = self.under_way.lock();
            let slot = under_way.get_mut(&key).ok_or(Fault::Stale)?;
            slot.heard = self.env.clock.monotonic();
            if sequence < slot.frames {
                // It came again: it is in the file.
                return Ok(());
            }
            if sequence > slot.frames {
                return Err(Fault::ForeignFrame);
            }
            slot.writer.take().ok_or(Fault::Busy)?
        };
        let put = writer.put(frame).await;
        let mut under_way = self.under_way.lock();
        match (put, under_way.get_mut(&key)) {
            (Ok(()), Some(slot)) => {
                slot.frames += 1;
                slot.writer = Some(writer);
                Ok(())
            }
            (Ok(()), None) => Err(Fault::Stale),
            (Err(error), _) => {
                under_way.remove(&key);
                Err(error.into())
            }
        }
    }

    pub(super) async fn finish(&self, key: Key, frames: u64) -> Result<(), Fault> {
        let writer = {
            let mut under_way = self.under_way.lock();
            let slot = under_way.get_mut(&key).ok_or(Fault::Stale)?;
            if slot.frames != frames {
                return Err(Fault::ForeignFrame);
            }
            let writer = slot.writer.take().ok_or(Fault::Busy)?;
            under_way.remove(&key);
            writer
        };
        Ok(writer.finish().await?)
    }

    /// Gives a copy up.
    pub(super) fn end(&self, key: Key) {
        let slot = self.under_way.lock().remove(&key);
        drop(slot);
    }

    /// Those of which nothing was heard.
    fn stale(&self) -> Vec<Slot> {
        let now = self.env.clock.monotonic();
        let mut under_way = self.under_way.lock();
        let late = |_: &Key, slot: &mut Slot| now.saturating_sub(slot.heard) > limits::COPY_IDLE;
        under_way.extract_if(.., late).map(|(_, slot)| slot).collect()
    }
}
