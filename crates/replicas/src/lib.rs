//! A disk of any node: here, or reached over rpc.
//!
//! Promises: the same operations and the same errors for both; an append is acknowledged only when the other node's disk has
//! acknowledged it, in the order of offsets whatever the order of arrival; what a read gives was verified on the node that asked;
//! a disk that cannot be asked is [`Away`], never missing and never damaged. Refuses to know: objects, which groups ought to
//! exist, where they ought to be.
//!
//! Reading order: [`Replica`] (one disk), [`Replicas`] (all), [`wire`] (the messages), [`serve`] (the other side).

mod away;
mod hedge;
pub mod limits;
mod link;
mod remote;
mod replica;
mod replicas;
mod serve;
pub mod wire;

pub use away::{Away, is_away};
pub use hedge::Hedge;
pub use remote::{RemoteCopy, RemoteDisk};
pub use replica::{Acknowledged, Replica, ReplicaCopy};
pub use replicas::{Replicas, Whereabouts};
pub use serve::serve;
