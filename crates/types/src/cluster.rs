//! The cluster map: which nodes and disks there are, and in what state. Plain values; root alone changes them, one epoch a change.
//!
//! A map names a node by its id and by its key: a peer is believed because the current map lists both, never because of a date or a
//! signature (protocols.md 13). Ids of nodes are never used again, so a node that was removed stays in the map as `Removed`.

pub mod command;

use crate::{ClusterId, DiskId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Nodes that are not removed: their rows and heartbeats stay small (1,024 nodes tell each other of 1,023 in 10 KiB).
pub const MAX_NODES: usize = 1024;
/// Disks of one node that are neither lost nor removed: more than any chassis takes.
pub const MAX_DISKS_PER_NODE: usize = 256;
/// Join tokens kept at a time, spent ones among them.
pub const MAX_TOKENS: usize = 256;
/// Bytes of an address: a DNS name (253) and a port.
pub const MAX_ADDRESS_BYTES: usize = 260;
/// Bytes of a rack's name.
pub const MAX_RACK_BYTES: usize = 64;

/// Who somebody is: SHA-256 of the DER SubjectPublicKeyInfo of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for KeyHash {
    type Err = crate::ids::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| crate::ids::IdError)?;
        Ok(KeyHash(bytes))
    }
}

/// Where a node is reached.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Addresses {
    /// host:port of the messages between nodes.
    pub rpc: String,
    /// URL of the S3 endpoint; may be empty.
    pub s3: String,
    /// URL of the admin endpoint; may be empty.
    pub admin: String,
}

impl Addresses {
    /// What is wrong with them, in a word.
    pub fn check(&self) -> Result<(), &'static str> {
        let sound = |text: &str| text.len() <= MAX_ADDRESS_BYTES && text.bytes().all(|b| b.is_ascii_graphic());
        if self.rpc.is_empty() {
            return Err("a node needs an address for the messages between nodes");
        }
        if [&self.rpc, &self.s3, &self.admin].into_iter().all(|text| sound(text)) {
            Ok(())
        } else {
            Err("an address is longer than 260 bytes or holds blanks or letters beyond ASCII")
        }
    }
}

/// What a node is to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum NodeState {
    /// Admitted; catches up with the metadata.
    Joining,
    /// In full service.
    Active,
    /// Serves what it holds; nothing new is placed on it and its data moves away.
    Draining,
    /// Away for a short while, announced: nothing is placed on it and nothing is rebuilt yet.
    Maintenance,
    /// Gone for good: its key opens nothing and its id is never given again.
    Removed,
}

impl NodeState {
    /// Whether an operator or the cluster may make it `next`. What it is already is no change and always allowed.
    pub const fn may_become(self, next: NodeState) -> bool {
        use NodeState::{Active, Draining, Joining, Maintenance, Removed};
        matches!(
            (self, next),
            (Joining, Joining | Active | Removed)
                | (Active, Active | Draining | Maintenance)
                | (Draining, Draining | Active | Removed)
                | (Maintenance, Maintenance | Active | Draining)
                | (Removed, Removed)
        )
    }

    /// Whether it counts as one of the cluster's nodes: for failure domains, majorities of witnesses, default copies.
    pub const fn is_member(self) -> bool {
        matches!(self, NodeState::Active | NodeState::Draining | NodeState::Maintenance)
    }

    /// Whether peers take messages from it.
    pub const fn is_trusted(self) -> bool {
        !matches!(self, NodeState::Removed)
    }
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Never given again.
    pub id: NodeId,
    /// Its key.
    pub key: KeyHash,
    /// What it is to the cluster.
    pub state: NodeState,
    /// As of its last start.
    pub start: NodeStart,
    /// When it was admitted, in root's time.
    pub joined_ms: u64,
}

/// What a node says of itself at each start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStart {
    /// How often it was started; an older one is an old image of the node or a message that was long on its way.
    pub incarnation: u64,
    /// Newest cluster version its program can speak.
    pub version: u32,
    /// Where it is.
    pub addresses: Addresses,
    /// Its rack, if racks are configured.
    pub rack: Option<String>,
}

impl NodeStart {
    /// What is wrong with it, in a word.
    pub fn check(&self) -> Result<(), &'static str> {
        let sound = |rack: &str| !rack.is_empty() && rack.len() <= MAX_RACK_BYTES && !rack.contains(char::is_control);
        if !self.rack.as_deref().is_none_or(sound) {
            return Err("a rack's name has 1 to 64 bytes, none of them a control character");
        }
        self.addresses.check()
    }
}

/// A node that wants to be in the map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewNode {
    /// Its key, made on the node.
    pub key: KeyHash,
    /// This start of it.
    pub start: NodeStart,
}

/// What a disk is to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum DiskState {
    /// In service.
    Active,
    /// Serves what it holds; its data moves away.
    Draining,
    /// Declared gone with all it held: its replicas are lost, whatever comes back under its id.
    Lost,
    /// Taken out empty, after its data had moved away.
    Removed,
}

impl DiskState {
    /// Whether it may be made `next`. What it is already is no change and always allowed.
    pub const fn may_become(self, next: DiskState) -> bool {
        use DiskState::{Active, Draining, Lost, Removed};
        matches!(
            (self, next),
            (Active, Active | Draining | Lost)
                | (Draining, Draining | Active | Lost | Removed)
                | (Lost, Lost)
                | (Removed, Removed)
        )
    }

    /// Whether it is neither lost nor removed.
    pub const fn is_here(self) -> bool {
        matches!(self, DiskState::Active | DiskState::Draining)
    }
}

/// One disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disk {
    /// Minted at its birth.
    pub id: DiskId,
    /// Whose it is, for ever.
    pub node: NodeId,
    /// What it is to the cluster.
    pub state: DiskState,
    /// How often it was started, as last reported; 0 before its first start in the cluster.
    pub incarnation: u64,
    /// The node's incarnation that reported it: in one run of the node a disk is started once, so another run with the same
    /// number of starts has an old image of the disk before it.
    pub reported_by: u64,
    /// Size of its file system.
    pub total_bytes: u64,
}

/// All nodes and disks at one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Map {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Raised by one with every change.
    pub epoch: u64,
    /// What all nodes speak: new formats and messages only from this version on.
    pub version: u32,
    /// By id; removed ones too.
    pub nodes: BTreeMap<NodeId, Node>,
    /// By id; lost and removed ones too.
    pub disks: BTreeMap<DiskId, Disk>,
}

impl Map {
    /// Nodes that count, by id.
    pub fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| node.state.is_member())
    }

    /// Nodes whose messages are taken, by id.
    pub fn trusted(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| node.state.is_trusted())
    }

    /// The node that may speak with this key.
    pub fn node_of(&self, key: KeyHash) -> Option<NodeId> {
        self.trusted().find(|node| node.key == key).map(|node| node.id)
    }

    /// Disks of a node that are neither lost nor removed.
    pub fn disks_of(&self, node: NodeId) -> impl Iterator<Item = &Disk> {
        self.disks.values().filter(move |disk| disk.node == node && disk.state.is_here())
    }
}

/// Why a change of the map is refused. Final: the same change is refused again until the map is another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ClusterRefusal {
    /// Before the first change of all.
    #[error("there is no cluster map yet")]
    NotBorn,
    /// The store belongs to another cluster.
    #[error("this is cluster {0}")]
    OtherCluster(ClusterId),
    /// No such token, or another secret.
    #[error("the join token is not known here: make a new one")]
    TokenUnknown,
    /// Too late.
    #[error("the join token has expired: make a new one")]
    TokenExpired,
    /// A token admits one node.
    #[error("the join token was used by node {0}: make a new one")]
    TokenUsed(NodeId),
    /// The id of a new token was used before.
    #[error("a token with this id was made before")]
    TokenTaken,
    /// A limit.
    #[error("there are as many {0} as there may be")]
    Full(Limit),
    /// The key of a node that was removed.
    #[error("this key was node {0}, which was removed: start with empty data folders to join as a new node")]
    KeyRemoved(NodeId),
    /// No such node, or removed.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// No such disk.
    #[error("there is no disk {0}")]
    NoSuchDisk(DiskId),
    /// An old image or an old message.
    #[error("an old image: it knows of {given} starts, the cluster of {known}")]
    OldIncarnation {
        /// What the cluster knows.
        known: u64,
        /// What was reported.
        given: u64,
    },
    /// The disk belongs to another node.
    #[error("the disk belongs to node {0}")]
    ForeignDisk(NodeId),
    /// The disk was declared lost or was removed.
    #[error("the disk was given up ({0:?}): what it holds does not count; use the folder emptied, as a new disk")]
    DiskGone(DiskState),
    /// Not from this state to that.
    #[error("{0}")]
    State(String),
    /// Somebody must be left.
    #[error("it is the last active node")]
    LastActive,
    /// The map is another than the one the change was judged by: judge again.
    #[error("the cluster map has changed to epoch {0}: look again")]
    MapMoved(u64),
    /// The node's program is too old for the cluster.
    #[error("the cluster speaks version {0}, which this program does not know: install a newer one")]
    ProgramTooOld(u32),
    /// A node cannot speak the new version yet.
    #[error("node {0} does not know that version yet")]
    NotAllReady(NodeId),
    /// Malformed.
    #[error("{0}")]
    Invalid(String),
}

/// What there is a limit of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Limit {
    /// [`MAX_NODES`].
    Nodes,
    /// [`MAX_DISKS_PER_NODE`].
    Disks,
    /// [`MAX_TOKENS`].
    Tokens,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Nodes => "nodes",
            Limit::Disks => "disks of the node",
            Limit::Tokens => "join tokens",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Addresses, DiskState, KeyHash, NodeStart, NodeState};

    #[test]
    fn gone_is_for_ever_and_nothing_is_removed_out_of_service() {
        use NodeState::{Active, Draining, Joining, Maintenance, Removed};
        for next in [Joining, Active, Draining, Maintenance] {
            assert!(!Removed.may_become(next));
            assert!(next.may_become(next));
        }
        assert!(!Active.may_become(Removed) && !Maintenance.may_become(Removed), "it drains first");
        assert!(Draining.may_become(Removed) && Joining.may_become(Removed));
        for next in [DiskState::Active, DiskState::Draining] {
            assert!(!DiskState::Lost.may_become(next) && !DiskState::Removed.may_become(next));
            assert!(next.may_become(DiskState::Lost), "a disk may die in any state");
        }
        assert!(!DiskState::Active.may_become(DiskState::Removed), "removed means empty");
    }

    #[test]
    fn addresses_and_racks_are_bounded_words() {
        let addresses = |rpc: &str| Addresses { rpc: rpc.into(), ..Addresses::default() };
        let start = |rpc: &str, rack: Option<&str>| NodeStart {
            incarnation: 1,
            version: 1,
            addresses: addresses(rpc),
            rack: rack.map(str::to_owned),
        };
        assert!(start("node-1:7000", Some("rack 1")).check().is_ok());
        for bad in ["", "a b:1", "n\u{f6}de:1", &"a".repeat(261)] {
            assert!(start(bad, None).check().is_err(), "{bad}");
        }
        for bad in ["", "a\nb", &"r".repeat(65)] {
            assert!(start("a:1", Some(bad)).check().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_hash_survives_its_text_form() {
        let key = KeyHash([0xA5; 32]);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("a5".parse::<KeyHash>().is_err());
    }
}
