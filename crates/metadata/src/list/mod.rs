//! Listings: pages of objects, versions and uploads, in byte order of the keys.
//!
//! Promises: a page costs what it returns: rows are read once each, and what lies below a common prefix is passed over by one
//! seek. Refuses to know: XML, tokens, who asks.

mod group;
mod object;
mod upload;
mod version;

pub use object::{ListObjects, ObjectEntry, ObjectPage, ObjectRef, ObjectSink, PageEnd, objects, objects_into};
pub use upload::{ListUploads, UploadEntry, UploadPage, uploads};
pub use version::{ListVersions, VersionEntry, VersionPage, versions};
