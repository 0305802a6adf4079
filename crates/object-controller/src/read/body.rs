//! The bytes of a range of a version, in order, read ahead.
//!
//! Promises: the first slice leaves as soon as it is verified, while the rest of its extent and the next ones are being read; at
//! most `limits::READ_AHEAD_EXTENTS` are ahead, none when memory is short; holds its pin, so that nothing it needs is
//! reclaimed. Refuses to know: replicas.

use super::layout::{self, Piece};
use super::{Extents, Layout, Stretch};
use crate::api::{ReadBody, StoreError};
use crate::limits;
use crate::pins::Pin as EpochPin;
use crate::runs::Walk;
use bytes::Bytes;
use metadata::rows::{Home, ManifestPart};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use types::AttemptId;
use types::limits::EXTENT_BYTES;

/// Parts of a manifest fetched at once.
const PARTS_AT_ONCE: usize = 64;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A reader at work.
pub(crate) struct Body {
    extents: Extents,
    _pin: Arc<EpochPin>,
    source: Source,
    /// What is left of the piece being read.
    piece: Option<Cursor>,
    ahead: VecDeque<Ahead>,
    /// Bytes not handed out yet. That they run out early is damage, never a clean end.
    left: u64,
    /// Whether the first bytes were asked for: then whole extents follow.
    begun: bool,
    /// An error is final: it is answered again.
    failed: Option<StoreError>,
}

/// Where pieces come from.
enum Source {
    One(Option<Piece>, u64, u64),
    Manifest(Manifest),
}

/// Its rows are read as they are needed, each time at a fresh position: a snapshot held for as long as a client reads would
/// keep alive what the tree has long replaced. The reclaimer leaves the rows of a manifest alone while the pin counts.
struct Manifest {
    home: Home,
    id: AttemptId,
    parts: u32,
    fetched: VecDeque<ManifestPart>,
    /// In the object.
    position: u64,
    end: u64,
}

/// A range of one piece that is still to be read.
enum Cursor {
    Inline(Bytes),
    Extents { stretch: Arc<Stretch>, walk: Walk, position: u64, end: u64 },
}

enum Ahead {
    Reading(Answer<'static, Bytes>),
    Ready(Result<Bytes, StoreError>),
}

impl Body {
    /// Bytes `[offset, offset + len)` of the version of `home` with that layout.
    pub(crate) fn new(extents: Extents, pin: Arc<EpochPin>, home: Home, layout: Layout, offset: u64, len: u64) -> Body {
        let source = match layout {
            Layout::One(piece) => Source::One(Some(piece), offset, len),
            Layout::Manifest { id, parts } => {
                let (fetched, position, end) = (VecDeque::new(), offset, offset + len);
                Source::Manifest(Manifest { home, id, parts, fetched, position, end })
            }
        };
        Body { extents, _pin: pin, source, piece: None, ahead: VecDeque::new(), left: len, begun: false, failed: None }
    }

    /// Asks for as many extents as may be ahead. Answers whether anything is.
    fn top_up(&mut self) -> Result<bool, StoreError> {
        let allowed = if self.extents.is_pressed() { 1 } else { 1 + limits::READ_AHEAD_EXTENTS };
        while self.ahead.len() < allowed {
            let Some(next) = self.next_read()? else { break };
            self.ahead.push_back(next);
        }
        Ok(!self.ahead.is_empty())
    }

    /// The next read in the order of the bytes.
    fn next_read(&mut self) -> Result<Option<Ahead>, StoreError> {
        loop {
            match &mut self.piece {
                None => match self.source.next_piece(&self.extents)? {
                    None => return Ok(None),
                    Some(cursor) => self.piece = Some(cursor),
                },
                Some(Cursor::Inline(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.piece = None;
                    return Ok(Some(Ahead::Ready(Ok(bytes))));
                }
                Some(Cursor::Extents { stretch, walk, position, end }) => {
                    if position == end {
                        self.piece = None;
                        continue;
                    }
                    let first = !std::mem::replace(&mut self.begun, true) || self.extents.is_pressed();
                    let read = read_next(&self.extents, stretch, walk, position, *end, first)?;
                    return Ok(Some(Ahead::Reading(read)));
                }
            }
        }
    }

    /// Polls everything that is being read; answers the first of them.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, StoreError>> {
        for ahead in &mut self.ahead {
            if let Ahead::Reading(read) = ahead
                && let Poll::Ready(answer) = read.as_mut().poll(context)
            {
                *ahead = Ahead::Ready(answer);
            }
        }
        match self.ahead.pop_front() {
            Some(Ahead::Ready(answer)) => Poll::Ready(answer),
            Some(reading) => {
                self.ahead.push_front(reading);
                Poll::Pending
            }
            None => Poll::Ready(Err(StoreError::Internal("nothing is being read".into()))),
        }
    }

    async fn next_bytes(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            if !self.top_up()? {
                return if self.left == 0 { Ok(None) } else { Err(cut_short(self.left)) };
            }
            let bytes = poll_fn(|context| self.poll_first(context)).await?;
            if !bytes.is_empty() {
                self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| cut_short(0))?;
                return Ok(Some(bytes));
            }
        }
    }
}

fn cut_short(left: u64) -> StoreError {
    StoreError::Damaged(format!("the rows of the version and its bytes differ in length: {left} bytes are left"))
}

/// One read of the extent that holds `position`: to the extent's end, but only one slice for the very first bytes and while
/// memory is short.
fn read_next(
    extents: &Extents,
    stretch: &Arc<Stretch>,
    walk: &mut Walk,
    position: &mut u64,
    end: u64,
    first: bool,
) -> Result<Answer<'static, Bytes>, StoreError> {
    let short = || StoreError::Damaged(format!("the runs of content {} end too early", stretch.content));
    let (index, address) = walk.address(&stretch.runs).ok_or_else(short)?;
    let begin = u64::from(index) * EXTENT_BYTES as u64;
    let extent_end = begin + u64::from(address.payload_bytes);
    let mut to = end.min(extent_end);
    if first {
        // Up to the end of the slice that holds the first byte.
        to = to.min((*position / limits::FIRST_READ_BYTES + 1) * limits::FIRST_READ_BYTES);
    }
    if *position >= to {
        return Err(short());
    }
    let range = (*position - begin) as u32..(to - begin) as u32;
    *position = to;
    if to == extent_end {
        walk.advance(&stretch.runs);
    }
    Ok(Box::pin(extents.clone().read(stretch.clone(), index, address, range)))
}

impl Source {
    fn next_piece(&mut self, extents: &Extents) -> Result<Option<Cursor>, StoreError> {
        match self {
            Source::One(piece, offset, len) => Ok(piece.take().map(|piece| Cursor::of(piece, *offset, *len))),
            Source::Manifest(manifest) => manifest.next_piece(extents),
        }
    }
}

impl Manifest {
    fn next_piece(&mut self, extents: &Extents) -> Result<Option<Cursor>, StoreError> {
        loop {
            if self.position >= self.end {
                return Ok(None);
            }
            let Some(part) = self.fetched.pop_front() else {
                self.fetch(extents)?;
                continue;
            };
            if part.offset > self.position {
                return Err(StoreError::Damaged(format!("the manifest {} has a gap", self.id)));
            }
            let from = self.position - part.offset;
            let to = (self.end - part.offset).min(part.size);
            if from >= to {
                continue;
            }
            let piece = Piece::read(&extents.snapshot(), &self.home, part.body_id(self.id))?;
            if piece.size() < to {
                return Err(StoreError::Damaged(format!("part {} is shorter than the manifest says", part.number)));
            }
            self.position = part.offset + to;
            return Ok(Some(Cursor::of(piece, from, to - from)));
        }
    }

    fn fetch(&mut self, extents: &Extents) -> Result<(), StoreError> {
        let manifest = (self.id, self.parts);
        let (_, parts) = layout::parts_at(&extents.snapshot(), &self.home, manifest, self.position, PARTS_AT_ONCE)?;
        let holds = parts.first().is_some_and(|p| p.offset <= self.position);
        if !holds {
            return Err(StoreError::Damaged(format!("the manifest {} does not hold byte {}", self.id, self.position)));
        }
        self.fetched = parts.into();
        Ok(())
    }
}

impl Cursor {
    fn of(piece: Piece, offset: u64, len: u64) -> Cursor {
        match piece {
            Piece::Inline(bytes) => {
                let all = bytes.len() as u64;
                let (from, to) = (offset.min(all), (offset + len).min(all));
                Cursor::Inline(bytes.slice(from as usize..to as usize))
            }
            Piece::Stretch(stretch) => {
                let position = stretch.offset + offset;
                let walk = Walk::at(&stretch.runs, position);
                Cursor::Extents { position, end: position + len, walk, stretch }
            }
        }
    }
}

impl ReadBody for Body {
    fn next(&mut self) -> Answer<'_, Option<Bytes>> {
        Box::pin(async {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let answer = self.next_bytes().await;
            if let Err(error) = &answer {
                self.failed = Some(error.clone());
                self.ahead.clear();
            }
            answer
        })
    }

    fn take_ready(&mut self) -> Option<Bytes> {
        let Source::One(piece, offset, len) = &mut self.source else { return None };
        let Some(Piece::Inline(bytes)) = piece else { return None };
        let Cursor::Inline(ready) = Cursor::of(Piece::Inline(bytes.clone()), *offset, *len) else { return None };
        if ready.len() as u64 != self.left {
            return None;
        }
        *piece = None;
        self.left = 0;
        Some(ready)
    }
}
