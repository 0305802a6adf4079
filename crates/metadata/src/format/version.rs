//! Values of `current` and `versions` rows, in two pieces: what LIST needs, readable without a copy, then the rest.
//!
//! ```text
//! version (1) | postcard(sequence, attempt, null, modified_ms, object head?) | postcard(headers, user metadata, tags)
//! ```
//! The second piece is there if and only if the first has an object head.

use super::value::{RowValue, after_version, encode_postcard};
use super::{FormatError, family};
use crate::rows::{DataRef, ObjectRow, VersionRow};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::object::{ObjectMeta, Tag};
use types::{AttemptId, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, VersionId};

const VERSION: u8 = 1;

/// What LIST needs of a version, borrowed from the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionHead<'a> {
    /// See [`VersionRow::sequence`].
    pub sequence: u64,
    /// See [`VersionRow::attempt`].
    pub attempt: AttemptId,
    /// See [`VersionRow::null`].
    pub null: bool,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// `None`: a delete marker.
    #[serde(borrow)]
    pub object: Option<ObjectHead<'a>>,
}

/// What LIST needs of an object, borrowed from the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectHead<'a> {
    /// Bytes.
    pub size: u64,
    /// Entity tag.
    pub etag: ETag,
    /// Additional checksum.
    #[serde(borrow)]
    pub checksum: Option<ChecksumHead<'a>>,
    /// Header `x-amz-storage-class`, repeated here from the headers.
    pub storage_class: Option<&'a str>,
    /// Where its bytes are.
    pub data: DataRef,
}

/// A checksum, borrowed from the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChecksumHead<'a> {
    /// Algorithm.
    pub algorithm: ChecksumAlgorithm,
    /// What it covers.
    pub kind: ChecksumKind,
    /// Raw digest.
    pub digest: &'a [u8],
}

impl ChecksumHead<'_> {
    /// As a value of its own.
    pub fn to_owned(&self) -> Checksum {
        Checksum { algorithm: self.algorithm, kind: self.kind, digest: self.digest.to_vec() }
    }
}

impl<'a> VersionHead<'a> {
    /// Reads only the first piece.
    pub fn read(row: &'a [u8]) -> Result<Self, FormatError> {
        split(row).map(|(head, _)| head)
    }

    /// The id that S3 shows.
    pub fn version_id(&self) -> VersionId {
        if self.null { VersionId::Null } else { VersionId::Id { sequence: self.sequence, attempt: self.attempt } }
    }
}

fn split(row: &[u8]) -> Result<(VersionHead<'_>, &[u8]), FormatError> {
    let fields = after_version(family::VERSIONS, VERSION, row)?;
    if let Some(read) = super::head::head(fields) {
        return Ok(read);
    }
    postcard::take_from_bytes(fields).map_err(|e| FormatError::new(family::VERSIONS, e))
}

#[derive(Serialize)]
struct RestRef<'a> {
    meta: &'a ObjectMeta,
    tags: &'a [Tag],
}

#[derive(Deserialize)]
struct Rest {
    meta: ObjectMeta,
    tags: Vec<Tag>,
}

fn object_head(object: &ObjectRow) -> ObjectHead<'_> {
    ObjectHead {
        size: object.size,
        etag: object.etag,
        checksum: object.checksum.as_ref().map(|c| ChecksumHead {
            algorithm: c.algorithm,
            kind: c.kind,
            digest: &c.digest,
        }),
        storage_class: object.meta.header("x-amz-storage-class"),
        data: object.data,
    }
}

impl RowValue for VersionRow {
    fn encode(&self) -> Bytes {
        let head = VersionHead {
            sequence: self.sequence,
            attempt: self.attempt,
            null: self.null,
            modified_ms: self.modified_ms,
            object: self.object.as_ref().map(object_head),
        };
        let out = encode_postcard(VERSION, &head);
        let Some(object) = &self.object else { return out.into() };
        let rest = RestRef { meta: &object.meta, tags: &object.tags };
        postcard::to_extend(&rest, out).expect("rows are plain values and a vector takes all bytes").into()
    }

    fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
        let (head, rest) = split(bytes)?;
        let object = match head.object {
            Some(object) => Some(object_row(&object, super::value::whole(family::VERSIONS, rest)?)),
            None if rest.is_empty() => None,
            None => return Err(FormatError::new(family::VERSIONS, "bytes after a delete marker")),
        };
        let VersionHead { sequence, attempt, null, modified_ms, .. } = head;
        Ok(VersionRow { sequence, attempt, null, modified_ms, object })
    }
}

fn object_row(head: &ObjectHead<'_>, rest: Rest) -> ObjectRow {
    ObjectRow {
        size: head.size,
        etag: head.etag,
        checksum: head.checksum.map(|c| c.to_owned()),
        meta: rest.meta,
        tags: rest.tags,
        data: head.data,
    }
}
