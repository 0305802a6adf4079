//! What may be proposed about the cluster map, as values: root's apply decides. Variants and fields are only ever added at the end,
//! for they lie in logs.

use super::{DiskState, NewNode, NodeStart, NodeState};
use crate::{ClusterId, DiskId, NodeId, TokenId};
use serde::{Deserialize, Serialize};

/// A change of the cluster map; each raises its epoch by one, and one that changes nothing raises nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClusterCommand {
    /// The birth of the map: its first node is 1, active, and has these disks. The same again is no change.
    Init {
        /// Which cluster.
        cluster: ClusterId,
        /// The first node.
        node: NewNode,
        /// Its disks.
        disks: Vec<NewDisk>,
    },
    /// A token that admits one node until it expires. The same again is no change. Forgets tokens that expired long ago.
    CreateToken {
        /// Minted by the caller.
        token: TokenId,
        /// SHA-256 of the secret: the secret itself is written nowhere but in the token's text.
        secret_sha256: [u8; 32],
        /// In root's time.
        expires_ms: u64,
    },
    /// The token admits nobody any more: it expires now. No change if there is none.
    RevokeToken {
        /// Which.
        token: TokenId,
    },
    /// Spends the token and allots the next node id. For a node whose key is in the map by this very token: its id, and no change.
    AddNode {
        /// Which.
        token: TokenId,
        /// Of the secret that the node showed.
        secret_sha256: [u8; 32],
        /// The node.
        node: NewNode,
        /// Its disks, none of them started yet.
        disks: Vec<NewDisk>,
    },
    /// What a node says of itself at its start. An older incarnation is refused, and so is another start of the same number.
    UpdateNode {
        /// Which.
        node: NodeId,
        /// This start.
        start: NodeStart,
    },
    /// Changes what a node is. `Removed` declares its disks lost that are still here.
    SetNodeState {
        /// Which.
        node: NodeId,
        /// New state.
        state: NodeState,
        /// The epoch whose map it was judged by; refused at any other. `None`: by force.
        at_epoch: Option<u64>,
    },
    /// A disk was started. A disk of another node, one that was given up, or an old image of it is refused.
    ReportDisk {
        /// Whose.
        node: NodeId,
        /// That node's incarnation, which must be the map's.
        node_incarnation: u64,
        /// Starts of the disk, this one included.
        incarnation: u64,
        /// The disk.
        disk: NewDisk,
    },
    /// Changes what a disk is.
    SetDiskState {
        /// Which.
        disk: DiskId,
        /// New state.
        state: DiskState,
        /// As in `SetNodeState`.
        at_epoch: Option<u64>,
    },
    /// From now on all speak this version. Refused while a node cannot.
    SetVersion {
        /// Only ever higher.
        version: u32,
    },
}

/// A disk as its node names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewDisk {
    /// Minted at its birth.
    pub id: DiskId,
    /// Size of its file system.
    pub total_bytes: u64,
}

/// What a change of the map made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapChange {
    /// Epoch after it.
    pub epoch: u64,
    /// The node that was born or added, or is it already.
    pub node: Option<NodeId>,
}
