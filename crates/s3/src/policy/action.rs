//! The s3 actions that policies name, and which of them we ask about.

use super::wildcard;

macro_rules! actions {
    ($($name:ident;)*) => {
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
        }
    };
}

actions! {
    AbortMultipartUpload;
    BypassGovernanceRetention;
    CreateBucket;
    DeleteBucket;
    DeleteBucketPolicy;
    DeleteBucketWebsite;
    DeleteObject;
    DeleteObjectTagging;
    DeleteObjectVersion;
    DeleteObjectVersionTagging;
    GetAccelerateConfiguration;
    GetAnalyticsConfiguration;
    GetBucketAcl;
    GetBucketCORS;
    GetBucketLocation;
    GetBucketLogging;
    GetBucketNotification;
    GetBucketObjectLockConfiguration;
    GetBucketOwnershipControls;
    GetBucketPolicy;
    GetBucketPolicyStatus;
    GetBucketPublicAccessBlock;
    GetBucketRequestPayment;
    GetBucketTagging;
    GetBucketVersioning;
    GetBucketWebsite;
    GetEncryptionConfiguration;
    GetIntelligentTieringConfiguration;
    GetInventoryConfiguration;
    GetLifecycleConfiguration;
    GetMetricsConfiguration;
    GetObject;
    GetObjectAcl;
    GetObjectAttributes;
    GetObjectLegalHold;
    GetObjectRetention;
    GetObjectTagging;
    GetObjectTorrent;
    GetObjectVersion;
    GetObjectVersionAcl;
    GetObjectVersionAttributes;
    GetObjectVersionTagging;
    GetReplicationConfiguration;
    ListBucket;
    ListBucketMultipartUploads;
    ListBucketVersions;
    ListMultipartUploadParts;
    PutAccelerateConfiguration;
    PutAnalyticsConfiguration;
    PutBucketAcl;
    PutBucketCORS;
    PutBucketLogging;
    PutBucketNotification;
    PutBucketObjectLockConfiguration;
    PutBucketOwnershipControls;
    PutBucketPolicy;
    PutBucketPublicAccessBlock;
    PutBucketRequestPayment;
    PutBucketTagging;
    PutBucketVersioning;
    PutBucketWebsite;
    PutEncryptionConfiguration;
    PutIntelligentTieringConfiguration;
    PutInventoryConfiguration;
    PutLifecycleConfiguration;
    PutMetricsConfiguration;
    PutObject;
    PutObjectAcl;
    PutObjectLegalHold;
    PutObjectRetention;
    PutObjectTagging;
    PutObjectVersionAcl;
    PutObjectVersionTagging;
    PutReplicationConfiguration;
    ReplicateDelete;
    ReplicateObject;
    ReplicateTags;
    RestoreObject;
}

impl Action {
    /// Without `s3:`, in lower case, as patterns are kept.
    pub fn lower_name(self) -> String {
        self.name().trim_start_matches("s3:").to_ascii_lowercase()
    }
}

/// Whether any action fits a lower-case pattern.
pub fn is_known(pattern: &str) -> bool {
    Action::ALL.iter().any(|action| wildcard::matches(pattern, &action.lower_name()))
}
