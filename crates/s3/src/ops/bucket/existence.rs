//! CreateBucket, HeadBucket, DeleteBucket, GetBucketLocation.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::{Service, not_implemented};
use crate::policy::Action;
use crate::request::{Identity, S3Request};
use crate::response::S3Response;
use crate::xml::{self, NAMESPACE};
use http::{HeaderMap, HeaderName, header};
use object_controller::api::{BucketInfo, CreateBucket, ObjectStore, StoreError};

const X_AMZ_BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

impl<S: ObjectStore> Service<S> {
    /// Where a bucket is: here, whatever it was created with.
    pub(in crate::ops) fn region_of<'a>(&'a self, bucket: &'a BucketInfo) -> &'a str {
        if bucket.location.is_empty() { &self.region } else { &bucket.location }
    }
}

/// Creates; for the owner of the present bucket of that name it is done already.
pub async fn create_bucket<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let Identity::Account(credential) = request.identity.clone() else {
        return Err(S3Error::new(S3Code::AccessDenied));
    };
    let name = request.bucket_name()?.clone();
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let location = location_constraint(&document, &service.region)?;
    check_headers(&request.headers)?;
    let owner = credential.account.canonical_id.clone();
    let create = CreateBucket { name: name.clone(), owner: owner.clone(), location };
    match service.store.create_bucket(create).await {
        Ok(_) => {}
        Err(StoreError::BucketExists(present)) if present.owner == owner => {}
        Err(error) => return Err(error.into()),
    }
    let mut response = S3Response::ok();
    response.set(header::LOCATION, &format!("/{name}"));
    Ok(response)
}

fn location_constraint(document: &[u8], region: &str) -> S3Result<String> {
    if document.is_empty() {
        return Ok(String::new());
    }
    let root = xml::parse(document, "CreateBucketConfiguration", SETTING_MAX_BYTES)?;
    if let Some(other) = root.children.iter().find(|c| c.name != "LocationConstraint") {
        return Err(not_implemented(format!("CreateBucket with {} is not implemented", other.name)));
    }
    match root.child_text("LocationConstraint").unwrap_or_default().trim() {
        "" => Ok(String::new()),
        wanted if wanted == region => Ok(wanted.to_owned()),
        wanted => {
            Err(S3Error::with(S3Code::InvalidLocationConstraint, "The specified location-constraint is not valid")
                .extra("LocationConstraint", wanted))
        }
    }
}

fn check_headers(headers: &HeaderMap) -> S3Result<()> {
    let is = |name: &str, value: &str| {
        headers.get(name).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
    };
    if is("x-amz-bucket-object-lock-enabled", "true") {
        return Err(not_implemented("CreateBucket with object lock is not implemented".into()));
    }
    if headers.contains_key("x-amz-object-ownership") && !is("x-amz-object-ownership", "BucketOwnerEnforced") {
        return Err(not_implemented("CreateBucket with an ownership that enables ACLs is not implemented".into()));
    }
    let grants = headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"));
    if grants || (headers.contains_key("x-amz-acl") && !is("x-amz-acl", "private")) {
        return Err(S3Error::new(S3Code::InvalidBucketAclWithObjectOwnership));
    }
    Ok(())
}

pub fn head_bucket<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::ListBucket)?;
    let mut response = S3Response::ok();
    response.set(X_AMZ_BUCKET_REGION, service.region_of(&bucket));
    Ok(response)
}

pub async fn delete_bucket<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::DeleteBucket)?;
    service.store.delete_bucket(&bucket).await?;
    Ok(S3Response::no_content())
}

/// The constraint given at creation; none is the default region.
pub fn get_location<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketLocation)?;
    // Only our own region's name was ever accepted as a constraint, so the text needs no escaping.
    let text = match (bucket.location.as_str(), service.region.as_str()) {
        ("", "us-east-1") => "",
        ("", region) => region,
        (location, _) => location,
    };
    let document = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint xmlns=\"{NAMESPACE}\">{text}</LocationConstraint>"
    );
    Ok(S3Response::xml(document.into()))
}
