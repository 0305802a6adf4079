//! UploadPartCopy.

use super::{part_number_of, upload_of};
use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::object::{check_source_access, checksum_element, parse_copy_range, source_failure};
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use http::HeaderName;
use object_controller::api::{CopySource, ObjectStore, StoreError};

pub async fn upload_part_copy<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    service.access(&request.identity, &bucket).require_key(Action::PutObject, key)?;
    let source = check_source_access(service, request)?;
    headers::refuse_unsupported(&request.headers)?;
    let number = part_number_of(request)?;
    let id = upload_of(request)?;
    let source_access = service.access(&request.identity, &source.bucket);
    let range = match request.header("x-amz-copy-source-range") {
        Some(text) => Some(pinned_range(service, &source, text).await.map_err(|e| source_access.hide_absence(e))?),
        None => None,
    };
    let copied =
        service.store.upload_part_copy(&bucket, key, &id, number, source.clone(), range).await.map_err(|e| match e {
            StoreError::NoSuchUpload => e.into(),
            other => source_access.hide_absence(source_failure(other, &source.bucket.name)),
        });
    let (part, source_version) = copied?;
    let mut w = XmlWriter::document("CopyPartResult");
    w.time_ms("LastModified", part.modified_ms);
    w.etag("ETag", &part.etag);
    if let Some(checksum) = &part.checksum {
        w.text(checksum_element(checksum.algorithm), &checksum.text());
    }
    let mut response = S3Response::xml(w.finish());
    if let Some(version) = source_version {
        response.set(HeaderName::from_static("x-amz-copy-source-version-id"), &version.to_string());
    }
    Ok(response)
}

/// The range, checked against the size of the source as it is now. Should another version take its place in between, the
/// store refuses a range that lies outside of that one.
async fn pinned_range<S: ObjectStore>(service: &Service<S>, source: &CopySource, text: &str) -> S3Result<(u64, u64)> {
    let found = service.store.lookup(&source.bucket, &source.key, source.version, false).await;
    let size = found.map_err(|e| source_failure(e, &source.bucket.name))?.info().size;
    if size == 0 {
        return Err(S3Error::with(S3Code::InvalidRequest, "The source of a ranged copy is empty"));
    }
    parse_copy_range(text, size)
}
