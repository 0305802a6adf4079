//! GetBucketCors, PutBucketCors, DeleteBucketCors.

use crate::cors::Cors;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::Service;
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::{BucketChange, ObjectStore};

pub fn get_cors<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketCORS)?;
    match &bucket.configs.cors {
        Some(document) => Ok(S3Response::xml(document.clone().into())),
        None => Err(S3Error::new(S3Code::NoSuchCORSConfiguration).extra("BucketName", bucket.name.as_str())),
    }
}

pub async fn put_cors<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketCORS)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    Cors::parse(&document)?;
    let document = String::from_utf8(document.to_vec()).map_err(|_| S3Error::new(S3Code::MalformedXML))?;
    service.store.change_bucket(&bucket, BucketChange::Cors(Some(document))).await?;
    Ok(S3Response::ok())
}

pub async fn delete_cors<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketCORS)?;
    service.store.change_bucket(&bucket, BucketChange::Cors(None)).await?;
    Ok(S3Response::no_content())
}
