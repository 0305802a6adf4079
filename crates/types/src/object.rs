//! What the client says of an object, and the conditions that are judged when a write is applied.

use serde::{Deserialize, Serialize};

/// A key and a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tag {
    /// 1 to 128 characters.
    pub key: String,
    /// 0 to 256 characters.
    pub value: String,
}

/// What the client says of the bytes; returned as it came.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// System headers by lower-case name: content-type, cache-control, content-disposition, content-encoding,
    /// content-language, expires, x-amz-website-redirect-location, x-amz-storage-class.
    pub headers: Vec<(String, String)>,
    /// User metadata: names in lower case without `x-amz-meta-`.
    pub user: Vec<(String, String)>,
}

impl ObjectMeta {
    /// The system header of that lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Conditions of a write, judged when the write is applied, on the key's current version.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PutConditions {
    /// `If-None-Match: *`: there must be no live current version.
    pub must_not_exist: bool,
    /// `If-Match`: the current version's ETag (without quotes) or `*`. No current version: `NoSuchKey`.
    pub if_match: Option<String>,
}

/// Conditions of a delete.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DeleteConditions {
    /// `If-Match`: ETag without quotes, or `*`.
    pub if_match: Option<String>,
    /// `x-amz-if-match-last-modified-time`, in seconds since the epoch.
    pub if_match_last_modified: Option<u64>,
    /// `x-amz-if-match-size`.
    pub if_match_size: Option<u64>,
}
