//! DELETE and tags: one entry each.
//!
//! Promises: what is deleted is condemned in the same entry. Refuses to know: when its space comes back (the curator does).

use crate::api::{BucketInfo, DeleteObject, DeleteOutcome, StoreError, Tag};
use crate::controller::Controller;
use crate::put::unexpected;
use metadata::command::{KeyOp, Outcome};
use types::{ObjectKey, VersionId};

impl Controller {
    /// Removes a version, or makes the key unreadable as the bucket's versioning says.
    pub(crate) async fn delete(&self, request: DeleteObject) -> Result<DeleteOutcome, StoreError> {
        let op = KeyOp::Delete { version: request.version, conditions: request.conditions };
        let attempt = self.proposer().attempt();
        match self.propose(&request.bucket, &request.key, attempt, op).await? {
            Outcome::Deleted { version, delete_marker } => Ok(DeleteOutcome { version, delete_marker }),
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces the tags of a version; answers which.
    pub(crate) async fn tag(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
        tags: Vec<Tag>,
    ) -> Result<Option<VersionId>, StoreError> {
        let attempt = self.proposer().attempt();
        match self.propose(bucket, key, attempt, KeyOp::PutTags { version, tags }).await? {
            Outcome::Tagged(version) => Ok(version),
            other => Err(unexpected(&other)),
        }
    }
}
