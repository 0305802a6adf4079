//! Accounts: each has one key pair, one canonical id, and its own buckets.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who owns buckets and objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// 64 hex digits; never reused.
    pub canonical_id: String,
    /// The account's name.
    pub display_name: String,
    /// For `aws:` principals and the suites that ask for it; may be empty.
    pub email: String,
    /// Root may open all buckets.
    pub is_root: bool,
}

/// A key pair and whose it is. Its `Debug` never shows the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Public half.
    pub access_key: String,
    /// Secret half.
    pub secret_key: String,
    /// Whose it is.
    pub account: Account,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}, {})", self.access_key, self.account.display_name)
    }
}
