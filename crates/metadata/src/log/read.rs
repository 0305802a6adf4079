//! Entries of long ago, read from the log again: for members of a group that are behind.
//!
//! Promises: an entry is given only from a frame that proves whole, at its place, and of this log. Refuses to know: who asks.

use super::Log;
use super::format::{FRAME_HEADER_BYTES, FrameHeader, Item, LogEntry, Position};
use super::runs::Run;
use crate::shard::ShardId;
use bytes::Bytes;
use env::buf::AlignedBuf;
use std::io;

impl Log {
    /// Entries of a shard from `low` on, below `high`, one at least and no more than about `max_bytes` of them, read from the
    /// disk and proved again. Empty: the log does not hold that one.
    pub fn read(&self, shard: ShardId, low: u64, high: u64, max_bytes: u64) -> io::Result<Vec<LogEntry>> {
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, low);
        while next < high && bytes < max_bytes {
            let Some(run) = self.runs.find(shard, next) else { break };
            let entries = self.read_run(shard, run, next)?;
            bytes += entries.iter().map(|entry| entry.data.len() as u64).sum::<u64>();
            next = run.last + 1;
            found.extend(entries.into_iter().filter(|entry| entry.index < high));
        }
        Ok(found)
    }

    fn read_run(&self, shard: ShardId, run: Run, low: u64) -> io::Result<Vec<LogEntry>> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("the frame at {:?} is damaged", run.at));
        let segment = self.segments.iter().find(|segment| segment.number == run.at.segment).ok_or_else(damaged)?;
        let mut frame = AlignedBuf::zeroed(run.frame_bytes as usize);
        segment.file.file.read_at(&mut frame, u64::from(run.at.offset))?;
        let header = FrameHeader::peek(&frame).filter(|header| header.at == run.at && header.log == self.id);
        let header = header.filter(|header| header.proves(&frame)).ok_or_else(damaged)?;
        let payload = &frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.payload_bytes as usize];
        let items = Item::decode_all(Bytes::copy_from_slice(payload), header.items).ok_or_else(damaged)?;
        let wanted = low.max(run.first)..=run.last;
        let entries = items.into_iter().filter_map(|item| match item {
            Item::Entry(entry) if entry.shard == shard && wanted.contains(&entry.index) => Some(entry),
            _ => None,
        });
        let entries: Vec<LogEntry> = entries.collect();
        if entries.iter().map(|entry| entry.index).ne(wanted) { Err(damaged()) } else { Ok(entries) }
    }

    /// First entry of the shard within the last `bytes` of the log.
    pub fn first_within(&self, shard: ShardId, bytes: u64) -> Option<u64> {
        let (mut left, mut end) = (bytes, u64::from(self.at.offset));
        for segment in self.segments.iter().rev() {
            if left <= end {
                let from = Position { segment: segment.number, offset: (end - left) as u32 };
                return self.runs.first_behind(shard, from);
            }
            left -= end;
            end = u64::from(self.config.segment_bytes);
        }
        self.runs.first_behind(shard, Position::default())
    }
}
