//! Rows compared with rows, both directions: versions, bodies, manifests, owners (rule R21).
//!
//! Promises: a piece of the keys at a time. Refuses to know: disks.

use crate::contents::owners;
use crate::limits;
use metadata::apply::check_invariants;
use metadata::read::{ReadError, content, root, shard};
use metadata::rows::{BodyRow, Home, OutboxRow, Reference};
use metadata::shard::{KeyRange, Shard};
use metadata::tree::Read;
use std::collections::BTreeSet;
use types::{ContentId, OwnerId};

/// What was found in one shard.
#[derive(Default)]
pub(super) struct RowsFound {
    pub(super) bodies: u64,
    pub(super) wrong_count: u64,
    pub(super) wrong: Vec<String>,
}

impl RowsFound {
    fn say(&mut self, what: String) {
        self.wrong_count += 1;
        if self.wrong.len() < limits::NAMED {
            self.wrong.push(what);
        }
    }
}

/// Releases that are still in an outbox.
type Releases = BTreeSet<(Home, ContentId, OwnerId)>;

pub(super) fn compare(read: &dyn Read, this: &Shard, all: &[Shard]) -> Result<RowsFound, ReadError> {
    let mut found = RowsFound::default();
    let mut from = this.range.from.clone();
    loop {
        let rest = KeyRange { from: from.clone(), to: this.range.to.clone() };
        let boundary = boundary(read, &rest, &mut found)?;
        let piece = KeyRange { from, to: boundary.clone().or_else(|| this.range.to.clone()) };
        for wrong in check_invariants(read, &piece)? {
            found.say(wrong);
        }
        references(read, &piece, &mut found)?;
        match boundary {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    let releases = releases(read, all)?;
    owner_rows(read, this, &releases, &mut found)?;
    Ok(found)
}

/// The first key after so many bodies; counts them.
fn boundary(read: &dyn Read, range: &KeyRange, found: &mut RowsFound) -> Result<Option<Home>, ReadError> {
    let mut last: Option<Home> = None;
    for (count, row) in content::bodies(read, range).enumerate() {
        let (home, ..) = row?;
        if count >= limits::WALK_BODIES && last.as_ref() != Some(&home) {
            return Ok(Some(home));
        }
        found.bodies += 1;
        last = Some(home);
    }
    Ok(None)
}

/// A reference has its content, and is known to it as an owner.
fn references(read: &dyn Read, range: &KeyRange, found: &mut RowsFound) -> Result<(), ReadError> {
    for row in content::bodies(read, range) {
        let (at, id, body) = row?;
        let BodyRow::Reference(Reference { home, content: of, runs, .. }) = body else { continue };
        let there = content::body(read, home.bucket, &home.key, metadata::rows::BodyId::whole(of))?;
        let same = match &there {
            Some(BodyRow::Content { bytes: metadata::rows::ContentBytes::Extents { runs: own, .. }, .. }) => {
                *own == runs
            }
            _ => false,
        };
        if !same {
            found.say(format!("{}/{}: refers to content {of:?}, which is not there as it says", at.bucket, at.key));
        } else if !content::owners(read, &home, of)?.iter().any(|(owner, _)| *owner == id.id) {
            found
                .say(format!("{}/{}: refers to content {of:?}, which does not know it as an owner", at.bucket, at.key));
        }
    }
    Ok(())
}

fn releases(read: &dyn Read, all: &[Shard]) -> Result<Releases, ReadError> {
    let mut releases = Releases::new();
    for of in all {
        for row in shard::outbox(read, of.id, 0) {
            if let (_, OutboxRow::ReleaseOwner { home, content, owner }) = row? {
                releases.insert((home, content, owner));
            }
        }
    }
    Ok(releases)
}

/// An owner row has a destination that refers to the content, unless its release is on the way or its copy is being made.
fn owner_rows(read: &dyn Read, this: &Shard, releases: &Releases, found: &mut RowsFound) -> Result<(), ReadError> {
    for row in content::all_owners(read, &this.range) {
        let (home, of, owner, row) = row?;
        let lives = root::session(read, owner.node)? == owner.session;
        let being_made = lives && !this.range.contains(row.destination.bucket, &row.destination.key);
        if owner == of || being_made || releases.contains(&(home.clone(), of, owner)) {
            continue;
        }
        if !owners::refers(read, &row.destination, owner)? {
            let to = &row.destination;
            found.say(format!(
                "{}/{}: owner {owner:?} of {of:?} is not at {}/{}",
                home.bucket, home.key, to.bucket, to.key
            ));
        }
    }
    Ok(())
}
