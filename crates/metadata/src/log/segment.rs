//! One segment file: made whole before it has its name, then used again and again under new numbers.
//!
//! Promises: a file with its name always has at least one whole header; its blocks were written before, so that writing them
//! again changes no metadata of the file system and a sync is one flush. Refuses to know: what frames hold.

use super::format::{BLOCK_BYTES, Position, SegmentHeader};
use env::buf::AlignedBuf;
use env::disk::{Caching, Disk, DiskFile, Open};
use std::io;
use std::sync::Arc;

/// Name under which a segment file is made.
const TEMPORARY: &str = "new-segment";
/// Zeros written at once when a file is made.
const FILL_BYTES: usize = 1 << 20;

/// A file that can hold a segment.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
}

impl SegmentFile {
    /// Makes a file of `segment_bytes` zeros with the header of an unused segment. Durable when it returns.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &str,
        name: &str,
        log: u64,
        segment_bytes: u32,
    ) -> io::Result<SegmentFile> {
        remove_temporary(disk, dir)?;
        let temporary = format!("{dir}/{TEMPORARY}");
        let made = fill(disk, &temporary, log, segment_bytes);
        if made.is_err() {
            // Space is what is probably missing; what cannot be removed now is removed by the next attempt.
            let _ = disk.remove(&temporary);
        }
        made?;
        let path = format!("{dir}/{name}");
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)?;
        SegmentFile::open(disk, dir, name)
    }

    /// Opens an existing one.
    pub(super) fn open(disk: &dyn Disk, dir: &str, name: &str) -> io::Result<SegmentFile> {
        let file = disk.open(&format!("{dir}/{name}"), Open::ReadWrite, Caching::Direct)?;
        Ok(SegmentFile { name: name.to_owned(), file })
    }

    /// Gives the file a new number. One whole header is there at every moment, so a header can be told from damage.
    pub(super) fn begin(&self, header: &SegmentHeader) -> io::Result<()> {
        let block = aligned(&header.encode());
        for copy in 0..2 {
            self.file.write_at(&block, copy * BLOCK_BYTES as u64)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// The header of the newest number it has, or what is wrong with it.
    pub(super) fn header(&self) -> io::Result<Result<SegmentHeader, String>> {
        let mut blocks = AlignedBuf::zeroed(2 * BLOCK_BYTES);
        self.file.read_at(&mut blocks, 0)?;
        let copies = [&blocks[..BLOCK_BYTES], &blocks[BLOCK_BYTES..]];
        if let Some(format) = copies.iter().find_map(|block| SegmentHeader::foreign_format(block)) {
            return Ok(Err(format!("it has format {format}, this program knows {}", super::format::FORMAT)));
        }
        let newest = copies.iter().filter_map(|block| SegmentHeader::decode(block)).max_by_key(|header| header.segment);
        Ok(newest.ok_or_else(|| "both copies of its header are damaged".to_owned()))
    }
}

/// Removes what a crash left of a file being made.
fn remove_temporary(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    match disk.remove(&format!("{dir}/{TEMPORARY}")) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn fill(disk: &dyn Disk, path: &str, log: u64, segment_bytes: u32) -> io::Result<()> {
    let file = disk.open(path, Open::CreateNew, Caching::Direct)?;
    file.allocate(0, u64::from(segment_bytes))?;
    // Reserved is not enough: the first write to a reserved block changes the file's extents, and each sync would pay for it.
    let zeros = AlignedBuf::zeroed(FILL_BYTES);
    for offset in (0..segment_bytes as usize).step_by(FILL_BYTES) {
        let len = FILL_BYTES.min(segment_bytes as usize - offset);
        file.write_at(&zeros[..len], offset as u64)?;
    }
    let unused = SegmentHeader { segment_bytes, log, segment: 0, oldest: 0, previous_end: Position::default() };
    let block = aligned(&unused.encode());
    file.write_at(&block, 0)?;
    file.write_at(&block, BLOCK_BYTES as u64)?;
    file.sync_data()
}

fn aligned(bytes: &[u8]) -> AlignedBuf {
    let mut buf = AlignedBuf::new(bytes.len());
    buf.extend_from_slice(bytes);
    buf
}
