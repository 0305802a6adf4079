//! Configurations that cannot be set here: reading one answers AWS's "none".

use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::Service;
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::route::Unset;
use crate::xml::XmlWriter;
use object_controller::api::ObjectStore;

pub fn read_unset<S: ObjectStore>(service: &Service<S>, request: &S3Request, unset: Unset) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(unset.names().1)?;
    let none = |code| Err(S3Error::new(code).extra("BucketName", bucket.name.as_str()));
    let empty = |root| Ok(S3Response::xml(XmlWriter::document(root).finish()));
    match unset {
        Unset::Accelerate => empty("AccelerateConfiguration"),
        Unset::Encryption => none(S3Code::ServerSideEncryptionConfigurationNotFoundError),
        Unset::Lifecycle => none(S3Code::NoSuchLifecycleConfiguration),
        Unset::Logging => empty("BucketLoggingStatus"),
        Unset::Notification => empty("NotificationConfiguration"),
        Unset::ObjectLock => none(S3Code::ObjectLockConfigurationNotFoundError),
        Unset::Replication => none(S3Code::ReplicationConfigurationNotFoundError),
        Unset::RequestPayment => {
            let mut w = XmlWriter::document("RequestPaymentConfiguration");
            w.text("Payer", "BucketOwner");
            Ok(S3Response::xml(w.finish()))
        }
        Unset::Website => none(S3Code::NoSuchWebsiteConfiguration),
    }
}

/// There is none to delete, and deleting none succeeds.
pub fn delete_lifecycle<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::PutLifecycleConfiguration)?;
    Ok(S3Response::no_content())
}
