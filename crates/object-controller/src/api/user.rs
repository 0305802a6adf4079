//! Accounts: each has one key pair, one canonical id, and its own buckets.

pub use types::account::{Account, Credential};

/// An account to be made; the keys are minted where they are `None`.
#[derive(Clone)]
pub struct NewUser {
    /// Unique; 1 to 64 of letters, digits, `+=,.@_-`.
    pub name: String,
    /// 3 to 128 characters.
    pub access_key: Option<String>,
    /// At least 8 characters.
    pub secret_key: Option<String>,
    /// Free text.
    pub email: Option<String>,
}
