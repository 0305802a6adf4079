//! Which operation a request is.
//!
//! Promises: every request is exactly one [`Operation`], decided from its method, target, query and headers alone. What is
//! not implemented has its name here and answers 501; a sub-resource that nobody knows is never taken for a plain read or
//! write of the bucket or object beside it. Refuses to know: who asks, what exists.

use crate::names;
use crate::policy::Action;
use http::{HeaderMap, Method};

/// A configuration that can be read although it cannot be set: AWS's answer for "none" is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unset {
    Accelerate,
    Encryption,
    Lifecycle,
    Logging,
    Notification,
    ObjectLock,
    Replication,
    RequestPayment,
    Website,
}

impl Unset {
    /// The operation's name and the action it needs.
    pub fn names(self) -> (&'static str, Action) {
        match self {
            Unset::Accelerate => ("GetBucketAccelerateConfiguration", Action::GetAccelerateConfiguration),
            Unset::Encryption => ("GetBucketEncryption", Action::GetEncryptionConfiguration),
            Unset::Lifecycle => ("GetBucketLifecycleConfiguration", Action::GetLifecycleConfiguration),
            Unset::Logging => ("GetBucketLogging", Action::GetBucketLogging),
            Unset::Notification => ("GetBucketNotificationConfiguration", Action::GetBucketNotification),
            Unset::ObjectLock => ("GetObjectLockConfiguration", Action::GetBucketObjectLockConfiguration),
            Unset::Replication => ("GetBucketReplication", Action::GetReplicationConfiguration),
            Unset::RequestPayment => ("GetBucketRequestPayment", Action::GetBucketRequestPayment),
            Unset::Website => ("GetBucketWebsite", Action::GetBucketWebsite),
        }
    }
}

macro_rules! operations {
    ($($name:ident)*) => {
        /// An operation of S3.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Operation {
            $(#[doc = concat!("`", stringify!($name), "`")] $name,)*
            /// A browser asks whether it may ask.
            Preflight,
            /// Reads a configuration that cannot have been set.
            ReadUnset(Unset),
            /// Has a name, but is not implemented.
            NotImplemented(&'static str),
            /// Names a sub-resource that is unknown.
            UnknownSubresource,
            /// The method does not exist here.
            MethodNotAllowed,
        }
        impl Operation {
            /// For metrics and logs.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$name => stringify!($name),)*
                    Operation::Preflight => "Preflight",
                    Operation::ReadUnset(unset) => unset.names().0,
                    Operation::NotImplemented(name) => name,
                    Operation::UnknownSubresource => "UnknownSubresource",
                    Operation::MethodNotAllowed => "MethodNotAllowed",
                }
            }
        }
    };
}

operations! {
    ListBuckets
    CreateBucket HeadBucket DeleteBucket GetBucketLocation
    GetBucketVersioning PutBucketVersioning
    GetBucketTagging PutBucketTagging DeleteBucketTagging
    GetBucketCors PutBucketCors DeleteBucketCors
    GetBucketPolicy PutBucketPolicy DeleteBucketPolicy GetBucketPolicyStatus
    GetBucketAcl PutBucketAcl
    GetBucketOwnershipControls PutBucketOwnershipControls
    GetPublicAccessBlock PutPublicAccessBlock DeletePublicAccessBlock
    DeleteBucketLifecycle
    ListObjects ListObjectsV2 ListObjectVersions ListMultipartUploads
    DeleteObjects PostObject
    GetObject HeadObject PutObject CopyObject DeleteObject GetObjectAttributes
    GetObjectTagging PutObjectTagging DeleteObjectTagging
    GetObjectAcl PutObjectAcl
    CreateMultipartUpload UploadPart UploadPartCopy CompleteMultipartUpload AbortMultipartUpload ListParts
}

/// What the decision looks at.
pub struct Question<'a> {
    pub method: &'a Method,
    pub has_bucket: bool,
    pub has_key: bool,
    pub query: &'a crate::request::Query,
    pub headers: &'a HeaderMap,
}

/// Decides.
pub fn route(q: &Question<'_>) -> Operation {
    match (q.has_bucket, q.has_key) {
        _ if q.method == Method::OPTIONS => Operation::Preflight,
        (false, _) => service(q),
        (true, false) => bucket(q),
        (true, true) => object(q),
    }
}

/// Sub-resources of a bucket, in the order in which they are looked for.
const BUCKET_SUBRESOURCES: [&str; 31] = [
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
    "metadataInventoryTable",
];

/// Sub-resources of an object.
const OBJECT_SUBRESOURCES: [&str; 12] = [
    "acl",
    "attributes",
    "encryption",
    "legal-hold",
    "renameObject",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
    "uploads",
    "append",
];

/// Parameters that qualify an operation and may stand without a value.
const PLAIN_PARAMETERS: [&str; 26] = [
    "prefix",
    "delimiter",
    "marker",
    "max-keys",
    "encoding-type",
    "list-type",
    "continuation-token",
    "start-after",
    "fetch-owner",
    "versionId",
    "key-marker",
    "version-id-marker",
    "upload-id-marker",
    "max-uploads",
    "max-parts",
    "part-number-marker",
    "partNumber",
    "uploadId",
    "id",
    "select-type",
    "max-buckets",
    "bucket-region",
    "response-content-type",
    "response-content-language",
    "response-expires",
    "response-cache-control",
];

/// A flag that is none of ours: answering as if it were not there would be answering another question.
fn has_unknown_flag(q: &Question<'_>) -> bool {
    q.query.iter().any(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        value.is_empty()
            && !PLAIN_PARAMETERS.contains(&name)
            && !lower.starts_with("x-")
            && !lower.starts_with("response-")
    })
}

fn service(q: &Question<'_>) -> Operation {
    match *q.method {
        Method::GET if has_unknown_flag(q) => Operation::UnknownSubresource,
        Method::GET => Operation::ListBuckets,
        Method::POST => Operation::NotImplemented("ServicePost"),
        _ => Operation::MethodNotAllowed,
    }
}

fn bucket(q: &Question<'_>) -> Operation {
    if let Some(name) = BUCKET_SUBRESOURCES.iter().find(|name| q.query.has(name)) {
        return bucket_subresource(q.method, name);
    }
    if has_unknown_flag(q) {
        return Operation::UnknownSubresource;
    }
    match *q.method {
        Method::GET if q.query.get("list-type") == Some("2") => Operation::ListObjectsV2,
        Method::GET => Operation::ListObjects,
        Method::HEAD => Operation::HeadBucket,
        Method::PUT => Operation::CreateBucket,
        Method::DELETE => Operation::DeleteBucket,
        Method::POST => Operation::PostObject,
        _ => Operation::MethodNotAllowed,
    }
}

fn bucket_subresource(method: &Method, name: &str) -> Operation {
    use Operation::{MethodNotAllowed, NotImplemented, ReadUnset};
    match (method.as_str(), name) {
        ("GET", "accelerate") => ReadUnset(Unset::Accelerate),
        ("PUT", "accelerate") => NotImplemented("PutBucketAccelerateConfiguration"),
        ("GET", "acl") => Operation::GetBucketAcl,
        ("PUT", "acl") => Operation::PutBucketAcl,
        ("GET", "cors") => Operation::GetBucketCors,
        ("PUT", "cors") => Operation::PutBucketCors,
        ("DELETE", "cors") => Operation::DeleteBucketCors,
        ("POST", "delete") => Operation::DeleteObjects,
        ("GET", "encryption") => ReadUnset(Unset::Encryption),
        ("PUT", "encryption") => NotImplemented("PutBucketEncryption"),
        ("DELETE", "encryption") => NotImplemented("DeleteBucketEncryption"),
        ("GET", "lifecycle") => ReadUnset(Unset::Lifecycle),
        ("PUT", "lifecycle") => NotImplemented("PutBucketLifecycleConfiguration"),
        ("DELETE", "lifecycle") => Operation::DeleteBucketLifecycle,
        ("GET", "location") => Operation::GetBucketLocation,
        ("GET", "logging") => ReadUnset(Unset::Logging),
        ("PUT", "logging") => NotImplemented("PutBucketLogging"),
        ("GET", "notification") => ReadUnset(Unset::Notification),
        ("PUT", "notification") => NotImplemented("PutBucketNotificationConfiguration"),
        ("GET", "object-lock") => ReadUnset(Unset::ObjectLock),
        ("PUT", "object-lock") => NotImplemented("PutObjectLockConfiguration"),
        ("GET", "ownershipControls") => Operation::GetBucketOwnershipControls,
        ("PUT", "ownershipControls") => Operation::PutBucketOwnershipControls,
        ("DELETE", "ownershipControls") => NotImplemented("DeleteBucketOwnershipControls"),
        ("GET", "policy") => Operation::GetBucketPolicy,
        ("PUT", "policy") => Operation::PutBucketPolicy,
        ("DELETE", "policy") => Operation::DeleteBucketPolicy,
        ("GET", "policyStatus") => Operation::GetBucketPolicyStatus,
        ("GET", "publicAccessBlock") => Operation::GetPublicAccessBlock,
        ("PUT", "publicAccessBlock") => Operation::PutPublicAccessBlock,
        ("DELETE", "publicAccessBlock") => Operation::DeletePublicAccessBlock,
        ("GET", "replication") => ReadUnset(Unset::Replication),
        ("PUT", "replication") => NotImplemented("PutBucketReplication"),
        ("DELETE", "replication") => NotImplemented("DeleteBucketReplication"),
        ("GET", "requestPayment") => ReadUnset(Unset::RequestPayment),
        ("PUT", "requestPayment") => NotImplemented("PutBucketRequestPayment"),
        ("GET", "tagging") => Operation::GetBucketTagging,
        ("PUT", "tagging") => Operation::PutBucketTagging,
        ("DELETE", "tagging") => Operation::DeleteBucketTagging,
        ("GET", "uploads") => Operation::ListMultipartUploads,
        ("GET", "versioning") => Operation::GetBucketVersioning,
        ("PUT", "versioning") => Operation::PutBucketVersioning,
        ("GET", "versions") => Operation::ListObjectVersions,
        ("GET", "website") => ReadUnset(Unset::Website),
        ("PUT", "website") => NotImplemented("PutBucketWebsite"),
        ("DELETE", "website") => NotImplemented("DeleteBucketWebsite"),
        ("GET", "torrent") => NotImplemented("GetBucketTorrent"),
        (_, "abac") => NotImplemented("BucketAbac"),
        (_, "analytics") => NotImplemented("BucketAnalyticsConfiguration"),
        (_, "intelligent-tiering") => NotImplemented("BucketIntelligentTieringConfiguration"),
        (_, "inventory") => NotImplemented("BucketInventoryConfiguration"),
        (_, "metadataConfiguration" | "metadataTable" | "metadataInventoryTable") => {
            NotImplemented("BucketMetadataConfiguration")
        }
        (_, "metrics") => NotImplemented("BucketMetricsConfiguration"),
        (_, "session") => NotImplemented("CreateSession"),
        _ => MethodNotAllowed,
    }
}

fn object(q: &Question<'_>) -> Operation {
    if let Some(name) = OBJECT_SUBRESOURCES.iter().find(|name| q.query.has(name)) {
        return object_subresource(q.method, name);
    }
    if has_unknown_flag(q) {
        return Operation::UnknownSubresource;
    }
    let copies = q.headers.contains_key(names::X_AMZ_COPY_SOURCE);
    match (q.method.as_str(), q.query.has("uploadId")) {
        ("GET", true) => Operation::ListParts,
        ("POST", true) => Operation::CompleteMultipartUpload,
        ("DELETE", true) => Operation::AbortMultipartUpload,
        ("PUT", true) if copies => Operation::UploadPartCopy,
        ("PUT", true) => Operation::UploadPart,
        ("GET", false) => Operation::GetObject,
        ("HEAD", _) => Operation::HeadObject,
        ("PUT", false) if copies => Operation::CopyObject,
        ("PUT", false) => Operation::PutObject,
        ("DELETE", false) => Operation::DeleteObject,
        _ => Operation::MethodNotAllowed,
    }
}

fn object_subresource(method: &Method, name: &str) -> Operation {
    use Operation::{MethodNotAllowed, NotImplemented};
    match (method.as_str(), name) {
        ("GET", "acl") => Operation::GetObjectAcl,
        ("PUT", "acl") => Operation::PutObjectAcl,
        ("GET", "attributes") => Operation::GetObjectAttributes,
        ("GET", "tagging") => Operation::GetObjectTagging,
        ("PUT", "tagging") => Operation::PutObjectTagging,
        ("DELETE", "tagging") => Operation::DeleteObjectTagging,
        ("POST", "uploads") => Operation::CreateMultipartUpload,
        ("GET", "legal-hold") => NotImplemented("GetObjectLegalHold"),
        ("PUT", "legal-hold") => NotImplemented("PutObjectLegalHold"),
        ("GET", "retention") => NotImplemented("GetObjectRetention"),
        ("PUT", "retention") => NotImplemented("PutObjectRetention"),
        ("POST", "restore") => NotImplemented("RestoreObject"),
        ("POST", "select") => NotImplemented("SelectObjectContent"),
        ("GET", "torrent") => NotImplemented("GetObjectTorrent"),
        (_, "append") => NotImplemented("AppendObject"),
        (_, "encryption") => NotImplemented("UpdateObjectEncryption"),
        (_, "renameObject") => NotImplemented("RenameObject"),
        _ => MethodNotAllowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    fn routed(method: &str, target: &str) -> Operation {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.splitn(3, '/').skip(1).map(|p| !p.is_empty());
        let (has_bucket, has_key) = (parts.next().unwrap_or(false), parts.next().unwrap_or(false));
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let query = Query::parse(query).expect("a query");
        route(&Question { method: &method, has_bucket, has_key, query: &query, headers: &HeaderMap::new() })
    }

    #[test]
    fn requests_are_told_apart() {
        for (method, target, want) in [
            ("GET", "/", Operation::ListBuckets),
            ("GET", "/b", Operation::ListObjects),
            ("GET", "/b?list-type=2&prefix=&delimiter=", Operation::ListObjectsV2),
            ("GET", "/b?versions&prefix=x", Operation::ListObjectVersions),
            ("POST", "/b?delete", Operation::DeleteObjects),
            ("POST", "/b", Operation::PostObject),
            ("GET", "/b/k?x-id=GetObject&response-expires=x", Operation::GetObject),
            ("PUT", "/b/k?partNumber=1&uploadId=x", Operation::UploadPart),
            ("POST", "/b/k?uploads", Operation::CreateMultipartUpload),
            ("GET", "/b/k?uploadId=x", Operation::ListParts),
            ("OPTIONS", "/b/k", Operation::Preflight),
            ("PATCH", "/b/k", Operation::MethodNotAllowed),
            ("DELETE", "/", Operation::MethodNotAllowed),
        ] {
            assert_eq!(routed(method, target), want, "{method} {target}");
        }
    }

    #[test]
    fn a_sub_resource_is_never_taken_for_the_bucket_or_object_beside_it() {
        for target in ["/b?made-up-thing", "/b/k?made-up-thing", "/?made-up-thing"] {
            assert_eq!(routed("GET", target), Operation::UnknownSubresource, "{target}");
        }
        assert_eq!(routed("PUT", "/b?lifecycle"), Operation::NotImplemented("PutBucketLifecycleConfiguration"));
        assert_eq!(routed("PUT", "/b/k?retention"), Operation::NotImplemented("PutObjectRetention"));
        assert_eq!(routed("DELETE", "/b?encryption"), Operation::NotImplemented("DeleteBucketEncryption"));
        assert_eq!(routed("PUT", "/b?location"), Operation::MethodNotAllowed);
        assert_eq!(routed("DELETE", "/b?acl"), Operation::MethodNotAllowed);
        for name in BUCKET_SUBRESOURCES {
            for method in ["PUT", "DELETE"] {
                let got = routed(method, &format!("/b?{name}"));
                assert!(!matches!(got, Operation::CreateBucket | Operation::DeleteBucket), "{method} {name}");
            }
        }
        for name in OBJECT_SUBRESOURCES {
            for method in ["PUT", "DELETE"] {
                let got = routed(method, &format!("/b/k?{name}"));
                assert!(!matches!(got, Operation::PutObject | Operation::DeleteObject), "{method} {name}");
            }
        }
    }
}
