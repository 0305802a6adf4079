//! Where a version lies, for an operator: how many of its bytes ride in the metadata, and which groups have the others.
//!
//! Promises: as of one linearizable reading; no data disk is touched. Refuses to know: what state the groups are in.

use crate::api::{BucketInfo, ObjectInfo, StoreError};
use crate::controller::Controller;
use crate::get::Found;
use crate::read::{Layout, Piece};
use crate::runs;
use std::collections::BTreeMap;
use types::{GroupId, ObjectKey, VersionId};

/// Parts of a manifest read at once.
const PARTS_AT_ONCE: usize = 256;

/// Where a version lies.
#[derive(Clone, Debug)]
pub struct Places {
    /// The version.
    pub info: ObjectInfo,
    /// Bytes in the rows of the metadata themselves.
    pub inline_bytes: u64,
    /// Bytes of the contents it refers to, by group. A copy of a range counts the extents of the whole content.
    pub groups: BTreeMap<GroupId, u64>,
}

impl Controller {
    /// Of the current version, or the one of that id.
    pub async fn places(
        &self,
        bucket: &BucketInfo,
        key: &ObjectKey,
        version: Option<VersionId>,
    ) -> Result<Places, StoreError> {
        let found = self.find(bucket, key, version).await?;
        let mut places = Places { info: found.info.clone(), inline_bytes: 0, groups: BTreeMap::new() };
        match found.layout()? {
            Layout::One(piece) => places.add(&piece),
            layout @ Layout::Manifest { id, parts } => {
                let mut index = 0;
                while index < parts {
                    let page = layout.parts_from(&found.snapshot, &found.home, index, PARTS_AT_ONCE)?;
                    for part in &page {
                        places.add(&Piece::read(&found.snapshot, &found.home, part.body_id(id))?);
                    }
                    index += match page.len() {
                        0 => return Err(missing(&found, index)),
                        read => u32::try_from(read).unwrap_or(u32::MAX),
                    };
                }
            }
        }
        Ok(places)
    }
}

fn missing(found: &Found, index: u32) -> StoreError {
    StoreError::Damaged(format!("the manifest of {} has no part {index}", found.attempt))
}

impl Places {
    fn add(&mut self, piece: &Piece) {
        match piece {
            Piece::Inline(bytes) => self.inline_bytes += bytes.len() as u64,
            Piece::Stretch(stretch) => {
                for run in &stretch.runs {
                    *self.groups.entry(run.group).or_default() += runs::payload_bytes(run);
                }
            }
        }
    }
}
