//! What happens to contents: condemned ones are reclaimed, what is owed is delivered, owner rows of dead copies go.

pub(crate) mod outbox;
pub(crate) mod owners;
pub(crate) mod reclaim;
pub(crate) mod references;
