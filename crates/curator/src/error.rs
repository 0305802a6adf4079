//! Why a round, a scrub or an audit ended early. All of it is tried again by the next one.

use metadata::command::{Outcome, Refusal};
use metadata::read::ReadError;
use object_controller::api::StoreError;

/// The work could not go on; nothing is lost by that.
#[derive(Debug, thiserror::Error)]
pub enum CuratorError {
    /// The metadata took no entry.
    #[error("the metadata takes no entry: {0}")]
    Propose(StoreError),
    /// Apply refused.
    #[error("an entry was refused: {0:?}")]
    Refused(Box<Refusal>),
    /// Rows could not be read: nothing may be concluded from their absence.
    #[error("the metadata cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The controller could not seal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process lacks descriptors or memory just now: what could not be read may be sound.
    #[error("short of file descriptors or memory: {0}")]
    Short(std::io::Error),
    /// A node with a copy does not answer just now: what it has cannot be told.
    #[error("a node does not answer: {0}")]
    Away(std::io::Error),
    /// This node may not know the newest entries: nothing may be concluded from what is absent.
    #[error("this node may be behind: {0}")]
    Behind(String),
    /// An answer that makes no sense.
    #[error("an entry was answered {0}")]
    Unexpected(String),
    /// The node ends.
    #[error("the curator is stopping")]
    Stopping,
}

impl CuratorError {
    pub(crate) fn unexpected(outcome: &Outcome) -> CuratorError {
        CuratorError::Unexpected(format!("{outcome:?}"))
    }

    /// Whether only the group at hand is concerned: somebody changed its record meanwhile, or a disk did not answer.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, CuratorError::Refused(_) | CuratorError::Store(_))
    }
}
