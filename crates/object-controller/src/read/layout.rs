//! Where the bytes of a version are: in the row, in one content, or in the parts of a manifest.
//!
//! Promises: a byte's part is found by halving the manifest's rows. Refuses to know: how extents are read.

use crate::api::StoreError;
use crate::snapshots::{Snapshot, read_failed};
use bytes::Bytes;
use metadata::read::content;
use metadata::rows::{BodyId, BodyRow, ContentBytes, DataRef, Home, Location, ManifestPart, Reference, Run};
use std::sync::Arc;
use types::{AttemptId, ContentId};

/// (A range of) a content in extents.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) home: Home,
    pub(crate) content: ContentId,
    /// First byte of the content that is meant.
    pub(crate) offset: u64,
    /// Bytes meant.
    pub(crate) size: u64,
    pub(crate) content_size: u64,
    pub(crate) runs: Vec<Run>,
    pub(crate) locations: Vec<Location>,
}

/// One body row, made ready to be read.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Inline(Bytes),
    Stretch(Arc<Stretch>),
}

/// Where the bytes of a version are.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    One(Piece),
    Manifest { id: AttemptId, parts: u32 },
}

impl Layout {
    /// Of a version of `home`; reads its body row unless the bytes lie in parts.
    pub(crate) fn of(snapshot: &Snapshot, home: &Home, data: DataRef) -> Result<Layout, StoreError> {
        match data {
            DataRef::Body(id) => Ok(Layout::One(Piece::read(snapshot, home, BodyId::whole(id))?)),
            DataRef::Manifest { id, parts } => Ok(Layout::Manifest { id, parts }),
        }
    }
}

impl Layout {
    /// Parts from the `index`-th on; empty for an object without parts.
    pub(crate) fn parts_from(
        &self,
        snapshot: &Snapshot,
        home: &Home,
        index: u32,
        max: usize,
    ) -> Result<Vec<ManifestPart>, StoreError> {
        match self {
            Layout::One(_) => Ok(Vec::new()),
            Layout::Manifest { id, .. } => {
                content::manifest(snapshot.read(), home.bucket, &home.key, *id, index, max).map_err(read_failed)
            }
        }
    }
}

impl Piece {
    /// The body row of that id under `home`. That it is missing is damage: a version names it.
    pub(crate) fn read(snapshot: &Snapshot, home: &Home, id: BodyId) -> Result<Piece, StoreError> {
        let row = content::body(snapshot.read(), home.bucket, &home.key, id).map_err(read_failed)?;
        Piece::of(row, home, id)
    }

    /// Of that row, if it was found.
    pub(crate) fn of(row: Option<BodyRow>, home: &Home, id: BodyId) -> Result<Piece, StoreError> {
        match row {
            None => Err(StoreError::Damaged(format!("the body row {} is missing", id.id))),
            Some(BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. }) => Ok(Piece::Inline(bytes)),
            Some(BodyRow::Content { size, bytes: ContentBytes::Extents { runs, locations } }) => {
                let (home, content) = (home.clone(), id.id);
                let stretch = Stretch { home, content, offset: 0, size, content_size: size, runs, locations };
                Ok(Piece::Stretch(Arc::new(stretch)))
            }
            Some(BodyRow::Reference(reference)) => Ok(Piece::Stretch(Arc::new(reference.into()))),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Piece::Inline(bytes) => bytes.len() as u64,
            Piece::Stretch(stretch) => stretch.size,
        }
    }
}

impl From<Reference> for Stretch {
    fn from(r: Reference) -> Stretch {
        Stretch {
            home: r.home,
            content: r.content,
            offset: r.offset,
            size: r.size,
            content_size: r.content_size,
            runs: r.runs,
            locations: r.locations,
        }
    }
}

impl Stretch {
    /// A reference to `size` bytes of it from `offset` on.
    pub(crate) fn reference(&self, offset: u64, size: u64) -> Reference {
        Reference {
            home: self.home.clone(),
            content: self.content,
            offset: self.offset + offset,
            size,
            content_size: self.content_size,
            runs: self.runs.clone(),
            locations: self.locations.clone(),
        }
    }
}

/// Parts of a manifest from the one that holds byte `offset` on.
pub(crate) fn parts_at(
    snapshot: &Snapshot,
    home: &Home,
    (id, parts): (AttemptId, u32),
    offset: u64,
    max: usize,
) -> Result<(u32, Vec<ManifestPart>), StoreError> {
    content::manifest_at(snapshot.read(), home.bucket, &home.key, id, parts, offset, max).map_err(read_failed)
}
