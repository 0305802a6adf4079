//! GetObjectTagging, PutObjectTagging, DeleteObjectTagging.

use crate::error::S3Result;
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::bucket::{parse_tagging, write_tagging};
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::{ObjectStore, Tag};
use types::limits;

pub async fn get_object_tagging<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    let version = headers::version_of(&request.query)?;
    let access = service.access(&request.identity, &bucket);
    access
        .require_key(if version.is_some() { Action::GetObjectVersionTagging } else { Action::GetObjectTagging }, key)?;
    let handle = service.store.lookup(&bucket, key, version, false).await.map_err(|e| access.hide_absence(e.into()))?;
    let mut response = S3Response::xml(write_tagging(&handle.info().tags));
    headers::set_version(&mut response, handle.info().version);
    Ok(response)
}

pub async fn put_object_tagging<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let version = headers::version_of(&request.query)?;
    let action = if version.is_some() { Action::PutObjectVersionTagging } else { Action::PutObjectTagging };
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require_key(action, key_of(&request)?)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let tags = parse_tagging(&document, limits::OBJECT_TAGS_MAX)?;
    set_tags(service, &request, action, tags, S3Response::ok()).await
}

pub async fn delete_object_tagging<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let versioned = headers::version_of(&request.query)?.is_some();
    let action = if versioned { Action::DeleteObjectVersionTagging } else { Action::DeleteObjectTagging };
    set_tags(service, request, action, Vec::new(), S3Response::no_content()).await
}

async fn set_tags<S: ObjectStore>(
    service: &Service<S>,
    request: &S3Request,
    action: Action,
    tags: Vec<Tag>,
    mut response: S3Response,
) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    let version = headers::version_of(&request.query)?;
    let access = service.access(&request.identity, &bucket);
    access.require_key(action, key)?;
    let done = service.store.put_tags(&bucket, key, version, tags).await;
    let version = done.map_err(|e| access.hide_absence(e.into()))?;
    headers::set_version(&mut response, version);
    Ok(response)
}
