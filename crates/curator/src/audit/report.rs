//! What an audit answers.

use super::rows::RowsFound;
use crate::limits;
use serde::Serialize;

/// How stored and referenced differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// An owned extent is not on a replica that should hold it, or its group has no record.
    Lost,
    /// An owned extent is called dead: its bytes will be punched.
    OwnedAndDead,
    /// A frame of a settled group that nobody owns and that is not dead.
    Leaked,
    /// Bytes of a settled group below its length that are neither owned, condemned nor dead.
    Unaccounted,
    /// A group of an ended session is not settled yet: nothing is proved of its other frames.
    Unsettled,
    /// A replica has not answered, holds less than it should, or its file cannot be walked.
    Replica,
    /// A file that no record names.
    FileWithoutRecord,
    /// Parity of a strip that is not where its record says.
    Parity,
    /// A strip with members that cannot be read, or with fewer nodes than members.
    Strip,
    /// Rows that contradict each other: versions, bodies, owners, manifests.
    Rows,
}

/// One difference, named.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Which.
    pub kind: DifferenceKind,
    /// Where.
    pub what: String,
}

/// The result of an audit. Bytes are those of frames: header and padding included.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditReport {
    /// There is no difference.
    pub ok: bool,
    /// How many there are, of all kinds.
    pub difference_count: u64,
    /// Bytes that differ.
    pub difference_bytes: u64,
    /// The first hundred.
    pub differences: Vec<Difference>,
    /// Groups with a record.
    pub groups: u64,
    /// Bodies of all kinds.
    pub bodies: u64,
    /// Extents that contents own, and their bytes in one copy.
    pub owned_extents: u64,
    /// See above.
    pub owned_bytes: u64,
    /// Frames found for them on all replicas.
    pub stored_bytes: u64,
    /// Condemned, or on the way to the records: will be reclaimed.
    pub pending_bytes: u64,
    /// Dead in the record, but still on a disk.
    pub unpunched_bytes: u64,
    /// Dead in the record, but kept while the strip of its group is: the others are computed with it.
    pub frozen_bytes: u64,
    /// Parity of strips.
    pub parity_bytes: u64,
    /// Not owned yet: written by uploads of the live session.
    pub in_progress_bytes: u64,
    /// Names on the disks that are not ours.
    pub strangers: u64,
    /// Files set aside.
    pub quarantined_files: u64,
    /// Their bytes.
    pub quarantined_bytes: u64,
}

impl AuditReport {
    pub(super) fn differ(&mut self, kind: DifferenceKind, bytes: u64, what: String) {
        self.difference_count += 1;
        self.difference_bytes += bytes;
        if self.differences.len() < limits::NAMED {
            self.differences.push(Difference { kind, what });
        }
    }

    pub(super) fn add_rows(&mut self, found: RowsFound) {
        self.bodies += found.bodies;
        let unnamed = found.wrong_count - found.wrong.len() as u64;
        for what in found.wrong {
            self.differ(DifferenceKind::Rows, 0, what);
        }
        self.difference_count += unnamed;
    }
}
