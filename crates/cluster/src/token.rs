//! The join token: a line of text that an operator carries from a node to the node that is to join.
//!
//! ```text
//! ashlar-join-v1. base64url( postcard(cluster, id, secret, doors) | first 4 bytes of SHA-256 of that )
//! ```
//!
//! Promises: what was printed is parsed again, and a text with any letter changed, lost or added is not a token; the secret appears
//! in the text and nowhere else, not in `Debug`. A door is an address together with the key that must answer there: there is no
//! authority whose signature could be bought, stolen or have run out (docs/adr/0008-keys-not-certificates.md).

use crate::limits::{TOKEN_DOORS, TOKEN_TEXT_BYTES};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use env::random::Random;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use types::cluster::{KeyHash, MAX_ADDRESS_BYTES, Map, NodeState};
use types::{ClusterId, NodeId, TokenId};

const PREFIX: &str = "ashlar-join-v1.";
const CHECK_BYTES: usize = 4;

/// 256 bits that only the operator and the joining node have. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// What root keeps of it. A hash of 256 random bits needs no salt and cannot be tried out.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::new().chain_update(b"ashlar join secret").chain_update(self.0).finalize().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A node that may be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Door {
    /// Which node.
    pub node: NodeId,
    /// host:port of the messages between nodes.
    pub address: String,
    /// The key that must answer.
    pub key: KeyHash,
}

/// What admits one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinToken {
    /// The cluster to join.
    pub cluster: ClusterId,
    /// By which root knows it.
    pub id: TokenId,
    /// By which the node shows that it has it.
    pub secret: Secret,
    /// At least one.
    pub doors: Vec<Door>,
}

/// A text that is no join token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Something else, or of a newer form.
    #[error("this is no join token: it begins with {PREFIX}")]
    Foreign,
    /// Cut or mistyped.
    #[error("the join token is damaged: copy the whole line again")]
    Damaged,
}

impl JoinToken {
    /// A new token for this cluster; the doors are its first nodes in service. `None` if there is none.
    pub fn mint(map: &Map, random: &dyn Random) -> Option<JoinToken> {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let active = map.nodes.values().filter(|node| node.state == NodeState::Active);
        let doors: Vec<_> = active
            .take(TOKEN_DOORS)
            .map(|node| Door { node: node.id, address: node.start.addresses.rpc.clone(), key: node.key })
            .collect();
        let id = TokenId(random.next_u64());
        (!doors.is_empty()).then_some(JoinToken { cluster: map.cluster, id, secret: Secret(secret), doors })
    }

    /// The line to carry. Named, not `Display`, so that a secret is never printed by the way.
    pub fn to_text(&self) -> String {
        let mut bytes = postcard::to_allocvec(self).expect("a token is plain values and a vector takes all bytes");
        bytes.extend_from_slice(&check(&bytes));
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The inverse of [`JoinToken::to_text`]; blanks around it are a terminal's and do not matter.
    pub fn parse(text: &str) -> Result<JoinToken, TokenError> {
        let body = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Foreign)?;
        if body.len() > TOKEN_TEXT_BYTES {
            return Err(TokenError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Damaged)?;
        let (payload, sum) = bytes.split_last_chunk::<CHECK_BYTES>().ok_or(TokenError::Damaged)?;
        if *sum != check(payload) {
            return Err(TokenError::Damaged);
        }
        match postcard::take_from_bytes::<JoinToken>(payload) {
            Ok((token, [])) if token.is_sound() => Ok(token),
            _ => Err(TokenError::Damaged),
        }
    }

    fn is_sound(&self) -> bool {
        let sound = |door: &Door| !door.address.is_empty() && door.address.len() <= MAX_ADDRESS_BYTES;
        !self.doors.is_empty() && self.doors.len() <= TOKEN_DOORS && self.doors.iter().all(sound)
    }
}

fn check(payload: &[u8]) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(payload);
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::{Door, JoinToken, Secret, TokenError};
    use proptest::prelude::*;
    use types::cluster::KeyHash;
    use types::{ClusterId, TokenId};

    fn token(doors: usize) -> JoinToken {
        let door = |n: usize| Door { node: n as u32, address: format!("node-{n}:7000"), key: KeyHash([n as u8; 32]) };
        let doors = (1..=doors).map(door).collect();
        JoinToken { cluster: ClusterId(7), id: TokenId(9), secret: Secret([0x5A; 32]), doors }
    }

    #[test]
    fn the_text_of_a_token_is_a_contract() {
        let text = token(1).to_text();
        let golden = "ashlar-join-v1.BwlaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWgEBC25vZGUtMTo3MDAwAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
        assert!(text.starts_with(golden), "{text}");
        assert_eq!(JoinToken::parse(&format!("  {text}\n")), Ok(token(1)));
    }

    #[test]
    fn a_secret_is_in_the_text_and_not_in_debug() {
        let token = token(2);
        let shown = format!("{token:?} {:?}", token.secret);
        assert!(!shown.contains("90") && !shown.to_lowercase().contains("5a"), "{shown}");
        assert_ne!(token.secret.sha256(), [0x5A; 32]);
    }

    #[test]
    fn other_texts_are_named_for_what_they_are() {
        assert_eq!(JoinToken::parse("ashlar-join-v2.AAAA"), Err(TokenError::Foreign));
        assert_eq!(JoinToken::parse(""), Err(TokenError::Foreign));
        assert_eq!(JoinToken::parse("ashlar-join-v1."), Err(TokenError::Damaged));
        assert_eq!(JoinToken::parse(&token(6).to_text()), Err(TokenError::Damaged), "more doors than there may be");
        assert_eq!(JoinToken::parse(&token(0).to_text()), Err(TokenError::Damaged), "no door");
    }

    proptest! {
        #[test]
        fn what_was_printed_is_parsed_again(secret: [u8; 32], id: u64, cluster: u64, address in "[a-z0-9.:-]{1,260}", doors in 1usize..6) {
            let mut token = token(doors);
            (token.secret, token.id, token.cluster) = (Secret(secret), TokenId(id), ClusterId(cluster));
            token.doors[0].address = address;
            prop_assert_eq!(JoinToken::parse(&token.to_text()), Ok(token));
        }

        #[test]
        fn a_text_with_one_letter_changed_lost_or_added_is_no_token(at: prop::sample::Index, with in "[A-Za-z0-9_.-]") {
            let text = token(2).to_text();
            let at = at.index(text.len());
            let (before, after) = (&text[..at], &text[at + 1..]);
            for other in [format!("{before}{after}"), format!("{before}{with}{after}"), format!("{before}{with}{}", &text[at..])] {
                if other != text {
                    prop_assert!(JoinToken::parse(&other).is_err(), "{}", other);
                }
            }
        }

        #[test]
        fn any_bytes_are_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use base64::Engine;
            let body = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&bytes);
            let _ = JoinToken::parse(&format!("ashlar-join-v1.{body}"));
            let mut checked = bytes;
            let sum = super::check(&checked);
            checked.extend_from_slice(&sum);
            let body = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&checked);
            let _ = JoinToken::parse(&format!("ashlar-join-v1.{body}"));
        }
    }
}
