//! Whether the groups of a source are as good as the destination asks, and the destination in their sets (protocols.md 1 and 3).
//!
//! Promises: a copy that goes on by reference lies in groups that had the destination's replicas, or a code that it allows, when they were
//! looked at, and whose records name the destination's bucket *before* any owner row is proposed: from then on the requirement of the
//! group is looked up with the destination's policy in it. A copy within the bucket whose key wrote the content costs no entry, for the
//! frames name that bucket and whoever seals the group writes it into the set. Refuses to know: who heals a group that has less than it
//! should.
//!
//! The races, each with why it does no harm:
//! * *A crash or failure after the set was added to, before the owner row:* the set names a bucket too many: at most a copy too many.
//! * *Sealing:* the set of an open group is kept in its record, and the seal unites it with what the writer or the frames say.
//! * *Trimming, encoding:* adding a bucket to a sealed group raises its generation, so a switch that was judged without that bucket
//!   loses its compare-and-set; the group is judged here again by what is read after the entry.
//! * *A policy raised meanwhile:* as for an upload that is running: the curator raises the group (protocols.md 9).
//! * *The source deleted, its group dropped:* the owner row is refused, or, in the destination's shard, the copy is; a record that is
//!   missing makes this a copy of bytes, which the reader's pin protects.

use crate::api::{BucketInfo, StoreError};
use crate::controller::Controller;
use crate::runs;
use crate::snapshots::{Snapshot, read_failed};
use crate::strips;
use metadata::command::RootCommand;
use metadata::read::root;
use metadata::rows::{GroupRecord, Reference, ReplicaState};
use metadata::strip::StripState;
use replicas::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use types::bucket::Erasure;
use types::{BucketId, DiskId, GroupId, NodeId};

/// What a copy takes from one group.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// End of the last frame.
    end: u64,
    /// Some content of it was written by a key of another bucket than the destination's.
    foreign: bool,
}

/// What is known of all groups of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// The copy may refer to them, once the set of these names the destination.
    Fit(Vec<GroupId>),
    /// Some group has fewer replicas than the destination asks for.
    TooFew,
    /// A record is not here (yet).
    Unknown,
}

impl Controller {
    /// Whether a copy into this bucket may refer to all of these. After `true` the sets of their groups name the bucket.
    pub(crate) async fn fits(
        &self,
        destination: &BucketInfo,
        snapshot: &Snapshot,
        references: impl IntoIterator<Item = &Reference>,
    ) -> Result<bool, StoreError> {
        let taken = taken(destination.id, references);
        // Where the record was applied here, nobody else is asked: sets only grow.
        let mut judged = self.judge(destination, snapshot, &taken)?;
        if judged == Judged::Unknown {
            judged = self.judge(destination, &self.snapshots().of_root().await?, &taken)?;
        }
        match judged {
            Judged::Fit(missing) if missing.is_empty() => Ok(true),
            Judged::Fit(missing) => {
                let command = RootCommand::AddBucket { groups: missing, bucket: destination.id };
                self.proposer().root(command).await?;
                let judged = self.judge(destination, &self.snapshots().of_root().await?, &taken)?;
                Ok(judged == Judged::Fit(Vec::new()))
            }
            Judged::TooFew | Judged::Unknown => Ok(false),
        }
    }

    fn judge(
        &self,
        destination: &BucketInfo,
        snapshot: &Snapshot,
        taken: &BTreeMap<GroupId, Taken>,
    ) -> Result<Judged, StoreError> {
        let asked = self.current_bucket(destination)?.durability;
        let wanted = asked.replicas(self.rf());
        let code = strips::code_of_cluster(self.disks().nodes().len());
        let mut missing = Vec::new();
        for (group, taken) in taken {
            let Some(record) = root::group(snapshot.read(), *group).map_err(read_failed)? else {
                return Ok(Judged::Unknown);
            };
            let coded = is_coded_as((asked.erasure, wanted, code), &record, snapshot)?;
            if !coded && replicas_of(&record, taken.end, self.disks()) < usize::from(wanted) {
                return Ok(Judged::TooFew);
            }
            if taken.foreign && !record.buckets.contains(&destination.id) {
                missing.push(*group);
            }
        }
        Ok(Judged::Fit(missing))
    }
}

/// Whether it is in a strip, of which it has one replica, by a code that such a bucket allows: its own, or, where it leaves that to the
/// cluster, the one that the cluster has at present, if that survives as much as the replicas it wants.
fn is_coded_as(
    (asked, wanted, of_cluster): (Erasure, u8, Option<(u8, u8)>),
    record: &GroupRecord,
    snapshot: &Snapshot,
) -> Result<bool, StoreError> {
    let code = match asked {
        Erasure::ByCluster => of_cluster.filter(|(_, m)| wanted <= m.saturating_add(1)),
        Erasure::Never => None,
        Erasure::Code { k, m } => Some((k, m)),
    };
    let (Some((k, m)), Some(of)) = (code, &record.strip) else { return Ok(false) };
    let strip = root::strip(snapshot.read(), of.strip).map_err(read_failed)?;
    let strip = strip.filter(|strip| strip.state == StripState::Encoded);
    Ok(strip.is_some_and(|strip| (strip.k(), strip.m()) == (usize::from(k), usize::from(m))))
}

fn taken<'a>(destination: BucketId, references: impl IntoIterator<Item = &'a Reference>) -> BTreeMap<GroupId, Taken> {
    let mut groups: BTreeMap<GroupId, Taken> = BTreeMap::new();
    for reference in references {
        for run in &reference.runs {
            let taken = groups.entry(run.group).or_default();
            taken.end = taken.end.max(runs::end(run));
            taken.foreign |= reference.home.bucket != destination;
        }
    }
    groups
}

/// Domains with a replica that has everything up to `end`. One that did not answer the fence counts, unless its disk is lost: an
/// extent that was acknowledged is on every replica that was listed when its group was opened.
fn replicas_of(record: &GroupRecord, end: u64, disks: &Replicas) -> usize {
    let holds = |state: ReplicaState| match state {
        ReplicaState::Open | ReplicaState::Whole | ReplicaState::NotAnswered => true,
        ReplicaState::Holds(bytes) => end <= bytes,
    };
    let held = record.replicas.iter().filter(|replica| holds(replica.state));
    let here: Vec<(DiskId, NodeId)> =
        held.filter_map(|replica| disks.get(replica.disk)).map(|disk| (disk.id(), disk.node())).collect();
    if disks.nodes().len() > 1 {
        here.iter().map(|(_, node)| node).collect::<BTreeSet<_>>().len()
    } else {
        here.iter().map(|(disk, _)| disk).collect::<BTreeSet<_>>().len()
    }
}
