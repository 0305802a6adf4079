//! What a fast copy refers to.
//!
//! Promises: only contents in extents are referred to; an entry stays well below its limit. Refuses to know: shards, owners.

use crate::api::StoreError;
use crate::get::Found;
use crate::limits;
use crate::read::{Layout, Piece, parts_at};
use metadata::command::CopyData;
use metadata::rows::{Home, ManifestPart, Reference};
use types::ContentId;

/// Parts of a manifest read at once.
const PARTS_AT_ONCE: usize = 256;

/// The whole of a version by reference; `None` where its bytes have to be copied: a part rides in its row, or the entry would
/// be too large.
pub(super) fn of_object(from: &Found, layout: &Layout) -> Result<Option<CopyData>, StoreError> {
    match layout {
        Layout::One(Piece::Inline(_)) => Ok(None),
        Layout::One(Piece::Stretch(stretch)) => Ok(Some(CopyData::One(stretch.reference(0, stretch.size)))),
        Layout::Manifest { id, parts } => {
            let mut referred = Vec::new();
            let mut entry_bytes = 0;
            while referred.len() < *parts as usize {
                let page = parts_at_index(from, layout, referred.len() as u32)?;
                for part in page {
                    let Piece::Stretch(stretch) = Piece::read(&from.snapshot, &from.home, part.body_id(*id))? else {
                        return Ok(None);
                    };
                    let reference = stretch.reference(0, stretch.size);
                    entry_bytes += encoded_bytes(&part, &reference);
                    if entry_bytes > limits::COPY_ENTRY_MAX_BYTES {
                        return Ok(None);
                    }
                    referred.push((part, reference));
                }
            }
            Ok(Some(CopyData::Parts(referred)))
        }
    }
}

fn parts_at_index(from: &Found, layout: &Layout, index: u32) -> Result<Vec<ManifestPart>, StoreError> {
    let page = layout.parts_from(&from.snapshot, &from.home, index, PARTS_AT_ONCE)?;
    if page.is_empty() {
        return Err(StoreError::Damaged(format!("the manifest of {} has no part {index}", from.attempt)));
    }
    Ok(page)
}

/// `len` bytes from `offset` on, if they lie in one content in extents.
pub(crate) fn of_range(from: &Found, layout: &Layout, offset: u64, len: u64) -> Result<Option<Reference>, StoreError> {
    let (piece, begin) = match layout {
        Layout::One(piece) => (piece.clone(), 0),
        Layout::Manifest { id, parts } => {
            let (_, found) = parts_at(&from.snapshot, &from.home, (*id, *parts), offset, 1)?;
            let Some(part) = found.first().filter(|p| p.offset <= offset && offset + len <= p.offset + p.size) else {
                return Ok(None);
            };
            (Piece::read(&from.snapshot, &from.home, part.body_id(*id))?, part.offset)
        }
    };
    match piece {
        Piece::Inline(_) => Ok(None),
        Piece::Stretch(stretch) => Ok(Some(stretch.reference(offset - begin, len))),
    }
}

/// The contents that a copy will own, each once.
pub(super) fn contents(data: &CopyData) -> Vec<(Home, ContentId)> {
    let mut contents: Vec<(Home, ContentId)> = match data {
        CopyData::One(reference) => vec![(reference.home.clone(), reference.content)],
        CopyData::Parts(parts) => parts.iter().map(|(_, r)| (r.home.clone(), r.content)).collect(),
    };
    contents.sort();
    contents.dedup();
    contents
}

/// What it refers to, one by one.
pub(super) fn references(data: &CopyData) -> Vec<&Reference> {
    match data {
        CopyData::One(reference) => vec![reference],
        CopyData::Parts(parts) => parts.iter().map(|(_, reference)| reference).collect(),
    }
}

/// An upper bound of what a part and its reference take in an entry.
fn encoded_bytes(part: &ManifestPart, reference: &Reference) -> usize {
    let checksum = part.checksum.as_ref().map_or(0, |c| c.digest.len() + 8);
    let locations: usize = reference.locations.iter().map(|l| 12 + 10 * l.disks.len()).sum();
    128 + checksum + reference.home.key.as_str().len() + 32 * reference.runs.len() + locations
}
