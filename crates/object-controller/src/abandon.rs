//! The other end of an upload: whatever does not lead to a commit leads to an *abandon* (protocols.md 4).
//!
//! Promises: a failed or dropped upload that wrote anything is abandoned under its own attempt id; if its commit was applied
//! after all, the abandon changes nothing, as the first entry applied is the outcome. Only a dead process leaves neither.
//! Refuses to know: why the upload ended.

use crate::api::{BucketInfo, StoreError};
use crate::controller::Controller;
use crate::ledger::Ledger;
use crate::proposer::Failed;
use crate::refusal;
use metadata::command::{KeyCommand, KeyOp, Outcome};
use std::sync::Arc;
use types::AttemptId;

/// Abandons when dropped, unless the content's fate was decided.
pub(crate) struct UploadGuard {
    controller: Controller,
    bucket: Arc<BucketInfo>,
    ledger: Arc<Ledger>,
    armed: bool,
}

impl UploadGuard {
    pub(crate) fn new(controller: Controller, bucket: Arc<BucketInfo>, ledger: Arc<Ledger>) -> UploadGuard {
        UploadGuard { controller, bucket, ledger, armed: true }
    }

    /// The content is committed or condemned.
    fn decided(mut self) {
        self.armed = false;
        self.controller.groups().resolved(&self.ledger);
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if self.armed && !self.ledger.is_empty() {
            let story = abandon(self.controller.clone(), self.bucket.clone(), self.ledger.clone());
            self.controller.background().spawn(story);
        }
    }
}

/// An upload whose abandon was not taken: the metadata was busy or had no space, or it waited for too long.
pub(crate) type Unabandoned = (Arc<BucketInfo>, Arc<Ledger>);

/// Proposes the abandon. Where no answer comes the content stays in the account of its groups, and the curator settles it.
async fn abandon(controller: Controller, bucket: Arc<BucketInfo>, ledger: Arc<Ledger>) {
    // Work on contents is not bound by generation or state of the bucket.
    let generation = controller.current_bucket(&bucket).map_or(bucket.generation, |now| now.generation);
    let home = ledger.home();
    let op = KeyOp::Abandon { runs: ledger.runs() };
    let command = KeyCommand { bucket: home.bucket, generation, key: home.key.clone(), op };
    match controller.proposer().key(ledger.content(), command).await {
        Ok(_) => controller.groups().resolved(&ledger),
        Err(Failed::Refused(refusal)) if refusal::is_decided(&refusal) => controller.groups().resolved(&ledger),
        Err(Failed::NotProposed(error)) => {
            tracing::debug!(content = %ledger.content(), %error, "an upload is abandoned later");
            controller.unabandoned().lock().push((bucket, ledger));
        }
        Err(error) => tracing::warn!(content = %ledger.content(), ?error, "an upload could not be abandoned"),
    }
}

impl Controller {
    /// Tries those abandons again that were not taken.
    pub(crate) async fn abandon_again(&self) {
        let due = std::mem::take(&mut *self.unabandoned().lock());
        for (bucket, ledger) in due {
            abandon(self.clone(), bucket, ledger).await;
        }
    }

    /// Commits an upload. *Committed and visible* when it answers `Ok`; any other end condemns the bytes.
    pub(crate) async fn commit(
        &self,
        bucket: &BucketInfo,
        key: &types::ObjectKey,
        attempt: AttemptId,
        op: KeyOp,
        guard: UploadGuard,
    ) -> Result<Outcome, StoreError> {
        match self.propose(bucket, key, attempt, op).await {
            Ok(outcome) => {
                guard.decided();
                Ok(outcome)
            }
            Err(Failed::Refused(refusal)) if refusal::is_decided(&refusal) => {
                guard.decided();
                Err(refusal::store_error(refusal))
            }
            Err(failed) => Err(failed.into()),
        }
    }
}
