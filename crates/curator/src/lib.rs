//! Seal, settle, reclaim, punch, repair, scrub, audit: never in the way of a client.
//!
//! Promises: space is given back only for what an entry called dead, and an entry calls dead only what was proved to be owned by
//! nobody (protocols.md 4 and 5); whatever cannot be read postpones the work that asked for it (rule R30); a bad copy is replaced
//! by a new one and set aside, never overwritten and never deleted (rules R52, R55, R66b); a crash at any point leaves what the
//! next start goes on from. Refuses to know: S3, HTTP, who the clients are.
//!
//! Reading order: [`Curator`] (the background task), [`Rounds`] (what one round does, in which order), `groups` (what happens to
//! extent groups), `contents` (what happens to contents), `plan` and `tasks` (how many copies there are), `scrub`, `audit`.

mod access;
pub mod audit;
mod config;
mod contents;
mod curator;
mod error;
mod groups;
mod limits;
mod plan;
pub mod policy;
mod ranges;
mod rounds;
pub mod scrub;
mod strips;
mod tasks;
pub mod view;

pub use audit::report::{AuditReport, Difference, DifferenceKind};
pub use config::{Barrier, Config};
pub use curator::Curator;
pub use error::CuratorError;
pub use plan::Kind;
pub use plan::census::{Amount, Census};
pub use rounds::{RoundReport, Rounds, Status};
pub use scrub::ScrubReport;
pub use tasks::Redundancy;
pub use tasks::overview::{NodeWork, Overview, tasks_of};
pub use tasks::status::{RedundancyStatus, Standing, TaskStatus};
pub use view::View;
