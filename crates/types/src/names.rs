//! Bucket names and object keys, checked when made.

use crate::limits;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a bucket name by AWS's rules.
    #[error("the specified bucket is not valid")]
    InvalidBucketName,
    /// Longer than 1,024 bytes.
    #[error("your key is too long")]
    KeyTooLong,
    /// Empty, or contains NUL.
    #[error("the key is not valid")]
    InvalidKey,
}

/// A bucket's name by AWS's rules: 3 to 63 of a-z, 0-9, '.', '-'; begins and ends with a letter or digit; no "..",
/// not an IPv4 address, none of the reserved prefixes and suffixes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BucketName(Box<str>);

impl BucketName {
    /// Checks `name`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let b = name.as_bytes();
        let alnum = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = (3..=63).contains(&b.len())
            && b.iter().all(|c| alnum(c) || *c == b'.' || *c == b'-')
            && b.first().is_some_and(alnum)
            && b.last().is_some_and(alnum)
            && !["..", ".-", "-."].iter().any(|p| name.contains(p))
            && name.parse::<std::net::Ipv4Addr>().is_err()
            && !["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|p| name.starts_with(p))
            && !["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"].iter().any(|s| name.ends_with(s));
        if valid { Ok(BucketName(name.into())) } else { Err(NameError::InvalidBucketName) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object's key: 1 to 1,024 bytes of UTF-8 without NUL, otherwise literal ("a//b", "/a" and "a/../b" are distinct keys).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectKey(Box<str>);

impl ObjectKey {
    /// Checks `key`.
    pub fn new(key: &str) -> Result<Self, NameError> {
        if key.len() > limits::KEY_MAX_BYTES {
            return Err(NameError::KeyTooLong);
        }
        if key.is_empty() || key.contains('\0') {
            return Err(NameError::InvalidKey);
        }
        Ok(ObjectKey(key.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_rules_of_aws() {
        for good in ["abc", "a-b.c9", "0ab", &"a".repeat(63)] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "ab",
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            "a..b",
            "a.-b",
            "a-.b",
            "192.168.5.4",
            "xn--abc",
            "ab/c",
            &"a".repeat(64),
            ".sys",
        ] {
            assert!(BucketName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_literal_up_to_1024_bytes() {
        assert!(ObjectKey::new(&"k".repeat(1024)).is_ok());
        assert_eq!(ObjectKey::new(&"k".repeat(1025)), Err(NameError::KeyTooLong));
        assert_eq!(ObjectKey::new("a\0b"), Err(NameError::InvalidKey));
        assert_eq!(ObjectKey::new("a/../b").map(|k| k.as_str().to_owned()), Ok("a/../b".into()));
    }
}
