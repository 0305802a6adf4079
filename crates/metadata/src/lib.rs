//! Shards, the Raft log, the ordered schema, listing: what exists and where it is.
//!
//! Promises: an answered proposal is durable in the log of every folder of the log set and applied; a read sees everything
//! applied before it. Apply decides: conditions, ranges, fences and deadlines are judged when an entry is applied.
//! Refuses to know: object bytes (inline ones excepted), files of extents, HTTP.

pub mod apply;
pub mod cache;
pub mod command;
pub mod directory;
mod dirs;
pub mod format;
pub mod limits;
pub mod list;
pub mod log;
pub mod node;
pub mod read;
pub mod rows;
pub mod shard;
pub mod strip;
pub mod tree;
