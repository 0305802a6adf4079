//! A request, parsed once at the edge.
//!
//! Promises: bucket, key and query were percent-decoded exactly once, and the signature was checked over that same value; the
//! path is never normalised (`a//b`, `/lead` and `a/../b` are keys of their own). Refuses to know: which operation it is.

mod query;
mod target;

pub use query::Query;
pub use target::{Target, percent_decode};

use crate::body::RequestBody;
use crate::error::{S3Code, S3Error, S3Result};
use http::header::AsHeaderName;
use http::{HeaderMap, Method, Uri};
use object_controller::api::Credential;
use std::net::SocketAddr;
use std::sync::Arc;
use types::{BucketName, ObjectKey};

/// Who asks; found by the one authentication function. Match it exhaustively, deny by default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// No credentials were sent at all.
    Anonymous,
    /// A valid signature of this account.
    Account(Arc<Credential>),
}

impl Identity {
    /// The account's canonical id.
    pub fn canonical_id(&self) -> Option<&str> {
        match self {
            Identity::Anonymous => None,
            Identity::Account(c) => Some(&c.account.canonical_id),
        }
    }

    /// Whether it is the root account.
    pub fn is_root(&self) -> bool {
        match self {
            Identity::Anonymous => false,
            Identity::Account(c) => c.account.is_root,
        }
    }
}

/// The bucket a request names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestBucket {
    /// As sent, decoded.
    pub raw: String,
    /// The valid name, if it is one.
    pub name: Option<BucketName>,
}

/// One request.
pub struct S3Request {
    /// Method.
    pub method: Method,
    /// Bucket, from the path or the host.
    pub bucket: Option<RequestBucket>,
    /// Key, literal.
    pub key: Option<ObjectKey>,
    /// Query parameters, decoded, in the order sent.
    pub query: Query,
    /// Headers. A presigned URL's signed `x-amz-*` parameters stand here too (never over a header).
    pub headers: HeaderMap,
    /// The bucket came from the host.
    pub virtual_host: bool,
    /// The target as sent; its path is the `Resource` of errors.
    pub uri: Uri,
    /// The socket's peer.
    pub remote: SocketAddr,
    /// Who asks.
    pub identity: Identity,
    /// How it was signed.
    pub authentication: AuthenticationKind,
    /// The body.
    pub body: RequestBody,
}

/// How a request was authenticated (`s3:authType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthenticationKind {
    /// Not at all.
    None,
    /// Authorization header.
    Header,
    /// Query parameters.
    Presigned,
    /// Fields of a POST form.
    PostForm,
}

impl S3Request {
    /// The bucket's valid name, `InvalidBucketName` otherwise.
    pub fn bucket_name(&self) -> S3Result<&BucketName> {
        match &self.bucket {
            Some(RequestBucket { name: Some(name), .. }) => Ok(name),
            Some(RequestBucket { raw, name: None }) => {
                Err(S3Error::new(S3Code::InvalidBucketName).extra("BucketName", raw.as_str()))
            }
            None => Err(S3Error::new(S3Code::InvalidRequest)),
        }
    }

    /// The header's value as text; `None` if it is not there or not visible ASCII.
    pub fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}
