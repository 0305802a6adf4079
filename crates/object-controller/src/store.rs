//! The api, each call handed to its story.

use crate::api::{
    BodySource, BucketChange, BucketInfo, CompleteUpload, CopyObject, CopyOutcome, CopySource, CreateBucket,
    CreateUpload, Credential, DeleteObject, DeleteOutcome, ListObjects, ListUploads, ListVersions, NewUser, ObjectPage,
    ObjectStore, PartEntry, PartPage, PutObject, PutOutcome, ReadHandle, StoreError, Tag, UploadId, UploadInfo,
    UploadPage, VersionPage,
};
use crate::controller::Controller;
use std::sync::Arc;
use types::{BucketName, ObjectKey, VersionId};

impl ObjectStore for Controller {
    fn is_fresh(&self) -> bool {
        self.nodes().is_fresh()
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        self.nodes().refresh().await
    }

    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        self.find_credential(access_key)
    }

    fn users(&self) -> Vec<Arc<Credential>> {
        self.directory().users()
    }

    async fn create_user(&self, user: NewUser) -> Result<Arc<Credential>, StoreError> {
        self.add_user(user).await
    }

    async fn delete_user(&self, name: &str) -> Result<(), StoreError> {
        self.remove_user(name).await
    }

    fn bucket(&self, name: &BucketName) -> Option<Arc<BucketInfo>> {
        self.directory().bucket(name)
    }

    fn buckets(&self, owner: &str) -> Vec<Arc<BucketInfo>> {
        self.directory().buckets_of(owner)
    }

    async fn create_bucket(&self, request: CreateBucket) -> Result<Arc<BucketInfo>, StoreError> {
        self.make_bucket(request).await
    }

    async fn delete_bucket(&self, bucket: &BucketInfo) -> Result<(), StoreError> {
        self.drop_bucket(bucket).await
    }

    async fn change_bucket(&self, bucket: &BucketInfo, change: BucketChange) -> Result<Arc<BucketInfo>, StoreError> {
        self.alter_bucket(bucket, change).await
    }

    async fn put_object(&self, request: PutObject, body: &mut dyn BodySource) -> Result<PutOutcome, StoreError> {
        self.put(request, body).await
    }

    async fn lookup(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        want_body: bool,
    ) -> Result<Box<dyn ReadHandle>, StoreError> {
        self.handle(bucket, key, version, want_body).await
    }

    async fn copy_object(&self, source: CopySource, target: CopyObject) -> Result<CopyOutcome, StoreError> {
        self.copy(source, target).await
    }

    async fn delete_object(&self, request: DeleteObject) -> Result<DeleteOutcome, StoreError> {
        self.delete(request).await
    }

    async fn put_tags(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        tags: Vec<Tag>,
    ) -> Result<Option<VersionId>, StoreError> {
        self.tag(bucket, key, version, tags).await
    }

    async fn list_objects(&self, bucket: &BucketInfo, request: ListObjects) -> Result<ObjectPage, StoreError> {
        self.page_of_objects(bucket, request).await
    }

    async fn list_versions(&self, bucket: &BucketInfo, request: ListVersions) -> Result<VersionPage, StoreError> {
        self.page_of_versions(bucket, request).await
    }

    async fn list_uploads(&self, bucket: &BucketInfo, request: ListUploads) -> Result<UploadPage, StoreError> {
        self.page_of_uploads(bucket, request).await
    }

    async fn create_upload(&self, request: CreateUpload) -> Result<UploadId, StoreError> {
        self.begin_upload(request).await
    }

    async fn upload(&self, bucket: &BucketInfo, key: &ObjectKey, upload: &UploadId) -> Result<UploadInfo, StoreError> {
        self.upload_info(bucket, key, upload).await
    }

    async fn upload_part(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: &mut dyn BodySource,
    ) -> Result<PartEntry, StoreError> {
        self.put_part(bucket, key, upload, number, body).await
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
        self.copy_part(bucket, key, upload, number, source, range).await
    }

    async fn complete_upload(&self, request: CompleteUpload) -> Result<PutOutcome, StoreError> {
        self.complete(request).await
    }

    async fn abort_upload(&self, bucket: &BucketInfo, key: &ObjectKey, upload: &UploadId) -> Result<(), StoreError> {
        self.abort(bucket, key, upload).await
    }

    async fn list_parts(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        max: u32,
    ) -> Result<PartPage, StoreError> {
        self.parts(bucket, key, upload, after, max).await
    }
}
