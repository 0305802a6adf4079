//! Accounts: made, found, removed.

use object_controller::api::{Account, Credential, NewUser, StoreError};
use std::sync::Arc;

use crate::checksum::checksum_of;
use crate::state::State;
use types::ChecksumAlgorithm;

/// The credential of `access_key`, root's included.
pub fn find(state: &State, access_key: &str) -> Option<Arc<Credential>> {
    std::iter::once(&state.root).chain(state.users.values()).find(|c| c.access_key == access_key).cloned()
}

/// Adds an account; keys that were not given are derived from the counter, for tests only.
pub fn create(state: &mut State, user: NewUser) -> Result<Arc<Credential>, StoreError> {
    check_name(&user.name)?;
    let serial = state.mint().sequence;
    let derived =
        |what: &str| hex::encode(checksum_of(ChecksumAlgorithm::Sha256, format!("{what} {serial}").as_bytes()));
    let access_key = user.access_key.unwrap_or_else(|| derived("access key")[..20].to_uppercase());
    let secret_key = user.secret_key.unwrap_or_else(|| derived("secret key")[..40].to_owned());
    if !(3..=128).contains(&access_key.len()) || secret_key.len() < 8 {
        return Err(StoreError::InvalidState("access key or secret key of an invalid length".into()));
    }
    if state.users.contains_key(&user.name) || find(state, &access_key).is_some() {
        return Err(StoreError::UserExists);
    }
    let account = Account {
        canonical_id: derived("canonical id"),
        display_name: user.name.clone(),
        email: user.email.unwrap_or_default(),
        is_root: false,
    };
    let credential = Arc::new(Credential { access_key, secret_key, account });
    state.users.insert(user.name, Arc::clone(&credential));
    Ok(credential)
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    Err(StoreError::InvalidState("not a user name".into()))
}

/// Removes an account that owns no bucket.
pub fn delete(state: &mut State, name: &str) -> Result<(), StoreError> {
    let user = state.users.get(name).ok_or(StoreError::NoSuchUser)?;
    if state.buckets.values().any(|b| b.info.owner == user.account.canonical_id) {
        return Err(StoreError::UserHasBuckets);
    }
    state.users.remove(name);
    Ok(())
}
