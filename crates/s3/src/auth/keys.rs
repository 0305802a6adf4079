//! Derived signing keys, remembered: deriving costs four HMACs, looking up almost nothing.
//!
//! Promises: a key is used only for the very secret it was derived from, so a changed secret counts at once.

use super::signing::{Scope, SigningKey};
use crate::limits;
use object_controller::api::Credential;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use subtle::ConstantTimeEq;

struct Entry {
    date: [u8; 8],
    credential: Arc<Credential>,
    key: SigningKey,
}

/// One key per access key: the one of its last date. Region and service are the authenticator's own.
#[derive(Default)]
pub struct SigningKeys(RwLock<BTreeMap<String, Entry>>);

impl SigningKeys {
    /// The key of `credential` for `scope`, whose region and service the caller has checked.
    pub fn get(&self, credential: &Arc<Credential>, scope: &Scope<'_>) -> SigningKey {
        if let Some(e) = self.0.read().get(credential.access_key.as_str())
            && e.date == scope.date.as_bytes()
            && same_secret(&e.credential, credential)
        {
            return e.key.clone();
        }
        let key = SigningKey::derive(&credential.secret_key, scope);
        if let Ok(date) = scope.date.as_bytes().try_into() {
            let mut keys = self.0.write();
            if keys.len() >= limits::SIGNING_KEYS_MAX && !keys.contains_key(&credential.access_key) {
                keys.clear();
            }
            let (credential, key) = (Arc::clone(credential), key.clone());
            keys.insert(credential.access_key.clone(), Entry { date, credential, key });
        }
        key
    }
}

fn same_secret(a: &Arc<Credential>, b: &Arc<Credential>) -> bool {
    Arc::ptr_eq(a, b) || bool::from(a.secret_key.as_bytes().ct_eq(b.secret_key.as_bytes()))
}
