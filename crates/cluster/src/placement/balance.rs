//! Whether moving bytes makes the cluster better.
//!
//! Promises: every move that is called better lowers the sum of squares of how full the disks are (weighted by their size) or raises the
//! spread of the copies, so moves come to an end and never undo each other.

use super::{DiskLoad, Loads, Spread, spread};
use types::DiskId;
use types::cluster::Map;

/// Moves of less than this difference are not worth their bytes.
const WORTH_PERMILLE: u64 = 20;

/// How full a disk is, in thousandths; one without a size is full.
pub fn fullness_permille(load: &DiskLoad) -> u64 {
    let used = u128::from(load.total_bytes.saturating_sub(load.free_bytes)) * 1000;
    u64::try_from(used.checked_div(u128::from(load.total_bytes)).unwrap_or(1000)).unwrap_or(1000)
}

/// How far apart the fullest and the emptiest usable disks are, in thousandths: 0 is balanced.
pub fn imbalance_permille(loads: &Loads) -> u64 {
    let fullness = || loads.values().filter(|load| load.is_usable).map(fullness_permille);
    fullness().max().unwrap_or(0) - fullness().min().unwrap_or(0)
}

/// Whether so many bytes are better on `to` than on `from`: afterwards `to` must still be emptier than `from` was, and than `from` is
/// then, by what a move is worth.
pub fn is_fairer(from: &DiskLoad, to: &DiskLoad, bytes: u64) -> bool {
    if bytes > to.free_bytes {
        return false;
    }
    let after_from = DiskLoad { free_bytes: from.free_bytes.saturating_add(bytes).min(from.total_bytes), ..*from };
    let after_to = DiskLoad { free_bytes: to.free_bytes - bytes, ..*to };
    fullness_permille(&after_to) + WORTH_PERMILLE <= fullness_permille(&after_from)
}

/// Whether the copies are better off with `to` in the place of `from`: a wider spread, or the same and fairer.
pub fn is_better(map: &Map, loads: &Loads, copies: &[DiskId], from: DiskId, to: DiskId, bytes: u64) -> bool {
    let (Some(load_from), Some(load_to)) = (loads.get(&from), loads.get(&to)) else { return false };
    if !copies.contains(&from) || copies.contains(&to) || !load_to.is_usable {
        return false;
    }
    let moved: Vec<DiskId> = copies.iter().map(|disk| if *disk == from { to } else { *disk }).collect();
    let (before, after): (Spread, Spread) = (spread(map, copies), spread(map, &moved));
    after > before || (after == before && is_fairer(load_from, load_to, bytes))
}
