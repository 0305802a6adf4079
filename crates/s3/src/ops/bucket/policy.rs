//! GetBucketPolicy, PutBucketPolicy, DeleteBucketPolicy, GetBucketPolicyStatus.

use crate::access::PublicAccessBlock;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::BUCKET_POLICY_READ_MAX_BYTES;
use crate::ops::{Service, json};
use crate::policy::{self, Action};
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::{BucketChange, ObjectStore};
use std::collections::BTreeSet;

pub fn get_policy<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketPolicy)?;
    match &bucket.configs.policy {
        Some(document) => Ok(json(document.clone())),
        None => Err(S3Error::new(S3Code::NoSuchBucketPolicy).extra("BucketName", bucket.name.as_str())),
    }
}

pub async fn put_policy<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketPolicy)?;
    let document = request.body.read_all(BUCKET_POLICY_READ_MAX_BYTES).await?;
    let accounts: BTreeSet<String> =
        service.store.users().into_iter().map(|c| c.account.canonical_id.clone()).collect();
    // The owner may be root, which is not among the users.
    let is_account =
        |id: &str| accounts.contains(id) || id == bucket.owner || request.identity.canonical_id() == Some(id);
    let parsed = policy::parse(&document, bucket.name.as_str(), &is_account)?;
    if parsed.is_public() && PublicAccessBlock::of(&bucket).block_public_policy {
        return Err(S3Error::new(S3Code::AccessDenied));
    }
    let text = String::from_utf8(document.to_vec()).map_err(|_| S3Error::new(S3Code::MalformedPolicy))?;
    service.store.change_bucket(&bucket, BucketChange::Policy(Some(text))).await?;
    Ok(S3Response::no_content())
}

pub async fn delete_policy<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::DeleteBucketPolicy)?;
    service.store.change_bucket(&bucket, BucketChange::Policy(None)).await?;
    Ok(S3Response::no_content())
}

pub fn get_policy_status<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let access = service.access(&request.identity, &bucket);
    access.require(Action::GetBucketPolicyStatus)?;
    if bucket.configs.policy.is_none() {
        return Err(S3Error::new(S3Code::NoSuchBucketPolicy).extra("BucketName", bucket.name.as_str()));
    }
    let mut w = XmlWriter::document("PolicyStatus");
    w.text("IsPublic", if access.is_public() { "TRUE" } else { "FALSE" });
    Ok(S3Response::xml(w.finish()))
}
