//! UploadPartCopy: a part that refers to (a range of) a content, or copies the bytes where it cannot.
//!
//! Promises: as CopyObject (`copy`); ranges below 5 MiB, ranges over several contents and bytes that ride in a row are copied.
//! Refuses to know: HTTP.

use crate::api::{BucketInfo, CopySource, PartEntry, StoreError, UploadId};
use crate::controller::Controller;
use crate::copy::{Digests, Ended, range_reference};
use crate::get::Found;
use crate::limits;
use crate::multipart::part_entry;
use crate::read::Layout;
use crate::receive::{Feed, NewContent};
use metadata::command::{KeyOp, PartBytes};
use metadata::rows::{Home, Reference};
use std::sync::Arc;
use types::limits::CONTENT_MAX_BYTES;
use types::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag, ObjectKey, VersionId};

/// Where a part is to go.
struct Slot<'a> {
    bucket: &'a Arc<BucketInfo>,
    key: &'a ObjectKey,
    upload: &'a UploadId,
    number: u32,
    /// Of the upload's checksums.
    algorithm: Option<ChecksumAlgorithm>,
}

impl Controller {
    /// Stores a part from (a range of) an object. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn copy_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        source: CopySource,
        range: Option<(u64, u64)>,
    ) -> Result<(PartEntry, Option<VersionId>), StoreError> {
        let (row, _) = self.upload_row(bucket, key, upload).await?;
        self.check_room()?;
        let algorithm = row.checksum.map(|(algorithm, _)| algorithm);
        let bucket = Arc::new(bucket.clone());
        let slot = Slot { bucket: &bucket, key, upload, number, algorithm };
        for _ in 0..limits::COPY_ATTEMPTS {
            let from = self.copy_source(&source).await?;
            let (offset, len) = checked_range(range, from.info.size)?;
            let version = from.info.version;
            let layout = from.layout()?;
            let referred = match len < limits::COPY_RANGE_MIN_BYTES {
                true => None,
                false => range_reference(&from, &layout, offset, len)?,
            };
            // The groups are to suit the destination, and their sets to name it before any owner row is proposed.
            let referred = match referred {
                Some(reference) if self.fits(&bucket, &from.snapshot, [&reference]).await? => Some(reference),
                _ => None,
            };
            let Some(reference) = referred else {
                let entry = self.copy_part_bytes(&slot, from, layout, offset, len).await?;
                return Ok((entry, version));
            };
            if let Some(entry) = self.refer_part(&slot, from, layout, offset, reference).await? {
                return Ok((entry, version));
            }
        }
        Err(StoreError::Unavailable("the source was replaced again and again while it was copied".into()))
    }

    /// By reference: no data byte is written. `None`: the source went.
    async fn refer_part(
        &self,
        slot: &Slot<'_>,
        from: Found,
        layout: Layout,
        offset: u64,
        reference: Reference,
    ) -> Result<Option<PartEntry>, StoreError> {
        let size = reference.size;
        let (md5, checksum) = part_digests(slot, from, layout, offset, size).await?;
        let attempt = self.proposer().attempt();
        let destination = Home { bucket: slot.bucket.id, key: slot.key.clone() };
        let contents = vec![(reference.home.clone(), reference.content)];
        let foreign = match self.add_owners(attempt, &destination, contents).await? {
            Ended::Done(foreign) => foreign,
            Ended::SourceGone => return Ok(None),
        };
        let bytes = PartBytes::Copied(reference);
        let (upload, number) = (slot.upload.0, slot.number);
        let op = KeyOp::PutPart { upload, number, size, md5, checksum: checksum.clone(), bytes };
        let answer = self.propose(slot.bucket, slot.key, attempt, op).await;
        match self.owners_proposed(attempt, foreign, answer).await? {
            Some(outcome) => part_entry(number, size, md5, checksum, outcome).map(Some),
            None => Ok(None),
        }
    }

    /// The bytes themselves, as a new content.
    async fn copy_part_bytes(
        &self,
        slot: &Slot<'_>,
        from: Found,
        layout: Layout,
        offset: u64,
        len: u64,
    ) -> Result<PartEntry, StoreError> {
        let _permit = self.physical_copy().await;
        let attempt = self.proposer().attempt();
        let feed = Feed::Copy(Box::new(from.into_body(layout, offset, len)), Box::new(Digests::new(slot.algorithm)));
        let (bucket, key) = (slot.bucket, slot.key);
        let content = NewContent { bucket, key, attempt, inline_bytes: None, size_hint: Some(len) };
        let stored = self.store(content, feed).await?;
        self.commit_part(bucket, key, slot.upload, slot.number, attempt, stored).await
    }
}

fn checked_range(range: Option<(u64, u64)>, size: u64) -> Result<(u64, u64), StoreError> {
    let (offset, len) = range.unwrap_or((0, size));
    if len > CONTENT_MAX_BYTES {
        return Err(StoreError::TooLarge);
    }
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(StoreError::InvalidState("the range is not within the source".into()));
    }
    Ok((offset, len))
}

/// MD5 and checksum of the range: the stored ones if it is the whole source and they cover it, else computed by reading.
async fn part_digests(
    slot: &Slot<'_>,
    from: Found,
    layout: Layout,
    offset: u64,
    len: u64,
) -> Result<([u8; 16], Option<Checksum>), StoreError> {
    let whole = offset == 0 && len == from.info.size;
    let stored = from.info.checksum.clone().filter(|c| whole && c.kind == ChecksumKind::FullObject);
    let stored = stored.filter(|c| Some(c.algorithm) == slot.algorithm);
    match from.info.etag {
        ETag::Md5(md5) if whole && (stored.is_some() || slot.algorithm.is_none()) => Ok((md5, stored)),
        _ => {
            let digests = Digests::new(slot.algorithm).read_through(&mut from.into_body(layout, offset, len)).await?;
            let (_, md5, checksum) = digests.finish();
            Ok((md5, checksum))
        }
    }
}
