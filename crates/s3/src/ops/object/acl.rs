//! GetObjectAcl and PutObjectAcl where ACLs are disabled.

use crate::error::S3Result;
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::bucket::{check_acl_document, write_acl};
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use object_controller::api::ObjectStore;

pub async fn get_object_acl<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    let version = headers::version_of(&request.query)?;
    let access = service.access(&request.identity, &bucket);
    access.require_key(if version.is_some() { Action::GetObjectVersionAcl } else { Action::GetObjectAcl }, key)?;
    let handle = service.store.lookup(&bucket, key, version, false).await.map_err(|e| access.hide_absence(e.into()))?;
    let mut response = S3Response::xml(write_acl(service, &request.identity, &bucket));
    headers::set_version(&mut response, handle.info().version);
    Ok(response)
}

pub async fn put_object_acl<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let document = {
        let bucket = service.open_bucket(&request)?;
        let version = headers::version_of(&request.query)?;
        let action = if version.is_some() { Action::PutObjectVersionAcl } else { Action::PutObjectAcl };
        service.access(&request.identity, &bucket).require_key(action, key_of(&request)?)?;
        request.body.read_all(SETTING_MAX_BYTES).await?
    };
    let bucket = service.open_bucket(&request)?;
    headers::refuse_acls(&request.headers)?;
    check_acl_document(&document, &bucket)?;
    let access = service.access(&request.identity, &bucket);
    let version = headers::version_of(&request.query)?;
    let found = service.store.lookup(&bucket, key_of(&request)?, version, false).await;
    let handle = found.map_err(|e| access.hide_absence(e.into()))?;
    let mut response = S3Response::ok();
    headers::set_version(&mut response, handle.info().version);
    Ok(response)
}
