//! CreateMultipartUpload.

use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use http::HeaderName;
use object_controller::api::{CreateUpload, ObjectStore};
use types::{ChecksumAlgorithm, ChecksumKind};

pub async fn create_upload<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?.clone();
    let access = service.access(&request.identity, &bucket);
    access.require_key(Action::PutObject, &key)?;
    let object = headers::new_object(&request.headers)?;
    if request.headers.contains_key("x-amz-tagging") {
        access.require_key(Action::PutObjectTagging, &key)?;
    }
    let declared = checksum_of(request)?;
    // As AWS: an object always has a checksum; this one can be combined from its parts'.
    let checksum = declared.unwrap_or((ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject));
    let create = CreateUpload { bucket: bucket.clone(), key: key.clone(), object, checksum: Some(checksum) };
    let upload = service.store.create_upload(create).await?;
    let mut w = XmlWriter::document("InitiateMultipartUploadResult");
    w.text("Bucket", bucket.name.as_str());
    w.text("Key", key.as_str());
    w.display("UploadId", upload);
    let mut response = S3Response::xml(w.finish());
    if let Some((algorithm, kind)) = declared {
        response.set(HeaderName::from_static("x-amz-checksum-algorithm"), algorithm.name());
        response.set(HeaderName::from_static("x-amz-checksum-type"), headers::kind_name(kind));
    }
    Ok(response)
}

/// Algorithm and type, in AWS's combinations.
fn checksum_of(request: &S3Request) -> S3Result<Option<(ChecksumAlgorithm, ChecksumKind)>> {
    let invalid = |message: String| S3Error::with(S3Code::InvalidRequest, message);
    let kind = match request.header("x-amz-checksum-type") {
        None => None,
        Some("COMPOSITE") => Some(ChecksumKind::Composite { parts: 0 }),
        Some("FULL_OBJECT") => Some(ChecksumKind::FullObject),
        Some(other) => return Err(invalid(format!("The checksum type {other} is not valid"))),
    };
    let algorithm = match request.header("x-amz-checksum-algorithm") {
        None if kind.is_some() => {
            return Err(invalid("A checksum type needs a checksum algorithm beside it".into()));
        }
        None => return Ok(None),
        Some(name) => headers::checksum_algorithm(name)?,
    };
    let kind = match (algorithm, kind) {
        (ChecksumAlgorithm::Crc64Nvme, None) => ChecksumKind::FullObject,
        (_, None) => ChecksumKind::Composite { parts: 0 },
        (ChecksumAlgorithm::Crc64Nvme, Some(ChecksumKind::Composite { .. }))
        | (ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256, Some(ChecksumKind::FullObject)) => {
            let name = algorithm.name().to_ascii_lowercase();
            return Err(invalid(format!("This checksum type cannot be used with the {name} checksum algorithm.")));
        }
        (_, Some(kind)) => kind,
    };
    Ok(Some((algorithm, kind)))
}
