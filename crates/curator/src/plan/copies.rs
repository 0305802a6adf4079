//! How the copies of one group stand.
//!
//! Promises: each listed copy is in exactly one of the kinds. Refuses to know: what follows from it.

use crate::ranges::{self, FIRST};
use crate::view::{DiskState, Domain, Health, View};
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use std::collections::BTreeSet;
use types::{DiskId, GroupId, NodeId};

/// One listed copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Whole, in service, can be asked.
    Sound,
    /// Whole and can be asked, on a disk whose data moves away.
    Leaving,
    /// Whole, on a node that is away by announcement.
    Awaited,
    /// Whole, on a disk that cannot be asked or is not known.
    Away,
    /// It holds less than it should, or it is not known what it holds.
    Uncertain,
    /// On a disk that is lost.
    Gone,
}

/// The copies of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// Domains with a sound copy.
    pub(crate) sound: BTreeSet<Domain>,
    /// Domains with a copy that can be read in full.
    pub(crate) readable: BTreeSet<Domain>,
    /// Disks with such a copy.
    pub(crate) sources: Vec<DiskId>,
    pub(crate) leaving: Vec<DiskId>,
    pub(crate) away: Vec<DiskId>,
    pub(crate) gone: Vec<DiskId>,
    pub(crate) uncertain: Vec<DiskId>,
    /// One of the uncertain can be asked.
    pub(crate) uncertain_readable: bool,
    awaited: BTreeSet<Domain>,
    awaited_disks: Vec<DiskId>,
    /// Domain, rack and fullness of each listed disk that is there.
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    disk: DiskId,
    domain: Domain,
    rack: Option<String>,
    used_percent: u64,
}

impl Copies {
    pub(crate) fn of(view: &View, record: &GroupRecord) -> Copies {
        let mut copies = Copies::default();
        for replica in &record.replicas {
            let disk = replica.disk;
            let standing = standing(view, replica);
            let domain = view.domain(disk);
            match standing {
                Standing::Sound => copies.sound.extend(domain),
                Standing::Leaving => copies.leaving.push(disk),
                Standing::Awaited => {
                    copies.awaited.extend(domain);
                    copies.awaited_disks.push(disk);
                }
                Standing::Away => copies.away.push(disk),
                Standing::Uncertain => {
                    copies.uncertain.push(disk);
                    let readable = view.disk(disk).is_some_and(|disk| disk.is_readable());
                    copies.uncertain_readable |= readable;
                    if !readable {
                        copies.away.push(disk);
                    }
                }
                Standing::Gone => copies.gone.push(disk),
            }
            if matches!(standing, Standing::Sound | Standing::Leaving) {
                copies.readable.extend(domain);
                copies.sources.push(disk);
            }
            if let (Some(domain), Some(view)) = (domain, view.disk(disk)) {
                let (rack, used_percent) = (view.rack.clone(), view.used_percent());
                copies.places.push(Place { disk, domain, rack, used_percent });
            }
        }
        copies
    }

    /// Domains that count: those of nodes that are away by announcement too, unless the group is down to one copy (protocols.md 12).
    pub(crate) fn counted(&self) -> usize {
        let down_to_one = self.readable.len() <= 1;
        if down_to_one { self.sound.len() } else { self.sound.union(&self.awaited).count() }
    }

    /// Whether a copy that was made is not to be had now: more than a policy that changed.
    pub(crate) fn has_lost_some(&self) -> bool {
        !self.away.is_empty() || !self.gone.is_empty() || !self.awaited.is_empty()
    }

    /// Which copy is surplus: none while one of them cannot be asked. On a disk that drains first, then where another is on the same
    /// node, then in the same rack, then on the fullest disk.
    pub(crate) fn victim(&self, record: &GroupRecord, required: usize) -> Option<DiskId> {
        if self.sources.len() != record.replicas.len() || self.sound.len() < required {
            return None;
        }
        let shared = |of: &dyn Fn(&Place) -> bool| self.places.iter().filter(|place| of(place)).count() > 1;
        let rank = |place: &&Place| {
            let same_domain = shared(&|other| other.domain == place.domain);
            let same_rack = place.rack.is_some() && shared(&|other| other.rack == place.rack);
            (self.leaving.contains(&place.disk), same_domain, same_rack, place.used_percent, place.disk)
        };
        let enough = |place: &&Place| self.sound_without(place.disk) >= required;
        self.places.iter().filter(enough).max_by_key(rank).map(|place| place.disk)
    }

    /// Sound domains if that disk had no copy.
    fn sound_without(&self, disk: DiskId) -> usize {
        let sound = |place: &&Place| place.disk != disk && !self.leaving.contains(&place.disk);
        let domains = self.places.iter().filter(sound).map(|place| place.domain);
        domains.filter(|domain| self.sound.contains(domain)).collect::<BTreeSet<_>>().len()
    }

    /// Domains in which no further copy may lie: those of all listed copies but the ones that move away or are gone.
    pub(crate) fn taken(&self) -> BTreeSet<Domain> {
        let stays = |place: &&Place| !self.leaving.contains(&place.disk);
        self.places.iter().filter(stays).map(|place| place.domain).collect()
    }

    /// Domains with a copy that moves away: a further one lies there only if there is no better place.
    pub(crate) fn left(&self) -> BTreeSet<Domain> {
        let leaves = |place: &&Place| self.leaving.contains(&place.disk);
        self.places.iter().filter(leaves).map(|place| place.domain).collect()
    }

    /// The racks of all of them.
    pub(crate) fn racks(&self) -> BTreeSet<&str> {
        self.places.iter().filter_map(|place| place.rack.as_deref()).collect()
    }

    /// The node that does what is to be done: one of those that hold it, so that reads stay on the node, and another one for each
    /// group, so that all of them work. Of a group that is not sealed, any that has a file.
    pub(crate) fn executor(&self, view: &View, group: GroupId) -> Option<NodeId> {
        let able = |disk: &&DiskId| view.disk(**disk).is_some_and(|disk| disk.is_readable());
        let holders = if self.sources.is_empty() { &self.uncertain } else { &self.sources };
        let rank = |disk: &&DiskId| {
            let view = view.disk(**disk);
            let node = view.map_or(0, |view| view.node);
            let best = view.is_some_and(|view| view.takes_copies());
            (best, mix(group, node), node)
        };
        let disk = holders.iter().filter(able).max_by_key(rank)?;
        view.disk(*disk).map(|view| view.node)
    }
}

fn standing(view: &View, replica: &Replica) -> Standing {
    if view.is_lost(replica.disk) {
        return Standing::Gone;
    }
    if replica.state != ReplicaState::Whole {
        return Standing::Uncertain;
    }
    match view.disk(replica.disk) {
        None => Standing::Away,
        Some(disk) if disk.health == Health::Down && disk.awaited => Standing::Awaited,
        Some(disk) if disk.health == Health::Down => Standing::Away,
        Some(disk) if disk.state == DiskState::Draining => Standing::Leaving,
        Some(_) => Standing::Sound,
    }
}

/// Highest random weight: each group ranks the nodes in an order of its own.
fn mix(group: GroupId, node: NodeId) -> u64 {
    let mut word = group.0 ^ u64::from(node).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Bytes of a copy: what is not dead.
pub(crate) fn live_bytes(record: &GroupRecord) -> u64 {
    let dead = ranges::bytes(&ranges::clamp(&record.dead, FIRST, record.length.max(FIRST)));
    record.length.saturating_sub(FIRST).saturating_sub(dead)
}
