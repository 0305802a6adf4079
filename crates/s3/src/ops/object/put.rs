//! PutObject.

use crate::conditions;
use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::{ObjectStore, PutObject, StoreError};

pub async fn put_object<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    let key = key_of(&request)?.clone();
    let access = service.access(&request.identity, &bucket);
    access.require_key(Action::PutObject, &key)?;
    let object = headers::new_object(&request.headers)?;
    if request.headers.contains_key(names::X_AMZ_TAGGING) {
        access.require_key(Action::PutObjectTagging, &key)?;
    }
    for parameter in ["versionId", "partNumber"] {
        if let Some(value) = request.query.get(parameter) {
            return Err(S3Error::invalid_argument(parameter, value, "This operation does not accept this parameter"));
        }
    }
    if request.body.length_missing() {
        return Err(S3Error::new(S3Code::MissingContentLength));
    }
    request.body.check()?;
    let conditions = conditions::of_put(&request.headers)?;
    let size_hint = request.body.declared_size();
    let put = PutObject { bucket: bucket.clone(), key, object, conditions, size_hint };
    let made = match service.store.put_object(put, &mut request.body).await {
        Ok(made) => made,
        Err(error) => return Err(failure(&request, error)),
    };
    let mut response = S3Response::ok();
    headers::set_etag(&mut response, &made.etag);
    headers::set_new_version(&mut response, made.version);
    headers::set_checksum(&mut response, made.checksum.as_ref());
    Ok(response)
}

/// What the body found wrong, with all it said about it, or else what the store said.
pub fn failure(request: &S3Request, error: StoreError) -> S3Error {
    match (&error, request.body.failure()) {
        (StoreError::Body(_), Some(detailed)) => detailed.clone(),
        _ => error.into(),
    }
}
