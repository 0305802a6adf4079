//! Operations on objects.

mod acl;
mod attributes;
mod copy;
mod delete;
mod delete_batch;
mod get;
mod parts;
mod post;
mod put;
mod range;
mod source;
mod tagging;

pub use acl::{get_object_acl, put_object_acl};
pub use attributes::get_object_attributes;
pub use copy::{checksum_element, copy_object, source_failure, write_checksum};
pub use delete::delete_object;
pub use delete_batch::delete_objects;
pub use get::{get_object, head_object};
pub use post::post_object;
pub use put::{failure, put_object};
pub use range::parse_copy_range;
pub use source::check_source_access;
pub use tagging::{delete_object_tagging, get_object_tagging, put_object_tagging};
