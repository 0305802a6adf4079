//! GET and HEAD: one version is looked up, then its bytes are read for as long as the handle lives.
//!
//! Promises: the reclaim epoch is pinned *before* the metadata is read that names extents, so that no byte of the version is
//! reclaimed under the reader; HEAD and inline GET touch no data disk, and with the current version in memory no tree either. Refuses to know: ranges and conditions of HTTP.

use crate::api::{BucketInfo, ObjectInfo, PartInfo, ReadBody, ReadHandle, StoreError, Versioning};
use crate::controller::Controller;
use crate::pins::Pin as EpochPin;
use crate::read::{Body, Extents, Layout, Piece};
use crate::snapshots::{Snapshot, read_failed};
use bytes::Bytes;
use metadata::cache::CurrentObject;
use metadata::read::{content, object};
use metadata::rows::{BodyId, DataRef, Home, ObjectRow, VersionRow};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use types::{AttemptId, ETag, ObjectKey, VersionId};

/// A version that was looked up.
pub(crate) struct Found {
    /// The attempt that made it: names the version among all of its key.
    pub(crate) attempt: AttemptId,
    pub(crate) data: DataRef,
    pub(crate) home: Home,
    pub(crate) info: ObjectInfo,
    pub(crate) snapshot: Snapshot,
    pin: Arc<EpochPin>,
    extents: Extents,
}

impl Controller {
    /// The current version, or the one of that id.
    pub(crate) async fn find(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
    ) -> Result<Found, StoreError> {
        let pin = Arc::new(self.pins().pin());
        let home = Home { bucket: bucket.id, key: key.clone() };
        let snapshot = self.snapshots().of(&home).await?;
        let versioned = self.current_bucket(bucket)?.versioning != Versioning::Off;
        let found = object::lookup(snapshot.read(), bucket.id, key, version, versioned).map_err(read_failed)?;
        let mut row = match found {
            object::Lookup::Live(row) => *row,
            object::Lookup::NoSuchKey(delete_marker) => return Err(StoreError::NoSuchKey { delete_marker }),
            object::Lookup::NoSuchVersion => return Err(StoreError::NoSuchVersion),
            object::Lookup::DeleteMarker(version, modified_ms) => {
                return Err(StoreError::DeleteMarker { version, modified_ms });
            }
        };
        let object = row.object.take().ok_or_else(no_object)?;
        let (attempt, data) = (row.attempt, object.data);
        let info = info_of(&row, object, versioned);
        Ok(Found { attempt, data, home, info, snapshot, pin, extents: self.extents().clone() })
    }

    /// A handle for the api; with `want_body` it knows where the bytes are.
    pub(crate) async fn handle(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        want_body: bool,
    ) -> Result<Box<dyn ReadHandle>, StoreError> {
        if version.is_none() {
            // Where there are other nodes, first to where this one knows what they answered, and the pin before that.
            let pin = if self.nodes().is_alone() { None } else { Some(self.pin_and_pass(bucket, key).await?) };
            if let Some(object) = self.metadata().current_in_memory(bucket.id, key, want_body) {
                return self.handle_of(bucket, &object, want_body);
            }
            if let Some(handle) = self.current_handle(bucket, key, want_body, pin)? {
                return Ok(handle);
            }
        }
        let found = self.find(bucket, key, version).await?;
        let layout = if want_body { Some(found.layout()?) } else { None };
        Ok(Box::new(Handle { found, layout }))
    }

    async fn pin_and_pass(&self, bucket: &BucketInfo, key: &ObjectKey) -> Result<EpochPin, StoreError> {
        let pin = self.pins().pin();
        let shard = self.proposer().shard_of(&Home { bucket: bucket.id, key: key.clone() });
        self.nodes().barrier(shard).await?;
        Ok(pin)
    }

    /// Of the live current version, as far as one row says where its bytes are; `None`: look further.
    fn current_handle(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        want_body: bool,
        pin: Option<EpochPin>,
    ) -> Result<Option<Box<dyn ReadHandle>>, StoreError> {
        let pin = pin.unwrap_or_else(|| self.pins().pin());
        let Some(object) = self.metadata().current(bucket.id, key, want_body).map_err(read_failed)? else {
            return Ok(None);
        };
        if !want_body || object.inline().is_some() {
            return self.handle_of(bucket, &object, want_body).map(Some);
        }
        let Some(DataRef::Body(id)) = object.data() else { return Ok(None) };
        let home = Home { bucket: bucket.id, key: key.clone() };
        let piece = Piece::of(object.body.clone(), &home, BodyId::whole(id))?;
        let source = Source::Extents { extents: self.extents().clone(), pin: Arc::new(pin), home, piece };
        Ok(Some(Box::new(Current { info: self.current_info(bucket, &object)?, source })))
    }

    /// Of an object whose bytes are not wanted or in memory.
    fn handle_of(
        &self,
        bucket: &BucketInfo,
        object: &CurrentObject,
        want_body: bool,
    ) -> Result<Box<dyn ReadHandle>, StoreError> {
        let source = match object.inline() {
            Some(bytes) if want_body => Source::Inline(bytes.clone()),
            _ => Source::Unwanted,
        };
        Ok(Box::new(Current { info: self.current_info(bucket, object)?, source }))
    }

    fn current_info(&self, bucket: &BucketInfo, found: &CurrentObject) -> Result<ObjectInfo, StoreError> {
        // After the look-up, as in `find`.
        let versioned = self.current_bucket(bucket)?.versioning != Versioning::Off;
        let object = found.row.object.clone().ok_or_else(no_object)?;
        Ok(info_of(&found.row, object, versioned))
    }
}

fn no_object() -> StoreError {
    StoreError::Internal("a live version without an object".into())
}

fn info_of(row: &VersionRow, object: ObjectRow, versioned: bool) -> ObjectInfo {
    // A copy of a multipart object keeps the parts it refers to, but shows none: its ETag is that of the whole.
    let parts = match (object.data, object.etag) {
        (DataRef::Manifest { parts, .. }, ETag::Multipart { .. }) => Some(parts),
        _ => None,
    };
    ObjectInfo {
        version: versioned.then(|| row.version_id()),
        etag: object.etag,
        size: object.size,
        modified_ms: row.modified_ms,
        meta: object.meta,
        tags: object.tags,
        checksum: object.checksum,
        parts,
    }
}

impl Found {
    /// Where its bytes are.
    pub(crate) fn layout(&self) -> Result<Layout, StoreError> {
        Layout::of(&self.snapshot, &self.home, self.data)
    }

    /// As [`Found::body`], and lets go of the position in the metadata: bytes may flow for hours.
    pub(crate) fn into_body(self, layout: Layout, offset: u64, len: u64) -> Body {
        self.body(layout, offset, len)
    }

    /// Its bytes `[offset, offset + len)`.
    pub(crate) fn body(&self, layout: Layout, offset: u64, len: u64) -> Body {
        let (pin, home) = (self.pin.clone(), self.home.clone());
        Body::new(self.extents.clone(), pin, home, layout, offset, len)
    }
}

struct Handle {
    found: Found,
    layout: Option<Layout>,
}

impl Handle {
    fn read_parts(&self, index: u32, max: u32) -> Result<Vec<PartInfo>, StoreError> {
        let (DataRef::Manifest { id, .. }, Some(_)) = (self.found.data, self.found.info.parts) else {
            return Ok(Vec::new());
        };
        let Home { bucket, key } = &self.found.home;
        let parts = content::manifest(self.found.snapshot.read(), *bucket, key, id, index, max as usize);
        let parts = parts.map_err(read_failed)?;
        let of = |p: metadata::rows::ManifestPart| PartInfo {
            number: p.number,
            offset: p.offset,
            size: p.size,
            checksum: p.checksum,
        };
        Ok(parts.into_iter().map(of).collect())
    }
}

impl ReadHandle for Handle {
    fn info(&self) -> &ObjectInfo {
        &self.found.info
    }

    fn parts(
        &self,
        index: u32,
        max: u32,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<PartInfo>, StoreError>> + Send + '_>> {
        Box::pin(ready(self.read_parts(index, max)))
    }

    fn read(self: Box<Self>, offset: u64, len: u64) -> Box<dyn ReadBody> {
        let Handle { found, layout } = *self;
        match layout {
            Some(layout) => Box::new(found.into_body(layout, offset, len)),
            None => Box::new(NoBody),
        }
    }
}

/// A live current version out of one look at it.
struct Current {
    info: ObjectInfo,
    source: Source,
}

/// Where its bytes are.
enum Source {
    Unwanted,
    Inline(Bytes),
    Extents { extents: Extents, pin: Arc<EpochPin>, home: Home, piece: Piece },
}

impl ReadHandle for Current {
    fn info(&self) -> &ObjectInfo {
        &self.info
    }

    fn parts(&self, _: u32, _: u32) -> Pin<Box<dyn Future<Output = Result<Vec<PartInfo>, StoreError>> + Send + '_>> {
        // Whoever wants parts asks with the body: then an object that has any is not of this kind.
        let asked = match self.info.parts {
            None => Ok(Vec::new()),
            Some(_) => Err(StoreError::Internal("the version was looked up without its parts".into())),
        };
        Box::pin(ready(asked))
    }

    fn read(self: Box<Self>, offset: u64, len: u64) -> Box<dyn ReadBody> {
        match self.source {
            Source::Unwanted => Box::new(NoBody),
            Source::Inline(bytes) => Box::new(InlineBody::of(&bytes, offset, len)),
            Source::Extents { extents, pin, home, piece } => {
                Box::new(Body::new(extents, pin, home, Layout::One(piece), offset, len))
            }
        }
    }
}

/// Bytes that are in memory.
struct InlineBody(Option<Bytes>);

impl InlineBody {
    /// Those of the range that are there. If they are fewer than was asked for the caller sees an answer of the wrong length.
    fn of(all: &Bytes, offset: u64, len: u64) -> InlineBody {
        let end = all.len() as u64;
        let (from, to) = (offset.min(end), offset.saturating_add(len).min(end));
        InlineBody(Some(all.slice(from as usize..to as usize)))
    }
}

impl ReadBody for InlineBody {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, StoreError>> + Send + '_>> {
        Box::pin(ready(Ok(self.0.take().filter(|bytes| !bytes.is_empty()))))
    }

    fn take_ready(&mut self) -> Option<Bytes> {
        self.0.take()
    }
}

/// Of a handle that was asked for without its body.
struct NoBody;

impl ReadBody for NoBody {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, StoreError>> + Send + '_>> {
        Box::pin(ready(Err(StoreError::Internal("the version was looked up without its body".into()))))
    }
}
