//! GetBucketVersioning, PutBucketVersioning.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::{Service, not_implemented};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::{self, XmlWriter};
use object_controller::api::{BucketChange, ObjectStore, Versioning};

pub fn get_versioning<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketVersioning)?;
    let mut w = XmlWriter::document("VersioningConfiguration");
    match bucket.versioning {
        Versioning::Off => {}
        Versioning::Enabled => w.text("Status", "Enabled"),
        Versioning::Suspended => w.text("Status", "Suspended"),
    }
    Ok(S3Response::xml(w.finish()))
}

pub async fn put_versioning<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketVersioning)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let root = xml::parse(&document, "VersioningConfiguration", SETTING_MAX_BYTES)?;
    match root.child_text("MfaDelete") {
        None | Some("Disabled") => {}
        Some("Enabled") => return Err(not_implemented("PutBucketVersioning with MfaDelete is not implemented".into())),
        Some(_) => return Err(S3Error::new(S3Code::MalformedXML)),
    }
    let versioning = match root.child_text("Status") {
        Some("Enabled") => Versioning::Enabled,
        Some("Suspended") => Versioning::Suspended,
        None => {
            return Err(S3Error::with(
                S3Code::IllegalVersioningConfigurationException,
                "The Versioning element must be specified",
            ));
        }
        Some(_) => return Err(S3Error::new(S3Code::MalformedXML)),
    };
    service.store.change_bucket(&bucket, BucketChange::Versioning(versioning)).await?;
    Ok(S3Response::ok())
}
