//! The operations of S3, a family a folder, and the service that calls them.
//!
//! Promises: every operation checks in AWS's order: bucket, authorisation, then what was sent, conditions last. What is not
//! implemented answers 501 with its name. Refuses to know: sockets, signatures, how anything is stored.

mod bucket;
mod headers;
mod list;
mod multipart;
mod object;

use crate::access::{Access, Policies};
use crate::auth::Authenticator;
use crate::cors::{self, Cors};
use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use crate::request::{Identity, S3Request};
use crate::response::S3Response;
use crate::route::{Operation, Question, route};
use crate::server::Handler;
use http::{HeaderMap, HeaderName, header};
use object_controller::api::{BucketInfo, ObjectStore};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use types::{BucketName, ObjectKey};

/// Answers requests out of a store.
pub struct Service<S> {
    store: Arc<S>,
    /// Verifies forms, which carry their signature within.
    authenticator: Arc<Authenticator>,
    region: String,
    policies: Policies,
}

/// What is needed of a request after it has been given away: for errors and cross-origin headers.
struct Trace {
    bucket: Option<BucketName>,
    bucket_text: Option<String>,
    key: Option<String>,
    origin: Option<String>,
    method: &'static str,
}

impl Trace {
    fn of(request: &S3Request) -> Self {
        let method = match request.method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "PUT" => "PUT",
            "POST" => "POST",
            "DELETE" => "DELETE",
            _ => "-",
        };
        Trace {
            bucket: request.bucket.as_ref().and_then(|b| b.name.clone()),
            bucket_text: request.bucket.as_ref().map(|b| b.raw.clone()),
            key: request.key.as_ref().map(|k| k.as_str().to_owned()),
            origin: request.header(header::ORIGIN).map(str::to_owned),
            method,
        }
    }

    /// Names the bucket or key that an error speaks of.
    fn name_subject(&self, mut error: S3Error) -> S3Error {
        let named = |e: &S3Error, element: &str| e.extra.iter().any(|(name, _)| *name == element);
        match (error.code, &self.bucket_text, &self.key) {
            (S3Code::NoSuchBucket | S3Code::BucketNotEmpty, Some(bucket), _) if !named(&error, "BucketName") => {
                error = error.extra("BucketName", bucket.as_str());
            }
            (S3Code::NoSuchKey | S3Code::NoSuchVersion, _, Some(key)) if !named(&error, "Key") => {
                error = error.extra("Key", key.as_str());
            }
            _ => {}
        }
        error
    }
}

impl<S: ObjectStore> Service<S> {
    /// A service of the authenticator's region.
    pub fn new(store: Arc<S>, authenticator: Arc<Authenticator>) -> Self {
        let region = authenticator.region().to_owned();
        Service { store, authenticator, region, policies: Policies::default() }
    }

    /// The bucket that the request names, if it exists and is the one that the client expects.
    fn open_bucket(&self, request: &S3Request) -> S3Result<Arc<BucketInfo>> {
        let bucket = self.find_bucket(request.bucket_name()?)?;
        expect_owner(&request.headers, names::X_AMZ_EXPECTED_BUCKET_OWNER, &bucket)?;
        Ok(bucket)
    }

    fn find_bucket(&self, name: &BucketName) -> S3Result<Arc<BucketInfo>> {
        let missing = || S3Error::new(S3Code::NoSuchBucket).extra("BucketName", name.as_str());
        self.store.bucket(name).ok_or_else(missing)
    }

    fn access<'a>(&self, identity: &'a Identity, bucket: &'a BucketInfo) -> Access<'a> {
        Access::new(&self.policies, identity, bucket)
    }

    /// The name of the account of that canonical id, as far as it is known here.
    fn display_name(&self, canonical_id: &str, identity: &Identity) -> String {
        if let Identity::Account(c) = identity
            && c.account.canonical_id == canonical_id
        {
            return c.account.display_name.clone();
        }
        let found = self.store.users().into_iter().find(|c| c.account.canonical_id == canonical_id);
        found.map_or_else(|| canonical_id.to_owned(), |c| c.account.display_name.clone())
    }

    /// Calls the operation, behind a pointer: otherwise every request's future would be as large as that of the largest
    /// operation, and kilobytes would be moved about for a HEAD. (GET and HEAD, small and frequent, come here by no way of ours.)
    async fn dispatch(&self, operation: Operation, request: S3Request) -> S3Result<S3Response> {
        match operation {
            Operation::ListBuckets => bucket::list_buckets(self, &request),
            Operation::CreateBucket => boxed(bucket::create_bucket(self, request)).await,
            Operation::HeadBucket => bucket::head_bucket(self, &request),
            Operation::DeleteBucket => boxed(bucket::delete_bucket(self, &request)).await,
            Operation::GetBucketLocation => bucket::get_location(self, &request),
            Operation::GetBucketVersioning => bucket::get_versioning(self, &request),
            Operation::PutBucketVersioning => boxed(bucket::put_versioning(self, request)).await,
            Operation::GetBucketTagging => bucket::get_tagging(self, &request),
            Operation::PutBucketTagging => boxed(bucket::put_tagging(self, request)).await,
            Operation::DeleteBucketTagging => boxed(bucket::delete_tagging(self, &request)).await,
            Operation::GetBucketCors => bucket::get_cors(self, &request),
            Operation::PutBucketCors => boxed(bucket::put_cors(self, request)).await,
            Operation::DeleteBucketCors => boxed(bucket::delete_cors(self, &request)).await,
            Operation::GetBucketPolicy => bucket::get_policy(self, &request),
            Operation::PutBucketPolicy => boxed(bucket::put_policy(self, request)).await,
            Operation::DeleteBucketPolicy => boxed(bucket::delete_policy(self, &request)).await,
            Operation::GetBucketPolicyStatus => bucket::get_policy_status(self, &request),
            Operation::GetBucketAcl => bucket::get_bucket_acl(self, &request),
            Operation::PutBucketAcl => boxed(bucket::put_bucket_acl(self, request)).await,
            Operation::GetBucketOwnershipControls => bucket::get_ownership(self, &request),
            Operation::PutBucketOwnershipControls => boxed(bucket::put_ownership(self, request)).await,
            Operation::GetPublicAccessBlock => bucket::get_public_access_block(self, &request),
            Operation::PutPublicAccessBlock => boxed(bucket::put_public_access_block(self, request)).await,
            Operation::DeletePublicAccessBlock => boxed(bucket::delete_public_access_block(self, &request)).await,
            Operation::DeleteBucketLifecycle => bucket::delete_lifecycle(self, &request),
            Operation::ReadUnset(unset) => bucket::read_unset(self, &request, unset),
            Operation::ListObjects => boxed(list::list_objects(self, &request)).await,
            Operation::ListObjectsV2 => boxed(list::list_objects_v2(self, &request)).await,
            Operation::ListObjectVersions => boxed(list::list_object_versions(self, &request)).await,
            Operation::ListMultipartUploads => boxed(list::list_multipart_uploads(self, &request)).await,
            Operation::GetObject => boxed(object::get_object(self, &request)).await,
            Operation::HeadObject => boxed(object::head_object(self, &request)).await,
            Operation::PutObject => boxed(object::put_object(self, request)).await,
            Operation::PostObject => boxed(object::post_object(self, request)).await,
            Operation::CopyObject => boxed(object::copy_object(self, &request)).await,
            Operation::DeleteObject => boxed(object::delete_object(self, &request)).await,
            Operation::DeleteObjects => boxed(object::delete_objects(self, request)).await,
            Operation::GetObjectAttributes => boxed(object::get_object_attributes(self, &request)).await,
            Operation::GetObjectTagging => boxed(object::get_object_tagging(self, &request)).await,
            Operation::PutObjectTagging => boxed(object::put_object_tagging(self, request)).await,
            Operation::DeleteObjectTagging => boxed(object::delete_object_tagging(self, &request)).await,
            Operation::GetObjectAcl => boxed(object::get_object_acl(self, &request)).await,
            Operation::PutObjectAcl => boxed(object::put_object_acl(self, request)).await,
            Operation::CreateMultipartUpload => boxed(multipart::create_upload(self, &request)).await,
            Operation::UploadPart => boxed(multipart::upload_part(self, request)).await,
            Operation::UploadPartCopy => boxed(multipart::upload_part_copy(self, &request)).await,
            Operation::CompleteMultipartUpload => boxed(multipart::complete_upload(self, request)).await,
            Operation::AbortMultipartUpload => boxed(multipart::abort_upload(self, &request)).await,
            Operation::ListParts => boxed(multipart::list_parts(self, &request)).await,
            Operation::Preflight => self.preflight(&request),
            Operation::NotImplemented(name) => Err(not_implemented(format!("{name} is not implemented"))),
            Operation::UnknownSubresource => Err(not_implemented("The sub-resource is not implemented".into())),
            Operation::MethodNotAllowed => Err(S3Error::new(S3Code::MethodNotAllowed)),
        }
    }

    fn preflight(&self, request: &S3Request) -> S3Result<S3Response> {
        let (Some(origin), Some(method)) =
            (request.header(header::ORIGIN), request.header("access-control-request-method"))
        else {
            return Err(S3Error::with(
                S3Code::BadRequest,
                "Insufficient information. Origin and Access-Control-Request-Method are needed.",
            ));
        };
        let bucket = self.find_bucket(request.bucket_name()?)?;
        let forbidden = |message: &'static str| S3Error::with(S3Code::AccessForbidden, message);
        let rules = bucket
            .configs
            .cors
            .as_ref()
            .and_then(|document| Cors::parse(document.as_bytes()).ok())
            .ok_or_else(|| forbidden("CORSResponse: CORS is not enabled for this bucket."))?;
        let wanted: Vec<String> = request
            .header("access-control-request-headers")
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        let allowed = rules.preflight(origin, method, &wanted).ok_or_else(|| {
            forbidden("CORSResponse: This CORS request is not allowed: no rule names its origin, method and headers.")
        })?;
        let mut response = S3Response::ok();
        response.headers = allowed;
        Ok(response)
    }

    /// What an error, or the cross-origin rules of the bucket, need to know.
    fn trace_if_needed(&self, request: &S3Request, result: &S3Result<S3Response>) -> Option<Trace> {
        let name = request.bucket.as_ref().and_then(|bucket| bucket.name.as_ref());
        let has_rules = || name.and_then(|name| self.store.bucket(name)).is_some_and(|b| b.configs.cors.is_some());
        (result.is_err() || has_rules()).then(|| Trace::of(request))
    }

    /// Adds what browsers and caches need to every answer of a bucket with cross-origin rules.
    fn add_cors(&self, trace: &Trace, operation: Operation, headers: &mut HeaderMap) {
        let Some(bucket) = trace.bucket.as_ref().and_then(|name| self.store.bucket(name)) else { return };
        let Some(document) = &bucket.configs.cors else { return };
        cors::write_vary(headers);
        // Only browsers send an origin; nobody else pays for reading the rules.
        if operation != Operation::Preflight
            && let Some(origin) = &trace.origin
            && let Ok(rules) = Cors::parse(document.as_bytes())
        {
            rules.answer(origin, trace.method, headers);
        }
    }
}

impl<S: ObjectStore> Handler for Service<S> {
    fn is_fresh(&self) -> bool {
        self.store.is_fresh()
    }

    async fn refresh(&self) -> S3Result<()> {
        Ok(self.store.refresh().await?)
    }

    async fn handle(&self, request: S3Request) -> S3Response {
        let operation = route(&Question {
            method: &request.method,
            has_bucket: request.bucket.is_some(),
            has_key: request.key.is_some(),
            query: &request.query,
            headers: &request.headers,
        });
        // Those that keep the request need no copies of what it named.
        let (trace, result) = match operation {
            Operation::GetObject => {
                let result = object::get_object(self, &request).await;
                (self.trace_if_needed(&request, &result), result)
            }
            Operation::HeadObject => {
                let result = object::head_object(self, &request).await;
                (self.trace_if_needed(&request, &result), result)
            }
            _ => (Some(Trace::of(&request)), boxed(self.dispatch(operation, request)).await),
        };
        let mut response = match (result, &trace) {
            (Ok(response), _) => response,
            (Err(error), Some(trace)) => trace.name_subject(error).into(),
            (Err(error), None) => error.into(),
        };
        if let Some(trace) = &trace {
            self.add_cors(trace, operation, &mut response.headers);
        }
        response.operation(operation.name())
    }
}

/// A future on the heap.
fn boxed<F: Future>(operation: F) -> Pin<Box<F>> {
    Box::pin(operation)
}

fn not_implemented(message: String) -> S3Error {
    S3Error::with(S3Code::NotImplemented, message)
}

/// The client says whose bucket it means; another's is refused before anything is done with it.
fn expect_owner(headers: &HeaderMap, name: HeaderName, bucket: &BucketInfo) -> S3Result<()> {
    match headers.get(name) {
        Some(expected) if expected.as_bytes() != bucket.owner.as_bytes() => Err(S3Error::new(S3Code::AccessDenied)),
        _ => Ok(()),
    }
}

/// The key of an operation on an object; the router has seen that there is one.
fn key_of(request: &S3Request) -> S3Result<&ObjectKey> {
    request.key.as_ref().ok_or_else(|| S3Error::new(S3Code::InvalidRequest))
}

/// `Content-Type` of answers that are neither XML nor an object.
fn json(document: String) -> S3Response {
    let mut response = S3Response::ok();
    response.set(header::CONTENT_TYPE, "application/json");
    response.body = crate::response::S3Body::Full(document.into());
    response
}
