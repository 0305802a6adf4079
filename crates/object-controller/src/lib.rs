//! The stories of PUT, GET, COPY, LIST and multipart.
//!
//! Promises: what [`api::ObjectStore`] says of each call. Refuses to know: HTTP, XML, signatures, policies.
//!
//! Reading order: [`api`] (what may be asked), `controller` (what the stories share), then a story: `put`, `get`, `copy`,
//! `part_copy`, `multipart`, `delete`, `list`, `bucket`, `user`. Below them: `receive` and `upload` take a body in, `groups`
//! writes extents, `read` reads them, `abandon` ends what was not committed.

mod abandon;
pub mod api;
mod background;
mod bucket;
mod controller;
mod copy;
mod delete;
pub mod findings;
mod get;
mod groups;
mod ledger;
mod limits;
mod list;
mod multipart;
pub mod nodes;
mod part_copy;
pub mod pins;
pub mod places;
mod proposer;
mod put;
mod read;
mod receive;
mod refusal;
mod runs;
mod snapshots;
mod store;
pub mod strips;
mod upload;
mod user;

pub use controller::{Controller, ControllerConfig, Copies};
pub use groups::seal::Contents;
