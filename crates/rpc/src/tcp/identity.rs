//! The key by which a node is known.
//!
//! Promises: the secret is never shown by `Debug`. Refuses to know: certificates, names, dates: a key is trusted because the map lists
//! its hash (docs/wire-protocol.md).

use super::trust::KeySha256;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// What comes before the 32 secret bytes in the PKCS#8 form of an Ed25519 key (RFC 8410, section 7).
const ED25519_PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A secret key and its public half. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    pub(super) key: Arc<CertifiedKey>,
    hash: KeySha256,
}

/// Bytes that are no key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a secret key: {0}")]
pub struct IdentityError(String);

impl Identity {
    /// The Ed25519 key of 32 secret random bytes.
    pub fn from_secret(secret: [u8; 32]) -> Identity {
        let mut der = ED25519_PKCS8_HEAD.to_vec();
        der.extend_from_slice(&secret);
        Identity::from_pkcs8(&der).expect("every 32 bytes are an Ed25519 key")
    }

    /// A key of any kind that TLS knows, in PKCS#8 (DER).
    pub fn from_pkcs8(der: &[u8]) -> Result<Identity, IdentityError> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.to_vec()));
        let key =
            super::tls::provider().key_provider.load_private_key(der).map_err(|e| IdentityError(e.to_string()))?;
        let public = key.public_key().ok_or_else(|| IdentityError("it has no public half".to_owned()))?;
        let public = public.as_ref().to_vec();
        let hash = hash_of(&public);
        // Where a certificate would be, TLS carries the bare key (RFC 7250).
        Ok(Identity { key: Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key)), hash })
    }

    /// The hash by which the map lists it.
    pub fn key_sha256(&self) -> KeySha256 {
        self.hash
    }
}

/// The hash of a public key in its DER form.
pub(super) fn hash_of(public_key_der: &[u8]) -> KeySha256 {
    Sha256::digest(public_key_der).into()
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&hex::encode(&self.hash[..4])).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Identity;

    #[test]
    fn the_same_secret_is_the_same_key_and_another_another() {
        let hash = |byte| Identity::from_secret([byte; 32]).key_sha256();
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
        // The public key of RFC 8032, 7.1, test 1, in its DER form, hashed by sha256sum.
        let secret = hex::decode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").expect("hex");
        let known = Identity::from_secret(secret.try_into().expect("32 bytes"));
        assert_eq!(hex::encode(known.key_sha256()), KNOWN);
    }

    const KNOWN: &str = "06e3fd8fda29bb60ab59557de61edb0aecdb231134be30e75b455f8e1b792fa9";

    #[test]
    fn bytes_that_are_no_key_are_refused_and_a_secret_is_not_shown() {
        assert!(Identity::from_pkcs8(b"no key").is_err());
        assert!(Identity::from_pkcs8(&[]).is_err());
        let shown = format!("{:?}", Identity::from_secret([0x5a; 32]));
        assert!(!shown.contains("5a5a") && !shown.contains("90, 90"), "{shown}");
    }
}
