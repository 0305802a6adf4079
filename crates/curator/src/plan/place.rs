//! On which disk a further copy goes (rules R26, R28, R67).
//!
//! In proportion to the room there is, divided by the copies that are on their way there already; in a rack that has none yet, if there
//! is such a disk; where a copy moves away from only if there is no other domain.
//!
//! Promises: never a domain with a copy that stays, never a listed disk, never one that would be fuller than it may be. Refuses to know:
//! whether a copy is wanted.

use super::copies::Copies;
use crate::limits;
use crate::view::{DiskView, View};
use env::random::Random;
use metadata::rows::GroupRecord;
use std::collections::BTreeMap;
use types::DiskId;

/// Copies that are on their way to each disk.
pub(crate) type UnderWay = BTreeMap<DiskId, u32>;

/// Disks that may take a copy of so many bytes, the one to try first at the front.
pub(crate) fn targets(
    view: &View,
    record: &GroupRecord,
    copies: &Copies,
    bytes: u64,
    under_way: &UnderWay,
    random: &dyn Random,
) -> Vec<DiskId> {
    let (taken, left, racks) = (copies.taken(), copies.left(), copies.racks());
    let mut drawn = Vec::new();
    for (disk, seen) in &view.disks {
        let Some(domain) = view.domain(*disk) else { continue };
        let listed = record.replicas.iter().any(|replica| replica.disk == *disk);
        let room = room_bytes(seen, bytes);
        if listed || taken.contains(&domain) || !seen.takes_copies() || room == 0 {
            continue;
        }
        let old_rack = seen.rack.as_deref().is_some_and(|rack| racks.contains(rack));
        let weight = room / u64::from(1 + under_way.get(disk).copied().unwrap_or(0));
        drawn.push((left.contains(&domain), old_rack, draw(weight, random), *disk));
    }
    drawn.sort_unstable();
    drawn.into_iter().map(|(.., disk)| disk).collect()
}

/// Bytes that are left for copies once this one is there; 0: it may not go there.
fn room_bytes(disk: &DiskView, bytes: u64) -> u64 {
    let keep = (disk.total_bytes / 10).min(limits::KEPT_FREE_BYTES);
    disk.free_bytes.saturating_sub(keep).saturating_sub(bytes)
}

/// The smaller, the sooner: over many draws a disk of twice the weight is first twice as often. An exponential variate of that rate,
/// in fixed point: -log2(u) / weight, with u in (0, 1].
fn draw(weight: u64, random: &dyn Random) -> u128 {
    let word = random.next_u64() | 1;
    // -log2 of word / 2^64, 16 bits behind the point: whole part by leading zeros, the rest linearly between powers of two.
    let zeros = word.leading_zeros();
    let mantissa = (u128::from(word) << (zeros + 1)) & u128::from(u64::MAX);
    let minus_log = (u128::from(zeros + 1) << 64) - mantissa;
    (minus_log << 32) / u128::from(weight.max(1))
}
