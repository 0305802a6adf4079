//! The node's own write-ahead log: one for all shards, in segments that are preallocated and used again.
//!
//! Promises: what [`Log::append`] answered is durable, all of it or (after a crash before the answer) none of it; one write and
//! one flush an append. After a crash the log is what was acknowledged, and perhaps the last append. Damage to what was known
//! to be synced is told from a torn tail, and then the log does not open. A failed write or sync is final (rule R3).
//! Refuses to know: what entries mean; when they are applied.

pub mod format;
mod read;
mod recover;
mod runs;
mod segment;
mod set;
mod state;

pub use recover::{Damage, Recovered};
pub(crate) use set::append_in_parts;
pub use set::{LogSet, OpenedSet, SetError};
pub use state::LogState;

use crate::dirs::create_durable;
use crate::shard::ShardId;
use env::buf::AlignedBuf;
use env::disk::{Disk, DiskFile, is_transient};
use format::{BLOCK_BYTES, FIRST_FRAME, FRAME_HEADER_BYTES, FrameHeader, Item, Position, SegmentHeader, frame_bytes};
use recover::Scan;
use runs::Runs;
use segment::SegmentFile;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Ending of the names of segment files.
const EXTENSION: &str = ".seg";
/// Unused segment files wanted before a roll: one for it, one that only truncation may take, so that a log on a full disk can
/// always give space back, and one that only a start may take.
const SPARES: usize = 3;
/// Unused segment files kept: about what lies between two flushes, so that in the long run no file is made or removed.
const SPARES_MAX: usize = 6;
/// Kept free at the end of each segment for the frame that says which one is next.
const END_BYTES: u32 = BLOCK_BYTES as u32;

/// Where and how a log is kept.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Directory on it.
    pub dir: String,
    /// Bytes of a segment, a multiple of 4 KiB. An existing log keeps what it was made with.
    pub segment_bytes: u32,
}

/// The log did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no log here.
    #[error("no log in {0}")]
    Missing(String),
    /// It is damaged or of another format; it was not changed.
    #[error("log {dir}: {damage}")]
    Damaged {
        /// Directory.
        dir: String,
        /// What is hurt.
        damage: Damage,
    },
    /// The disk failed.
    #[error("log: {0}")]
    Io(#[from] io::Error),
}

/// An append did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is no room for another segment. Nothing was written; later appends may succeed.
    #[error("no space for the log")]
    NoSpace,
    /// The process lacks descriptors or memory for another segment. Nothing was written; later appends may succeed.
    #[error("too few file descriptors or too little memory for the log")]
    Short,
    /// More than a segment holds. Nothing was written.
    #[error("larger than a segment of the log")]
    TooLarge,
    /// A write or sync failed, now or before: whether the append is durable is not known, and no later one will be.
    #[error("the log failed: {0}")]
    Failed(String),
}

/// Counters of one log since it was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct LogStats {
    /// Appends.
    pub appends: u64,
    /// Device flushes.
    pub syncs: u64,
    /// Bytes written, padding included.
    pub bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Bytes of the segments in use, up to the end.
    pub live_bytes: u64,
}

/// A segment in use.
struct Segment {
    number: u64,
    file: SegmentFile,
    /// Highest index of an entry or local record in it that was not replaced.
    highest: BTreeMap<ShardId, u64>,
}

impl Segment {
    /// Entries from `index` on are replaced: they keep the segment no longer.
    fn forget_from(&mut self, shard: ShardId, index: u64) {
        if let Some(highest) = self.highest.get_mut(&shard) {
            *highest = (*highest).min(index.saturating_sub(1));
        }
    }

    /// Entries up to `index` are truncated.
    fn forget_through(&mut self, shard: ShardId, index: u64) {
        if self.highest.get(&shard).is_some_and(|highest| *highest <= index) {
            self.highest.remove(&shard);
        }
    }
}

/// One folder's log. One owner.
pub struct Log {
    config: LogConfig,
    id: u64,
    /// In use, oldest first; the last is written to.
    segments: VecDeque<Segment>,
    spares: Vec<SegmentFile>,
    next_name: u64,
    state: LogState,
    /// Where the entries are.
    runs: Runs,
    /// Where the next frame goes.
    at: Position,
    /// The last frame.
    previous: Position,
    /// Everything before is durable.
    synced: Position,
    buffer: AlignedBuf,
    failed: Option<String>,
    stats: LogStats,
}

impl Log {
    /// Makes a log with this id in an empty directory (or one where making it was interrupted). Durable when it returns.
    pub fn create(config: LogConfig, id: u64) -> Result<Log, OpenError> {
        create_durable(&*config.disk, &config.dir)?;
        for name in segment_names(&config)? {
            config.disk.remove(&format!("{}/{name}", config.dir))?;
        }
        let mut log = Log::empty(config, id);
        // One more than a roll wants: it is taken at once, and making files is slow.
        while log.spares.len() <= SPARES {
            log.create_spare()?;
        }
        log.begin_segment(1, Position::default())?;
        Ok(log)
    }

    /// Opens the log and reads it back. What it returns is durable: it may be relied on at once.
    pub fn open(mut config: LogConfig) -> Result<(Log, Recovered), OpenError> {
        let damaged = |damage| OpenError::Damaged { dir: config.dir.clone(), damage };
        let (files, spares) = read_headers(&config)?;
        let Some(newest) = files.keys().next_back().copied() else {
            return Err(OpenError::Missing(config.dir));
        };
        let mut scans = Vec::new();
        for (file, header) in files.into_values() {
            scans.push(recover::scan(file, header)?);
        }
        let verdict = recover::judge(&mut scans).map_err(damaged)?;
        // What was read may still be on its way to the disk if the process died and the machine did not.
        for scan in scans.iter().rev().take(2) {
            scan.file.file.sync_data()?;
        }
        let header = scans[scans.len() - 1].header;
        config.segment_bytes = header.segment_bytes;
        let mut log = Log::empty(config, header.log);
        log.spares = spares;
        log.state = verdict.recovered.state.clone();
        log.runs = verdict.runs;
        log.previous = verdict.last;
        log.adopt(scans, verdict.oldest, verdict.highest);
        log.next_name = log.highest_name()? + 1;
        log.at = verdict.end;
        // Never behind a tail that may be torn: the next frame goes to a fresh segment.
        if log.spares.is_empty() {
            // The header that gives it the new number also says that the old one is not needed, so it may be taken at once.
            match log.covered() {
                0 => log.create_spare()?,
                _ => log.spares.extend(log.segments.pop_front().map(|segment| segment.file)),
            }
        }
        log.begin_segment(newest + 1, verdict.end)?;
        log.retire()?;
        Ok((log, verdict.recovered))
    }

    fn empty(config: LogConfig, id: u64) -> Log {
        Log {
            config,
            id,
            segments: VecDeque::new(),
            spares: Vec::new(),
            next_name: 0,
            state: LogState::default(),
            runs: Runs::default(),
            at: Position::default(),
            previous: Position::default(),
            synced: Position::default(),
            buffer: AlignedBuf::new(256 << 10),
            failed: None,
            stats: LogStats::default(),
        }
    }

    fn adopt(&mut self, scans: Vec<Scan>, oldest: u64, mut highest: BTreeMap<u64, BTreeMap<ShardId, u64>>) {
        for Scan { file, header, .. } in scans {
            if header.segment < oldest {
                self.spares.push(file);
            } else {
                let highest = highest.remove(&header.segment).unwrap_or_default();
                self.segments.push_back(Segment { number: header.segment, file, highest });
            }
        }
    }

    /// Its id, the folder's in the log set.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The small part of what it holds.
    pub fn state(&self) -> &LogState {
        &self.state
    }

    /// Most bytes of items that one append takes.
    pub fn append_max_bytes(&self) -> usize {
        let room = self.config.segment_bytes - FIRST_FRAME - END_BYTES;
        let state: usize = self.state.items().iter().map(Item::encoded_bytes).sum();
        (room as usize).saturating_sub(frame_bytes(state) + FRAME_HEADER_BYTES)
    }

    /// Makes room for appends of `bytes` of items in all, so that they cannot fail for want of space.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), LogError> {
        self.check()?;
        if bytes > self.append_max_bytes() {
            return Err(LogError::TooLarge);
        }
        if !self.fits(bytes) {
            self.refill(SPARES)?;
        }
        Ok(())
    }

    /// Appends items as one: durable together when it returns.
    pub fn append(&mut self, items: &[Item]) -> Result<(), LogError> {
        self.reserve(items.iter().map(Item::encoded_bytes).sum())?;
        self.put(items)?;
        self.sync()
    }

    /// Writes what [`Log::append`] writes, without making it durable; for logs in several folders whose flushes overlap.
    fn put(&mut self, items: &[Item]) -> Result<(), LogError> {
        self.check()?;
        let bytes = items.iter().map(Item::encoded_bytes).sum();
        if bytes > self.append_max_bytes() {
            return Err(LogError::TooLarge);
        }
        self.make_room(bytes)?;
        let done = self.write_frame(items);
        self.guard(done)?;
        self.stats.appends += 1;
        let (at, frame) = (self.previous, frame_bytes(bytes) as u32);
        for item in items {
            self.note(item);
            self.runs.note(item, at, frame);
        }
        Ok(())
    }

    /// Makes everything written durable.
    fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        let done = self.sync_current();
        self.guard(done)
    }

    /// The file whose sync makes everything written durable, to be synced by another thread while this log is not touched.
    fn to_sync(&self) -> Option<Arc<dyn DiskFile>> {
        self.segments.back().map(|segment| segment.file.file.clone())
    }

    /// Takes the result of syncing [`Log::to_sync`].
    fn synced(&mut self, result: io::Result<()>) -> Result<(), LogError> {
        self.stats.syncs += 1;
        self.guard(result)?;
        self.synced = self.at;
        Ok(())
    }

    /// The log of each shard begins after these indices (of these terms) from now on; segments that only hold older entries
    /// are used again. Durable before any of them is touched.
    pub fn truncate(&mut self, marks: &[(ShardId, u64, u64)]) -> Result<(), LogError> {
        let marks = marks.iter().map(|(shard, index, term)| Item::Truncated(*shard, *index, *term));
        let mut items: Vec<Item> = marks.collect();
        self.check()?;
        // First, so that the segment that is full may be among those that go.
        self.make_room(items.iter().map(Item::encoded_bytes).sum::<usize>() + Item::Oldest(0).encoded_bytes())?;
        items.iter().for_each(|item| self.state.absorb(item));
        let gone = self.covered();
        items.push(Item::Oldest(self.segments[gone].number));
        self.put(&items)?;
        self.sync()?;
        for _ in 0..gone {
            self.spares.extend(self.segments.pop_front().map(|segment| segment.file));
        }
        let done = self.retire();
        self.guard(done)
    }

    /// Writes how far the log is durable, so that damage below can be told from a torn tail: at rest and before closing.
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.append(&[])
    }

    /// Counters.
    pub fn stats(&self) -> LogStats {
        let segments = self.segments.len() as u64;
        let whole = segments.saturating_sub(1) * u64::from(self.config.segment_bytes);
        LogStats { segments, live_bytes: whole + u64::from(self.at.offset), ..self.stats }
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn check(&self) -> Result<(), LogError> {
        self.failed.clone().map_or(Ok(()), |failed| Err(LogError::Failed(failed)))
    }

    fn guard<T>(&mut self, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|e| {
            let text = format!("{}: {e}", self.config.dir);
            tracing::error!(error = %text, "the log failed; this folder acknowledges nothing any more");
            self.failed = Some(text.clone());
            LogError::Failed(text)
        })
    }

    fn note(&mut self, item: &Item) {
        self.state.absorb(item);
        match item {
            Item::Entry(entry) => {
                if self.runs.last(entry.shard) >= entry.index {
                    self.segments.iter_mut().for_each(|segment| segment.forget_from(entry.shard, entry.index));
                }
                self.needs_current(entry.shard, entry.index);
            }
            Item::Local(shard, after, _) => self.needs_current(*shard, *after),
            Item::Truncated(shard, index, _) => {
                self.segments.iter_mut().for_each(|segment| segment.forget_through(*shard, *index));
            }
            _ => {}
        }
    }

    /// The segment being written holds this index.
    fn needs_current(&mut self, shard: ShardId, index: u64) {
        let Some(current) = self.segments.back_mut() else { return };
        let highest = current.highest.entry(shard).or_default();
        *highest = (*highest).max(index);
    }

    fn fits(&self, bytes: usize) -> bool {
        let end = (self.config.segment_bytes - END_BYTES) as usize;
        self.at.offset as usize + frame_bytes(bytes) <= end
    }

    /// Goes on in the next segment if this one has no room for a frame with `bytes` of items.
    fn make_room(&mut self, bytes: usize) -> Result<(), LogError> {
        if self.fits(bytes) {
            return Ok(());
        }
        self.refill(1)?;
        let done = self.roll();
        self.guard(done)
    }

    /// How many of the oldest segments hold nothing that is needed. The one being written to is not among them.
    fn covered(&self) -> usize {
        let candidates = self.segments.iter().take(self.segments.len().saturating_sub(1));
        candidates.take_while(|segment| self.state.covers(&segment.highest)).count()
    }

    /// Sees that there are `count` spares. Before anything is written, so a full disk is only an answer.
    fn refill(&mut self, count: usize) -> Result<(), LogError> {
        while self.spares.len() < count {
            match self.create_spare() {
                Err(e) if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                    return Err(LogError::NoSpace);
                }
                Err(e) if is_transient(&e) => return Err(LogError::Short),
                done => self.guard(done)?,
            }
        }
        Ok(())
    }

    fn create_spare(&mut self) -> io::Result<()> {
        let name = format!("{:08}{EXTENSION}", self.next_name);
        let LogConfig { disk, dir, segment_bytes } = &self.config;
        let spare = SegmentFile::create(&**disk, dir, &name, self.id, *segment_bytes)?;
        self.next_name += 1;
        self.spares.push(spare);
        Ok(())
    }

    /// Removes what is spare beyond [`SPARES_MAX`].
    fn retire(&mut self) -> io::Result<()> {
        while self.spares.len() > SPARES_MAX {
            let Some(spare) = self.spares.pop() else { break };
            self.config.disk.remove(&format!("{}/{}", self.config.dir, spare.name))?;
        }
        Ok(())
    }

    /// Goes on in the next segment. The order matters: its header, then the word in the old one that it exists, then frames.
    fn roll(&mut self) -> io::Result<()> {
        let (old_end, next) = (self.at, self.at.segment + 1);
        if self.synced != self.at {
            self.sync_current()?;
        }
        let old = self.segments.len() - 1;
        let spare = self.take_spare()?;
        spare.begin(&self.header(next, old_end))?;
        let previous = self.previous;
        self.write_frame(&[Item::End(next)])?;
        self.segments[old].file.file.sync_data()?;
        self.stats.syncs += 3;
        // The mark is not part of the chain: a start that does not find the new segment's frames ignores it.
        self.previous = previous;
        self.enter(spare, next, old_end)
    }

    /// Begins a segment behind `end`, to which nothing is added.
    fn begin_segment(&mut self, number: u64, end: Position) -> io::Result<()> {
        let spare = self.take_spare()?;
        spare.begin(&self.header(number, end))?;
        self.stats.syncs += 2;
        self.enter(spare, number, end)?;
        self.sync_current()
    }

    fn enter(&mut self, file: SegmentFile, number: u64, end: Position) -> io::Result<()> {
        self.segments.push_back(Segment { number, file, highest: BTreeMap::new() });
        self.at = Position { segment: number, offset: FIRST_FRAME };
        self.synced = end;
        let state = self.state.items();
        self.write_frame(&state)
    }

    fn header(&self, segment: u64, previous_end: Position) -> SegmentHeader {
        let oldest = self.segments.front().map_or(segment, |oldest| oldest.number);
        SegmentHeader { segment_bytes: self.config.segment_bytes, log: self.id, segment, oldest, previous_end }
    }

    fn take_spare(&mut self) -> io::Result<SegmentFile> {
        self.spares.pop().ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "no segment file is ready"))
    }

    fn write_frame(&mut self, items: &[Item]) -> io::Result<()> {
        let payload_bytes: usize = items.iter().map(Item::encoded_bytes).sum();
        let total = frame_bytes(payload_bytes);
        if self.buffer.capacity() < total {
            self.buffer = AlignedBuf::new(total.next_power_of_two());
        }
        let end = FRAME_HEADER_BYTES + payload_bytes;
        // What the last frame left is overwritten by header, items and padding.
        self.buffer.set_len_for_overwrite(total);
        self.buffer[end..].fill(0);
        let mut payload = &mut self.buffer[FRAME_HEADER_BYTES..end];
        items.iter().for_each(|item| item.encode(&mut payload));
        assert!(payload.is_empty(), "an item is shorter than it says");
        let header = FrameHeader {
            at: self.at,
            previous: self.previous,
            synced: self.synced,
            log: self.id,
            payload_bytes: payload_bytes as u32,
            items: items.len() as u32,
        };
        let bytes = header.encode(&self.buffer[FRAME_HEADER_BYTES..end]);
        self.buffer[..FRAME_HEADER_BYTES].copy_from_slice(&bytes);
        self.current()?.file.write_at(&self.buffer, u64::from(self.at.offset))?;
        self.stats.bytes += total as u64;
        self.previous = self.at;
        self.at.offset += total as u32;
        Ok(())
    }

    fn sync_current(&mut self) -> io::Result<()> {
        self.current()?.file.sync_data()?;
        self.stats.syncs += 1;
        self.synced = self.at;
        Ok(())
    }

    fn current(&self) -> io::Result<&SegmentFile> {
        let current = self.segments.back().ok_or_else(|| io::Error::other("the log has no segment"))?;
        Ok(&current.file)
    }

    fn highest_name(&self) -> io::Result<u64> {
        let names = segment_names(&self.config)?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(EXTENSION)?.parse().ok()).max().unwrap_or(0))
    }
}

type Headers = (BTreeMap<u64, (SegmentFile, SegmentHeader)>, Vec<SegmentFile>);

/// The segment files by number, and those without one.
fn read_headers(config: &LogConfig) -> Result<Headers, OpenError> {
    let damaged = |what| OpenError::Damaged { dir: config.dir.clone(), damage: Damage { what, hurt: Vec::new() } };
    let names = match segment_names(config) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing(config.dir.clone())),
        names => names?,
    };
    let (mut files, mut spares, mut log) = (BTreeMap::new(), Vec::new(), None);
    for name in names {
        let file = SegmentFile::open(&*config.disk, &config.dir, &name)?;
        let header = file.header()?.map_err(|what| damaged(format!("segment file {name}: {what}")))?;
        if *log.get_or_insert(header.log) != header.log || file.file.len()? != u64::from(header.segment_bytes) {
            return Err(damaged(format!("segment file {name} is of another log or not of its length")));
        }
        if header.segment == 0 {
            spares.push(file);
        } else if let Some((other, _)) = files.insert(header.segment, (file, header)) {
            return Err(damaged(format!("segment files {name} and {} have the same number", other.name)));
        }
    }
    Ok((files, spares))
}

fn segment_names(config: &LogConfig) -> io::Result<Vec<String>> {
    let names = config.disk.list(&config.dir)?;
    Ok(names.into_iter().filter(|name| name.ends_with(EXTENSION)).collect())
}
