//! The tree in memory: the twin of [`super::LsmTree`] for simulation, durable by whole checkpoints on an [`env::disk::Disk`].
//!
//! Promises: those of [`Tree`]. A checkpoint is written to a new file, synced, renamed, and its name synced; opening takes the
//! newest one and refuses a damaged one. Refuses to know: how large a store may be, for it is all in memory.

use super::{Direction, Pin, Pins, Row, Rows, Sequence, Tree, TreeError, TreeStats, WriteBatch};
use crate::dirs::create_durable;
use bytes::Bytes;
use env::disk::{Caching, Disk, Open};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const MAGIC: &[u8; 8] = b"ASHLCKP1";
/// Rows that a range fetches under one lock.
const CHUNK_ROWS: usize = 64;

/// The versions of one key, oldest first.
type Versions = Vec<(Sequence, Option<Bytes>)>;
type Map = BTreeMap<Bytes, Versions>;

/// The tree in memory.
pub struct MemTree {
    rows: Arc<RwLock<Map>>,
    disk: Arc<dyn Disk>,
    dir: String,
    pins: Pins,
    written: AtomicU64,
    unsealed: AtomicU64,
    sealed: Mutex<Option<Pin>>,
    /// One flush at a time.
    flushing: Mutex<()>,
    failed: OnceLock<TreeError>,
}

impl MemTree {
    /// Opens the newest checkpoint in `dir` of `disk`, or begins empty.
    pub fn open(disk: Arc<dyn Disk>, dir: &str) -> Result<MemTree, TreeError> {
        create_durable(&*disk, dir).map_err(io_error)?;
        let newest = checkpoints(&*disk, dir)?.pop();
        let (at, rows) = match newest {
            Some((at, path)) => (at, load(&*disk, &path)?),
            None => (0, Map::new()),
        };
        Ok(MemTree {
            rows: Arc::new(RwLock::new(rows)),
            disk,
            dir: dir.to_owned(),
            pins: Pins::new(at),
            written: AtomicU64::new(at),
            unsealed: AtomicU64::new(0),
            sealed: Mutex::new(None),
            flushing: Mutex::new(()),
            failed: OnceLock::new(),
        })
    }

    fn check(&self) -> Result<(), TreeError> {
        self.failed.get().map_or(Ok(()), |failed| Err(failed.clone()))
    }

    /// Drops keys that were removed before anything a reader can look at.
    fn forget_removed(&self) {
        let watermark = self.pins.watermark();
        let gone = |versions: &Versions| versions.last().is_some_and(|(at, value)| *at <= watermark && value.is_none());
        self.rows.write().retain(|_, versions| !gone(versions));
    }

    fn write_checkpoint(&self, at: Sequence) -> Result<(), TreeError> {
        let older = checkpoints(&*self.disk, &self.dir)?;
        if older.last().is_some_and(|(newest, _)| *newest >= at) {
            return Ok(());
        }
        self.forget_removed();
        let bytes = encode(&self.rows.read(), at);
        let (temporary, path) = (format!("{}/new-checkpoint", self.dir), format!("{}/{at:016x}.checkpoint", self.dir));
        // Left by a crash; it was never renamed, so nobody relies on it.
        match self.disk.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error(e)),
            _ => {}
        }
        let file = self.disk.open(&temporary, Open::CreateNew, Caching::Buffered).map_err(io_error)?;
        file.write_at(&bytes, 0).map_err(io_error)?;
        file.sync_data().map_err(io_error)?;
        self.disk.rename(&temporary, &path).map_err(io_error)?;
        self.disk.sync_dir(&self.dir).map_err(io_error)?;
        for (_, path) in older {
            self.disk.remove(&path).map_err(io_error)?;
        }
        Ok(())
    }
}

impl Tree for MemTree {
    fn get_at(&self, key: &[u8], at: Sequence) -> Result<Option<Bytes>, TreeError> {
        Ok(self.rows.read().get(key).and_then(|versions| visible(versions, at)))
    }

    fn range_at(&self, from: &[u8], to: &[u8], at: Sequence, direction: Direction) -> Rows<'static> {
        let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        Box::new(Walk { rows: self.rows.clone(), bounds: Some(bounds), at, direction, chunk: VecDeque::new() })
    }

    fn write(&self, batch: WriteBatch) -> Result<Sequence, TreeError> {
        self.check()?;
        let at = self.written.load(Ordering::Relaxed) + 1;
        let watermark = self.pins.watermark();
        let mut rows = self.rows.write();
        for (key, value) in batch.rows {
            let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
            self.unsealed.fetch_add(bytes as u64, Ordering::Relaxed);
            let versions = rows.entry(key.into()).or_default();
            versions.retain(|(sequence, _)| *sequence != at);
            // What no reader can look at any more: all but the newest at or below the watermark.
            let old = versions.partition_point(|(sequence, _)| *sequence <= watermark);
            versions.drain(..old.saturating_sub(1));
            versions.push((at, value));
        }
        self.written.store(at, Ordering::Relaxed);
        Ok(at)
    }

    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn unsealed_bytes(&self) -> u64 {
        self.unsealed.load(Ordering::Relaxed)
    }

    fn seal(&self) {
        self.unsealed.store(0, Ordering::Relaxed);
        let pin = self.pins.pin();
        drop(self.sealed.lock().replace(pin));
    }

    fn flush(&self) -> Result<(), TreeError> {
        self.check()?;
        let _one = self.flushing.lock();
        let Some(pin) = self.sealed.lock().take() else { return Ok(()) };
        self.write_checkpoint(pin.at()).map_err(|e| self.failed.get_or_init(|| e).clone())
    }

    fn flush_bytes(&self) -> u64 {
        let rows = self.rows.read();
        let bytes = |(key, versions): (&Bytes, &Versions)| {
            key.len() + versions.last().and_then(|(_, value)| value.as_ref()).map_or(0, Bytes::len)
        };
        rows.iter().map(bytes).sum::<usize>() as u64
    }

    fn compact(&self) -> Result<bool, TreeError> {
        self.check()?;
        Ok(false)
    }

    fn failure(&self) -> Option<TreeError> {
        self.failed.get().cloned()
    }

    fn stats(&self) -> TreeStats {
        TreeStats { unflushed_bytes: self.unsealed_bytes(), ..TreeStats::default() }
    }
}

fn visible(versions: &Versions, at: Sequence) -> Option<Bytes> {
    versions.iter().rev().find(|(sequence, _)| *sequence <= at).and_then(|(_, value)| value.clone())
}

/// A range, fetched chunk by chunk so that no lock is held between rows.
struct Walk {
    rows: Arc<RwLock<Map>>,
    /// What is left; `None` at the end.
    bounds: Option<(Bound<Bytes>, Bound<Bytes>)>,
    at: Sequence,
    direction: Direction,
    chunk: VecDeque<Row>,
}

impl Walk {
    fn fetch(&mut self) {
        let Some((from, to)) = self.bounds.take() else { return };
        let rows = self.rows.read();
        let range = rows.range((from.clone(), to.clone()));
        let at = self.at;
        let seen = |(key, versions): (&Bytes, &Versions)| Some((key.clone(), visible(versions, at)?));
        self.chunk = match self.direction {
            Direction::Up => range.filter_map(seen).take(CHUNK_ROWS).collect(),
            Direction::Down => range.rev().filter_map(seen).take(CHUNK_ROWS).collect(),
        };
        if self.chunk.len() == CHUNK_ROWS {
            let last = Bound::Excluded(self.chunk.back().map(|(key, _)| key.clone()).unwrap_or_default());
            self.bounds = Some(match self.direction {
                Direction::Up => (last, to),
                Direction::Down => (from, last),
            });
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Row, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.chunk.is_empty() {
            self.fetch();
        }
        self.chunk.pop_front().map(Ok)
    }
}

/// Positions and paths of the complete checkpoints, oldest first.
fn checkpoints(disk: &dyn Disk, dir: &str) -> Result<Vec<(Sequence, String)>, TreeError> {
    let names = disk.list(dir).map_err(io_error)?;
    let parse = |name: &String| {
        let at = Sequence::from_str_radix(name.strip_suffix(".checkpoint")?, 16).ok()?;
        Some((at, format!("{dir}/{name}")))
    };
    let mut found: Vec<_> = names.iter().filter_map(parse).collect();
    found.sort_unstable();
    Ok(found)
}

/// Magic, then key length, key, value length, value of each row (lengths u32 little-endian), then the CRC-64/NVME of all that.
fn encode(rows: &Map, at: Sequence) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for (key, versions) in rows {
        let Some(value) = visible(versions, at) else { continue };
        for part in [key, &value] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn load(disk: &dyn Disk, path: &str) -> Result<Map, TreeError> {
    let file = disk.open(path, Open::Read, Caching::Buffered).map_err(io_error)?;
    let mut bytes = vec![0; file.len().map_err(io_error)? as usize];
    let read = file.read_at(&mut bytes, 0).map_err(io_error)?;
    bytes.truncate(read);
    decode(&bytes).ok_or_else(|| TreeError(format!("checkpoint {path} is damaged")))
}

fn decode(bytes: &[u8]) -> Option<Map> {
    let (content, crc) = bytes.split_last_chunk::<8>()?;
    if crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, content) != u64::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
    let mut rows = Map::new();
    while !rest.is_empty() {
        let (key, after_key) = take(rest)?;
        let (value, after_value) = take(after_key)?;
        // All rows of a checkpoint are older than anything a reader can ask for.
        rows.insert(key, vec![(0, Some(value))]);
        rest = after_value;
    }
    Some(rows)
}

fn take(bytes: &[u8]) -> Option<(Bytes, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((Bytes::copy_from_slice(part), rest))
}

fn io_error(e: io::Error) -> TreeError {
    TreeError(e.to_string())
}
