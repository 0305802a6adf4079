//! What the map says about keys.
//!
//! Promises: nothing; it is asked at each connection, each message that comes in and each ping. Refuses to know: where it comes from.

use types::NodeId;

/// SHA-256 of a public key in its DER form (SubjectPublicKeyInfo).
pub type KeySha256 = [u8; 32];

/// The current map, as far as connections go by it. Asked often: answers come from memory.
pub trait Trust: Send + Sync + 'static {
    /// The node that shows this key. `None`: nobody who may speak.
    fn node_of(&self, key: KeySha256) -> Option<NodeId>;
    /// The key that this node must show. `None`: it is no member.
    fn key_of(&self, node: NodeId) -> Option<KeySha256>;
    /// host:port of its listener.
    fn address_of(&self, node: NodeId) -> Option<String>;
}
