//! Walking a group file from frame to frame, around the page cache: for recovery, settling, scrub and inspection.
//!
//! Promises: ends, whatever the bytes; every block is reported once, as (part of) a frame, a hole or damage (what the disk
//! cannot read included); memory is one window. Behind damage it goes on at the next block that holds a sound header naming its own place. A client can make
//! payload that looks like one, so what is found behind damage is evidence for a look-up, never for a deletion.
//! Refuses to know: which frames ought to be here.

use std::io;
use std::sync::Arc;

use env::buf::AlignedBuf;
use env::disk::{Caching, DiskFile, Open};
use types::{ClusterId, GroupId};

use super::reader::misplaced;
use super::{DiskStore, Inner};
use crate::error::{Damage, ReadError};
use crate::format::{FileHeader, FormatError, FrameAddress, FrameHeader, HeaderView, is_zero};
use crate::limits::{FIRST_FRAME_OFFSET, HEADER_BYTES, SCAN_PAGE_BYTES, SCAN_PAGE_ITEMS, SCAN_WINDOW_BYTES};
use crate::paths::{FileKey, UNFINISHED, group_file};

const BLOCK: u64 = HEADER_BYTES as u64;
/// Window of a scan that skips payloads.
const HEADERS_WINDOW_BYTES: usize = 64 << 10;

/// How closely a scan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Headers only; payloads are skipped.
    Headers,
    /// Payloads and padding are read and verified.
    Payloads,
}

/// What a scan met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// A sound frame of this file.
    Frame(FrameHeader),
    /// Zeros: never written, or punched.
    Hole {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Something else.
    Damaged {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
        /// What is wrong (with the first block, if the header is).
        damage: Damage,
        /// The header, if that is sound.
        header: Option<Box<FrameHeader>>,
    },
}

/// One page of an asynchronous scan.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// In the order of the file.
    pub items: Vec<Scanned>,
    /// Where the next page begins; `None` at the end of the file.
    pub next: Option<u64>,
}

impl DiskStore {
    /// Opens a file for a walk. Blocks, and so does the iterator: for workers and tools.
    pub fn scan(&self, group: GroupId, generation: u32, depth: Depth) -> Result<FrameScan, ReadError> {
        FrameScan::open(&self.inner, (group, generation), depth)
    }

    /// One page of a walk, from `from` (0 at first, then [`ScanPage::next`]) on, away from the caller's thread. A page ends
    /// after some MiB, so that the caller can pace itself.
    pub async fn scan_page(
        &self,
        group: GroupId,
        generation: u32,
        depth: Depth,
        from: u64,
    ) -> Result<ScanPage, ReadError> {
        self.run(move |inner| page(inner, (group, generation), depth, from)).await
    }
}

fn page(inner: &Inner, key: FileKey, depth: Depth, from: u64) -> Result<ScanPage, ReadError> {
    let mut scan = FrameScan::open(inner, key, depth)?;
    scan.pos = from.max(FIRST_FRAME_OFFSET).next_multiple_of(BLOCK);
    let mut items = Vec::new();
    while items.len() < SCAN_PAGE_ITEMS && scan.bytes_read < SCAN_PAGE_BYTES {
        match scan.next() {
            None => return Ok(ScanPage { items, next: None }),
            Some(item) => items.push(item),
        }
    }
    Ok(ScanPage { items, next: Some(scan.pos) })
}

/// A walk over one group file.
#[derive(Debug)]
pub struct FrameScan {
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    cluster: ClusterId,
    depth: Depth,
    pos: u64,
    end: u64,
    window: AlignedBuf,
    window_at: u64,
    bytes_read: u64,
}

/// What stands at one block.
enum Block {
    Frame(FrameHeader),
    Hole,
    Damaged(Damage),
}

impl FrameScan {
    /// Opens the file and checks its header.
    pub(super) fn open(inner: &Inner, key: FileKey, depth: Depth) -> Result<FrameScan, ReadError> {
        FrameScan::over(inner, key, depth, inner.open_to_read(key, Caching::Direct)?)
    }

    /// The same for a file that has no name yet.
    pub(super) fn open_unfinished(inner: &Inner, key: FileKey, depth: Depth) -> Result<FrameScan, ReadError> {
        let path = group_file(key) + UNFINISHED;
        let file = inner.disk.open(&path, Open::Read, Caching::Direct).map_err(ReadError::Io)?;
        FrameScan::over(inner, key, depth, file)
    }

    fn over(inner: &Inner, key: FileKey, depth: Depth, file: Arc<dyn DiskFile>) -> Result<FrameScan, ReadError> {
        let header = read_file_header(&*file, inner, key)?;
        let end = file.len().map_err(|error| inner.read_failed(key, error))?;
        let window_bytes = if depth == Depth::Payloads { SCAN_WINDOW_BYTES } else { HEADERS_WINDOW_BYTES };
        let window_bytes = usize::try_from(end).unwrap_or(usize::MAX).min(window_bytes);
        Ok(FrameScan {
            file,
            header,
            cluster: inner.identity.cluster,
            depth,
            pos: FIRST_FRAME_OFFSET,
            end,
            window: AlignedBuf::new(window_bytes),
            window_at: 0,
            bytes_read: 0,
        })
    }

    /// The file's header.
    pub fn file_header(&self) -> &FileHeader {
        &self.header
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.end
    }

    /// Makes what is in the file durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The bytes at `pos`, at least `wanted` of them unless the file ends before; an error if just these cannot be read.
    fn bytes_at(&mut self, pos: u64, wanted: usize) -> io::Result<&[u8]> {
        let have_to = self.window_at + self.window.len() as u64;
        if pos < self.window_at || pos + wanted as u64 > have_to {
            let whole = self.fill_window(pos, self.window.capacity());
            // Somewhere in the window is a bad sector: perhaps not in what is wanted now.
            whole.or_else(|_| self.fill_window(pos, wanted))?;
        }
        let start = ((pos - self.window_at) as usize).min(self.window.len());
        Ok(&self.window[start..])
    }

    fn fill_window(&mut self, pos: u64, bytes: usize) -> io::Result<()> {
        self.window.set_len_for_overwrite(bytes);
        let read = self.file.read_at(&mut self.window, pos);
        self.window_at = pos;
        self.window.truncate(*read.as_ref().unwrap_or(&0));
        self.bytes_read += read? as u64;
        Ok(())
    }

    fn block_at(&mut self, pos: u64) -> Block {
        let (cluster, address) = (self.cluster, self.address(pos));
        let Ok(bytes) = self.bytes_at(pos, HEADER_BYTES) else { return Block::Damaged(Damage::Unreadable) };
        if bytes.len() < HEADER_BYTES {
            return if is_zero(bytes) { Block::Hole } else { Block::Damaged(Damage::Truncated) };
        }
        let header = HeaderView::parse(bytes).and_then(|view| match misplaced(&view, cluster, address) {
            None => view.to_header().map(Ok),
            Some(what) => Ok(Err(what)),
        });
        match header {
            Ok(Ok(header)) => Block::Frame(header),
            Ok(Err(what)) => Block::Damaged(Damage::Misplaced(what)),
            Err(FormatError::Hole) => Block::Hole,
            Err(error) => Block::Damaged(Damage::Header(error)),
        }
    }

    fn address(&self, offset: u64) -> FrameAddress {
        FrameAddress { group: self.header.group, generation: self.header.generation, offset }
    }

    fn advance(&mut self) -> Scanned {
        let offset = self.pos;
        match self.block_at(offset) {
            Block::Frame(header) => self.frame(header),
            Block::Hole => {
                self.skip(|block| matches!(block, Block::Hole));
                Scanned::Hole { offset, bytes: self.pos - offset }
            }
            Block::Damaged(damage) => {
                self.skip(|block| matches!(block, Block::Damaged(_)));
                Scanned::Damaged { offset, bytes: self.pos - offset, damage, header: None }
            }
        }
    }

    /// Goes to the first block that is not of that kind; the one at the position is.
    fn skip(&mut self, same: impl Fn(&Block) -> bool) {
        self.pos += BLOCK;
        while self.pos < self.end && same(&self.block_at(self.pos)) {
            self.pos += BLOCK;
        }
    }

    fn frame(&mut self, header: FrameHeader) -> Scanned {
        let (offset, bytes) = (self.pos, header.frame_bytes());
        let damage = if offset + bytes > self.end {
            Some(Damage::Truncated)
        } else if self.depth == Depth::Payloads {
            self.payload_damage(offset, bytes as usize)
        } else {
            None
        };
        self.pos += bytes;
        match damage {
            None => Scanned::Frame(header),
            Some(damage) => Scanned::Damaged { offset, bytes, damage, header: Some(Box::new(header)) },
        }
    }

    fn payload_damage(&mut self, offset: u64, frame_bytes: usize) -> Option<Damage> {
        let Ok(bytes) = self.bytes_at(offset, frame_bytes) else { return Some(Damage::Unreadable) };
        let Some(bytes) = bytes.get(..frame_bytes) else { return Some(Damage::Truncated) };
        // Parsed again: the window may have been read anew, and may hold something else now.
        let view = match HeaderView::parse(bytes) {
            Ok(view) => view,
            Err(error) => return Some(Damage::Header(error)),
        };
        if view.frame_bytes() != frame_bytes as u64 {
            return Some(Damage::Header(FormatError::Field("length of frame")));
        }
        let payload_end = HEADER_BYTES + view.payload_bytes() as usize;
        if let Some(slice) = view.first_bad_slice(0, &bytes[HEADER_BYTES..payload_end]) {
            return Some(Damage::Slice(slice as u32));
        }
        (!is_zero(&bytes[payload_end..])).then_some(Damage::Padding)
    }
}

impl Iterator for FrameScan {
    type Item = Scanned;

    fn next(&mut self) -> Option<Scanned> {
        (self.pos < self.end).then(|| self.advance())
    }
}

fn read_file_header(file: &dyn DiskFile, inner: &Inner, key: FileKey) -> Result<FileHeader, ReadError> {
    let mut block = AlignedBuf::zeroed(HEADER_BYTES);
    let bytes = file.read_at(&mut block, 0).map_err(|error| inner.read_failed(key, error))?;
    let damaged = |damage| {
        tracing::warn!(group = %key.0, generation = key.1, %damage, "a group file's header is not as it should be");
        ReadError::Damaged(damage)
    };
    let header = FileHeader::decode(&block[..bytes]).map_err(|error| damaged(Damage::FileHeader(error)))?;
    let foreign = if header.cluster != inner.identity.cluster {
        Some("cluster")
    } else if header.disk != inner.identity.disk {
        Some("disk")
    } else if header.group != key.0 {
        Some("group")
    } else if header.generation != key.1 {
        Some("generation")
    } else {
        None
    };
    match foreign {
        None => Ok(header),
        Some(what) => Err(damaged(Damage::ForeignFile(what))),
    }
}
