//! The images of the members of one strip, piece by piece.

use super::{Members, ROW_BYTES};
use crate::findings::{Finding, Trouble};
use env::disk::is_transient;
use erasure::Code;
use extent_store::limits::HEADER_BYTES;
use extent_store::{Frame, FrameAddress, ReadError};
use futures_util::future::join_all;
use metadata::rows::{Replica as Listed, ReplicaState};
use metadata::strip::{FIRST, Frames, parity_content};
use parking_lot::Mutex;
use replicas::{Replica, Replicas, Whereabouts, is_away};
use std::collections::BTreeSet;
use std::ops::Range;
use types::GroupId;

/// Why a piece of an image is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NoImage {
    /// A node that may have it does not answer just now.
    #[error("a node with a member of the strip does not answer: {0}")]
    Away(String),
    /// For want of descriptors or memory.
    #[error("short of file descriptors or memory: {0}")]
    Short(std::io::Error),
    /// It is not there, or damaged.
    #[error("{0}")]
    Bad(String),
}

impl NoImage {
    /// Whichever leaves more hope.
    fn or(self, other: NoImage) -> NoImage {
        match (&self, &other) {
            (NoImage::Short(_), _) => self,
            (_, NoImage::Short(_)) => other,
            (NoImage::Away(_), _) => self,
            _ => other,
        }
    }
}

/// The frame read last, by its offset in the file, as canonical bytes: neighbouring pieces need the same one.
type Last = Option<(u64, Vec<u8>)>;

/// Reads and decodes. Pieces are best asked for in ascending order: then each frame is read once.
pub struct Images<'a> {
    disks: &'a Replicas,
    members: &'a Members,
    frames: Vec<Frames>,
    last: Vec<Last>,
    bad: Mutex<BTreeSet<Finding>>,
}

impl<'a> Images<'a> {
    /// Of the groups as their records say. Restrict a record's replicas to read from those alone.
    pub fn new(disks: &'a Replicas, members: &'a Members) -> Images<'a> {
        let places = members.groups.len();
        let frames = (0..places).map(|place| members.strip.frames(place)).collect();
        Images { disks, members, frames, last: vec![None; places], bad: Mutex::default() }
    }

    /// Frames that were asked for, on disks that answered, and are not what they should be. Also those without which it went: whoever
    /// asked learns of them here alone.
    pub fn bad(&self) -> Vec<Finding> {
        self.bad.lock().iter().copied().collect()
    }

    /// A piece of the image at that place, from its own replicas.
    pub async fn own(&mut self, place: usize, range: Range<u64>) -> Result<Vec<u8>, NoImage> {
        let last = self.last[place].take();
        let (last, image) = self.read(place, range, last).await;
        self.last[place] = last;
        image
    }

    /// The same piece of the images at these places, read at once.
    pub async fn all(&mut self, places: &[usize], range: Range<u64>) -> Vec<Result<Vec<u8>, NoImage>> {
        let lent: Vec<Last> = places.iter().map(|place| self.last[*place].take()).collect();
        let this = &*self;
        let reads = places.iter().zip(lent).map(|(place, last)| this.read(*place, range.clone(), last));
        let mut images = Vec::with_capacity(places.len());
        for (place, (last, image)) in places.iter().zip(join_all(reads).await) {
            self.last[*place] = last;
            images.push(image);
        }
        images
    }

    /// A piece of the image at that place, computed from any k of the others, the nearest first.
    pub async fn decoded(&mut self, place: usize, range: Range<u64>) -> Result<Vec<u8>, NoImage> {
        let (k, all) = (self.members.strip.k(), self.members.groups.len());
        let mut others: Vec<usize> = (0..all).filter(|other| *other != place).collect();
        others.sort_by_key(|other| self.distance(*other));
        let mut others = others.into_iter();
        let mut pieces: Vec<Option<Vec<u8>>> = vec![None; all];
        let mut failed = None;
        loop {
            let missing = k - pieces.iter().flatten().count();
            if missing == 0 {
                break;
            }
            let next: Vec<usize> = others.by_ref().take(missing).collect();
            if next.len() < missing {
                let none = || NoImage::Bad("too few members of the strip are left".into());
                return Err(failed.unwrap_or_else(none));
            }
            for (other, image) in next.iter().zip(self.all(&next, range.clone()).await) {
                match image {
                    Ok(piece) => pieces[*other] = Some(piece),
                    Err(error) => {
                        failed = Some(match failed {
                            None => error,
                            Some(before) => error.or(before),
                        });
                    }
                }
            }
        }
        decode(k, all - k, pieces, place)
    }

    /// How far the nearest replica is: here, on a node that answers, elsewhere, nowhere.
    fn distance(&self, place: usize) -> u8 {
        let of = |listed: &Listed| match self.disks.get(listed.disk) {
            Some(disk) if disk.is_local() => 0,
            Some(disk) if !disk.is_silent() => 1,
            Some(_) => 2,
            None => 3,
        };
        self.members.groups[place].replicas.iter().map(of).min().unwrap_or(3)
    }

    async fn read(&self, place: usize, range: Range<u64>, mut last: Last) -> (Last, Result<Vec<u8>, NoImage>) {
        let mut image = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let (frames, is_data) = (&self.frames[place], place < self.members.strip.k());
        // Data stands in the image with its headers where it stands in the file; of parity the payloads stand there without.
        let skip = if is_data { 0 } else { HEADER_BYTES as u64 };
        let at = |index: usize| if is_data { frames[index].0 } else { FIRST + index as u64 * ROW_BYTES };
        let first = match is_data {
            true => frames.partition_point(|(offset, bytes)| offset + bytes <= range.start),
            false => usize::try_from((range.start - FIRST) / ROW_BYTES).unwrap_or(usize::MAX),
        };
        for (index, (offset, bytes)) in frames.iter().copied().enumerate().skip(first) {
            let (begin, end) = (at(index), at(index) + bytes - skip);
            if begin >= range.end {
                break;
            }
            let canonical = match last.take() {
                Some((of, canonical)) if of == offset => canonical,
                _ => match self.frame(place, index, offset, bytes).await {
                    Ok(canonical) => canonical,
                    Err(error) => return (None, Err(error)),
                },
            };
            let frame = &last.insert((offset, canonical)).1;
            let (from, to) = (begin.max(range.start), end.min(range.end));
            let source = &frame[(from - begin + skip) as usize..(to - begin + skip) as usize];
            image[(from - range.start) as usize..(to - range.start) as usize].copy_from_slice(source);
        }
        (last, Ok(image))
    }

    /// A frame as canonical bytes, from whichever replica has it.
    async fn frame(&self, place: usize, index: usize, offset: u64, bytes: u64) -> Result<Vec<u8>, NoImage> {
        let record = &self.members.groups[place];
        let mut listed: Vec<&Listed> = record.replicas.iter().filter(|listed| holds(listed, offset + bytes)).collect();
        listed.sort_by_key(|listed| self.disks.get(listed.disk).map(|disk| (disk.is_silent(), !disk.is_local())));
        let Some(group) = self.members.strip.group(place) else {
            return Err(NoImage::Bad("no such member of the strip".into()));
        };
        let mut failed: Option<NoImage> = None;
        for listed in listed {
            let address = FrameAddress { group, generation: listed.file_generation, offset };
            let error = match self.read_frame(listed, address).await {
                Ok(frame) if self.belongs(&frame, place, index, bytes) => {
                    let mut canonical = frame.canonical_header();
                    canonical.extend_from_slice(&frame.bytes()[HEADER_BYTES..]);
                    return Ok(canonical);
                }
                Ok(_) => {
                    self.note(listed, group, offset, Trouble::Damaged);
                    NoImage::Bad(format!("another frame stands in group {group} at {offset}"))
                }
                Err(error) => error,
            };
            failed = Some(match failed {
                None => error,
                Some(before) => error.or(before),
            });
        }
        Err(failed.unwrap_or_else(|| NoImage::Bad(format!("no replica of group {group} has what is at {offset}"))))
    }

    async fn read_frame(&self, listed: &Listed, address: FrameAddress) -> Result<Frame, NoImage> {
        let bad = |what: String| NoImage::Bad(format!("group {} at {}: {what}", address.group, address.offset));
        let disk: Replica = match self.disks.get(listed.disk) {
            Some(disk) => disk,
            None if self.disks.whereabouts(listed.disk) == Whereabouts::Lost => {
                return Err(bad("its disk is lost".into()));
            }
            None => return Err(NoImage::Away("it is not known where a disk is".into())),
        };
        let error = match disk.read_frame(address).await {
            Ok(frame) => return Ok(frame),
            Err(ReadError::Io(error)) if is_transient(&error) => return Err(NoImage::Short(error)),
            Err(ReadError::Io(error)) if is_away(&error) => return Err(NoImage::Away(error.to_string())),
            Err(error) => error,
        };
        let trouble = match error {
            ReadError::Missing => Trouble::Missing,
            ReadError::Damaged(_) | ReadError::Invalid => Trouble::Damaged,
            ReadError::Io(_) => Trouble::Unreadable,
        };
        self.note(listed, address.group, address.offset, trouble);
        Err(bad(error.to_string()))
    }

    fn note(&self, listed: &Listed, group: GroupId, offset: u64, trouble: Trouble) {
        self.bad.lock().insert(Finding { disk: listed.disk, group, offset, trouble });
    }

    /// Whether it is the frame of that place: as long as it was when it was frozen, and parity of this very strip.
    fn belongs(&self, frame: &Frame, place: usize, index: usize, bytes: u64) -> bool {
        if frame.bytes().len() as u64 != bytes {
            return false;
        }
        if place < self.members.strip.k() {
            return true;
        }
        let origin = frame.header().origin;
        origin.content == parity_content(self.members.id) && origin.index as usize == index
    }
}

fn holds(listed: &Listed, end: u64) -> bool {
    match listed.state {
        ReplicaState::Whole => true,
        ReplicaState::Holds(bytes) => end <= bytes,
        ReplicaState::Open | ReplicaState::NotAnswered => false,
    }
}

fn code(k: usize, m: usize) -> Result<Code, NoImage> {
    Code::new(k, m).map_err(|error| NoImage::Bad(error.to_string()))
}

fn decode(k: usize, m: usize, pieces: Vec<Option<Vec<u8>>>, place: usize) -> Result<Vec<u8>, NoImage> {
    let bad = |error: erasure::CodeError| NoImage::Bad(error.to_string());
    code(k, m)?.decode(pieces, &[place]).map_err(bad)?.pop().ok_or_else(|| NoImage::Bad("nothing was decoded".into()))
}
