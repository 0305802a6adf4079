//! ACLs and ownership as AWS has them where ACLs are disabled: the owner of the bucket owns all, and nothing else can be said.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::{Service, headers, not_implemented};
use crate::policy::Action;
use crate::request::{Identity, S3Request};
use crate::response::S3Response;
use crate::xml::{self, XmlWriter};
use bytes::Bytes;
use object_controller::api::{BucketInfo, ObjectStore};

const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// The only ACL there is: full control for the owner.
pub fn write_acl<S: ObjectStore>(service: &Service<S>, identity: &Identity, bucket: &BucketInfo) -> Bytes {
    let name = service.display_name(&bucket.owner, identity);
    let mut w = XmlWriter::document("AccessControlPolicy");
    w.nest("Owner", |w| {
        w.text("ID", &bucket.owner);
        w.text("DisplayName", &name);
    });
    w.nest("AccessControlList", |w| {
        w.nest("Grant", |w| {
            w.open_with("Grantee", &[("xmlns:xsi", XSI), ("xsi:type", "CanonicalUser")]);
            w.text("ID", &bucket.owner);
            w.text("DisplayName", &name);
            w.close();
            w.text("Permission", "FULL_CONTROL");
        });
    });
    w.finish()
}

/// Accepts the ACL that is in force anyway; refuses any other.
pub fn check_acl_document(document: &[u8], bucket: &BucketInfo) -> S3Result<()> {
    if document.is_empty() {
        return Ok(());
    }
    let malformed = |_| S3Error::new(S3Code::MalformedACLError);
    let root = xml::parse(document, "AccessControlPolicy", SETTING_MAX_BYTES).map_err(malformed)?;
    let list = root.child("AccessControlList").ok_or_else(|| S3Error::new(S3Code::MalformedACLError))?;
    for grant in &list.children {
        let grantee = grant.child("Grantee").and_then(|g| g.child_text("ID"));
        let full = grant.child_text("Permission") == Some("FULL_CONTROL");
        if grantee != Some(bucket.owner.as_str()) || !full {
            return Err(S3Error::new(S3Code::AccessControlListNotSupported));
        }
    }
    let owner = root.child("Owner").and_then(|o| o.child_text("ID"));
    if list.children.is_empty() || owner.is_some_and(|id| id != bucket.owner) {
        return Err(S3Error::new(S3Code::AccessControlListNotSupported));
    }
    Ok(())
}

pub fn get_bucket_acl<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketAcl)?;
    Ok(S3Response::xml(write_acl(service, &request.identity, &bucket)))
}

pub async fn put_bucket_acl<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketAcl)?;
    headers::refuse_acls(&request.headers)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    check_acl_document(&document, &bucket)?;
    Ok(S3Response::ok())
}

pub fn get_ownership<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketOwnershipControls)?;
    let mut w = XmlWriter::document("OwnershipControls");
    w.nest("Rule", |w| w.text("ObjectOwnership", "BucketOwnerEnforced"));
    Ok(S3Response::xml(w.finish()))
}

/// Only what is in force anyway can be set.
pub async fn put_ownership<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketOwnershipControls)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let root = xml::parse(&document, "OwnershipControls", SETTING_MAX_BYTES)?;
    let rule = root.child("Rule").ok_or_else(|| S3Error::new(S3Code::MalformedXML))?;
    match rule.required_text("ObjectOwnership")? {
        "BucketOwnerEnforced" => Ok(S3Response::ok()),
        "BucketOwnerPreferred" | "ObjectWriter" => {
            Err(not_implemented("PutBucketOwnershipControls that enables ACLs is not implemented".into()))
        }
        _ => Err(S3Error::new(S3Code::MalformedXML)),
    }
}
