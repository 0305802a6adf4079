//! Contents: created, owned, let go, condemned. The invariants of protocols.md 3 and 7 are kept here.

use super::Decision;
use super::draft::Work;
use crate::command::Refusal;
use crate::format::body::is_inline;
use crate::format::{family, key};
use crate::read::{self, ReadError, content};
use crate::rows::{
    BodyId, BodyRow, Condemned, CondemnedRow, ContentBytes, DataRef, Home, ManifestPart, ManifestRow, OutboxRow,
    OwnerRow, Reference,
};
use crate::tree::Read;
use types::{AttemptId, BucketId, ContentId, ObjectKey, OwnerId};

impl Work<'_> {
    /// The content that this entry's attempt wrote, owned by its writer.
    pub(super) fn create_content(&mut self, home: &Home, size: u64, bytes: ContentBytes) -> Decision<()> {
        let row = key::body(home.bucket, &home.key, BodyId::whole(self.attempt));
        if self.draft.get(&row)?.is_some() {
            return Err(Refusal::ContentTaken.into());
        }
        self.draft.put(row, &BodyRow::Content { size, bytes });
        Ok(())
    }

    /// The content that this entry's attempt wrote, condemned from the beginning; nothing if it exists already.
    pub(super) fn create_condemned(&mut self, home: &Home, size: u64, bytes: &ContentBytes) -> Result<(), ReadError> {
        let id = BodyId::whole(self.attempt);
        let row = key::body(home.bucket, &home.key, id);
        match bytes {
            ContentBytes::Extents { runs, .. } if !runs.is_empty() && self.draft.get(&row)?.is_none() => {
                self.draft.put(row, &BodyRow::Content { size, bytes: bytes.clone() });
                self.condemn(home, id.id, Condemned::Content);
            }
            _ => {}
        }
        Ok(())
    }

    fn condemn(&mut self, home: &Home, id: AttemptId, what: Condemned) {
        let row = key::of_id(family::CONDEMNED, home.bucket, &home.key, id);
        self.draft.put(row, &CondemnedRow { condemned_ms: self.now_ms, what });
    }

    /// Adds an owner to a content homed here; refused if it is not there or condemned, for that is final.
    pub(super) fn add_owner(&mut self, home: &Home, id: ContentId, owner: OwnerId, at: &Home) -> Decision<()> {
        let body = self.draft.get(&key::body(home.bucket, &home.key, BodyId::whole(id)))?;
        match body {
            None => return Err(Refusal::SourceGone.into()),
            Some(row) if is_inline(&row) => {
                return Err(Refusal::Invalid("inline contents are copied, not referred to".into()).into());
            }
            Some(_) => {}
        }
        if content::condemned_row(&self.draft, home, id)?.is_some() {
            return Err(Refusal::SourceGone.into());
        }
        self.draft.put(key::owner(home, id, owner), &OwnerRow { destination: at.clone() });
        Ok(())
    }

    /// This attempt refers to a content from `at`, under that body id. A home in another shard was asked before.
    pub(super) fn refer(&mut self, at: &Home, id: BodyId, reference: &Reference) -> Decision<()> {
        if self.holds(reference.home.bucket, &reference.home.key) {
            self.add_owner(&reference.home, reference.content, self.attempt, at)?;
        }
        let row = key::body(at.bucket, &at.key, id);
        if self.draft.get(&row)?.is_some() {
            return Err(Refusal::ContentTaken.into());
        }
        self.draft.put(row, &BodyRow::Reference(reference.clone()));
        Ok(())
    }

    /// A version or part of this key ends what it owned under that body id.
    pub(super) fn release_body(&mut self, bucket: BucketId, at: &ObjectKey, id: BodyId) -> Result<(), ReadError> {
        let row = key::body(bucket, at, id);
        match self.draft.row::<BodyRow>(&row)? {
            // Nobody else ever refers to it: there is nothing to be judged.
            Some(BodyRow::Content { bytes: ContentBytes::Inline(_), .. }) => self.draft.remove(row),
            Some(BodyRow::Content { .. }) => {
                let home = Home { bucket, key: at.clone() };
                self.let_go.insert((home.clone(), id.id));
                self.touched.insert((home, id.id));
            }
            Some(BodyRow::Reference(reference)) => {
                self.draft.remove(row);
                self.release_owner(reference.home, reference.content, id.id);
            }
            // A finding of the audit; the entry goes on, for a node that stops here helps nobody.
            None => {}
        }
        Ok(())
    }

    /// An owner that is not the writer lets go, here or by way of the outbox.
    pub(super) fn release_owner(&mut self, home: Home, content: ContentId, owner: OwnerId) {
        if self.holds(home.bucket, &home.key) {
            self.draft.remove(key::owner(&home, content, owner));
            self.touched.insert((home, content));
        } else {
            self.owed.push(OutboxRow::ReleaseOwner { home, content, owner });
        }
    }

    /// A version ends what it owned.
    pub(super) fn release_data(&mut self, bucket: BucketId, at: &ObjectKey, data: DataRef) -> Result<(), ReadError> {
        match data {
            DataRef::Body(id) => self.release_body(bucket, at, BodyId::whole(id)),
            DataRef::Manifest { id, parts } => {
                self.condemn(&Home { bucket, key: at.clone() }, id, Condemned::Manifest { parts });
                self.forget_completed_by(bucket, at, id)
            }
        }
    }

    /// Writes the rows of a manifest.
    pub(super) fn put_manifest(&mut self, at: &Home, id: AttemptId, parts: Vec<ManifestPart>) {
        let mut rest = parts;
        let mut first = 0;
        while !rest.is_empty() {
            let tail = rest.split_off(rest.len().min(content::MANIFEST_ROW_PARTS as usize));
            let row = ManifestRow { parts: rest };
            let count = row.parts.len() as u32;
            self.draft.put(key::manifest(at.bucket, &at.key, id, first), &row);
            first += count;
            rest = tail;
        }
    }

    /// Parts that no version names: one manifest, condemned at once.
    pub(super) fn condemn_parts(&mut self, at: &Home, id: AttemptId, parts: Vec<ManifestPart>) {
        if !parts.is_empty() {
            self.condemn(at, id, Condemned::Manifest { parts: parts.len() as u32 });
            self.put_manifest(at, id, parts);
        }
    }

    /// After all changes of the entry: contents that lost an owner and have none left are condemned.
    pub(super) fn judge_ownerless(&mut self) -> Result<(), ReadError> {
        for (home, id) in std::mem::take(&mut self.touched) {
            let row = key::body(home.bucket, &home.key, BodyId::whole(id));
            if self.draft.get(&row)?.is_none() {
                continue;
            }
            let let_go = self.let_go.remove(&(home.clone(), id));
            if content::condemned_row(&self.draft, &home, id)?.is_none() {
                self.judge(&home, id, let_go)?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, home: &Home, id: ContentId, let_go: bool) -> Result<(), ReadError> {
        let owners = read::content::owners(&self.draft, home, id)?;
        let let_go_before = owners.iter().any(|(owner, _)| *owner == id);
        let owned_by_others = owners.iter().any(|(owner, _)| *owner != id);
        match (let_go || let_go_before, owned_by_others) {
            (true, false) => {
                if let_go_before {
                    self.draft.remove(key::owner(home, id, id));
                }
                self.condemn(home, id, Condemned::Content);
            }
            (true, true) if !let_go_before => {
                self.draft.put(key::owner(home, id, id), &OwnerRow { destination: home.clone() });
            }
            _ => {}
        }
        Ok(())
    }
}
