//! The S3 protocol over HTTP/1.1.
//!
//! Promises: every request is parsed once, authenticated by one function, and answered with what AWS documents.
//! Refuses to know: extents, disks, replication; it asks an [`object_controller::api::ObjectStore`].

pub mod access;
pub mod auth;
pub mod body;
pub mod conditions;
pub mod cors;
pub mod error;
pub mod limits;
mod names;
pub mod ops;
pub mod policy;
pub mod post_form;
pub mod request;
pub mod response;
pub mod route;
pub mod server;
pub mod xml;
