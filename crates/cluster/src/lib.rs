//! Membership, the cluster map, identities, failure detection, placement.
//!
//! Promises: everything that decides is a pure function or a state machine that is given the time; the same inputs give the same
//! answers on every node. Refuses to know: how the map is stored and changed (root's apply decides), how bytes are moved, what an
//! object is.

pub mod detector;
pub mod heartbeats;
pub mod identity;
pub mod join;
pub mod knock;
pub mod limits;
pub mod map;
pub mod operator;
pub mod placement;
pub mod root;
pub mod token;
pub mod wire;
