//! The s3 actions that policies name, and which of them we ask about.

use super::wildcard;

macro_rules! actions {
    ($($name:ident $on:ident;)*) => {
        /// An action that an operation of ours asks leave for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Action {
            $(#[doc = concat!("`s3:", stringify!($name), "`")] $name,)*
        }
        impl Action {
            const ALL: &'static [Action] = &[$(Action::$name,)*];
            /// As in a policy.
            pub fn name(self) -> &'static str {
                match self { $(Action::$name => concat!("s3:", stringify!($name)),)* }
            }
            fn on(self) -> On {
                match self { $(Action::$name => On::$on,)* }
            }
        }
    };
}

/// What an action is done to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Bucket,
    Object,
}

actions! {
    AbortMultipartUpload Object;
    BypassGovernanceRetention Object;
    CreateBucket Bucket;
    DeleteBucket Bucket;
    DeleteBucketPolicy Bucket;
    DeleteBucketWebsite Bucket;
    DeleteObject Object;
    DeleteObjectTagging Object;
    DeleteObjectVersion Object;
    DeleteObjectVersionTagging Object;
    GetAccelerateConfiguration Bucket;
    GetAnalyticsConfiguration Bucket;
    GetBucketAcl Bucket;
    GetBucketCORS Bucket;
    GetBucketLocation Bucket;
    GetBucketLogging Bucket;
    GetBucketNotification Bucket;
    GetBucketObjectLockConfiguration Bucket;
    GetBucketOwnershipControls Bucket;
    GetBucketPolicy Bucket;
    GetBucketPolicyStatus Bucket;
    GetBucketPublicAccessBlock Bucket;
    GetBucketRequestPayment Bucket;
    GetBucketTagging Bucket;
    GetBucketVersioning Bucket;
    GetBucketWebsite Bucket;
    GetEncryptionConfiguration Bucket;
    GetIntelligentTieringConfiguration Bucket;
    GetInventoryConfiguration Bucket;
    GetLifecycleConfiguration Bucket;
    GetMetricsConfiguration Bucket;
    GetObject Object;
    GetObjectAcl Object;
    GetObjectAttributes Object;
    GetObjectLegalHold Object;
    GetObjectRetention Object;
    GetObjectTagging Object;
    GetObjectTorrent Object;
    GetObjectVersion Object;
    GetObjectVersionAcl Object;
    GetObjectVersionAttributes Object;
    GetObjectVersionTagging Object;
    GetReplicationConfiguration Bucket;
    ListBucket Bucket;
    ListBucketMultipartUploads Bucket;
    ListBucketVersions Bucket;
    ListMultipartUploadParts Object;
    PutAccelerateConfiguration Bucket;
    PutAnalyticsConfiguration Bucket;
    PutBucketAcl Bucket;
    PutBucketCORS Bucket;
    PutBucketLogging Bucket;
    PutBucketNotification Bucket;
    PutBucketObjectLockConfiguration Bucket;
    PutBucketOwnershipControls Bucket;
    PutBucketPolicy Bucket;
    PutBucketPublicAccessBlock Bucket;
    PutBucketRequestPayment Bucket;
    PutBucketTagging Bucket;
    PutBucketVersioning Bucket;
    PutBucketWebsite Bucket;
    PutEncryptionConfiguration Bucket;
    PutIntelligentTieringConfiguration Bucket;
    PutInventoryConfiguration Bucket;
    PutLifecycleConfiguration Bucket;
    PutMetricsConfiguration Bucket;
    PutObject Object;
    PutObjectAcl Object;
    PutObjectLegalHold Object;
    PutObjectRetention Object;
    PutObjectTagging Object;
    PutObjectVersionAcl Object;
    PutObjectVersionTagging Object;
    PutReplicationConfiguration Bucket;
    ReplicateDelete Object;
    ReplicateObject Object;
    ReplicateTags Object;
    RestoreObject Object;
}

impl Action {
    /// Without `s3:`, in lower case, as patterns are kept.
    pub fn lower_name(self) -> String {
        self.name().trim_start_matches("s3:").to_ascii_lowercase()
    }
}

/// Actions that fit a lower-case pattern, told by what they are done to: (bucket, object).
pub fn reach(pattern: &str) -> (bool, bool) {
    let mut found = (false, false);
    for action in Action::ALL.iter().filter(|a| wildcard::matches(pattern, &a.lower_name())) {
        match action.on() {
            On::Bucket => found.0 = true,
            On::Object => found.1 = true,
        }
    }
    found
}
