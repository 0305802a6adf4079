//! UploadPart.

use super::{part_number_of, upload_of};
use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::object::failure;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use http::HeaderName;
use object_controller::api::ObjectStore;

pub async fn upload_part<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    let key = key_of(&request)?.clone();
    service.access(&request.identity, &bucket).require_key(Action::PutObject, &key)?;
    headers::refuse_unsupported(&request.headers)?;
    let number = part_number_of(&request)?;
    let id = upload_of(&request)?;
    if request.body.length_missing() {
        return Err(S3Error::new(S3Code::MissingContentLength));
    }
    request.body.check()?;
    let upload = service.store.upload(&bucket, &key, &id).await?;
    // The part needs a checksum of the upload's algorithm, whatever else its sender sent to be verified.
    if let Some((algorithm, _)) = upload.checksum {
        request.body.keep_checksum(algorithm);
    }
    let part = match service.store.upload_part(&bucket, &key, &id, number, &mut request.body).await {
        Ok(part) => part,
        Err(error) => return Err(failure(&request, error)),
    };
    let mut response = S3Response::ok();
    headers::set_etag(&mut response, &part.etag);
    if let Some(checksum) = &part.checksum {
        response.set(HeaderName::from_static(checksum.algorithm.header()), &checksum.text());
    }
    Ok(response)
}
