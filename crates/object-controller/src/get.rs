//! GET and HEAD: one version is looked up, then its bytes are read for as long as the handle lives.
//!
//! Promises: the reclaim epoch is pinned *before* metadata is read, so that no byte of the version is reclaimed under the
//! reader; HEAD and inline GET touch no data disk. Refuses to know: ranges and conditions of HTTP.

use crate::api::{BucketInfo, ObjectInfo, PartInfo, ReadBody, ReadHandle, StoreError, Versioning};
use crate::controller::Controller;
use crate::pins::Pin as EpochPin;
use crate::read::{Body, Extents, Layout};
use crate::snapshots::{Snapshot, read_failed};
use metadata::read::{content, object};
use metadata::rows::{DataRef, Home, ObjectRow, VersionRow};
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
        let object =
            row.object.take().ok_or_else(|| StoreError::Internal("a live version without an object".into()))?;
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
        let found = self.find(bucket, key, version).await?;
        let layout = if want_body { Some(found.layout()?) } else { None };
        Ok(Box::new(Handle { found, layout }))
    }
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

/// Of a handle that was asked for without its body.
struct NoBody;

impl ReadBody for NoBody {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<bytes::Bytes>, StoreError>> + Send + '_>> {
        Box::pin(ready(Err(StoreError::Internal("the version was looked up without its body".into()))))
    }
}
