//! Owner ids at home shards other than the destination's: added before the copy's entry, taken back if it is proved never to be.
//!
//! Promises: an owner id is taken back only if step 2 was never proposed or has a kept refusal; otherwise the row is left to
//! the curator, and the client gets a retryable error. Refuses to know: what is copied.

use crate::api::StoreError;
use crate::controller::Controller;
use crate::proposer::Failed;
use crate::refusal;
use metadata::command::{Outcome, Refusal, ShardCommand};
use metadata::rows::Home;
use metadata::shard::ShardId;
use std::collections::BTreeMap;
use types::{AttemptId, ContentId};

/// Contents by the shard of their home, the destination's excepted.
pub(crate) type Foreign = BTreeMap<ShardId, Vec<(Home, ContentId)>>;

/// How step 1 ended.
pub(crate) enum Ended {
    /// The attempt owns all of these.
    Done(Foreign),
    /// A content is condemned or gone; what was added is taken back.
    SourceGone,
}

impl Controller {
    /// Step 1: the attempt becomes an owner of each content whose home is in another shard than `destination`.
    pub(crate) async fn add_owners(
        &self,
        attempt: AttemptId,
        destination: &Home,
        contents: Vec<(Home, ContentId)>,
    ) -> Result<Ended, StoreError> {
        let mut foreign = Foreign::new();
        let here = self.proposer().shard_of(destination);
        for (home, content) in contents {
            let shard = self.proposer().shard_of(&home);
            if shard != here {
                foreign.entry(shard).or_default().push((home, content));
            }
        }
        let mut added = Foreign::new();
        for (shard, contents) in foreign {
            let command = ShardCommand::AddOwners { contents: contents.clone(), destination: destination.clone() };
            match self.proposer().shard(shard, attempt, command).await {
                Ok(_) => {
                    added.insert(shard, contents);
                }
                Err(Failed::Refused(Refusal::SourceGone)) => {
                    self.take_back(attempt, added).await;
                    return Ok(Ended::SourceGone);
                }
                Err(failed) => {
                    // Step 2 is never proposed. What this entry may still add, the curator finds.
                    self.take_back(attempt, added).await;
                    return Err(failed.into());
                }
            }
        }
        Ok(Ended::Done(added))
    }

    /// After step 2 was proposed. `None`: the source went, begin again under a new attempt.
    pub(crate) async fn owners_proposed(
        &self,
        attempt: AttemptId,
        foreign: Foreign,
        answer: Result<Outcome, Failed>,
    ) -> Result<Option<Outcome>, StoreError> {
        match answer {
            Ok(outcome) => Ok(Some(outcome)),
            Err(Failed::Refused(refusal)) if refusal::is_decided(&refusal) => {
                self.take_back(attempt, foreign).await;
                match refusal {
                    Refusal::SourceGone => Ok(None),
                    other => Err(refusal::store_error(other)),
                }
            }
            Err(Failed::NotProposed(error)) => {
                self.take_back(attempt, foreign).await;
                Err(error)
            }
            Err(failed) => Err(failed.into()),
        }
    }

    async fn take_back(&self, owner: AttemptId, foreign: Foreign) {
        for (shard, contents) in foreign {
            let owners = contents.into_iter().map(|(home, content)| (home, content, owner)).collect();
            let attempt = self.proposer().attempt();
            let command = ShardCommand::ReleaseOwners { owners };
            if let Err(error) = self.proposer().shard(shard, attempt, command).await {
                tracing::warn!(%owner, ?error, "an owner id was not taken back; the curator will");
            }
        }
    }
}
