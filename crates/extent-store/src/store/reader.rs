//! Reading extents.
//!
//! Promises: every byte handed out was checked against the CRC of its slice in a header that names exactly the extent that
//! was asked for; only the slices that cover the range are read; the bytes are those the disk was read into, not a copy.
//! What is not here, what is damaged and what could not be read are different answers. Refuses to know: other replicas.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use env::buf::PooledBuf;
use env::disk::{Caching, DiskFile, Open};
use types::limits::{EXTENT_BYTES, SLICE_BYTES};
use types::{ClusterId, ContentId};

use super::{DiskStore, Inner};
use crate::error::{Damage, ReadError};
use crate::format::{FormatError, FrameAddress, FrameHeader, HeaderView, covering};
use crate::frame::Frame;
use crate::limits::{FILE_MAX_BYTES, FIRST_FRAME_OFFSET, FRAME_MAX_BYTES, HEADER_BYTES};
use crate::paths::{FileKey, group_file};

/// Which bytes of which extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where the extent is.
    pub address: FrameAddress,
    /// Whose bytes are expected there.
    pub content: ContentId,
    /// Which of the content's extents.
    pub index: u32,
    /// How long the extent's payload is.
    pub payload_bytes: u32,
    /// Which bytes of the payload are wanted; not empty.
    pub range: Range<u32>,
}

impl ReadRequest {
    /// Whether such an extent and range can exist.
    pub fn is_possible(&self) -> bool {
        self.address.offset.is_multiple_of(HEADER_BYTES as u64)
            && (FIRST_FRAME_OFFSET..FILE_MAX_BYTES).contains(&self.address.offset)
            && (1..=EXTENT_BYTES as u32).contains(&self.payload_bytes)
            && self.range.start < self.range.end
            && self.range.end <= self.payload_bytes
    }

    fn key(&self) -> FileKey {
        (self.address.group, self.address.generation)
    }

    /// What a sound answer of [`DiskStore::read_with_header`] holds, when it is read on another machine: the wanted bytes, verified
    /// against the header that came with them. Bytes that a network brought are trusted no more than those of a disk (rule R12).
    pub fn verify(&self, cluster: ClusterId, answer: &Bytes) -> Result<Bytes, ReadError> {
        if !self.is_possible() {
            return Err(ReadError::Invalid);
        }
        if answer.len() != HEADER_BYTES + self.cover().len() {
            return Err(ReadError::Damaged(Damage::Truncated));
        }
        judge(answer, cluster, self)?;
        Ok(self.cut(answer))
    }

    /// The wanted bytes of header and covering slices.
    fn cut(&self, answer: &Bytes) -> Bytes {
        let start = HEADER_BYTES + (self.range.start - self.cover().start) as usize;
        answer.slice(start..start + self.range.len())
    }

    /// The slices to be read, as bytes of the payload.
    fn cover(&self) -> Range<u32> {
        covering(&self.range, self.payload_bytes)
    }

    /// What is read where: one piece when it begins with the header, else the header and the slices.
    fn pieces(&self) -> [Piece; 2] {
        let cover = self.cover();
        let slices = HEADER_BYTES..HEADER_BYTES + cover.len();
        let slices_at = self.address.offset + HEADER_BYTES as u64 + u64::from(cover.start);
        if cover.start == 0 {
            return [Piece { of_buf: 0..slices.end, at: self.address.offset }, Piece { of_buf: 0..0, at: 0 }];
        }
        [Piece { of_buf: 0..HEADER_BYTES, at: self.address.offset }, Piece { of_buf: slices, at: slices_at }]
    }
}

/// One read: which part of the buffer from which offset.
struct Piece {
    of_buf: Range<usize>,
    at: u64,
}

impl DiskStore {
    /// Reads and verifies a range of one extent, through the page cache.
    ///
    /// Bytes in the page cache are taken without leaving the caller's thread. An unlinked or renamed file serves those who
    /// opened it before to the end.
    pub async fn read(&self, wanted: ReadRequest) -> Result<Bytes, ReadError> {
        let answer = self.read_with_header(&wanted).await?;
        Ok(wanted.cut(&answer))
    }

    /// The same with all that a reader elsewhere needs to verify it again ([`ReadRequest::verify`]): the header's block, then the
    /// slices that cover the range.
    pub async fn read_with_header(&self, wanted: &ReadRequest) -> Result<Bytes, ReadError> {
        if !wanted.is_possible() {
            return Err(ReadError::Invalid);
        }
        let len = HEADER_BYTES + wanted.cover().len();
        let mut buf = self.inner.config.buffers.take(len).await;
        buf.set_len_for_overwrite(len);
        if !self.inner.read_cached(&mut buf, wanted) {
            buf = self.read_waiting(buf, wanted).await?;
        }
        Ok(buf.freeze())
    }

    /// Fills and verifies `buf` from the disk: without a thread of the pool where the file can begin reads by itself and all is
    /// well, else where blocking is allowed.
    async fn read_waiting(&self, mut buf: PooledBuf, wanted: &ReadRequest) -> Result<PooledBuf, ReadError> {
        if let Some(file) = self.inner.files.handle(wanted.key()) {
            let sound;
            (buf, sound) = self.inner.read_begun(file, buf, wanted).await?;
            if sound {
                return Ok(buf);
            }
        }
        let wanted = wanted.clone();
        self.run(move |inner| inner.read_blocking(buf, &wanted)).await
    }

    /// Reads one whole frame around the page cache and verifies all of it, padding included: for scrub, repair and moves.
    /// Their buffers are of a budget of their own: clients that hold what they read cannot keep them from getting on.
    pub async fn read_frame(&self, address: FrameAddress) -> Result<Frame, ReadError> {
        let buf = self.inner.frames.take(FRAME_MAX_BYTES).await;
        self.run(move |inner| inner.read_frame(address, buf)).await
    }

    /// As [`DiskStore::read_frame`], and that it is the extent that is expected; gives its header.
    pub async fn verify_frame(
        &self,
        address: FrameAddress,
        content: ContentId,
        index: u32,
        payload_bytes: u32,
    ) -> Result<FrameHeader, ReadError> {
        let header = self.read_frame(address).await?.header();
        let found = (header.origin.content, header.origin.index, header.payload_bytes());
        match other_extent(found, (content, index, payload_bytes)) {
            None => Ok(header),
            Some(what) => Err(self.inner.damaged(address, Damage::OtherExtent(what))),
        }
    }
}

impl Inner {
    /// Fills and verifies `buf` from the page cache; `false` if that would wait, or if anything is amiss: then the blocking
    /// path finds out what.
    fn read_cached(&self, buf: &mut PooledBuf, wanted: &ReadRequest) -> bool {
        let Some(file) = self.files.handle(wanted.key()) else { return false };
        for piece in wanted.pieces() {
            let wanted_bytes = piece.of_buf.len();
            if wanted_bytes > 0 {
                match file.read_at_cached(&mut buf[piece.of_buf], piece.at) {
                    Ok(Some(bytes)) if bytes == wanted_bytes => self.count_read(bytes),
                    _ => return false,
                }
            }
        }
        let sound = self.judge(buf, wanted).is_ok();
        self.counters.inline_reads.add(u64::from(sound));
        sound
    }

    /// Fills and verifies `buf` by reads that are begun and waited for; `false` if one cannot be begun or anything is amiss: then
    /// the blocking path finds out what.
    async fn read_begun(
        &self,
        file: Arc<dyn DiskFile>,
        mut buf: PooledBuf,
        wanted: &ReadRequest,
    ) -> Result<(PooledBuf, bool), ReadError> {
        for piece in wanted.pieces() {
            let wanted_bytes = piece.of_buf.len();
            if wanted_bytes == 0 {
                continue;
            }
            let reading = match file.clone().start_read(buf, piece.of_buf, piece.at) {
                Ok(reading) => reading,
                Err(buf) => return Ok((buf, false)),
            };
            // Whoever reads answers each read it took, unless it is gone with all that it took.
            let result;
            (buf, result) = reading.await.map_err(|_| ReadError::Io(io::Error::other("the reads were given up")))?;
            match result {
                Ok(bytes) if bytes == wanted_bytes => self.count_read(bytes),
                _ => return Ok((buf, false)),
            }
        }
        let sound = self.judge(&buf, wanted).is_ok();
        self.counters.begun_reads.add(u64::from(sound));
        Ok((buf, sound))
    }

    fn read_blocking(&self, mut buf: PooledBuf, wanted: &ReadRequest) -> Result<PooledBuf, ReadError> {
        let file = self.handle(wanted.key())?;
        let judged = self.fill(&*file, &mut buf, wanted).and_then(|()| self.judge(&buf, wanted));
        match judged {
            Ok(()) => Ok(buf),
            // The frame may have been punched between the two looks at its header and its payload.
            Err(ReadError::Damaged(_)) if self.became_hole(&*file, &mut buf, wanted) => Err(ReadError::Missing),
            Err(ReadError::Damaged(damage)) => Err(self.damaged(wanted.address, damage)),
            Err(error) => Err(error),
        }
    }

    fn fill(&self, file: &dyn DiskFile, buf: &mut PooledBuf, wanted: &ReadRequest) -> Result<(), ReadError> {
        for piece in wanted.pieces() {
            let wanted_bytes = piece.of_buf.len();
            if wanted_bytes == 0 {
                continue;
            }
            let holds_header = piece.of_buf.start == 0;
            let bytes = file
                .read_at(&mut buf[piece.of_buf], piece.at)
                .map_err(|error| self.read_failed(wanted.key(), error))?;
            self.count_read(bytes);
            if holds_header && bytes == 0 {
                return Err(ReadError::Missing);
            }
            if bytes < wanted_bytes {
                let is_hole = holds_header && crate::format::is_zero(&buf[..bytes.min(HEADER_BYTES)]);
                return Err(if is_hole { ReadError::Missing } else { ReadError::Damaged(Damage::Truncated) });
            }
        }
        Ok(())
    }

    fn judge(&self, buf: &[u8], wanted: &ReadRequest) -> Result<(), ReadError> {
        judge(buf, self.identity.cluster, wanted)
    }

    /// The sound header of a frame that is where it says.
    pub(super) fn judge_header<'a>(&self, block: &'a [u8], at: FrameAddress) -> Result<HeaderView<'a>, ReadError> {
        judge_header(block, self.identity.cluster, at)
    }

    fn became_hole(&self, file: &dyn DiskFile, buf: &mut PooledBuf, wanted: &ReadRequest) -> bool {
        let header = &mut buf[..HEADER_BYTES];
        let read = file.read_at(header, wanted.address.offset);
        matches!(read, Ok(HEADER_BYTES)) && crate::format::is_zero(header)
    }

    fn read_frame(&self, at: FrameAddress, mut buf: PooledBuf) -> Result<Frame, ReadError> {
        if !at.offset.is_multiple_of(HEADER_BYTES as u64) || !(FIRST_FRAME_OFFSET..FILE_MAX_BYTES).contains(&at.offset)
        {
            return Err(ReadError::Invalid);
        }
        let key = (at.group, at.generation);
        let file = self.open_to_read(key, Caching::Direct)?;
        buf.set_len_for_overwrite(HEADER_BYTES);
        let bytes = file.read_at(&mut buf, at.offset).map_err(|error| self.read_failed(key, error))?;
        if bytes < HEADER_BYTES {
            let missing = crate::format::is_zero(&buf[..bytes]);
            return Err(if missing { ReadError::Missing } else { self.damaged(at, Damage::Truncated) });
        }
        let frame_bytes = match self.judge_header(&buf, at) {
            Ok(view) => view.frame_bytes() as usize,
            Err(ReadError::Damaged(damage)) => return Err(self.damaged(at, damage)),
            Err(error) => return Err(error),
        };
        buf.set_len_for_overwrite(frame_bytes);
        let rest = at.offset + HEADER_BYTES as u64;
        let bytes = file.read_at(&mut buf[HEADER_BYTES..], rest).map_err(|error| self.read_failed(key, error))?;
        if bytes < frame_bytes - HEADER_BYTES {
            return Err(self.damaged(at, Damage::Truncated));
        }
        match Frame::verify(buf.freeze()) {
            Ok(frame) => Ok(frame),
            Err(damage) => Err(self.damaged(at, damage)),
        }
    }

    /// The file's handle for reads through the page cache, opened if need be.
    fn handle(&self, key: FileKey) -> Result<Arc<dyn DiskFile>, ReadError> {
        if let Some(file) = self.files.handle(key) {
            return Ok(file);
        }
        let file = self.open_to_read(key, Caching::Buffered)?;
        self.files.keep_handle(key, file.clone());
        Ok(file)
    }

    /// Opens a file of the table.
    pub(super) fn open_to_read(&self, key: FileKey, caching: Caching) -> Result<Arc<dyn DiskFile>, ReadError> {
        if !self.files.contains(key) {
            return Err(ReadError::Missing);
        }
        self.disk.open(&group_file(key), Open::Read, caching).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Missing,
            _ => self.read_failed(key, error),
        })
    }

    fn count_read(&self, bytes: usize) {
        self.counters.data_reads.add(1);
        self.counters.data_read_bytes.add(bytes as u64);
    }

    pub(super) fn read_failed(&self, (group, generation): FileKey, error: io::Error) -> ReadError {
        self.counters.read_errors.add(1);
        tracing::warn!(%group, generation, %error, "a read failed");
        ReadError::Io(error)
    }

    fn damaged(&self, at: FrameAddress, damage: Damage) -> ReadError {
        self.counters.damaged_reads.add(1);
        tracing::warn!(group = %at.group, generation = at.generation, offset = at.offset, %damage, "damage on disk");
        ReadError::Damaged(damage)
    }
}

/// Whether `buf` (header, then the covering slices) holds what is wanted.
fn judge(buf: &[u8], cluster: ClusterId, wanted: &ReadRequest) -> Result<(), ReadError> {
    let view = judge_header(buf, cluster, wanted.address)?;
    let found = (view.content(), view.index(), view.payload_bytes());
    if let Some(what) = other_extent(found, (wanted.content, wanted.index, wanted.payload_bytes)) {
        return Err(ReadError::Damaged(Damage::OtherExtent(what)));
    }
    let first = wanted.cover().start as usize / SLICE_BYTES;
    match view.first_bad_slice(first, &buf[HEADER_BYTES..]) {
        None => Ok(()),
        Some(slice) => Err(ReadError::Damaged(Damage::Slice(slice as u32))),
    }
}

fn judge_header(block: &[u8], cluster: ClusterId, at: FrameAddress) -> Result<HeaderView<'_>, ReadError> {
    let view = match HeaderView::parse(block) {
        Ok(view) => view,
        Err(FormatError::Hole) => return Err(ReadError::Missing),
        Err(error) => return Err(ReadError::Damaged(Damage::Header(error))),
    };
    match misplaced(&view, cluster, at) {
        None => Ok(view),
        Some(what) => Err(ReadError::Damaged(Damage::Misplaced(what))),
    }
}

/// What of its address a frame does not agree with, if anything.
pub(super) fn misplaced(view: &HeaderView<'_>, cluster: ClusterId, at: FrameAddress) -> Option<&'static str> {
    let says = view.address();
    if view.cluster() != cluster {
        Some("cluster")
    } else if says.group != at.group {
        Some("group")
    } else if says.generation != at.generation {
        Some("generation")
    } else if says.offset != at.offset {
        Some("offset")
    } else {
        None
    }
}

type Extent = (ContentId, u32, u32);

/// In what two extents (content, index, payload bytes) differ, if at all.
fn other_extent(found: Extent, wanted: Extent) -> Option<&'static str> {
    if found.0 != wanted.0 {
        Some("content")
    } else if found.1 != wanted.1 {
        Some("index")
    } else if found.2 != wanted.2 {
        Some("length")
    } else {
        None
    }
}
