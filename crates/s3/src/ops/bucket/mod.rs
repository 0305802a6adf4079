//! Operations on buckets and their settings.

mod acl;
mod cors;
mod existence;
mod list_buckets;
mod policy;
mod public_access;
mod tagging;
mod unset;
mod versioning;

pub use acl::{check_acl_document, write_acl};
pub use acl::{get_bucket_acl, get_ownership, put_bucket_acl, put_ownership};
pub use cors::{delete_cors, get_cors, put_cors};
pub use existence::{create_bucket, delete_bucket, get_location, head_bucket};
pub use list_buckets::list_buckets;
pub use policy::{delete_policy, get_policy, get_policy_status, put_policy};
pub use public_access::{delete_public_access_block, get_public_access_block, put_public_access_block};
pub use tagging::{delete_tagging, get_tagging, put_tagging};
pub use tagging::{parse_tagging, write_tagging};
pub use unset::{delete_lifecycle, read_unset};
pub use versioning::{get_versioning, put_versioning};
