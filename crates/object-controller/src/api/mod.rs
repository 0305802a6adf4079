//! What the S3 edge may ask of a store: typed requests, typed answers, one error enum.
//!
//! Two implementations: the real controller, and `model` (plain maps), which is the oracle of the tests.

mod bucket;
mod error;
mod listing;
mod multipart;
mod object;
mod user;

pub use bucket::{BucketChange, BucketConfigs, BucketInfo, CreateBucket, Durability, Erasure, Versioning};
pub use error::{BodyError, StoreError};
pub use listing::{
    ListObjects, ListUploads, ListVersions, ObjectEntry, ObjectPage, UploadEntry, UploadPage, VersionEntry, VersionPage,
};
pub use multipart::{CompleteUpload, CompletedPart, CreateUpload, PartEntry, PartPage, UploadId, UploadInfo};
pub use object::{
    BodySource, BodySummary, CopyObject, CopyOutcome, CopySource, DeleteConditions, DeleteObject, DeleteOutcome,
    NewObject, ObjectInfo, ObjectMeta, PartInfo, PutConditions, PutObject, PutOutcome, ReadBody, ReadConditions,
    ReadHandle, Tag,
};
pub use user::{Account, Credential, NewUser};

use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use types::{BucketName, ObjectKey, VersionId};

/// An object store. Every mutation is *acknowledged* when its future answers `Ok`: durable, committed, visible.
/// A dropped future leaves the mutation done or not done as a whole.
///
/// Authorisation is the caller's: the store checks that things exist, never who asks.
pub trait ObjectStore: Send + Sync + 'static {
    // --- freshness ----------------------------------------------------------------------------------------------
    /// Whether what is answered from memory (accounts, buckets) follows every change that was acknowledged by any node. To be
    /// asked once at the beginning of each request; if not, [`ObjectStore::refresh`] makes it so.
    fn is_fresh(&self) -> bool {
        true
    }
    /// Brings accounts and buckets in memory up to date.
    fn refresh(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    // --- accounts -----------------------------------------------------------------------------------------------
    /// The credential of `access_key`, root's included. Answered from memory.
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>>;
    /// Accounts but root, by name.
    fn users(&self) -> Vec<Arc<Credential>>;
    /// Adds an account. `UserExists` if the name or access key is taken.
    fn create_user(&self, user: NewUser) -> impl Future<Output = Result<Arc<Credential>, StoreError>> + Send;
    /// Removes an account. `NoSuchUser`; `UserHasBuckets`.
    fn delete_user(&self, name: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    // --- buckets ------------------------------------------------------------------------------------------------
    /// The bucket, from memory; its `id` names this incarnation and must be passed to every other call on it.
    fn bucket(&self, name: &BucketName) -> Option<Arc<BucketInfo>>;
    /// Buckets of an account (by canonical id), sorted by name.
    fn buckets(&self, owner: &str) -> Vec<Arc<BucketInfo>>;
    /// Creates. `BucketExists(info)` names the present one, whoever owns it.
    fn create_bucket(&self, request: CreateBucket) -> impl Future<Output = Result<Arc<BucketInfo>, StoreError>> + Send;
    /// Deletes an empty bucket and aborts its uploads. `BucketNotEmpty` if it holds any version or delete marker.
    fn delete_bucket(&self, bucket: &BucketInfo) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Changes one setting.
    fn change_bucket(
        &self,
        bucket: &BucketInfo,
        change: BucketChange,
    ) -> impl Future<Output = Result<Arc<BucketInfo>, StoreError>> + Send;

    // --- objects ------------------------------------------------------------------------------------------------
    /// Stores `body` as the newest version. Nothing is visible unless `body` ends with a summary.
    fn put_object(
        &self,
        request: PutObject,
        body: &mut dyn BodySource,
    ) -> impl Future<Output = Result<PutOutcome, StoreError>> + Send;
    /// Looks up the current version, or `version`. With `want_body` the handle can read bytes and part boundaries; it
    /// pins the version's bytes while it lives. `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`.
    fn lookup(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        want_body: bool,
    ) -> impl Future<Output = Result<Box<dyn ReadHandle>, StoreError>> + Send;
    /// Copies without moving data where it can.
    fn copy_object(
        &self,
        source: CopySource,
        target: CopyObject,
    ) -> impl Future<Output = Result<CopyOutcome, StoreError>> + Send;
    /// Deletes the version, or makes the key unreadable as the bucket's versioning says.
    fn delete_object(&self, request: DeleteObject) -> impl Future<Output = Result<DeleteOutcome, StoreError>> + Send;
    /// Replaces the tags of a version (empty: removes them). Answers which version it was.
    fn put_tags(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        tags: Vec<Tag>,
    ) -> impl Future<Output = Result<Option<VersionId>, StoreError>> + Send;

    // --- listing ------------------------------------------------------------------------------------------------
    /// One page of live current versions, in byte order of their keys.
    fn list_objects(
        &self,
        bucket: &BucketInfo,
        request: ListObjects,
    ) -> impl Future<Output = Result<ObjectPage, StoreError>> + Send;
    /// One page of all versions and delete markers; newest first within a key.
    fn list_versions(
        &self,
        bucket: &BucketInfo,
        request: ListVersions,
    ) -> impl Future<Output = Result<VersionPage, StoreError>> + Send;
    /// One page of uploads in progress, by key, then by time of creation.
    fn list_uploads(
        &self,
        bucket: &BucketInfo,
        request: ListUploads,
    ) -> impl Future<Output = Result<UploadPage, StoreError>> + Send;

    // --- multipart ----------------------------------------------------------------------------------------------
    /// Begins an upload.
    fn create_upload(&self, request: CreateUpload) -> impl Future<Output = Result<UploadId, StoreError>> + Send;
    /// What the upload was created with. `NoSuchUpload`.
    fn upload(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> impl Future<Output = Result<UploadInfo, StoreError>> + Send;
    /// Stores a part, replacing a former one of that number.
    fn upload_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: &mut dyn BodySource,
    ) -> impl Future<Output = Result<PartEntry, StoreError>> + Send;
    /// Stores a part from (a range of) an object; `range` is offset and length, checked by the caller against the source's size.
    /// The version copied from is answered beside the part.
    fn upload_part_copy(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        source: CopySource,
        range: Option<(u64, u64)>,
    ) -> impl Future<Output = Result<(PartEntry, Option<VersionId>), StoreError>> + Send;
    /// Makes the object of the listed parts. Repeated with the same list it answers the same.
    fn complete_upload(&self, request: CompleteUpload) -> impl Future<Output = Result<PutOutcome, StoreError>> + Send;
    /// Ends the upload and condemns its parts. `NoSuchUpload` also for a completed one.
    fn abort_upload(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Parts with numbers above `after`, at most `max`.
    fn list_parts(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        max: u32,
    ) -> impl Future<Output = Result<PartPage, StoreError>> + Send;
}

/// Bytes on their way to a reader.
pub type Chunk = Bytes;
