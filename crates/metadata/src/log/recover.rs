//! Reading a log back: what it holds, where it ends, whether it is whole.
//!
//! Promises: the first invalid frame at or above everything known to be synced is the torn tail and is left out; below it is
//! damage, and then nothing is returned but which shards and indices are hurt (rule R14). Changes nothing on disk.
//! Refuses to know: what entries mean, how to repair.

use super::format::{
    BLOCK_BYTES, FIRST_FRAME, FRAME_HEADER_BYTES, FrameHeader, Item, LogEntry, Position, SegmentHeader,
};
use super::runs::Runs;
use super::segment::SegmentFile;
use super::state::LogState;
use crate::shard::ShardId;
use bytes::Bytes;
use env::buf::AlignedBuf;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;

/// Read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// What a log held when it was opened.
#[derive(Default, Debug)]
pub struct Recovered {
    /// Hard states, truncation marks, log set.
    pub state: LogState,
    /// Entries above the truncation marks, by ascending index without gaps.
    pub entries: BTreeMap<ShardId, VecDeque<LogEntry>>,
    /// Local records: shard, the index after which each belongs, content; in the order they were written.
    pub locals: Vec<(ShardId, u64, Bytes)>,
    /// An invalid frame above everything known to be synced was dropped here.
    pub torn: Option<Position>,
}

/// The log cannot be believed: something that was synced is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File or segment, and what is wrong.
    pub what: String,
    /// Shards with the first hurt index and the last, if anything after it is known.
    pub hurt: Vec<(ShardId, u64, Option<u64>)>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        for (shard, from, to) in &self.hurt {
            match to {
                Some(to) => write!(f, "; shard {} lacks entries {from} to {to}", shard.0)?,
                None => write!(f, "; shard {} lacks entries from {from} on", shard.0)?,
            }
        }
        Ok(())
    }
}

/// A segment in use, and its valid frames.
pub(super) struct Scan {
    pub(super) file: SegmentFile,
    pub(super) header: SegmentHeader,
    frames: Vec<Frame>,
    /// Blocks that the disk could not read.
    unreadable: Vec<u32>,
}

struct Frame {
    header: FrameHeader,
    items: Vec<Item>,
}

/// What the scans amount to.
pub(super) struct Verdict {
    pub(super) recovered: Recovered,
    /// End of the last valid frame.
    pub(super) end: Position,
    /// The last valid frame.
    pub(super) last: Position,
    /// The oldest segment that is needed.
    pub(super) oldest: u64,
    /// Highest index of an entry or local record, by segment and shard.
    pub(super) highest: BTreeMap<u64, BTreeMap<ShardId, u64>>,
    /// Where the entries are.
    pub(super) runs: Runs,
}

/// Reads all frames of a segment.
pub(super) fn scan(file: SegmentFile, header: SegmentHeader) -> io::Result<Scan> {
    let buf = AlignedBuf::new(WINDOW_BYTES.min(header.segment_bytes as usize));
    let mut window = Window { file: &file, buf, start: 0, unreadable: Vec::new() };
    let (mut frames, mut at) = (Vec::new(), FIRST_FRAME);
    while at < header.segment_bytes {
        match frame(&mut window, &header, at)? {
            Some(frame) => {
                at += frame.header.frame_bytes() as u32;
                frames.push(frame);
            }
            None => at += BLOCK_BYTES as u32,
        }
    }
    let unreadable = window.unreadable;
    Ok(Scan { file, header, frames, unreadable })
}

fn frame(window: &mut Window<'_>, segment: &SegmentHeader, at: u32) -> io::Result<Option<Frame>> {
    let Some(header) = FrameHeader::peek(window.get(at, BLOCK_BYTES)?) else { return Ok(None) };
    let room = (segment.segment_bytes - at) as usize;
    let here = Position { segment: segment.segment, offset: at };
    let fits = header.payload_bytes as usize <= room.saturating_sub(FRAME_HEADER_BYTES);
    if header.at != here || header.log != segment.log || !fits {
        return Ok(None);
    }
    let bytes = window.get(at, header.frame_bytes())?;
    if !header.proves(bytes) {
        return Ok(None);
    }
    let payload = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.payload_bytes as usize];
    let items = Item::decode_all(Bytes::copy_from_slice(payload), header.items);
    Ok(items.map(|items| Frame { header, items }))
}

/// A stretch of the file in memory.
struct Window<'a> {
    file: &'a SegmentFile,
    buf: AlignedBuf,
    start: u64,
    unreadable: Vec<u32>,
}

impl Window<'_> {
    fn get(&mut self, at: u32, len: usize) -> io::Result<&[u8]> {
        let at = u64::from(at);
        let inside = at >= self.start && at + len as u64 <= self.start + self.buf.len() as u64;
        if !inside {
            self.load(at, len)?;
        }
        let from = (at - self.start) as usize;
        Ok(&self.buf[from..from + len])
    }

    fn load(&mut self, at: u64, len: usize) -> io::Result<()> {
        if len > self.buf.capacity() {
            self.buf = AlignedBuf::new(len);
        }
        self.start = at;
        let capacity = self.buf.capacity();
        self.buf.set_len_for_overwrite(capacity);
        self.buf.fill(0);
        if self.file.file.read_at(&mut self.buf, at).is_ok() {
            return Ok(());
        }
        // Block by block: what cannot be read is zeros, which is never a frame, and remembered.
        for block in 0..capacity / BLOCK_BYTES {
            let bytes = &mut self.buf[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            if self.file.file.read_at(bytes, at + (block * BLOCK_BYTES) as u64).is_err() {
                bytes.fill(0);
                self.unreadable.push((at + (block * BLOCK_BYTES) as u64) as u32);
            }
        }
        Ok(())
    }
}

/// Judges the segments in use, given in order of their numbers.
pub(super) fn judge(scans: &mut [Scan]) -> Result<Verdict, Damage> {
    let oldest = oldest_needed(scans);
    let first = scans.iter().position(|scan| scan.header.segment >= oldest).unwrap_or(0);
    let needed = &mut scans[first..];
    let mut walk = Walk::default();
    for (expected, index) in (oldest..).zip(0..needed.len()) {
        let header = needed[index].header;
        if header.segment != expected {
            return Err(walk.damage(format!("segment {expected} is missing"), &needed[index..], FIRST_FRAME));
        }
        let next = needed.get(index + 1).map(|next| next.header);
        walk.segment(&needed[index..], next)?;
        // Taken only now: a report of damage looks at them.
        for frame in std::mem::take(&mut needed[index].frames) {
            walk.take(frame);
        }
    }
    if let Some(next) = walk.ended {
        return Err(walk.damage(format!("segment {next} is missing"), &[], 0));
    }
    let Walk { recovered, last, highest, end, runs, .. } = walk;
    Ok(Verdict { recovered, end, last, oldest, highest, runs })
}

/// The largest that any header or frame says. Frames behind a gap do not count: they may not have been synced, and what they
/// allow to go has not gone then.
fn oldest_needed(scans: &[Scan]) -> u64 {
    let frames = scans.iter().flat_map(|scan| {
        let mut at = FIRST_FRAME;
        scan.frames.iter().take_while(move |frame| {
            let follows = frame.header.at.offset == at;
            at += frame.header.frame_bytes() as u32;
            follows
        })
    });
    let in_frames = frames.flat_map(|frame| &frame.items).filter_map(|item| match item {
        Item::Oldest(segment) => Some(*segment),
        _ => None,
    });
    scans.iter().map(|scan| scan.header.oldest).chain(in_frames).max().unwrap_or(0)
}

/// The way through the segments.
#[derive(Default)]
struct Walk {
    recovered: Recovered,
    /// The last valid frame; default before the first.
    last: Position,
    /// Where valid frames end so far.
    end: Position,
    /// Where the segment being taken ends.
    limit: u32,
    /// The segment that the last frame says is next, if it is the last frame of all.
    ended: Option<u64>,
    highest: BTreeMap<u64, BTreeMap<ShardId, u64>>,
    runs: Runs,
}

impl Walk {
    /// Finds the end of the first of `rest`: what the next segment's header says, or the first invalid frame.
    fn segment(&mut self, rest: &[Scan], next: Option<SegmentHeader>) -> Result<(), Damage> {
        let scan = &rest[0];
        let segment = scan.header.segment;
        let (mut at, mut previous) = (FIRST_FRAME, self.last);
        for frame in &scan.frames {
            let first = previous == Position::default();
            if frame.header.at.offset != at || (frame.header.previous != previous && !first) {
                break;
            }
            at += frame.header.frame_bytes() as u32;
            previous = frame.header.at;
        }
        let required = match next {
            Some(next) => next.previous_end.offset,
            None => {
                let marks = scan.frames.iter().map(|frame| frame.header.synced);
                marks.filter(|mark| mark.segment == segment).map(|mark| mark.offset).max().unwrap_or(0)
            }
        };
        let end = Position { segment, offset: at };
        if at < required {
            return Err(self.damage(format!("segment {segment} is damaged at byte {at}, which was synced"), rest, at));
        }
        if next.is_none() && scan.unreadable.contains(&at) {
            return Err(self.damage(format!("segment {segment} cannot be read at byte {at}"), rest, at));
        }
        if next.is_none() && (scan.frames.last().is_some_and(|frame| frame.header.at.offset > at)) {
            self.recovered.torn = Some(end);
        }
        self.limit = next.map_or(at, |next| next.previous_end.offset.min(at));
        self.end = Position { segment, offset: self.limit };
        Ok(())
    }

    fn take(&mut self, frame: Frame) {
        let at = frame.header.at;
        // The end mark lies beyond the limit that the next header gives; without a next header it is the last frame.
        if at.offset >= self.limit {
            return;
        }
        self.last = at;
        self.ended = None;
        let frame_bytes = frame.header.frame_bytes() as u32;
        for item in frame.items {
            self.runs.note(&item, at, frame_bytes);
            self.absorb(at.segment, item);
        }
    }

    fn absorb(&mut self, segment: u64, item: Item) {
        self.recovered.state.absorb(&item);
        match item {
            Item::Entry(entry) => {
                let entries = self.recovered.entries.entry(entry.shard).or_default();
                let (shard, index) = (entry.shard, entry.index);
                let replaces = entries.back().is_some_and(|last| last.index >= index);
                while entries.back().is_some_and(|last| last.index >= index) {
                    entries.pop_back();
                }
                entries.push_back(entry);
                if replaces {
                    // Those keep their segments no longer.
                    let highest = self.highest.values_mut().filter_map(|highest| highest.get_mut(&shard));
                    highest.for_each(|highest| *highest = (*highest).min(index.saturating_sub(1)));
                }
                self.note(segment, shard, index);
            }
            Item::Local(shard, after, data) => {
                self.note(segment, shard, after);
                self.recovered.locals.push((shard, after, data));
            }
            Item::Truncated(shard, index, _) => {
                if let Some(entries) = self.recovered.entries.get_mut(&shard) {
                    entries.retain(|entry| entry.index > index);
                }
                self.recovered.locals.retain(|(of, after, _)| *of != shard || *after > index);
                for highest in self.highest.values_mut() {
                    if highest.get(&shard).is_some_and(|highest| *highest <= index) {
                        highest.remove(&shard);
                    }
                }
            }
            Item::End(next) => self.ended = Some(next),
            Item::HardState(..) | Item::Oldest(_) | Item::LogSet(_) => {}
        }
    }

    fn note(&mut self, segment: u64, shard: ShardId, index: u64) {
        let highest = self.highest.entry(segment).or_default().entry(shard).or_default();
        *highest = (*highest).max(index);
    }

    /// What lies between the last entries taken and the first valid ones behind byte `at` of the first of `rest`.
    fn damage(&self, what: String, rest: &[Scan], at: u32) -> Damage {
        let mut before: BTreeMap<ShardId, u64> = BTreeMap::new();
        let mut after: BTreeMap<ShardId, u64> = BTreeMap::new();
        for entry in self.recovered.entries.values().flatten() {
            before.insert(entry.shard, entry.index);
        }
        let first = rest.first().map(|scan| scan.header.segment);
        for frame in rest.iter().flat_map(|scan| &scan.frames) {
            let behind = Some(frame.header.at.segment) != first || frame.header.at.offset >= at;
            for item in &frame.items {
                match item {
                    Item::Entry(entry) if behind => drop(after.entry(entry.shard).or_insert(entry.index)),
                    Item::Entry(entry) => drop(before.insert(entry.shard, entry.index)),
                    _ => {}
                }
            }
        }
        let shards: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
        let range = |shard: ShardId| {
            let truncated = self.recovered.state.truncated.get(&shard).map_or(0, |(index, _)| *index);
            let from = before.get(&shard).map_or(truncated, |last| *last.max(&truncated)) + 1;
            (shard, from, after.get(&shard).map(|next| next - 1))
        };
        let hurt = shards.into_iter().map(range).filter(|(_, from, to)| to.is_none_or(|to| *from <= to)).collect();
        Damage { what, hurt }
    }
}
