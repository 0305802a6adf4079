//! Reclaiming: condemned manifests are expanded, condemned contents go and their extents are owed to the group records.

use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::{Outcome, Refusal};
use crate::format::value::RowValue;
use crate::format::{family, key};
use crate::read::{content, rows};
use crate::rows::{BodyId, BodyRow, Condemned, ContentBytes, Home, ManifestRow, OutboxRow, Run};
use types::{AttemptId, ContentId};

/// Runs in one outbox row: at about 25 bytes each, 25 KiB.
const OUTBOX_RUNS: usize = 1024;

/// One row of the manifest, 256 parts, loses its ownership.
pub(super) fn expand(work: &mut Work<'_>, home: &Home, manifest: AttemptId) -> Decision {
    work.require(home.bucket, &home.key)?;
    let condemned = content::condemned_row(&work.draft, home, manifest)?;
    match condemned.map(|row| row.what) {
        Some(Condemned::Manifest { .. }) => {}
        Some(Condemned::Content) => return Err(Refusal::Invalid("not a manifest".into()).into()),
        None => return Ok(Outcome::Left(0)),
    }
    let from = key::of_id(family::MANIFEST, home.bucket, &home.key, manifest);
    let to = key::successor(from.clone());
    let mut chunks = rows(&work.draft, &from, &to, |row| Ok((row.0.to_vec(), ManifestRow::decode(&row.1)?)));
    let first = chunks.next().transpose()?;
    let left = chunks.next().transpose()?.is_some();
    drop(chunks);
    if let Some((row, chunk)) = first {
        work.draft.remove(row);
        for part in &chunk.parts {
            work.release_body(home.bucket, &home.key, part.body_id(manifest))?;
        }
    }
    if !left {
        work.draft.remove(key::of_id(family::CONDEMNED, home.bucket, &home.key, manifest));
    }
    Ok(Outcome::Left(u32::from(left)))
}

pub(super) fn reclaim(work: &mut Work<'_>, contents: &[(Home, ContentId)]) -> Decision {
    let mut dead = Vec::new();
    let mut kept = 0;
    for (home, id) in contents {
        work.require(home.bucket, &home.key)?;
        match reclaim_one(work, home, *id)? {
            Some(runs) => dead.extend(runs),
            None => kept += 1,
        }
    }
    while !dead.is_empty() {
        let rest = dead.split_off(dead.len().min(OUTBOX_RUNS));
        work.owed.push(OutboxRow::Dead { runs: dead });
        dead = rest;
    }
    Ok(Outcome::Left(kept))
}

/// Its runs, none if it went before; `None` if it has an owner, which cannot be.
fn reclaim_one(work: &mut Work<'_>, home: &Home, id: ContentId) -> Decision<Option<Vec<Run>>> {
    let condemned = content::condemned_row(&work.draft, home, id)?;
    if condemned.is_none_or(|row| row.what != Condemned::Content) {
        return Ok(Some(Vec::new()));
    }
    if !content::owners(&work.draft, home, id)?.is_empty() {
        return Ok(None);
    }
    let row = key::body(home.bucket, &home.key, BodyId::whole(id));
    let body = work.draft.row::<BodyRow>(&row)?;
    work.draft.remove(row);
    work.draft.remove(key::of_id(family::CONDEMNED, home.bucket, &home.key, id));
    match body {
        Some(BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. }) => Ok(Some(runs)),
        _ => Ok(Some(Vec::new())),
    }
}
