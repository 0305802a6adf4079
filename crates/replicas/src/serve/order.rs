//! The appends of one file as they arrive from its writer on another node: in any order, some of them twice.
//!
//! Promises: frames are handed on in the order of their offsets and each once; a frame that came again is acknowledged only with
//! the very frame that is there; after the first failure, or a fence, nothing is handed on. A function of what it is told: no clock,
//! no I/O. Refuses to know: disks, messages.

use extent_store::{AppendError, Frame};
use std::collections::BTreeMap;
use types::NodeId;

use crate::limits;

/// The state of one file. `W` is whoever waits for an answer.
pub(super) struct Order<W> {
    writer: NodeId,
    /// Where the next frame to be handed on begins.
    next: u64,
    /// Everything before is durable, and was acknowledged by the disk.
    durable: u64,
    /// Final.
    failed: Option<AppendError>,
    /// Came before their predecessors.
    early: BTreeMap<u64, Waiting<W>>,
    /// Handed to the disk, not answered by it yet.
    handed: BTreeMap<u64, Waiting<W>>,
}

struct Waiting<W> {
    frame: Frame,
    who: Vec<W>,
}

/// What is to be done about a frame that arrived.
pub(super) enum Step<W> {
    /// Hand these on, in this order.
    Hand(Vec<Frame>),
    /// Nothing: the answer comes when the disk's does, or when the frames before it arrive.
    Wait,
    /// As much of the file is durable. If what stands there is this very frame, it is acknowledged.
    Compare(W),
    /// Answer this.
    Refuse(W, AppendError),
}

impl<W> Order<W> {
    /// Of a file that was just created, empty, by that node.
    pub(super) fn new(writer: NodeId) -> Order<W> {
        let start = extent_store::limits::FIRST_FRAME_OFFSET;
        Order { writer, next: start, durable: start, failed: None, early: BTreeMap::new(), handed: BTreeMap::new() }
    }

    pub(super) fn writer(&self) -> NodeId {
        self.writer
    }

    /// Whether it is as it was created.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == extent_store::limits::FIRST_FRAME_OFFSET && self.failed.is_none()
    }

    /// Where the next frame begins.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of the frames that wait for others.
    #[cfg(test)]
    pub(super) fn early_frames(&self) -> usize {
        self.early.len()
    }

    /// A frame arrived.
    pub(super) fn arrive(&mut self, from: NodeId, frame: Frame, who: W) -> Step<W> {
        if from != self.writer {
            return Step::Refuse(who, AppendError::Stale);
        }
        if let Some(failed) = &self.failed {
            return Step::Refuse(who, failed.clone());
        }
        let offset = frame.address().offset;
        if offset < self.next {
            return self.again(offset, &frame, who);
        }
        if offset > self.next {
            return self.too_early(offset, frame, who);
        }
        let mut hand = vec![frame.clone()];
        self.next = frame.end();
        self.handed.insert(offset, Waiting { frame, who: vec![who] });
        while let Some(waiting) = self.early.remove(&self.next) {
            let at = self.next;
            self.next = waiting.frame.end();
            hand.push(waiting.frame.clone());
            self.handed.insert(at, waiting);
        }
        Step::Hand(hand)
    }

    /// Its place was handed on before.
    fn again(&mut self, offset: u64, frame: &Frame, who: W) -> Step<W> {
        if let Some(waiting) = self.handed.get_mut(&offset) {
            if waiting.frame.bytes() == frame.bytes() {
                waiting.who.push(who);
                return Step::Wait;
            }
        } else if frame.end() <= self.durable {
            return Step::Compare(who);
        }
        Step::Refuse(who, AppendError::OutOfOrder { expected: self.next })
    }

    fn too_early(&mut self, offset: u64, frame: Frame, who: W) -> Step<W> {
        if let Some(waiting) = self.early.get_mut(&offset) {
            if waiting.frame.bytes() == frame.bytes() {
                waiting.who.push(who);
                return Step::Wait;
            }
            return Step::Refuse(who, AppendError::OutOfOrder { expected: self.next });
        }
        if self.early.len() >= limits::EARLY_FRAMES {
            return Step::Refuse(who, AppendError::Busy);
        }
        self.early.insert(offset, Waiting { frame, who: vec![who] });
        Step::Wait
    }

    /// The disk answered for the frame at that place. Gives who is to be told, and what.
    pub(super) fn answered(
        &mut self,
        offset: u64,
        result: Result<(), AppendError>,
    ) -> Vec<(W, Result<(), AppendError>)> {
        let Some(waiting) = self.handed.remove(&offset) else { return Vec::new() };
        let mut told = Vec::new();
        match &result {
            // The disk acknowledges in the order of offsets: everything before is durable too.
            Ok(()) => self.durable = self.durable.max(waiting.frame.end()),
            // What was not acknowledged is a gap for all that follow.
            Err(error) => told = self.fail(error.clone()),
        }
        told.extend(waiting.who.into_iter().map(|who| (who, result.clone())));
        told
    }

    /// From now on nothing is handed on. Gives those who waited for predecessors, with the error for them; who waits for the disk
    /// hears from it.
    pub(super) fn fail(&mut self, error: AppendError) -> Vec<(W, Result<(), AppendError>)> {
        let failed = self.failed.get_or_insert(error).clone();
        let early = std::mem::take(&mut self.early);
        early.into_values().flat_map(|waiting| waiting.who).map(|who| (who, Err(failed.clone()))).collect()
    }

    /// The frame at that place has waited long enough for those before it, if it still does.
    pub(super) fn give_up(&mut self, offset: u64) -> Vec<(W, Result<(), AppendError>)> {
        let late = AppendError::OutOfOrder { expected: self.next };
        let waiting = self.early.remove(&offset).into_iter().flat_map(|waiting| waiting.who);
        waiting.map(|who| (who, Err(late.clone()))).collect()
    }
}
