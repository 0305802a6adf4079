//! The versions of a key: made, removed, promoted. Keeps the invariant that `current` has a row if and only if the newest
//! version is live, and that a `nulls` row stands if and only if the null version is in `versions`.

use super::draft::Work;
use crate::command::{NewVersion, Outcome, PutOutcome};
use crate::format::key;
use crate::format::value::Counter;
use crate::read::{ReadError, object};
use crate::rows::{BucketRow, DataRef, Home, ObjectRow, VersionRow};
use types::bucket::Versioning;
use types::{AttemptId, VersionId};

/// The newest version of a key as an entry finds it.
pub(super) enum Newest {
    /// In `current`.
    Live(VersionRow),
    /// A delete marker.
    Marker(VersionRow),
    /// The key has no version.
    None,
}

impl Newest {
    /// One row; one seek more for a key without a live version, in a bucket that ever had versioning.
    pub(super) fn read(work: &Work<'_>, at: &Home, bucket: &BucketRow) -> Result<Self, ReadError> {
        if let Some(row) = object::current(&work.draft, at.bucket, &at.key)? {
            return Ok(Newest::Live(row));
        }
        if bucket.versioning == Versioning::Off {
            return Ok(Newest::None);
        }
        let other = object::newest_other(&work.draft, at.bucket, &at.key)?;
        Ok(other.map_or(Newest::None, Newest::Marker))
    }

    pub(super) fn row(&self) -> Option<&VersionRow> {
        match self {
            Newest::Live(row) | Newest::Marker(row) => Some(row),
            Newest::None => None,
        }
    }

    /// What the attempt was answered, if it is the one that made this version.
    pub(super) fn known(&self, attempt: AttemptId, bucket: &BucketRow) -> Option<Outcome> {
        let row = self.row().filter(|row| row.attempt == attempt)?;
        let version = shown(bucket, row.version_id());
        Some(match &row.object {
            None => Outcome::Deleted { version, delete_marker: true },
            Some(object) => Outcome::Put(PutOutcome {
                version,
                etag: object.etag,
                size: object.size,
                checksum: object.checksum.clone(),
                modified_ms: row.modified_ms,
            }),
        })
    }
}

/// `None` in a bucket that never had versioning.
pub(super) fn shown(bucket: &BucketRow, id: VersionId) -> Option<VersionId> {
    (bucket.versioning != Versioning::Off).then_some(id)
}

impl Work<'_> {
    /// Makes `object` the newest version of the key.
    pub(super) fn insert_version(
        &mut self,
        at: &Home,
        bucket: &BucketRow,
        newest: Newest,
        object: &NewVersion,
        data: DataRef,
    ) -> Result<PutOutcome, ReadError> {
        let object = ObjectRow {
            size: object.size,
            etag: object.etag,
            checksum: object.checksum.clone(),
            meta: object.meta.clone(),
            tags: object.tags.clone(),
            data,
        };
        let row = self.next_row(bucket, &newest, Some(object));
        self.make_room(at, bucket, newest)?;
        self.draft.put(key::current(at.bucket, &at.key), &row);
        let version = shown(bucket, row.version_id());
        let VersionRow { modified_ms, object, .. } = row;
        let object = object.expect("set above");
        Ok(PutOutcome { version, etag: object.etag, size: object.size, checksum: object.checksum, modified_ms })
    }

    /// Makes a delete marker the newest version of the key.
    pub(super) fn insert_marker(
        &mut self,
        at: &Home,
        bucket: &BucketRow,
        newest: Newest,
    ) -> Result<VersionId, ReadError> {
        let row = self.next_row(bucket, &newest, None);
        self.make_room(at, bucket, newest)?;
        self.put_other(at, &row);
        Ok(row.version_id())
    }

    fn next_row(&self, bucket: &BucketRow, newest: &Newest, object: Option<ObjectRow>) -> VersionRow {
        let newest = newest.row();
        VersionRow {
            sequence: newest.map_or(1, |row| row.sequence + 1),
            attempt: self.attempt,
            null: bucket.versioning != Versioning::Enabled,
            modified_ms: newest.map_or(self.now_ms, |row| self.now_ms.max(row.modified_ms + 1)),
            object,
        }
    }

    /// Empties `current`, and ends the null version if the new one replaces it.
    fn make_room(&mut self, at: &Home, bucket: &BucketRow, newest: Newest) -> Result<(), ReadError> {
        let replaces_null = bucket.versioning != Versioning::Enabled;
        let mut null_was_current = false;
        if let Newest::Live(row) = newest {
            self.draft.remove(key::current(at.bucket, &at.key));
            null_was_current = row.null;
            if replaces_null && row.null {
                self.release_object(at, &row)?;
            } else {
                self.put_other(at, &row);
            }
        }
        if bucket.versioning == Versioning::Suspended && !null_was_current {
            self.end_other_null(at)?;
        }
        Ok(())
    }

    fn end_other_null(&mut self, at: &Home) -> Result<(), ReadError> {
        let Some(Counter(sequence)) = self.draft.row(&key::null(at.bucket, &at.key))? else { return Ok(()) };
        let other = self.draft.row::<VersionRow>(&key::version(at.bucket, &at.key, sequence))?;
        match other {
            Some(row) => self.remove_other(at, &row),
            None => Ok(()),
        }
    }

    fn put_other(&mut self, at: &Home, row: &VersionRow) {
        self.draft.put(key::version(at.bucket, &at.key, row.sequence), row);
        if row.null {
            self.draft.put(key::null(at.bucket, &at.key), &Counter(row.sequence));
        }
    }

    fn take_other(&mut self, at: &Home, row: &VersionRow) {
        self.draft.remove(key::version(at.bucket, &at.key, row.sequence));
        if row.null {
            self.draft.remove(key::null(at.bucket, &at.key));
        }
    }

    fn remove_other(&mut self, at: &Home, row: &VersionRow) -> Result<(), ReadError> {
        self.take_other(at, row);
        self.release_object(at, row)
    }

    fn release_object(&mut self, at: &Home, row: &VersionRow) -> Result<(), ReadError> {
        match &row.object {
            Some(object) => self.release_data(at.bucket, &at.key, object.data),
            None => Ok(()),
        }
    }

    /// Removes the version of a key in a bucket that never had versioning: there is no other to look for.
    pub(super) fn remove_only_version(&mut self, at: &Home, current: &VersionRow) -> Result<(), ReadError> {
        self.draft.remove(key::current(at.bucket, &at.key));
        self.release_object(at, current)
    }

    /// Removes this very version for ever; the newest that remains, if live, becomes current.
    pub(super) fn remove_version(&mut self, at: &Home, row: &VersionRow) -> Result<(), ReadError> {
        let current = object::current(&self.draft, at.bucket, &at.key)?;
        let is_current = current.as_ref().is_some_and(|c| c.sequence == row.sequence);
        if is_current {
            self.draft.remove(key::current(at.bucket, &at.key));
            self.release_object(at, row)?;
        } else {
            self.remove_other(at, row)?;
        }
        if is_current || current.is_none() {
            self.promote(at)?;
        }
        Ok(())
    }

    fn promote(&mut self, at: &Home) -> Result<(), ReadError> {
        let newest = object::newest_other(&self.draft, at.bucket, &at.key)?;
        if let Some(row) = newest.filter(|row| row.object.is_some()) {
            self.take_other(at, &row);
            self.draft.put(key::current(at.bucket, &at.key), &row);
        }
        Ok(())
    }

    /// Replaces a row of this version where it is.
    pub(super) fn rewrite_version(&mut self, at: &Home, row: &VersionRow) -> Result<(), ReadError> {
        let current = object::current(&self.draft, at.bucket, &at.key)?;
        if current.is_some_and(|c| c.sequence == row.sequence) {
            self.draft.put(key::current(at.bucket, &at.key), row);
        } else {
            self.draft.put(key::version(at.bucket, &at.key, row.sequence), row);
        }
        Ok(())
    }
}
