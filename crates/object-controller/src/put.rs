//! PUT.
//!
//! 1. The body is taken in: up to 16 KiB stay in memory, more goes into extents, durable on RF disks.
//! 2. Its digests are verified.
//! 3. One entry makes it a version; preconditions are judged there.
//!
//! Promises: nothing is visible before 3, everything after. Refuses to know: headers, signatures, disks.

use crate::api::{self, BodySource, PutObject, PutOutcome, StoreError};
use crate::controller::Controller;
use crate::receive::{Feed, NewContent};
use metadata::command::{self, KeyOp, NewVersion, Outcome};
use types::ETag;

impl Controller {
    /// Stores a body as the newest version. *Acknowledged* when it answers `Ok`; a crash before leaves garbage at most.
    pub(crate) async fn put(&self, request: PutObject, body: &mut dyn BodySource) -> Result<PutOutcome, StoreError> {
        let PutObject { bucket, key, object, conditions, size_hint } = request;
        self.current_bucket(&bucket)?;
        let attempt = self.proposer().attempt();
        let inline_bytes = Some(self.config().inline_bytes);
        let content = NewContent { bucket: &bucket, key: &key, attempt, inline_bytes, size_hint };
        let stored = self.store(content, Feed::Client(body)).await?;
        let object = NewVersion {
            size: stored.summary.size,
            etag: ETag::Md5(stored.summary.md5),
            checksum: stored.summary.checksum,
            meta: object.meta,
            tags: object.tags,
        };
        let op = KeyOp::Put { object, bytes: stored.bytes, conditions };
        put_outcome(self.commit(&bucket, &key, attempt, op, stored.guard).await?)
    }
}

/// What apply says of a new version, in the api's words.
pub(crate) fn put_outcome(outcome: Outcome) -> Result<PutOutcome, StoreError> {
    match outcome {
        Outcome::Put(command::PutOutcome { version, etag, size, checksum, modified_ms }) => {
            Ok(api::PutOutcome { version, etag, size, checksum, modified_ms })
        }
        other => Err(unexpected(&other)),
    }
}

/// An answer that does not belong to the question: our own mistake.
pub(crate) fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::Internal(format!("an unexpected outcome: {outcome:?}"))
}
