//! What apply refused, in the words of the api. One exhaustive match.

use crate::api::StoreError;
use metadata::command::{Condition, Refusal};
use std::sync::Arc;

/// The client's error for a refusal that is final. `Moved` and `Refetch` decide nothing and are retried before they come here.
pub(crate) fn store_error(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Moved => StoreError::Unavailable("the key moved to another shard".into()),
        Refusal::Refetch => StoreError::Unavailable("the bucket is being changed".into()),
        Refusal::Deadline => StoreError::Unavailable("the deadline passed".into()),
        Refusal::Fenced => StoreError::Unavailable("the session of this gateway has ended".into()),
        Refusal::NoSuchBucket => StoreError::NoSuchBucket,
        Refusal::BucketExists(info) => StoreError::BucketExists(Arc::from(info)),
        Refusal::NoSuchKey(delete_marker) => StoreError::NoSuchKey { delete_marker },
        Refusal::NoSuchVersion => StoreError::NoSuchVersion,
        Refusal::IsDeleteMarker(version, modified_ms) => StoreError::DeleteMarker { version, modified_ms },
        Refusal::NoSuchUpload => StoreError::NoSuchUpload,
        Refusal::InvalidPart(number) => StoreError::InvalidPart { number },
        Refusal::PartTooSmall(number, size) => StoreError::PartTooSmall { number, size },
        Refusal::BadDigest(what) => StoreError::BadDigest(what),
        Refusal::Precondition(condition) => StoreError::PreconditionFailed(condition_name(condition)),
        Refusal::SourceGone => StoreError::Unavailable("the source was reclaimed while it was being copied".into()),
        Refusal::UserExists => StoreError::UserExists,
        Refusal::NoSuchUser => StoreError::NoSuchUser,
        Refusal::UserHasBuckets => StoreError::UserHasBuckets,
        Refusal::Stale(_) => StoreError::Unavailable("the record was changed by another".into()),
        Refusal::ContentTaken => StoreError::Internal("the content's id was used before".into()),
        Refusal::Invalid(what) => StoreError::InvalidState(what),
        Refusal::Cluster(refusal) => StoreError::InvalidState(refusal.to_string()),
    }
}

/// Whether apply has decided: a refusal of this kind is kept for the attempt, and the entry's content was condemned with it.
pub(crate) fn is_decided(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::Moved | Refusal::Refetch | Refusal::Deadline | Refusal::Fenced)
}

fn condition_name(condition: Condition) -> &'static str {
    match condition {
        Condition::IfNoneMatch => "If-None-Match",
        Condition::IfMatch => "If-Match",
        Condition::LastModified => "x-amz-if-match-last-modified-time",
        Condition::Size => "x-amz-if-match-size",
    }
}
