//! One stream and its digest.
//!
//! Promises: dropping a future of [`Stream::ready`] or [`Stream::settle`] loses nothing, they can be called again; dropping the
//! stream lets go of everything. Refuses to know: where the bytes come from.

use crate::hash::Hash;
use crate::lanes::Lanes;
use crate::limits::ALONE_BYTES;
use bytes::Bytes;
use std::future::poll_fn;
use std::task::Poll;

/// MD5 of a stream in progress.
pub struct Stream {
    lanes: Option<Lanes>,
    place: Place,
}

enum Place {
    /// Hashes by itself.
    Alone(Hash),
    /// Has a seat in the lanes.
    Joined(usize),
    Settled([u8; 16]),
}

impl Stream {
    /// Of nothing yet. It joins `lanes` once it is no small object's any more.
    pub fn new(lanes: &Lanes) -> Stream {
        // Of one lane there is nothing to share.
        let lanes = (lanes.kernel().lanes() > 1).then(|| lanes.clone());
        Stream { lanes, place: Place::Alone(Hash::default()) }
    }

    /// Of nothing yet, and by itself whatever its length.
    pub fn alone() -> Stream {
        Stream { lanes: None, place: Place::Alone(Hash::default()) }
    }

    /// Takes the next bytes. To be called when [`Stream::ready`] has answered, or the stream holds back more than its share.
    pub fn push(&mut self, bytes: Bytes) {
        match (&mut self.place, &self.lanes) {
            (Place::Settled(_), _) => unreachable!("bytes after the end"),
            (Place::Joined(seat), Some(lanes)) => lanes.push(*seat, bytes),
            (Place::Alone(hash), Some(lanes)) if hash.len() + bytes.len() as u64 > ALONE_BYTES => {
                let seat = lanes.join(std::mem::take(hash));
                self.place = Place::Joined(seat);
                lanes.push(seat, bytes);
            }
            (Place::Alone(hash), _) => hash.update(&bytes),
            (Place::Joined(_), None) => unreachable!("a seat without lanes"),
        }
    }

    /// Waits, by hashing for itself and others, until the stream holds back no more than its share.
    pub async fn ready(&mut self) {
        if let (Place::Joined(seat), Some(lanes)) = (&self.place, &self.lanes) {
            poll_fn(|context| lanes.poll_share(*seat, context)).await;
        }
    }

    /// Hashes what is left; nothing may be pushed after it. Then [`Stream::digest`] has an answer.
    pub async fn settle(&mut self) {
        poll_fn(|context| {
            let hash = match (&mut self.place, &self.lanes) {
                (Place::Settled(_), _) => return Poll::Ready(()),
                (Place::Alone(hash), _) => std::mem::take(hash),
                (Place::Joined(seat), Some(lanes)) => match lanes.poll_leave(*seat, context) {
                    Poll::Ready(hash) => hash,
                    Poll::Pending => return Poll::Pending,
                },
                (Place::Joined(_), None) => unreachable!("a seat without lanes"),
            };
            self.place = Place::Settled(hash.finish());
            Poll::Ready(())
        })
        .await;
    }

    /// The digest, once it is settled.
    pub fn digest(&self) -> Option<[u8; 16]> {
        match self.place {
            Place::Settled(digest) => Some(digest),
            _ => None,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let (Place::Joined(seat), Some(lanes)) = (&self.place, &self.lanes) {
            lanes.abandon(*seat);
        }
    }
}
