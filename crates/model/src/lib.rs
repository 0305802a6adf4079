//! The specification of the store, in the simplest code that is right: plain ordered maps under one lock.
//!
//! Promises: [`ModelStore`] answers every call of [`object_controller::api::ObjectStore`] as the real controller must; it
//! is the oracle of its tests, and a store for tests of the S3 edge. Refuses to know: disks, logs, extents, speed.
//! What is computed incrementally elsewhere (checksums of many parts, pages of a listing) is recomputed here from all the
//! bytes and all the keys.

mod accounts;
mod buckets;
mod checksum;
mod conditions;
mod listing;
mod multipart;
mod objects;
mod read;
mod state;
mod store;

pub use checksum::{checksum_of, md5_of};
pub use store::ModelStore;
