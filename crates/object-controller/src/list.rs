//! LIST: pages come from one snapshot of the tree, read away from the async threads.
//!
//! Promises: a page is a linearizable read. Refuses to know: tokens, XML, how groups are skipped (`metadata::list` does).

use crate::api::{
    BucketInfo, ListObjects, ListUploads, ListVersions, ObjectEntry, ObjectPage, StoreError, UploadEntry, UploadId,
    UploadPage, VersionEntry, VersionPage,
};
use crate::controller::Controller;
use crate::snapshots::{Snapshot, read_failed};
use metadata::list;
use metadata::read::ReadError;

impl Controller {
    /// One page of live current versions.
    pub(crate) async fn page_of_objects(
        &self,
        bucket: &BucketInfo,
        request: ListObjects,
    ) -> Result<ObjectPage, StoreError> {
        let id = bucket.id;
        let page = self.page(bucket, move |snapshot| {
            let wanted = list::ListObjects {
                prefix: &request.prefix,
                delimiter: request.delimiter.as_deref(),
                after: request.after.as_deref(),
                after_is_prefix: request.after_is_prefix,
                max: request.max,
            };
            let mut page = Page(ObjectPage::default());
            if let Some(end) = list::objects_into(snapshot.read(), id, &wanted, &mut page)? {
                (page.0.truncated, page.0.next, page.0.next_is_prefix) = (true, Some(end.next), end.is_prefix);
            }
            Ok(page.0)
        });
        page.await
    }

    /// One page of all versions and delete markers.
    pub(crate) async fn page_of_versions(
        &self,
        bucket: &BucketInfo,
        request: ListVersions,
    ) -> Result<VersionPage, StoreError> {
        let id = bucket.id;
        let page = self.page(bucket, move |snapshot| {
            let wanted = list::ListVersions {
                prefix: &request.prefix,
                delimiter: request.delimiter.as_deref(),
                key_marker: request.key_marker.as_deref(),
                version_marker: request.version_marker,
                max: request.max,
            };
            list::versions(snapshot.read(), id, &wanted)
        });
        let page = page.await?;
        let entry = |v: list::VersionEntry| VersionEntry {
            key: v.key,
            version: v.version,
            is_latest: v.is_latest,
            modified_ms: v.modified_ms,
            object: v.object.map(object_entry),
        };
        Ok(VersionPage {
            versions: page.versions.into_iter().map(entry).collect(),
            prefixes: page.prefixes,
            truncated: page.truncated,
            next_key: page.next_key,
            next_version: page.next_version,
        })
    }

    /// One page of uploads in progress.
    pub(crate) async fn page_of_uploads(
        &self,
        bucket: &BucketInfo,
        request: ListUploads,
    ) -> Result<UploadPage, StoreError> {
        let id = bucket.id;
        let page = self.page(bucket, move |snapshot| {
            let wanted = list::ListUploads {
                prefix: &request.prefix,
                delimiter: request.delimiter.as_deref(),
                key_marker: request.key_marker.as_deref(),
                upload_marker: request.upload_marker.map(|u| u.0),
                max: request.max,
            };
            list::uploads(snapshot.read(), id, &wanted)
        });
        let page = page.await?;
        let entry = |u: list::UploadEntry| UploadEntry {
            key: u.key,
            upload: UploadId(u.upload),
            initiated_ms: u.initiated_ms,
            storage_class: u.storage_class,
            checksum: u.checksum,
        };
        Ok(UploadPage {
            uploads: page.uploads.into_iter().map(entry).collect(),
            prefixes: page.prefixes,
            truncated: page.truncated,
            next_key: page.next_key,
            next_upload: page.next_upload.map(UploadId),
        })
    }

    /// Reads a page on a thread that may block.
    async fn page<T: Send + 'static>(
        &self,
        bucket: &BucketInfo,
        read: impl FnOnce(&Snapshot) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.current_bucket(bucket)?;
        let snapshot = self.snapshots().of_bucket(bucket.id).await?;
        self.env().tasks.run(move || read(&snapshot)).await.map_err(read_failed)
    }
}

/// Entries as they are read, without one in between.
struct Page(ObjectPage);

impl list::ObjectSink for Page {
    fn object(&mut self, o: list::ObjectRef<'_>) {
        self.0.objects.push(ObjectEntry {
            key: o.key.to_owned(),
            etag: o.etag,
            size: o.size,
            modified_ms: o.modified_ms,
            storage_class: o.storage_class.map(str::to_owned),
            checksum: o.checksum.map(|c| (c.algorithm, c.kind)),
        });
    }

    fn prefix(&mut self, prefix: &str) {
        self.0.prefixes.push(prefix.to_owned());
    }
}

fn object_entry(o: list::ObjectEntry) -> ObjectEntry {
    ObjectEntry {
        key: o.key,
        etag: o.etag,
        size: o.size,
        modified_ms: o.modified_ms,
        storage_class: o.storage_class,
        checksum: o.checksum.map(|c| (c.algorithm, c.kind)),
    }
}
