//! The errors of S3: a code with its status, and the XML that says it.
//!
//! Promises: every code has exactly one status and a default message; the mapping from the store's errors is one exhaustive
//! match. Refuses to know: where in a request an error arose. No message carries a secret.

use crate::xml::XmlWriter;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use object_controller::api::{BodyError, StoreError};
use std::borrow::Cow;
use types::NameError;

macro_rules! codes {
    ($($name:ident $status:literal $message:literal;)*) => {
        /// What S3 calls the error.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum S3Code {
            $(#[doc = $message] $name,)*
        }
        impl S3Code {
            /// Every code.
            pub const ALL: &'static [S3Code] = &[$(S3Code::$name,)*];
            /// As in the `Code` element.
            pub fn name(self) -> &'static str {
                match self { $(S3Code::$name => stringify!($name),)* }
            }
            /// HTTP status.
            pub fn status(self) -> u16 {
                match self { $(S3Code::$name => $status,)* }
            }
            /// What is said if the place that raises it has nothing better to say.
            pub fn default_message(self) -> &'static str {
                match self { $(S3Code::$name => $message,)* }
            }
        }
    };
}

codes! {
    AccessDenied 403 "Access Denied";
    AccessForbidden 403 "This CORS request is not allowed";
    AccessControlListNotSupported 400 "The bucket does not allow ACLs";
    AmbiguousGrantByEmailAddress 400 "The email address is associated with more than one account";
    AuthorizationHeaderMalformed 400 "The authorization header is malformed";
    AuthorizationQueryParametersError 400 "Error parsing the query parameters that authorize the request";
    BadDigest 400 "The digest you specified did not match what we received";
    BadRequest 400 "Bad Request";
    BucketAlreadyExists 409 "The requested bucket name is not available";
    BucketAlreadyOwnedByYou 409 "You already own the bucket";
    BucketNotEmpty 409 "The bucket you tried to delete is not empty";
    ConditionalRequestConflict 409 "Another operation on this key was in progress; retry";
    CrossLocationLoggingProhibited 403 "Logging across locations is not allowed";
    EntityTooLarge 400 "Your upload exceeds the largest allowed size";
    EntityTooSmall 400 "Your upload is smaller than the smallest allowed size";
    ExpiredToken 400 "The token has expired";
    HeadersNotSigned 403 "There were headers present in the request which were not signed";
    IllegalLocationConstraintException 400 "The location constraint does not fit the endpoint";
    IllegalVersioningConfigurationException 400 "The versioning configuration is not valid";
    IncompleteBody 400 "The body is not of the length that was announced";
    IncorrectNumberOfFilesInPostRequest 400 "A POST needs exactly one file";
    InternalError 500 "We met an internal error; please try again";
    InvalidAccessKeyId 403 "The access key you gave is not known here";
    InvalidArgument 400 "Invalid Argument";
    InvalidBucketAclWithObjectOwnership 400 "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketName 400 "The specified bucket is not valid";
    InvalidBucketState 409 "The request is not valid for the current state of the bucket";
    InvalidChunkSizeError 400 "Only the last chunk may be smaller than 8192 bytes";
    InvalidDigest 400 "The Content-MD5 you specified is not valid";
    InvalidEncryptionAlgorithmError 400 "The encryption algorithm is not valid";
    InvalidLocationConstraint 400 "The location constraint is not valid";
    InvalidObjectState 403 "The operation is not valid for the object's state";
    InvalidPart 400 "A part could not be found, or its entity tag or checksum does not match";
    InvalidPartNumber 416 "The part number is not satisfiable";
    InvalidPartOrder 400 "The list of parts is not in ascending order";
    InvalidPolicyDocument 400 "The policy document is not valid";
    InvalidRange 416 "The range is not satisfiable";
    InvalidRedirectLocation 400 "The website redirect location is not valid";
    InvalidRequest 400 "Invalid Request";
    InvalidSecurity 403 "The security credentials are not valid";
    InvalidStorageClass 400 "The storage class is not valid";
    InvalidTag 400 "The tag is not valid";
    InvalidTargetBucketForLogging 400 "The target bucket for logging is not valid";
    InvalidToken 400 "The provided token is malformed or otherwise not valid";
    InvalidURI 400 "The URI could not be parsed";
    KeyTooLongError 400 "Your key is too long";
    MalformedACLError 400 "The ACL is not well-formed";
    MalformedPOSTRequest 400 "The body of the POST is not well-formed multipart/form-data";
    MalformedPolicy 400 "The policy is not well-formed";
    MalformedXML 400 "The XML you provided is not well-formed or does not fit the schema";
    MalformedTrailerError 400 "The trailer is not well-formed or not the one that was announced";
    MaxMessageLengthExceeded 400 "Your request was too big";
    MaxPostPreDataLengthExceededError 400 "The form fields before the file are too large";
    MetadataTooLarge 400 "The metadata headers exceed the largest allowed size";
    MethodNotAllowed 405 "The method is not allowed against this resource";
    MissingContentLength 411 "You must provide the Content-Length header";
    MissingRequestBodyError 400 "The request body is empty";
    MissingSecurityHeader 400 "The request lacks a required header";
    NoSuchBucket 404 "The specified bucket does not exist";
    NoSuchBucketPolicy 404 "The bucket has no policy";
    NoSuchCORSConfiguration 404 "The bucket has no CORS configuration";
    NoSuchConfiguration 404 "The specified configuration does not exist";
    NoSuchKey 404 "The specified key does not exist";
    NoSuchLifecycleConfiguration 404 "The bucket has no lifecycle configuration";
    NoSuchObjectLockConfiguration 404 "The object has no object lock configuration";
    NoSuchPublicAccessBlockConfiguration 404 "The bucket has no public access block configuration";
    NoSuchTagSet 404 "There is no tag set";
    NoSuchUpload 404 "The specified upload does not exist; it may have been completed or aborted";
    NoSuchVersion 404 "The specified version does not exist";
    NoSuchWebsiteConfiguration 404 "The bucket has no website configuration";
    NotImplemented 501 "The request implies functionality that is not implemented";
    ObjectLockConfigurationNotFoundError 404 "The bucket has no object lock configuration";
    OwnershipControlsNotFoundError 404 "The bucket has no ownership controls";
    PreconditionFailed 412 "At least one of the preconditions you specified did not hold";
    ReplicationConfigurationNotFoundError 404 "The bucket has no replication configuration";
    RequestHeaderSectionTooLarge 431 "The request headers are too large";
    RequestTimeTooSkewed 403 "The difference between the request time and the server's time is too large";
    RequestTimeout 400 "The body was not sent or read in time";
    ServerSideEncryptionConfigurationNotFoundError 404 "The bucket has no encryption configuration";
    ServiceUnavailable 503 "Please retry";
    SignatureDoesNotMatch 403 "The signature we calculated does not match the one you provided; check your key and signing method";
    SlowDown 503 "Please reduce your request rate";
    StorageFull 507 "There is no space left";
    TooManyBuckets 400 "You have more buckets than allowed";
    UnresolvableGrantByEmailAddress 400 "The email address does not belong to an account";
    UnsupportedArgument 400 "The argument is not supported";
    UserKeyMustBeSpecified 400 "The POST must name a key";
    XAmzContentSHA256Mismatch 400 "The x-amz-content-sha256 you specified did not match what we received";
}

impl S3Code {
    /// The code of that name.
    pub fn parse(name: &str) -> Option<S3Code> {
        S3Code::ALL.iter().copied().find(|c| c.name() == name)
    }
}

/// An answer that is an error.
#[derive(Clone, Debug)]
pub struct S3Error {
    /// Code; gives the status.
    pub code: S3Code,
    /// For the client.
    pub message: Cow<'static, str>,
    /// Further elements, in order, such as `("BucketName", …)`.
    pub extra: Vec<(&'static str, String)>,
    /// Further headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The result of anything that may answer with an error.
pub type S3Result<T> = Result<T, S3Error>;

impl S3Error {
    /// With the code's own message.
    pub fn new(code: S3Code) -> Self {
        S3Error { code, message: Cow::Borrowed(code.default_message()), extra: Vec::new(), headers: Vec::new() }
    }

    /// With this message.
    pub fn with(code: S3Code, message: impl Into<Cow<'static, str>>) -> Self {
        S3Error { code, message: message.into(), extra: Vec::new(), headers: Vec::new() }
    }

    /// Adds an element.
    #[must_use]
    pub fn extra(mut self, element: &'static str, value: impl Into<String>) -> Self {
        self.extra.push((element, value.into()));
        self
    }

    /// Adds a header of the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// `InvalidArgument` that names the argument, as AWS does.
    pub fn invalid_argument(
        name: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::with(S3Code::InvalidArgument, message).extra("ArgumentName", name).extra("ArgumentValue", value)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body. `resource` is the path of the request as it was sent.
    pub fn xml(&self, resource: &str, request_id: &str, host_id: &str) -> Bytes {
        let mut w = XmlWriter::plain("Error");
        w.text("Code", self.code.name());
        w.text("Message", &self.message);
        for (name, value) in &self.extra {
            w.text(name, value);
        }
        w.text("Resource", resource);
        w.text("RequestId", request_id);
        w.text("HostId", host_id);
        w.finish()
    }

    /// Puts the further headers into `map`.
    pub fn write_headers(&self, map: &mut HeaderMap) {
        for (name, value) in &self.headers {
            map.insert(name.clone(), value.clone());
        }
    }
}

impl std::fmt::Display for S3Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for S3Error {}

impl From<NameError> for S3Error {
    fn from(e: NameError) -> Self {
        match e {
            NameError::InvalidBucketName => S3Error::new(S3Code::InvalidBucketName),
            NameError::KeyTooLong => S3Error::new(S3Code::KeyTooLongError),
            NameError::InvalidKey => S3Error::with(S3Code::InvalidURI, "The key is not valid"),
        }
    }
}

impl From<BodyError> for S3Error {
    fn from(e: BodyError) -> Self {
        match S3Code::parse(e.code) {
            Some(code) => S3Error::with(code, e.message),
            None => S3Error::with(S3Code::InternalError, e.message),
        }
    }
}

impl From<S3Error> for BodyError {
    fn from(e: S3Error) -> Self {
        BodyError { code: e.code.name(), message: e.message.into_owned() }
    }
}

const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

fn delete_marker_headers(e: S3Error, version: &types::VersionId) -> S3Error {
    let e = e.header(DELETE_MARKER, HeaderValue::from_static("true"));
    match HeaderValue::from_str(&version.to_string()) {
        Ok(v) => e.header(VERSION_ID, v),
        Err(_) => e,
    }
}

impl From<StoreError> for S3Error {
    fn from(e: StoreError) -> Self {
        let retry_after = |e: S3Error| e.header(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        match e {
            StoreError::Body(b) => b.into(),
            StoreError::NoSuchBucket => S3Error::new(S3Code::NoSuchBucket),
            StoreError::BucketExists(info) => {
                S3Error::new(S3Code::BucketAlreadyExists).extra("BucketName", info.name.as_str())
            }
            StoreError::BucketNotEmpty => S3Error::new(S3Code::BucketNotEmpty),
            StoreError::NoSuchKey { delete_marker: None } => S3Error::new(S3Code::NoSuchKey),
            StoreError::NoSuchKey { delete_marker: Some(v) } => {
                delete_marker_headers(S3Error::new(S3Code::NoSuchKey), &v)
            }
            StoreError::NoSuchVersion => S3Error::new(S3Code::NoSuchVersion),
            StoreError::DeleteMarker { version, modified_ms } => {
                let e = delete_marker_headers(S3Error::new(S3Code::MethodNotAllowed), &version);
                match HeaderValue::from_str(crate::response::HttpDate::of(modified_ms).as_str()) {
                    Ok(v) => e.header(http::header::LAST_MODIFIED, v),
                    Err(_) => e,
                }
            }
            StoreError::NoSuchUpload => S3Error::new(S3Code::NoSuchUpload),
            StoreError::InvalidPart { number } => {
                S3Error::new(S3Code::InvalidPart).extra("PartNumber", number.to_string())
            }
            StoreError::PartTooSmall { number, size } => S3Error::new(S3Code::EntityTooSmall)
                .extra("ProposedSize", size.to_string())
                .extra("MinSizeAllowed", types::limits::PART_MIN_BYTES.to_string())
                .extra("PartNumber", number.to_string()),
            StoreError::TooLarge => S3Error::new(S3Code::EntityTooLarge),
            StoreError::BadDigest(m) => S3Error::with(S3Code::BadDigest, m),
            StoreError::InvalidState(m) => S3Error::with(S3Code::InvalidRequest, m),
            StoreError::PreconditionFailed(condition) => {
                S3Error::new(S3Code::PreconditionFailed).extra("Condition", condition)
            }
            StoreError::UserExists => S3Error::with(S3Code::InvalidRequest, "The user exists"),
            StoreError::NoSuchUser => S3Error::with(S3Code::InvalidRequest, "The user does not exist"),
            StoreError::UserHasBuckets => S3Error::with(S3Code::InvalidRequest, "The user still owns buckets"),
            StoreError::Conflict => S3Error::new(S3Code::ConditionalRequestConflict),
            StoreError::Busy(_) => retry_after(S3Error::new(S3Code::SlowDown)),
            StoreError::Unavailable(_) => retry_after(S3Error::new(S3Code::ServiceUnavailable)),
            StoreError::NoSpace => S3Error::new(S3Code::StorageFull),
            StoreError::Damaged(m) => {
                tracing::error!(reason = %m, "an object's bytes are damaged in all places");
                S3Error::with(S3Code::InternalError, "The stored bytes are damaged")
            }
            StoreError::Internal(m) => {
                tracing::error!(reason = %m, "the store reports a mistake of its own");
                S3Error::new(S3Code::InternalError)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_valid_status_and_is_found_by_its_name() {
        for code in S3Code::ALL {
            assert!(StatusCode::from_u16(code.status()).is_ok());
            assert_eq!(S3Code::parse(code.name()), Some(*code));
        }
    }

    #[test]
    fn the_xml_names_code_message_resource_and_ids() {
        let e = S3Error::new(S3Code::NoSuchKey).extra("Key", "a<b");
        let xml = e.xml("/b/a%3Cb", "REQ", "HOST");
        let text = std::str::from_utf8(&xml).expect("we write UTF-8");
        assert!(text.contains("<Error><Code>NoSuchKey</Code>"), "{text}");
        assert!(text.contains("<Key>a&lt;b</Key><Resource>/b/a%3Cb</Resource>"), "{text}");
        assert!(text.ends_with("<RequestId>REQ</RequestId><HostId>HOST</HostId></Error>"), "{text}");
    }
}
