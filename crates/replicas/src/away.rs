//! A disk that cannot be asked just now, as against one that failed.
//!
//! Promises: travels inside an `io::Error`, so that disks here and elsewhere fail through the same enums, and is found there
//! again. It says nothing of what is on the disk: it is never a finding and never "missing". Refuses to know: retries.

use rpc::CallError;
use std::io;
use types::NodeId;

/// Why a disk of another node gave no answer of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Away {
    /// Nothing was sent: nothing was done.
    #[error("node {0} cannot be reached")]
    Unreachable(NodeId),
    /// It may have been done, or may still be.
    #[error("node {0} did not answer")]
    Lost(NodeId),
    /// The node answered that it did nothing.
    #[error("node {0} refused: {1}")]
    Refused(NodeId, String),
    /// What it answered cannot be read.
    #[error("node {0} answered nonsense: {1}")]
    Nonsense(NodeId, crate::wire::Malformed),
    /// The node does not have the disk (now).
    #[error("the node does not have the disk")]
    NoDisk,
    /// The disk is shutting down.
    #[error("the disk is closing")]
    Closing,
    /// The cluster map, as this node knows it, does not say where the disk is.
    #[error("it is not known where the disk is")]
    Unknown,
}

impl From<CallError> for Away {
    fn from(error: CallError) -> Away {
        match error {
            CallError::Unreachable(node) => Away::Unreachable(node),
            CallError::Lost(node) => Away::Lost(node),
            CallError::Refused(node, why) => Away::Refused(node, why),
        }
    }
}

impl From<Away> for io::Error {
    fn from(away: Away) -> io::Error {
        let kind = match away {
            Away::Lost(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::HostUnreachable,
        };
        io::Error::new(kind, away)
    }
}

impl Away {
    /// What an error says about where the disk is, if that is what it is about.
    pub fn of(error: &io::Error) -> Option<&Away> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

/// Whether the error only says that the disk could not be asked.
pub fn is_away(error: &io::Error) -> bool {
    Away::of(error).is_some()
}
