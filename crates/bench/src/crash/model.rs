//! What a key may hold, as far as its only writer knows.
//!
//! Promises: an acknowledged state is the only possible one; an operation without an answer adds a possibility, and what is
//! then read decides among them for good. Refuses to know: requests.

use md5::{Digest, Md5};

use crate::client::Expected;
use crate::content::Content;

/// An object as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub expected: Expected,
    /// With its quotes; `None` if only the server knows it.
    pub etag: Option<String>,
}

impl Object {
    /// The object of one PUT, and its bytes.
    pub(super) fn plain(content: Content, len: u64) -> (Object, Vec<u8>) {
        let bytes = content.bytes(len as usize);
        let etag = format!("\"{}\"", hex::encode(Md5::digest(&bytes)));
        (Object { expected: Expected::range(content, 0, len), etag: Some(etag) }, bytes)
    }

    /// The object of an upload with these parts.
    pub(super) fn of_parts(parts: &[(Content, u64)]) -> Object {
        let mut digests = Md5::new();
        for (content, len) in parts {
            digests.update(Md5::digest(content.bytes(*len as usize)));
        }
        let etag = format!("\"{}-{}\"", hex::encode(digests.finalize()), parts.len());
        let pieces = parts.iter().map(|(content, len)| (*content, 0, *len)).collect();
        Object { expected: Expected { pieces }, etag: Some(etag) }
    }

    /// What a copy of this is. The ETag of a copied upload is the server's to choose.
    pub(super) fn copied(&self) -> Object {
        let of_parts = self.etag.as_ref().is_none_or(|etag| etag.contains('-'));
        Object { expected: self.expected.clone(), etag: if of_parts { None } else { self.etag.clone() } }
    }

    /// Whether these are its bytes.
    pub(super) fn has_bytes(&self, bytes: &[u8]) -> bool {
        if self.expected.len() != bytes.len() as u64 {
            return false;
        }
        let mut at = 0;
        self.expected.pieces.iter().all(|(content, offset, len)| {
            let part = &bytes[at..at + *len as usize];
            at += part.len();
            content.first_difference(*offset, part).is_none()
        })
    }
}

/// The states a key may be in; `None` is absence. Never empty.
#[derive(Clone, Debug)]
pub(super) struct KeyState {
    possible: Vec<Option<Object>>,
}

impl Default for KeyState {
    fn default() -> KeyState {
        KeyState { possible: vec![None] }
    }
}

impl KeyState {
    /// The state, if only one is possible.
    pub(super) fn certain(&self) -> Option<&Option<Object>> {
        match self.possible.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The operation that leads to `state` was acknowledged.
    pub(super) fn acknowledged(&mut self, state: Option<Object>) {
        self.possible = vec![state];
    }

    /// The operation that leads to `state` got no answer.
    pub(super) fn unknown(&mut self, state: Option<Object>) {
        self.possible.push(state);
    }

    /// Takes what was found for the truth: the index of the matching possibility, `None` if nothing matches.
    pub(super) fn settle(&mut self, found: Option<&[u8]>) -> Option<usize> {
        let index = self.possible.iter().position(|state| match (state, found) {
            (None, None) => true,
            (Some(object), Some(bytes)) => object.has_bytes(bytes),
            _ => false,
        })?;
        self.possible = vec![self.possible.swap_remove(index)];
        Some(index)
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        let one = |state: &Option<Object>| {
            state.as_ref().map_or("absent".into(), |object| format!("{} bytes", object.expected.len()))
        };
        self.possible.iter().map(one).collect::<Vec<_>>().join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyState, Object};
    use crate::content::Content;

    #[test]
    fn a_lost_acknowledged_object_matches_nothing() {
        let (object, bytes) = Object::plain(Content::new(1), 100);
        let mut key = KeyState::default();
        key.acknowledged(Some(object));
        assert_eq!(key.clone().settle(None), None);
        assert_eq!(key.settle(Some(&bytes)), Some(0));
    }

    #[test]
    fn a_half_written_or_altered_object_matches_nothing() {
        let (object, mut bytes) = Object::plain(Content::new(1), 100);
        let mut key = KeyState::default();
        key.unknown(Some(object));
        assert_eq!(key.clone().settle(Some(&bytes[..50])), None);
        bytes[99] ^= 1;
        assert_eq!(key.settle(Some(&bytes)), None);
    }

    #[test]
    fn an_unknown_outcome_is_settled_once_and_for_all() {
        let (object, bytes) = Object::plain(Content::new(1), 100);
        let mut key = KeyState::default();
        key.unknown(Some(object));
        assert!(key.certain().is_none());
        assert_eq!(key.settle(Some(&bytes)), Some(1));
        assert_eq!(key.settle(None), None, "what was seen may not vanish");
    }

    #[test]
    fn the_etag_of_an_upload_is_that_of_its_parts() {
        let parts = [(Content::new(1), 10), (Content::new(2), 5)];
        let object = Object::of_parts(&parts);
        assert!(object.etag.as_deref().is_some_and(|etag| etag.ends_with("-2\"")));
        assert!(object.copied().etag.is_none());
        let mut bytes = Content::new(1).bytes(10);
        bytes.extend(Content::new(2).bytes(5));
        assert!(object.has_bytes(&bytes));
    }
}
