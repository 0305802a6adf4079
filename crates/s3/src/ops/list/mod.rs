//! Listings.

mod objects;
pub mod paging;
mod uploads;
mod versions;

pub use objects::{list_objects, list_objects_v2};
pub use uploads::list_multipart_uploads;
pub use versions::list_object_versions;
