//! Joining, step by step and without I/O: what the joiner sends, what the answering node judges, what it answers.
//!
//! ```text
//! joiner                                   a node of the cluster (a door of the token)
//!   key durable in its folders
//!   TLS; the door's key is the token's  ->
//!   request: token, secret, its key,    ->   judge: form, cluster, proof of the key
//!   disks, signed for this door              propose AddNode in root: apply decides about token and id
//!   node id and map                     <-   answer once the entry is applied here
//!   id durable in its folders
//! ```
//!
//! Promises: the secret is sent only to the key that the token names; a request that is repeated, by the joiner whose answer was lost
//! or by anybody who recorded it, changes nothing, as apply admits a key once and only its owner can use it; the joiner asks until it is
//! told its id or a final refusal, within `JOIN_ROUNDS`. A crash of the joiner anywhere is healed by joining again with the same key
//! and token. Refuses to know: TLS, the log, how a map is stored.

use crate::identity::{NodeKey, hash_of, is_signed};
use crate::limits::JOIN_ROUNDS;
use crate::token::{Door, JoinToken, Secret};
use serde::{Deserialize, Serialize};
use types::cluster::command::{ClusterCommand, NewDisk};
use types::cluster::{ClusterRefusal, KeyHash, Map, NewNode, NodeStart, NodeState};
use types::{ClusterId, NodeId, TokenId};

/// Begins every signed request, so that its signature is never one of something else.
const SIGNED_FOR: &[u8] = b"ashlar join request 1";

/// What a node says that wants to join.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Of the token.
    pub cluster: ClusterId,
    /// Of the token.
    pub token: TokenId,
    /// Of the token.
    pub secret: Secret,
    /// Ed25519, made on the node.
    pub public_key: [u8; 32],
    /// This start of the node.
    pub start: NodeStart,
    /// Its disks, none of them started yet.
    pub disks: Vec<NewDisk>,
    /// Signature of all of the above and the door's key: the joiner has the private key, and this door was meant.
    pub proof: Vec<u8>,
}

/// What the door answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// Admitted; the same again for the same key.
    Admitted {
        /// Its id, for ever.
        node: NodeId,
        /// The map with the node in it.
        map: Map,
    },
    /// Final.
    Refused(ClusterRefusal),
    /// Nothing is known of it: no leader, no majority, a deadline. Ask again, here or at another door.
    NotNow(String),
}

impl JoinRequest {
    fn signed_bytes(&self, door: KeyHash) -> Vec<u8> {
        let mut bytes = SIGNED_FOR.to_vec();
        bytes.extend_from_slice(&door.0);
        let unsigned = JoinRequest { proof: Vec::new(), ..self.clone() };
        postcard::to_extend(&unsigned, bytes).expect("a request is plain values and a vector takes all bytes")
    }

    /// Judged by the node that is asked, whose key is `door`: gives what to propose. Whether the token is good is for apply to say.
    pub fn judge(&self, map: &Map, door: KeyHash) -> Result<ClusterCommand, ClusterRefusal> {
        if self.cluster != map.cluster {
            return Err(ClusterRefusal::OtherCluster(map.cluster));
        }
        if !is_signed(&self.public_key, &self.signed_bytes(door), &self.proof) {
            return Err(ClusterRefusal::Invalid("the request is not signed by the key it names, for this node".into()));
        }
        self.start.check().map_err(|what| ClusterRefusal::Invalid(what.to_owned()))?;
        let node = NewNode { key: hash_of(&self.public_key), start: self.start.clone() };
        let secret_sha256 = self.secret.sha256();
        Ok(ClusterCommand::AddNode { token: self.token, secret_sha256, node, disks: self.disks.clone() })
    }
}

/// A node that is joining.
#[derive(Debug)]
pub struct Joiner {
    token: JoinToken,
    key: NodeKey,
    start: NodeStart,
    disks: Vec<NewDisk>,
    asked: u32,
}

/// What the joiner does next.
#[derive(Clone, PartialEq, Debug)]
pub enum JoinStep {
    /// Ask the next door; after `JOIN_WAIT` if all have been asked in this round.
    Ask {
        /// Whether to wait before.
        wait: bool,
    },
    /// It is a node of the cluster.
    Joined {
        /// Its id.
        node: NodeId,
        /// The map.
        map: Map,
    },
    /// It is not, and why.
    Failed(JoinError),
}

/// Why a node did not join.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The cluster said no.
    #[error("the cluster does not take this node: {0}")]
    Refused(ClusterRefusal),
    /// Nobody could say yes or no. The node may have been admitted: joining again with the same folders and token is safe.
    #[error("no node of the token answered ({0}); try again with the same folders and token")]
    NoAnswer(String),
}

impl Joiner {
    /// The key must be durable in the node's folders before the first request goes out: a node that forgot its key after it was
    /// admitted could never come back.
    pub fn new(token: JoinToken, key: NodeKey, start: NodeStart, disks: Vec<NewDisk>) -> Joiner {
        Joiner { token, key, start, disks, asked: 0 }
    }

    /// The key it shows.
    pub(crate) fn tls(&self) -> rpc::tcp::Identity {
        self.key.tls()
    }

    /// Whom to ask now, and what. The secret is for this door's key alone.
    pub fn ask(&self) -> (&Door, JoinRequest) {
        let door = &self.token.doors[self.asked as usize % self.token.doors.len()];
        let mut request = JoinRequest {
            cluster: self.token.cluster,
            token: self.token.id,
            secret: self.token.secret.clone(),
            public_key: self.key.public(),
            start: self.start.clone(),
            disks: self.disks.clone(),
            proof: Vec::new(),
        };
        request.proof = self.key.sign(&request.signed_bytes(door.key));
        (door, request)
    }

    /// What the door that was asked said; `Err`: it could not be asked, or its answer was lost.
    pub fn answered(&mut self, answer: Result<JoinAnswer, String>) -> JoinStep {
        let why = match answer {
            Ok(JoinAnswer::Admitted { node, map }) => match self.check(node, &map) {
                Ok(()) => return JoinStep::Joined { node, map },
                Err(why) => why.to_owned(),
            },
            Ok(JoinAnswer::Refused(refusal)) => return JoinStep::Failed(JoinError::Refused(refusal)),
            Ok(JoinAnswer::NotNow(why)) | Err(why) => why,
        };
        self.asked += 1;
        let doors = u32::try_from(self.token.doors.len()).unwrap_or(u32::MAX);
        if self.asked >= doors.saturating_mul(JOIN_ROUNDS) {
            return JoinStep::Failed(JoinError::NoAnswer(why));
        }
        JoinStep::Ask { wait: self.asked.is_multiple_of(doors) }
    }

    fn check(&self, node: NodeId, map: &Map) -> Result<(), &'static str> {
        if map.cluster != self.token.cluster {
            return Err("the answer is of another cluster");
        }
        match map.nodes.get(&node) {
            Some(found) if found.key == self.key.hash() && found.state != NodeState::Removed => Ok(()),
            _ => Err("the map in the answer does not hold this node"),
        }
    }
}
