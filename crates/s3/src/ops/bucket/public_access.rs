//! GetPublicAccessBlock, PutPublicAccessBlock, DeletePublicAccessBlock. All four switches are enforced (`access`).

use crate::access::PublicAccessBlock;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::Service;
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::{BucketChange, ObjectStore};

fn document_of(block: PublicAccessBlock) -> bytes::Bytes {
    let mut w = XmlWriter::document("PublicAccessBlockConfiguration");
    w.display("BlockPublicAcls", block.block_public_acls);
    w.display("IgnorePublicAcls", block.ignore_public_acls);
    w.display("BlockPublicPolicy", block.block_public_policy);
    w.display("RestrictPublicBuckets", block.restrict_public_buckets);
    w.finish()
}

pub fn get_public_access_block<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketPublicAccessBlock)?;
    match &bucket.configs.public_access_block {
        Some(_) => Ok(S3Response::xml(document_of(PublicAccessBlock::of(&bucket)))),
        None => {
            Err(S3Error::new(S3Code::NoSuchPublicAccessBlockConfiguration).extra("BucketName", bucket.name.as_str()))
        }
    }
}

pub async fn put_public_access_block<S: ObjectStore>(
    service: &Service<S>,
    mut request: S3Request,
) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketPublicAccessBlock)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let block = PublicAccessBlock::parse(&document)?;
    let text = String::from_utf8_lossy(&document_of(block)).into_owned();
    service.store.change_bucket(&bucket, BucketChange::PublicAccessBlock(Some(text))).await?;
    Ok(S3Response::ok())
}

pub async fn delete_public_access_block<S: ObjectStore>(
    service: &Service<S>,
    request: &S3Request,
) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketPublicAccessBlock)?;
    service.store.change_bucket(&bucket, BucketChange::PublicAccessBlock(None)).await?;
    Ok(S3Response::no_content())
}
