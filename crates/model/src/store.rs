//! The store itself: one lock around the state, every call done under it as a whole.

use object_controller::api::{
    BodySource, BucketChange, BucketInfo, CompleteUpload, CopyObject, CopyOutcome, CopySource, CreateBucket,
    CreateUpload, Credential, DeleteObject, DeleteOutcome, ListObjects, ListUploads, ListVersions, NewUser, ObjectPage,
    ObjectStore, PartEntry, PartPage, PutObject, PutOutcome, ReadHandle, StoreError, Tag, UploadId, UploadInfo,
    UploadPage, VersionPage,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{BucketName, ObjectKey, VersionId};

use crate::state::State;
use crate::{accounts, buckets, listing, multipart, objects};

/// A store in memory. See the crate's head.
pub struct ModelStore {
    state: Mutex<State>,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl ModelStore {
    /// An empty store with one account; `now_ms` is its clock, in milliseconds since the epoch.
    pub fn new(root: Credential, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let state = State { root: Arc::new(root), users: BTreeMap::new(), buckets: BTreeMap::new(), next_id: 0 };
        ModelStore { state: Mutex::new(state), now_ms: Box::new(now_ms) }
    }

    fn now(&self) -> u64 {
        (self.now_ms)()
    }
}

impl ObjectStore for ModelStore {
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        accounts::find(&self.state.lock(), access_key)
    }

    fn users(&self) -> Vec<Arc<Credential>> {
        self.state.lock().users.values().cloned().collect()
    }

    async fn create_user(&self, user: NewUser) -> Result<Arc<Credential>, StoreError> {
        accounts::create(&mut self.state.lock(), user)
    }

    async fn delete_user(&self, name: &str) -> Result<(), StoreError> {
        accounts::delete(&mut self.state.lock(), name)
    }

    fn bucket(&self, name: &BucketName) -> Option<Arc<BucketInfo>> {
        self.state.lock().buckets.get(name.as_str()).map(|b| Arc::clone(&b.info))
    }

    fn buckets(&self, owner: &str) -> Vec<Arc<BucketInfo>> {
        let state = self.state.lock();
        state.buckets.values().filter(|b| b.info.owner == owner).map(|b| Arc::clone(&b.info)).collect()
    }

    async fn create_bucket(&self, request: CreateBucket) -> Result<Arc<BucketInfo>, StoreError> {
        buckets::create(&mut self.state.lock(), request, self.now())
    }

    async fn delete_bucket(&self, bucket: &BucketInfo) -> Result<(), StoreError> {
        buckets::delete(&mut self.state.lock(), bucket)
    }

    async fn change_bucket(&self, bucket: &BucketInfo, change: BucketChange) -> Result<Arc<BucketInfo>, StoreError> {
        buckets::change(&mut self.state.lock(), bucket, change)
    }

    async fn put_object(&self, request: PutObject, body: &mut dyn BodySource) -> Result<PutOutcome, StoreError> {
        let (bytes, summary) = objects::receive(body).await?;
        objects::put(&mut self.state.lock(), request, bytes, summary, self.now())
    }

    async fn lookup(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        _want_body: bool,
    ) -> Result<Box<dyn ReadHandle>, StoreError> {
        Ok(Box::new(objects::lookup(&self.state.lock(), bucket, key, version)?))
    }

    async fn copy_object(&self, source: CopySource, target: CopyObject) -> Result<CopyOutcome, StoreError> {
        objects::copy(&mut self.state.lock(), source, target, self.now())
    }

    async fn delete_object(&self, request: DeleteObject) -> Result<DeleteOutcome, StoreError> {
        objects::delete(&mut self.state.lock(), request, self.now())
    }

    async fn put_tags(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        tags: Vec<Tag>,
    ) -> Result<Option<VersionId>, StoreError> {
        objects::put_tags(&mut self.state.lock(), bucket, key, version, tags)
    }

    async fn list_objects(&self, bucket: &BucketInfo, request: ListObjects) -> Result<ObjectPage, StoreError> {
        Ok(listing::objects(self.state.lock().bucket(bucket)?, &request))
    }

    async fn list_versions(&self, bucket: &BucketInfo, request: ListVersions) -> Result<VersionPage, StoreError> {
        Ok(listing::versions(self.state.lock().bucket(bucket)?, &request))
    }

    async fn list_uploads(&self, bucket: &BucketInfo, request: ListUploads) -> Result<UploadPage, StoreError> {
        Ok(listing::uploads(self.state.lock().bucket(bucket)?, &request))
    }

    async fn create_upload(&self, request: CreateUpload) -> Result<UploadId, StoreError> {
        multipart::create(&mut self.state.lock(), request, self.now())
    }

    async fn upload(&self, bucket: &BucketInfo, key: &ObjectKey, upload: &UploadId) -> Result<UploadInfo, StoreError> {
        Ok(multipart::open(self.state.lock().bucket(bucket)?, key, upload)?.info.clone())
    }

    async fn upload_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: &mut dyn BodySource,
    ) -> Result<PartEntry, StoreError> {
        multipart::open(self.state.lock().bucket(bucket)?, key, upload)?;
        let (bytes, summary) = objects::receive(body).await?;
        multipart::put_part(&mut self.state.lock(), bucket, key, upload, number, bytes, summary, self.now())
    }

    async fn upload_part_copy(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        source: CopySource,
        range: Option<(u64, u64)>,
    ) -> Result<(PartEntry, Option<VersionId>), StoreError> {
        multipart::copy_part(&mut self.state.lock(), bucket, key, upload, number, &source, range, self.now())
    }

    async fn complete_upload(&self, request: CompleteUpload) -> Result<PutOutcome, StoreError> {
        multipart::complete(&mut self.state.lock(), request, self.now())
    }

    async fn abort_upload(&self, bucket: &BucketInfo, key: &ObjectKey, upload: &UploadId) -> Result<(), StoreError> {
        multipart::abort(&mut self.state.lock(), bucket, key, upload)
    }

    async fn list_parts(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        max: u32,
    ) -> Result<PartPage, StoreError> {
        multipart::list_parts(&self.state.lock(), bucket, key, upload, after, max)
    }
}
