//! CopyObject.

use super::source::check_source_access;
use crate::conditions;
use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use http::HeaderName;
use object_controller::api::{CopyObject, CopySource, ObjectStore, StoreError, Tag};
use std::sync::Arc;
use types::{BucketName, Checksum, ChecksumAlgorithm};

const SOURCE_VERSION: HeaderName = HeaderName::from_static("x-amz-copy-source-version-id");

/// Copies from the source, or takes what the request says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Copy,
    Replace,
}

pub async fn copy_object<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?.clone();
    let access = service.access(&request.identity, &bucket);
    access.require_key(Action::PutObject, &key)?;
    let source = check_source_access(service, request)?;
    let metadata = directive(request, "x-amz-metadata-directive")?;
    let tagging = directive(request, "x-amz-tagging-directive")?;
    let object = headers::new_object(&request.headers)?;
    let always = headers::placement_of(&request.headers)?;
    let checksum = request.header("x-amz-checksum-algorithm").map(headers::checksum_algorithm).transpose()?;
    if source.bucket.id == bucket.id && source.key == key {
        let changes = metadata == Directive::Replace
            || tagging == Directive::Replace
            || request.headers.contains_key("x-amz-storage-class")
            || !always.is_empty()
            || checksum.is_some()
            || source.version.is_some();
        refuse_idle_copy(changes)?;
    }
    match tagging {
        Directive::Replace if !object.tags.is_empty() => access.require_key(Action::PutObjectTagging, &key)?,
        Directive::Replace => {}
        Directive::Copy => {
            let may_write = access.allows(Action::PutObjectTagging, Some(key.as_str()));
            check_copied_tags(service, request, &source, may_write).await?;
        }
    }
    let tags: Option<Vec<Tag>> = (tagging == Directive::Replace).then(|| object.tags.clone());
    let target = CopyObject {
        bucket: Arc::clone(&bucket),
        key,
        meta: (metadata == Directive::Replace).then_some(object.meta),
        tags,
        always,
        checksum,
        conditions: conditions::of_put(&request.headers)?,
    };
    let source_bucket = Arc::clone(&source.bucket);
    let made = match service.store.copy_object(source, target).await {
        Ok(made) => made,
        Err(error) => {
            let error = source_failure(error, &source_bucket.name);
            return Err(service.access(&request.identity, &source_bucket).hide_absence(error));
        }
    };
    let mut w = XmlWriter::document("CopyObjectResult");
    w.time_ms("LastModified", made.put.modified_ms);
    w.etag("ETag", &made.put.etag);
    write_checksum(&mut w, made.put.checksum.as_ref());
    let mut response = S3Response::xml(w.finish());
    headers::set_new_version(&mut response, made.put.version);
    if let Some(version) = made.source_version {
        response.set(SOURCE_VERSION, &version.to_string());
    }
    Ok(response)
}

/// `ChecksumCRC32` and so on, with the type.
pub fn write_checksum(w: &mut XmlWriter, checksum: Option<&Checksum>) {
    let Some(checksum) = checksum else { return };
    w.text(checksum_element(checksum.algorithm), &checksum.text());
    w.text("ChecksumType", headers::kind_name(checksum.kind));
}

/// The name of an algorithm's element.
pub fn checksum_element(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "ChecksumCRC32",
        ChecksumAlgorithm::Crc32c => "ChecksumCRC32C",
        ChecksumAlgorithm::Crc64Nvme => "ChecksumCRC64NVME",
        ChecksumAlgorithm::Sha1 => "ChecksumSHA1",
        ChecksumAlgorithm::Sha256 => "ChecksumSHA256",
    }
}

/// What the store says of a source that cannot be copied, as S3 says it.
pub fn source_failure(error: StoreError, bucket: &BucketName) -> S3Error {
    match error {
        StoreError::TooLarge => S3Error::with(
            S3Code::InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120",
        ),
        StoreError::DeleteMarker { .. } => S3Error::with(
            S3Code::InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by version id.",
        ),
        StoreError::NoSuchBucket => S3Error::new(S3Code::NoSuchBucket).extra("BucketName", bucket.as_str()),
        other => other.into(),
    }
}

fn directive(request: &S3Request, name: &str) -> S3Result<Directive> {
    match request.headers.get(name).map(|v| v.as_bytes()) {
        None | Some(b"COPY") => Ok(Directive::Copy),
        Some(b"REPLACE") => Ok(Directive::Replace),
        Some(other) => {
            let value = String::from_utf8_lossy(other).into_owned();
            Err(S3Error::invalid_argument(name, value, "Unknown metadata directive."))
        }
    }
}

fn refuse_idle_copy(changes: bool) -> S3Result<()> {
    if changes {
        return Ok(());
    }
    Err(S3Error::with(
        S3Code::InvalidRequest,
        "A copy onto itself must change the metadata, the storage class or the redirect",
    ))
}

/// Copying tags reads them there and writes them here, and needs leave for both if there are any.
async fn check_copied_tags<S: ObjectStore>(
    service: &Service<S>,
    request: &S3Request,
    source: &CopySource,
    may_write: bool,
) -> S3Result<()> {
    let access = service.access(&request.identity, &source.bucket);
    let action = if source.version.is_some() { Action::GetObjectVersionTagging } else { Action::GetObjectTagging };
    if may_write && access.allows(action, Some(source.key.as_str())) {
        return Ok(());
    }
    let found = service.store.lookup(&source.bucket, &source.key, source.version, false).await;
    match found {
        Ok(handle) if !handle.info().tags.is_empty() => Err(S3Error::new(S3Code::AccessDenied)),
        // Absence and conditions are the copy's own to report.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_131_a_source_that_is_too_large_for_one_copy_is_an_invalid_request() {
        let bucket = BucketName::new("bucket").expect("a valid name");
        assert_eq!(source_failure(StoreError::TooLarge, &bucket).code, S3Code::InvalidRequest);
    }
}
