//! Extent groups on one node's disks: create, append, fence, read, verify, punch, copy, quarantine, drop.
//!
//! Promises: an append is acknowledged only after a group-committed `fdatasync` of its file, in offset order; every byte
//! handed to a reader was checked against the CRCs in its frame; no bytes on a disk make it panic; nothing is deleted
//! on local evidence (rule R24). Refuses to know: buckets, objects, other nodes, which groups ought to exist.
//!
//! Reading order: [`format`] (the bytes), [`identity`] (whose disk it is), [`DiskStore`] (one disk), [`StoreSet`] (all of
//! a node's), [`inspect`] (all of it in words).

mod error;
pub mod format;
mod frame;
mod identity;
pub mod inspect;
pub mod limits;
mod paths;
mod set;
mod store;

pub use error::{
    AppendError, CopyError, CreateError, Damage, ErrorKind, FenceError, FileError, OpenError, PunchError, ReadError,
};
pub use format::{FileHeader, FileKind, FrameAddress, FrameHeader, FrameOrigin, SliceCrcs};
pub use frame::Frame;
pub use identity::{DiskIdentity, IdentityError};
pub use set::{SetError, StoreSet};
pub use store::{
    CopyWriter, Depth, DiskHealth, DiskStore, Fence, FoundFile, FrameScan, Observer, Quarantined, ReadRequest,
    ScanPage, Scanned, StoreConfig,
};
