//! Multipart uploads: created, filled, completed, aborted, listed.
//!
//! Promises: a part is a content of its own, in extents also when it is small, so that copies can refer to it; Complete, Abort
//! and late parts are decided by the order of the log. Refuses to know: what Complete checks (apply does).

use crate::api::{
    BodySource, BodySummary, BucketInfo, CompleteUpload, CreateUpload, NewObject, PartEntry, PartPage, PutOutcome,
    StoreError, UploadId, UploadInfo,
};
use crate::controller::Controller;
use crate::copy::Digests;
use crate::put::{put_outcome, unexpected};
use crate::read::{Body, Layout, Piece, Stretch};
use crate::receive::{Feed, NewContent, Stored};
use crate::snapshots::{Snapshot, read_failed};
use metadata::command::{KeyOp, Outcome, PartBytes};
use metadata::read::upload as rows;
use metadata::rows::{ContentBytes, Home, UploadRow};
use std::sync::Arc;
use types::{AttemptId, Checksum, ChecksumAlgorithm, ETag, ObjectKey};

impl Controller {
    /// Begins an upload.
    pub(crate) async fn begin_upload(&self, request: CreateUpload) -> Result<UploadId, StoreError> {
        let NewObject { meta, tags } = request.object;
        self.check_room()?;
        let attempt = self.proposer().attempt();
        let op = KeyOp::CreateUpload { meta, tags, checksum: request.checksum };
        match self.propose(&request.bucket, &request.key, attempt, op).await? {
            Outcome::Refused(refusal) => Err(crate::refusal::store_error(refusal)),
            _ => Ok(UploadId(attempt)),
        }
    }

    /// What the upload was created with.
    pub(crate) async fn upload_info(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<UploadInfo, StoreError> {
        let (row, _) = self.upload_row(bucket, key, upload).await?;
        let object = NewObject { meta: row.meta, tags: row.tags };
        Ok(UploadInfo { object, checksum: row.checksum, initiated_ms: row.initiated_ms })
    }

    /// The row of an upload in progress.
    pub(crate) async fn upload_row(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(UploadRow, Snapshot), StoreError> {
        self.current_bucket(bucket)?;
        let snapshot = self.snapshots().of(&Home { bucket: bucket.id, key: key.clone() }).await?;
        let row = rows::upload(snapshot.read(), bucket.id, key, upload.0).map_err(read_failed)?;
        Ok((row.ok_or(StoreError::NoSuchUpload)?, snapshot))
    }

    /// Stores a part. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn put_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: &mut dyn BodySource,
    ) -> Result<PartEntry, StoreError> {
        let (row, _) = self.upload_row(bucket, key, upload).await?;
        let (bucket, attempt) = (Arc::new(bucket.clone()), self.proposer().attempt());
        let content = NewContent { bucket: &bucket, key, attempt, inline_bytes: None, size_hint: None };
        let mut stored = self.store(content, Feed::Client(body)).await?;
        let algorithm = row.checksum.map(|(algorithm, _)| algorithm);
        stored.summary.checksum = self.part_checksum(&bucket, key, attempt, &stored, algorithm).await?;
        self.commit_part(&bucket, key, upload, number, attempt, stored).await
    }

    /// Commits a part whose bytes are stored.
    pub(crate) async fn commit_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        attempt: AttemptId,
        stored: Stored,
    ) -> Result<PartEntry, StoreError> {
        let BodySummary { size, md5, checksum } = stored.summary;
        let bytes = PartBytes::New(stored.bytes);
        let op = KeyOp::PutPart { upload: upload.0, number, size, md5, checksum: checksum.clone(), bytes };
        let outcome = self.commit(bucket, key, attempt, op, stored.guard).await?;
        part_entry(number, size, md5, checksum, outcome)
    }

    /// The checksum a part must have if its upload has an algorithm: the one that came with it, else computed by reading back
    /// what was just written (the edge computes it while the bytes flow, so this is rare).
    async fn part_checksum(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        content: AttemptId,
        stored: &Stored,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<Option<Checksum>, StoreError> {
        let sent = stored.summary.checksum.clone();
        let Some(algorithm) = algorithm.filter(|a| sent.as_ref().is_none_or(|c| c.algorithm != *a)) else {
            return Ok(sent);
        };
        let ContentBytes::Extents { runs, locations } = stored.bytes.clone() else { return Ok(sent) };
        let home = Home { bucket: bucket.id, key: key.clone() };
        let size = stored.summary.size;
        let stretch = Stretch { home: home.clone(), content, offset: 0, size, content_size: size, runs, locations };
        let layout = Layout::One(Piece::Stretch(Arc::new(stretch)));
        let pin = Arc::new(self.pins().pin());
        let mut body = Body::new(self.extents().clone(), pin, home, layout, 0, size);
        Ok(Digests::new(Some(algorithm)).read_through(&mut body).await?.finish().2)
    }

    /// Makes the object of the listed parts.
    pub(crate) async fn complete(&self, request: CompleteUpload) -> Result<PutOutcome, StoreError> {
        let parts = request.parts.into_iter().map(|p| (p.number, p.etag, p.checksum)).collect();
        let op = KeyOp::CompleteUpload {
            upload: request.upload.0,
            parts,
            conditions: request.conditions,
            checksum: request.checksum,
            size: request.size,
        };
        let attempt = self.proposer().attempt();
        put_outcome(self.propose(&request.bucket, &request.key, attempt, op).await?)
    }

    /// Ends the upload and condemns its parts.
    pub(crate) async fn abort(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(), StoreError> {
        let attempt = self.proposer().attempt();
        self.propose(bucket, key, attempt, KeyOp::AbortUpload { upload: upload.0 }).await?;
        Ok(())
    }

    /// Parts with numbers above `after`.
    pub(crate) async fn parts(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        max: u32,
    ) -> Result<PartPage, StoreError> {
        let (_, snapshot) = self.upload_row(bucket, key, upload).await?;
        let page = rows::parts(snapshot.read(), bucket.id, key, upload.0, after, max as usize).map_err(read_failed)?;
        let entry = |(number, row): (u32, metadata::rows::PartRow)| PartEntry {
            number,
            etag: ETag::Md5(row.md5),
            size: row.size,
            modified_ms: row.modified_ms,
            checksum: row.checksum,
        };
        Ok(PartPage { parts: page.parts.into_iter().map(entry).collect(), truncated: page.truncated })
    }
}

/// A stored part in the api's words.
pub(crate) fn part_entry(
    number: u32,
    size: u64,
    md5: [u8; 16],
    checksum: Option<Checksum>,
    outcome: Outcome,
) -> Result<PartEntry, StoreError> {
    match outcome {
        Outcome::Part { modified_ms } => Ok(PartEntry { number, etag: ETag::Md5(md5), size, modified_ms, checksum }),
        other => Err(unexpected(&other)),
    }
}
