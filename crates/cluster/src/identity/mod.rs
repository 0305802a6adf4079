//! A node's key: made on the node, never leaves it, and is who the node is.
//!
//! Promises: the identity is the SHA-256 of the key's SubjectPublicKeyInfo, which is what the cluster map lists; `Debug` shows that
//! and never the key. Refuses to know: who trusts it (the map), how sessions are made (rpc).
//!
//! Ed25519: the key is 32 random bytes, and one drawn from a seeded generator makes a simulated cluster the same each time. TLS shows the
//! bare key (RFC 7250): there is no certificate.

pub mod file;

use env::random::Random;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use std::fmt;
use types::cluster::KeyHash;

/// SubjectPublicKeyInfo of an Ed25519 key up to the key (RFC 8410).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The private key of a node.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeKey {
    seed: [u8; 32],
    public: [u8; 32],
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.hash())
    }
}

impl NodeKey {
    /// A new key.
    pub fn generate(random: &dyn Random) -> NodeKey {
        let mut seed = [0; 32];
        random.fill(&mut seed);
        NodeKey::from_seed(seed)
    }

    /// The key of these bytes.
    pub(crate) fn from_seed(seed: [u8; 32]) -> NodeKey {
        let mut public = [0; 32];
        public.copy_from_slice(pair(&seed).public_key().as_ref());
        NodeKey { seed, public }
    }

    /// The public half.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// Who the node is.
    pub fn hash(&self) -> KeyHash {
        hash_of(&self.public)
    }

    /// The key as connections to other nodes want it.
    pub fn tls(&self) -> rpc::tcp::Identity {
        rpc::tcp::Identity::from_secret(self.seed)
    }

    /// A signature of 64 bytes.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        pair(&self.seed).sign(message).as_ref().to_vec()
    }
}

fn pair(seed: &[u8; 32]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are an Ed25519 key")
}

/// Who has this public key.
pub fn hash_of(public: &[u8; 32]) -> KeyHash {
    KeyHash(Sha256::new().chain_update(SPKI_HEAD).chain_update(public).finalize().into())
}

/// Whether the owner of the public key signed the message.
pub fn is_signed(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{NodeKey, hash_of, is_signed};
    use env::random::SimRandom;

    #[test]
    fn a_key_is_a_function_of_its_bytes_and_never_shown() {
        // RFC 8032, 7.1, test 1.
        let mut seed = [0; 32];
        hex::decode_to_slice("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", &mut seed)
            .expect("hex");
        let key = NodeKey::from_seed(seed);
        assert_eq!(hex::encode(key.public()), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let shown = format!("{key:?}");
        assert!(!shown.contains("9d61") && shown.contains(&key.hash().to_string()));
        assert_ne!(NodeKey::generate(&SimRandom::new(1)), NodeKey::generate(&SimRandom::new(2)));
    }

    #[test]
    fn a_signature_holds_for_its_key_and_message_only() {
        let (key, other) = (NodeKey::generate(&SimRandom::new(1)), NodeKey::generate(&SimRandom::new(2)));
        let signature = key.sign(b"message");
        assert!(is_signed(&key.public(), b"message", &signature));
        assert!(!is_signed(&key.public(), b"massage", &signature));
        assert!(!is_signed(&other.public(), b"message", &signature));
        assert!(!is_signed(&key.public(), b"message", &signature[..63]));
    }

    #[test]
    fn connections_and_the_map_know_a_key_by_the_same_hash() {
        for seed in 0..20 {
            let key = NodeKey::generate(&SimRandom::new(seed));
            assert_eq!(key.tls().key_sha256(), key.hash().0);
            assert_eq!(hash_of(&key.public()), key.hash());
        }
    }
}
