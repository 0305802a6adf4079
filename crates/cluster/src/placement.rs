//! Where copies go: pure functions of the map, what is known of the disks, and a generator.
//!
//! **Domains.** Copies lie on distinct nodes, always (while the cluster is one node, on distinct disks). Over racks they are spread as
//! far as there are racks with room; two copies in one rack are better than one copy too few, and it shows in [`Spread`].
//!
//! **Weights.** Among the disks that may be taken each is drawn in proportion to the bytes it has above the headroom, so that all fill
//! up together, divided by how much slower than the median it is.
//!
//! Promises: what is chosen satisfies the domains and the headroom, or it is said how many domains there were; never fewer copies.
//! Refuses to know: groups and objects, who asks, what is read or written.

pub mod balance;
pub mod precheck;

use crate::limits::{FULL_FOR_BALANCE_PERCENT, FULL_FOR_CLIENTS_PERCENT, FULL_FOR_REBUILD_PERCENT};
use crate::map::{Domain, domains, rack_of};
use env::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use types::DiskId;
use types::cluster::{DiskState, Map, NodeState};

/// What is known of a disk now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLoad {
    /// Size of its file system.
    pub total_bytes: u64,
    /// Free of it.
    pub free_bytes: u64,
    /// Usual time of a synced write; 0: not known, taken for the median.
    pub write_us: u32,
    /// It takes writes, and its node is up and not slow, as far as is known.
    pub is_usable: bool,
}

/// By disk; one that is missing is not usable.
pub type Loads = BTreeMap<DiskId, DiskLoad>;

/// For what space is asked: the less urgent, the sooner a disk is full (rule R67).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Bytes of a client.
    Write,
    /// Copies that are missing.
    Rebuild,
    /// A fairer distribution.
    Balance,
}

impl Purpose {
    const fn full_percent(self) -> u64 {
        match self {
            Purpose::Write => FULL_FOR_CLIENTS_PERCENT,
            Purpose::Rebuild => FULL_FOR_REBUILD_PERCENT,
            Purpose::Balance => FULL_FOR_BALANCE_PERCENT,
        }
    }
}

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Disks to find.
    pub copies: usize,
    /// Bytes each must take above its headroom.
    pub bytes: u64,
    /// What for.
    pub purpose: Purpose,
    /// Disks that hold copies already: what is chosen goes with them, and not into their domains.
    pub beside: Vec<DiskId>,
}

/// Fewer domains with room than copies wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{wanted} copies need as many nodes (or, on one node, disks) that are up and have room: there are {found}")]
pub struct NoPlace {
    /// Copies wanted.
    pub wanted: usize,
    /// Domains found.
    pub found: usize,
}

/// A disk that may be taken.
struct Candidate {
    disk: DiskId,
    domain: Domain,
    rack: Domain,
    weight: u128,
}

/// Chooses the disks, in the order they were drawn.
pub fn choose(map: &Map, loads: &Loads, wanted: &Wanted, random: &dyn Random) -> Result<Vec<DiskId>, NoPlace> {
    let domains = domains(map);
    let taken = |of: &dyn Fn(&DiskId) -> Option<Domain>| wanted.beside.iter().filter_map(of).collect::<BTreeSet<_>>();
    let mut used = taken(&|disk| domains.get(disk).cloned());
    let mut racks = taken(&|disk| rack_of_disk(map, *disk));
    let mut left = candidates(map, &domains, loads, wanted);
    left.retain(|candidate| !used.contains(&candidate.domain));
    let found = left.iter().map(|candidate| &candidate.domain).collect::<BTreeSet<_>>().len();
    if found < wanted.copies {
        return Err(NoPlace { wanted: wanted.copies, found });
    }
    let mut chosen = Vec::new();
    while chosen.len() < wanted.copies {
        let fresh: Vec<&Candidate> = left.iter().filter(|candidate| !racks.contains(&candidate.rack)).collect();
        let pool = if fresh.is_empty() { left.iter().collect() } else { fresh };
        let Some(candidate) = draw(&pool, random) else { break };
        chosen.push(candidate.disk);
        racks.insert(candidate.rack.clone());
        used.insert(candidate.domain.clone());
        left.retain(|candidate| !used.contains(&candidate.domain));
    }
    Ok(chosen)
}

fn rack_of_disk(map: &Map, disk: DiskId) -> Option<Domain> {
    let disk = map.disks.get(&disk)?;
    map.nodes.get(&disk.node).map(rack_of)
}

fn candidates(map: &Map, domains: &BTreeMap<DiskId, Domain>, loads: &Loads, wanted: &Wanted) -> Vec<Candidate> {
    let median_us = median_write_us(loads);
    let one = |(id, disk): (&DiskId, &types::cluster::Disk)| {
        let node = map.nodes.get(&disk.node)?;
        let load = loads.get(id).filter(|load| load.is_usable)?;
        if node.state != NodeState::Active || disk.state != DiskState::Active || wanted.beside.contains(id) {
            return None;
        }
        let room = room_bytes(load, wanted.purpose);
        if room < wanted.bytes || room == 0 {
            return None;
        }
        let slowness = u128::from(if load.write_us == 0 { median_us } else { load.write_us.max(median_us) });
        // A disk at the median or faster weighs its room; twice as slow, half of it. Never 0: it has room.
        let weight = (u128::from(room) * u128::from(median_us) / slowness).max(1);
        Some(Candidate { disk: *id, domain: domains.get(id)?.clone(), rack: rack_of(node), weight })
    };
    map.disks.iter().filter_map(one).collect()
}

/// Bytes that the disk takes for this purpose before it is full.
pub fn room_bytes(load: &DiskLoad, purpose: Purpose) -> u64 {
    let keep = u128::from(load.total_bytes) * u128::from(100 - purpose.full_percent()) / 100;
    load.free_bytes.saturating_sub(u64::try_from(keep).unwrap_or(u64::MAX))
}

/// Of the disks whose time is known; at least 1.
fn median_write_us(loads: &Loads) -> u32 {
    let mut times: Vec<u32> = loads.values().filter(|l| l.is_usable && l.write_us > 0).map(|l| l.write_us).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(1)
}

fn draw<'a>(pool: &[&'a Candidate], random: &dyn Random) -> Option<&'a Candidate> {
    let total: u128 = pool.iter().map(|candidate| candidate.weight).sum();
    if total == 0 {
        return None;
    }
    // 128 random bits over a total below 2^75 (2,048 disks of an exabyte): the bias is nothing.
    let mut point = ((u128::from(random.next_u64()) << 64) | u128::from(random.next_u64())) % total;
    for candidate in pool {
        if point < candidate.weight {
            return Some(candidate);
        }
        point -= candidate.weight;
    }
    None
}

/// How well copies are spread; more is better, nodes before racks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spread {
    /// Distinct domains that must not be shared: nodes, or disks while the cluster is one node.
    pub domains: usize,
    /// Distinct racks.
    pub racks: usize,
}

/// The spread of these copies. A disk that is lost, removed or unknown holds none.
pub fn spread(map: &Map, copies: &[DiskId]) -> Spread {
    let domains = domains(map);
    let here = |disk: &&DiskId| map.disks.get(disk).is_some_and(|disk| disk.state.is_here());
    let count = |of: &dyn Fn(&DiskId) -> Option<Domain>| {
        copies.iter().filter(here).filter_map(of).collect::<BTreeSet<_>>().len()
    };
    Spread { domains: count(&|disk| domains.get(disk).cloned()), racks: count(&|disk| rack_of_disk(map, *disk)) }
}
