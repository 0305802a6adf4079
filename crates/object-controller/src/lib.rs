//! The stories of PUT, GET, COPY, LIST and multipart.
//!
//! Promises: what [`api::ObjectStore`] says of each call. Refuses to know: HTTP, XML, signatures, policies.

pub mod api;
