//! AbortMultipartUpload.

use super::upload_of;
use crate::error::S3Result;
use crate::ops::{Service, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::ObjectStore;

pub async fn abort_upload<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    service.access(&request.identity, &bucket).require_key(Action::AbortMultipartUpload, key)?;
    service.store.abort_upload(&bucket, key, &upload_of(request)?).await?;
    Ok(S3Response::no_content())
}
