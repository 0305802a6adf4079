//! CopyObject (protocols.md 3).
//!
//! 0. The source version is read, its conditions are judged, digests that are not stored are computed by reading.
//! 1. The records of the groups get the destination's bucket into their sets, if it is not there and they suit it (`fit`).
//! 2. Home shards other than the destination's add the attempt as owner of each content.
//! 3. One entry in the destination's shard judges the destination's conditions and creates the version.
//!
//! Promises: no data byte is written where contents can be referred to; each reading of the source has its own attempt id;
//! the owner id is taken back only when step 3 was never proposed or was refused for good. Refuses to know: HTTP.

mod conditions;
mod digest;
mod fit;
mod owners;
mod reference;

pub(crate) use digest::Digests;
pub(crate) use owners::Ended;
pub(crate) use reference::of_range as range_reference;

use crate::api::{CopyObject, CopyOutcome, CopySource, ObjectMeta, StoreError};
use crate::controller::Controller;
use crate::get::Found;
use crate::limits;
use crate::put::put_outcome;
use crate::read::{Layout, Piece};
use crate::receive::{Feed, NewContent};
use metadata::command::{CopyData, KeyOp, NewVersion, Outcome};
use metadata::rows::{ContentBytes, Home};
use types::limits::COPY_MAX_BYTES;
use types::{AttemptId, Checksum, ChecksumAlgorithm, ChecksumKind, ETag};

/// Headers of a source that a copy never inherits.
const NEVER_COPIED: [&str; 2] = ["x-amz-storage-class", "x-amz-website-redirect-location"];

/// ETag and checksum of the copy, and the version they were computed from.
type Known = Option<(AttemptId, ETag, Option<Checksum>)>;

impl Controller {
    /// Copies a version. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn copy(&self, source: CopySource, target: CopyObject) -> Result<CopyOutcome, StoreError> {
        self.current_bucket(&target.bucket)?;
        self.check_room()?;
        let mut known: Known = None;
        for _ in 0..limits::COPY_ATTEMPTS {
            let from = self.copy_source(&source).await?;
            if from.info.size > COPY_MAX_BYTES {
                return Err(StoreError::TooLarge);
            }
            let source_version = from.info.version;
            let (etag, checksum) = digests_of_copy(&from, target.checksum, &mut known).await?;
            let object = NewVersion {
                size: from.info.size,
                etag,
                checksum,
                meta: target.meta.clone().unwrap_or_else(|| inherited(&from.info.meta, &target.always)),
                tags: target.tags.clone().unwrap_or_else(|| from.info.tags.clone()),
            };
            if let Some(outcome) = self.copy_once(from, &target, object).await? {
                return Ok(CopyOutcome { put: put_outcome(outcome)?, source_version });
            }
        }
        Err(StoreError::Unavailable("the source was replaced again and again while it was copied".into()))
    }

    /// Step 0: a linearizable read of the source, and its conditions.
    pub(crate) async fn copy_source(&self, source: &CopySource) -> Result<Found, StoreError> {
        let found = self.find(&source.bucket, &source.key, source.version).await?;
        conditions::check_source(&source.conditions, found.info.etag, found.info.modified_ms)?;
        Ok(found)
    }

    /// One reading of the source under one attempt. `None`: the source went while it was copied.
    async fn copy_once(
        &self,
        from: Found,
        target: &CopyObject,
        object: NewVersion,
    ) -> Result<Option<Outcome>, StoreError> {
        let attempt = self.proposer().attempt();
        let conditions = target.conditions.clone();
        let layout = from.layout()?;
        if let Layout::One(Piece::Inline(bytes)) = layout {
            let op = KeyOp::Put { object, bytes: ContentBytes::Inline(bytes), conditions };
            return Ok(Some(self.propose(&target.bucket, &target.key, attempt, op).await?));
        }
        let Some(data) = self.referred(&from, &layout, target).await? else {
            return self.copy_bytes(from, layout, target, attempt, object).await.map(Some);
        };
        let destination = Home { bucket: target.bucket.id, key: target.key.clone() };
        let foreign = match self.add_owners(attempt, &destination, reference::contents(&data)).await? {
            Ended::Done(foreign) => foreign,
            Ended::SourceGone => return Ok(None),
        };
        let op = KeyOp::Copy { object, data, conditions };
        let answer = self.propose(&target.bucket, &target.key, attempt, op).await;
        self.owners_proposed(attempt, foreign, answer).await
    }

    /// What the copy refers to; `None` where bytes have to be copied: they ride in a row, or their groups are not what the
    /// destination asks for. The sets of the groups name the destination from here on, before any owner row is proposed.
    async fn referred(
        &self,
        from: &Found,
        layout: &Layout,
        target: &CopyObject,
    ) -> Result<Option<CopyData>, StoreError> {
        let Some(data) = reference::of_object(from, layout)? else { return Ok(None) };
        let fits = self.fits(&target.bucket, &from.snapshot, reference::references(&data)).await?;
        Ok(fits.then_some(data))
    }

    /// Copies physically: what cannot be referred to.
    async fn copy_bytes(
        &self,
        from: Found,
        layout: Layout,
        target: &CopyObject,
        attempt: AttemptId,
        object: NewVersion,
    ) -> Result<Outcome, StoreError> {
        let _permit = self.physical_copy().await;
        let size = object.size;
        let feed = Feed::Copy(Box::new(from.into_body(layout, 0, size)), Box::new(Digests::new(None)));
        let (bucket, key) = (&target.bucket, &target.key);
        let content = NewContent { bucket, key, attempt, inline_bytes: None, size_hint: Some(size) };
        let stored = self.store(content, feed).await?;
        let op = KeyOp::Put { object, bytes: stored.bytes, conditions: target.conditions.clone() };
        self.commit(bucket, key, attempt, op, stored.guard).await
    }
}

/// ETag and checksum of a copy: those stored where they describe the whole, else computed by reading.
async fn digests_of_copy(
    from: &Found,
    wanted: Option<ChecksumAlgorithm>,
    known: &mut Known,
) -> Result<(ETag, Option<Checksum>), StoreError> {
    let algorithm = wanted.or(from.info.checksum.as_ref().map(|c| c.algorithm));
    let stored = from.info.checksum.clone().filter(|c| Some(c.algorithm) == algorithm && is_whole(c));
    let is_md5 = matches!(from.info.etag, ETag::Md5(_));
    if is_md5 && (stored.is_some() || algorithm.is_none()) {
        return Ok((from.info.etag, stored));
    }
    if let Some((version, etag, checksum)) = known
        && *version == from.attempt
    {
        return Ok((*etag, checksum.clone()));
    }
    let missing = algorithm.filter(|_| stored.is_none());
    let mut body = from.body(from.layout()?, 0, from.info.size);
    let (_, md5, computed) = Digests::new(missing).read_through(&mut body).await?.finish();
    let (etag, checksum) = (ETag::Md5(md5), stored.or(computed));
    *known = Some((from.attempt, etag, checksum.clone()));
    Ok((etag, checksum))
}

fn is_whole(checksum: &Checksum) -> bool {
    checksum.kind == ChecksumKind::FullObject
}

fn inherited(meta: &ObjectMeta, always: &[(String, String)]) -> ObjectMeta {
    let mut meta = meta.clone();
    meta.headers.retain(|(name, _)| !NEVER_COPIED.contains(&name.as_str()));
    meta.headers.extend_from_slice(always);
    meta
}
