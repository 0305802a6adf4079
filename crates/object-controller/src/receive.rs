//! Taking a body in: small ones into memory, others into extents, digests verified before anything is committed.
//!
//! Promises: `Stored` means durable (or in memory, if it rides in the entry) and verified; whatever ends it earlier leaves
//! bytes that the guard condemns. Refuses to know: what the bytes are committed as.

use crate::abandon::UploadGuard;
use crate::api::{BodySource, BodySummary, BucketInfo, ReadBody, StoreError};
use crate::controller::Controller;
use crate::copy::Digests;
use crate::groups::Requirement;
use crate::ledger::Ledger;
use crate::upload::Upload;
use bytes::{Bytes, BytesMut};
use metadata::rows::{ContentBytes, Home};
use std::sync::Arc;
use types::limits::CONTENT_MAX_BYTES;
use types::{AttemptId, ObjectKey};

/// Where the bytes of a new content come from.
pub(crate) enum Feed<'a> {
    /// From a client.
    Client(&'a mut dyn BodySource),
    /// From a version that is copied.
    Copy(Box<dyn ReadBody>, Box<Digests>),
}

impl Feed<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self {
            Feed::Client(body) => Ok(body.next().await?),
            Feed::Copy(body, digests) => {
                let chunk = body.next().await?;
                if let Some(chunk) = &chunk {
                    digests.update(chunk);
                }
                Ok(chunk)
            }
        }
    }

    fn finish(self) -> Result<BodySummary, StoreError> {
        match self {
            Feed::Client(body) => Ok(body.finish()?),
            Feed::Copy(_, digests) => {
                let (size, md5, checksum) = digests.finish();
                Ok(BodySummary { size, md5, checksum })
            }
        }
    }
}

/// What is about to be written, and where it belongs.
pub(crate) struct NewContent<'a> {
    pub(crate) bucket: &'a Arc<BucketInfo>,
    pub(crate) key: &'a ObjectKey,
    pub(crate) attempt: AttemptId,
    /// Up to so many bytes ride in the entry; `None`: never.
    pub(crate) inline_bytes: Option<usize>,
    pub(crate) size_hint: Option<u64>,
}

/// A body that was taken in whole.
pub(crate) struct Stored {
    pub(crate) bytes: ContentBytes,
    pub(crate) summary: BodySummary,
    /// Condemns the bytes unless they are committed.
    pub(crate) guard: UploadGuard,
}

impl Controller {
    /// Takes a body in and verifies it. *Durable* if it lies in extents.
    pub(crate) async fn store(&self, content: NewContent<'_>, mut feed: Feed<'_>) -> Result<Stored, StoreError> {
        if content.size_hint.is_some_and(|size| size > CONTENT_MAX_BYTES) {
            return Err(StoreError::TooLarge);
        }
        self.check_room()?;
        let home = Home { bucket: content.bucket.id, key: content.key.clone() };
        let ledger = Ledger::new(home, content.attempt);
        // Before the upload, so that it is dropped after it: then no address is allotted any more.
        let guard = UploadGuard::new(self.clone(), content.bucket.clone(), ledger.clone());
        let mut head = Head::default();
        if let Some(limit) = content.inline_bytes.filter(|limit| content.size_hint.is_none_or(|s| s <= *limit as u64))
            && head.gather(&mut feed, limit).await?
        {
            let summary = feed.finish()?;
            check_size(&summary, head.size as u64)?;
            return Ok(Stored { bytes: ContentBytes::Inline(head.joined()), summary, guard });
        }
        let (groups, buffers) = (self.groups().clone(), self.write_buffers().clone());
        let requirement = Requirement::of(&content.bucket.durability, self.rf());
        let mut upload = Upload::new(groups, buffers, ledger, requirement, content.size_hint);
        for chunk in head.chunks {
            upload.write(chunk).await?;
        }
        while let Some(chunk) = upload.alongside(feed.next()).await?? {
            upload.write(chunk).await?;
        }
        let summary = feed.finish()?;
        check_size(&summary, upload.taken_bytes())?;
        let bytes = upload.finish().await?;
        Ok(Stored { bytes, summary, guard })
    }
}

fn check_size(summary: &BodySummary, taken: u64) -> Result<(), StoreError> {
    if summary.size == taken {
        return Ok(());
    }
    Err(StoreError::Internal(format!("the body says {} bytes, {taken} were taken", summary.size)))
}

/// The first bytes of a body, until it is known whether they are all.
#[derive(Default)]
struct Head {
    chunks: Vec<Bytes>,
    size: usize,
}

impl Head {
    /// Whether the body ended with at most `limit` bytes.
    async fn gather(&mut self, feed: &mut Feed<'_>, limit: usize) -> Result<bool, StoreError> {
        while let Some(chunk) = feed.next().await? {
            self.size += chunk.len();
            self.chunks.push(chunk);
            if self.size > limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn joined(self) -> Bytes {
        let mut chunks = self.chunks;
        if chunks.len() <= 1 {
            return chunks.pop().unwrap_or_default();
        }
        let mut all = BytesMut::with_capacity(self.size);
        chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
        all.freeze()
    }
}
