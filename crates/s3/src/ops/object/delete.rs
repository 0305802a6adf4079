//! DeleteObject.

use crate::conditions;
use crate::error::S3Result;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::{DeleteObject, ObjectStore};

pub async fn delete_object<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?.clone();
    let version = headers::version_of(&request.query)?;
    let action = if version.is_some() { Action::DeleteObjectVersion } else { Action::DeleteObject };
    service.access(&request.identity, &bucket).require_key(action, &key)?;
    let conditions = conditions::of_delete(&request.headers)?;
    let done = service.store.delete_object(DeleteObject { bucket: bucket.clone(), key, version, conditions }).await?;
    let mut response = S3Response::no_content();
    headers::set_version(&mut response, done.version);
    if done.delete_marker {
        response.set(headers::X_AMZ_DELETE_MARKER, "true");
    }
    Ok(response)
}
