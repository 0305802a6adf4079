//! Buckets: created, changed, deleted, in root and in every shard (protocols.md 9).
//!
//! Promises: a change is committed in root, its row raised in every shard that holds part of the bucket, marked done in root,
//! and only then answered; a crash in between is completed at the next start. Refuses to know: who may.

use crate::api::{BucketChange, BucketInfo, CreateBucket, ListVersions, StoreError, Versioning};
use crate::controller::Controller;
use crate::limits;
use crate::proposer::Failed;
use crate::put::unexpected;
use crate::snapshots::read_failed;
use metadata::command::{Outcome, Refusal, RootCommand, ShardCommand};
use metadata::read::{root, upload};
use metadata::rows::BucketRow;
use metadata::shard::{ROOT, Shard};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use types::{BucketId, ObjectKey};

/// What the shards of a bucket hold.
#[derive(Clone, Copy, Default)]
struct Holds {
    versions: bool,
    uploads: bool,
}

impl Controller {
    /// The bucket as it is now, if it is still that incarnation.
    pub(crate) fn current_bucket(&self, wanted: &BucketInfo) -> Result<Arc<BucketInfo>, StoreError> {
        let found = self.directory().bucket(&wanted.name);
        found.filter(|b| b.id == wanted.id).ok_or(StoreError::NoSuchBucket)
    }

    /// Creates. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn make_bucket(&self, request: CreateBucket) -> Result<Arc<BucketInfo>, StoreError> {
        let controller = self.clone();
        self.change_buckets(async move { controller.create_and_raise(request).await }).await
    }

    /// Changes one setting. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn alter_bucket(
        &self,
        bucket: &BucketInfo,
        change: BucketChange,
    ) -> Result<Arc<BucketInfo>, StoreError> {
        if change == BucketChange::Versioning(Versioning::Off) {
            return Err(StoreError::InvalidState("versioning never returns to off".into()));
        }
        let (controller, bucket) = (self.clone(), bucket.clone());
        self.change_buckets(async move { controller.change_and_raise(&bucket, change).await }).await
    }

    /// Deletes an empty bucket and its uploads. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn drop_bucket(&self, bucket: &BucketInfo) -> Result<(), StoreError> {
        let (controller, bucket) = (self.clone(), bucket.clone());
        self.change_buckets(async move { controller.close_and_delete(&bucket).await }).await
    }

    /// One change at a time, and to its end even if its client is gone: half a change would wait for the next start.
    async fn change_buckets<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let controller = self.clone();
        let turn = async move {
            let _turn = controller.bucket_turn().await;
            let changed = change.await?;
            controller.nodes().spread().await?;
            Ok(changed)
        };
        let ended = || StoreError::Unavailable("the store is closing".into());
        self.background().run(turn).await.unwrap_or_else(|| Err(ended()))
    }

    async fn create_and_raise(&self, request: CreateBucket) -> Result<Arc<BucketInfo>, StoreError> {
        let CreateBucket { name, owner, location } = request;
        let info = bucket_of(self.proposer().root(RootCommand::CreateBucket { name, owner, location }).await?)?;
        self.raise(&info, false).await?;
        self.raised(&info).await?;
        Ok(Arc::new(info))
    }

    async fn change_and_raise(&self, bucket: &BucketInfo, change: BucketChange) -> Result<Arc<BucketInfo>, StoreError> {
        self.current_bucket(bucket)?;
        let concerns_apply = matches!(change, BucketChange::Versioning(_));
        let command = RootCommand::ChangeBucket { bucket: bucket.id, change };
        let info = bucket_of(self.proposer().root(command).await?)?;
        if concerns_apply {
            self.raise(&info, false).await?;
            self.raised(&info).await?;
        }
        Ok(Arc::new(info))
    }

    async fn close_and_delete(&self, bucket: &BucketInfo) -> Result<(), StoreError> {
        self.current_bucket(bucket)?;
        // Most refusals are found here, without closing the bucket to writers for a moment.
        let any = ListVersions { max: 1, ..ListVersions::default() };
        if !self.page_of_versions(bucket, any).await?.versions.is_empty() {
            return Err(StoreError::BucketNotEmpty);
        }
        let closing = self.next_generation(bucket.id).await?;
        let holds = self.raise(&closing, true).await?;
        if holds.versions {
            let reopened = self.next_generation(bucket.id).await?;
            self.raise(&reopened, false).await?;
            self.raised(&reopened).await?;
            return Err(StoreError::BucketNotEmpty);
        }
        let command = RootCommand::DeleteBucket { bucket: bucket.id, generation: closing.generation };
        match self.proposer().root(command).await {
            Ok(_) => {}
            // Somebody else deleted it, or took a deletion back.
            Err(Failed::Refused(Refusal::Refetch)) => return Err(StoreError::Conflict),
            Err(failed) => return Err(failed.into()),
        }
        // Only now, for until root has said so the bucket may live on, and its uploads with it. No new one begins meanwhile.
        if holds.uploads
            && let Err(error) = self.abort_uploads(bucket.id).await
        {
            tracing::warn!(bucket = %bucket.id, %error, "uploads of a deleted bucket are ended later");
        }
        Ok(())
    }

    async fn next_generation(&self, bucket: BucketId) -> Result<BucketInfo, StoreError> {
        bucket_of(self.proposer().root(RootCommand::RaiseGeneration { bucket }).await?)
    }

    /// Sets the row in every shard that holds part of the bucket's keys; the answers name how far each reaches.
    async fn raise(&self, info: &BucketInfo, deleting: bool) -> Result<Holds, StoreError> {
        let row = BucketRow { generation: info.generation, versioning: info.versioning, deleting };
        let mut all = Holds::default();
        let mut from: Option<ObjectKey> = None;
        loop {
            let command = ShardCommand::RaiseBucket { bucket: info.id, row: row.clone() };
            let shard = self.proposer().shard_at(info.id, from.as_ref());
            match self.proposer().shard(shard, self.proposer().attempt(), command).await? {
                Outcome::BucketHolds { versions, uploads, covered_to } => {
                    all.versions |= versions;
                    all.uploads |= uploads;
                    match covered_to {
                        None => return Ok(all),
                        Some(next) => from = Some(next),
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Nothing is left to raise for this generation.
    async fn raised(&self, info: &BucketInfo) -> Result<(), StoreError> {
        let command = RootCommand::BucketRaised { bucket: info.id, generation: info.generation };
        self.proposer().root(command).await?;
        Ok(())
    }

    /// Ends the uploads of a bucket that was deleted, in every shard.
    async fn abort_uploads(&self, bucket: BucketId) -> Result<(), StoreError> {
        let reaches = |shard: &Shard| {
            let begins_later = shard.range.from.as_ref().is_some_and(|from| from.bucket > bucket);
            !begins_later && shard.range.to.as_ref().is_none_or(|to| to.bucket >= bucket)
        };
        let shards: Vec<_> = self.metadata().shards().filter(|shard| shard.id != ROOT && reaches(shard)).collect();
        for shard in shards.into_iter().map(|shard| shard.id) {
            loop {
                let max = limits::ABORT_UPLOADS_BATCH;
                let command = ShardCommand::AbortUploads { bucket, max };
                match self.proposer().shard(shard, self.proposer().attempt(), command).await? {
                    Outcome::Left(0) => break,
                    Outcome::Left(_) => {}
                    other => return Err(unexpected(&other)),
                }
            }
        }
        Ok(())
    }

    /// Completes what a crash or a failed proposal left half done: rows that are missing in some shard are raised; a deletion
    /// that had begun is taken back (its client was never told that it happened).
    /// What is younger than `patience` another node may be about.
    pub(crate) async fn complete_bucket_changes(&self, patience: Duration) -> Result<(), StoreError> {
        let _turn = self.bucket_turn().await;
        let snapshot = self.snapshots().of_root().await?;
        let found: Vec<_> = root::raising(snapshot.read()).collect::<Result<_, _>>().map_err(read_failed)?;
        let now = self.env().clock.monotonic();
        let half_done: Vec<BucketId> = {
            let mut since = self.half_done().lock();
            since.retain(|change, _| found.contains(change));
            let is_old = |change: &&(BucketId, u64)| now >= *since.entry(**change).or_insert(now) + patience;
            found.iter().filter(is_old).map(|(bucket, _)| *bucket).collect()
        };
        for bucket in half_done {
            let info = self.next_generation(bucket).await?;
            self.raise(&info, false).await?;
            self.raised(&info).await?;
        }
        self.end_orphaned_uploads().await
    }

    /// A crash between the end of a bucket and that of its uploads left them.
    async fn end_orphaned_uploads(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshots().of_root().await?;
        for shard in self.metadata().shards().filter(|shard| shard.id != ROOT) {
            for bucket in upload::buckets(snapshot.read(), &shard.range).map_err(read_failed)? {
                // Ids of buckets are never used again: one that root does not have is gone for good, or this view of its shard is
                // newer than the one of root, and then apply refuses, for the row says that the bucket is not being deleted.
                if root::bucket(snapshot.read(), bucket).map_err(read_failed)?.is_none()
                    && let Err(error) = self.abort_uploads(bucket).await
                {
                    tracing::warn!(%bucket, %error, "uploads of a deleted bucket are ended later");
                }
            }
        }
        Ok(())
    }
}

fn bucket_of(outcome: Outcome) -> Result<BucketInfo, StoreError> {
    match outcome {
        Outcome::Bucket(info) => Ok(info),
        other => Err(unexpected(&other)),
    }
}
