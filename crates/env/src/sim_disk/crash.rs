//! What a power cut leaves of the changes that were not synced.
//!
//! Promises: bytes and names that were synced stay; of the others any part may survive, torn at sectors, in any combination
//! (an older write lost, a newer one kept; a name without its bytes, bytes without their name).
//! Refuses to know: when the power goes.

use std::collections::BTreeMap;

use super::image::{Image, PAGE_BYTES, spans};
use super::state::{FileOp, State};
use crate::random::Xoshiro;

/// Smallest unit a disk writes whole.
const SECTOR_BYTES: u64 = 512;

/// Which un-synced operations survive a power cut. Operations are counted in the order they were made, over all files and
/// names together; see [`super::SimDisk::unsynced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// None: the disk holds what was synced.
    KeepNone,
    /// All of them, whole.
    KeepAll,
    /// The first so many, whole.
    PrefixOf(usize),
    /// Those whose bit is set, whole (operations from the 64th on are lost): for going through all subsets.
    Subset(u64),
    /// Drawn by the seed; writes are torn at 512 bytes or at 4 KiB.
    RandomSubset(u64),
    /// As `RandomSubset`; moreover, space that a file gained without a sync may hold garbage instead of zeros.
    RandomWithGarbage(u64),
}

/// What happens to one operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

impl CrashPolicy {
    fn random_seed(self) -> u64 {
        match self {
            CrashPolicy::RandomSubset(seed) | CrashPolicy::RandomWithGarbage(seed) => seed,
            _ => 0,
        }
    }

    fn fate(self, index: usize, random: &mut Xoshiro) -> Fate {
        let kept = match self {
            CrashPolicy::KeepNone => false,
            CrashPolicy::KeepAll => true,
            CrashPolicy::PrefixOf(count) => index < count,
            CrashPolicy::Subset(mask) => index < 64 && mask >> index & 1 == 1,
            CrashPolicy::RandomSubset(_) | CrashPolicy::RandomWithGarbage(_) => {
                return [Fate::Kept, Fate::Lost, Fate::Torn][random.below(3)];
            }
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }
}

/// Turns the state into what is found after the power cut.
pub(super) fn cut_power(state: &mut State, policy: CrashPolicy) {
    let mut random = Xoshiro::new(state.seed ^ policy.random_seed().rotate_left(32));
    let garbage = matches!(policy, CrashPolicy::RandomWithGarbage(_));
    let mut fates = BTreeMap::new();
    for (index, seq) in state.unsynced_seqs().into_iter().enumerate() {
        fates.insert(seq, policy.fate(index, &mut random));
    }
    for file in state.files.values_mut() {
        for (seq, op) in std::mem::take(&mut file.pending) {
            match fates.get(&seq) {
                Some(Fate::Kept) => op.apply(&mut file.synced),
                Some(Fate::Torn) => tear(&op, &mut file.synced, &mut random, garbage),
                _ => {}
            }
        }
        file.live = file.synced.clone();
    }
    // A name is there or not; there is no half of it.
    state.names.crash(|seq| match fates.get(&seq) {
        Some(Fate::Kept) => true,
        Some(Fate::Torn) => random.coin(),
        _ => false,
    });
    state.forget_unreferenced();
}

/// Applies some sectors of an operation.
fn tear(op: &FileOp, image: &mut Image, random: &mut Xoshiro, garbage: bool) {
    let (offset, len) = op.range();
    let old_len = image.len();
    if !matches!(op, FileOp::Punch { .. }) {
        image.grow(torn_len(old_len, offset + len, random));
    }
    let unit = if random.coin() { SECTOR_BYTES } else { PAGE_BYTES };
    let visible = image.len();
    for (start, end) in sectors(offset, offset + len, unit) {
        if random.coin() {
            apply_part(op, image, start, end.min(visible));
        } else if garbage && start >= old_len && start < visible && random.coin() {
            let mut noise = vec![0; (end.min(visible) - start) as usize];
            random.fill(&mut noise);
            image.write(start, &noise);
        }
    }
}

/// The length reached: the old one, the new one, or some sector boundary between them.
fn torn_len(old: u64, new: u64, random: &mut Xoshiro) -> u64 {
    if new <= old {
        return old;
    }
    match random.below(3) {
        0 => old,
        1 => new,
        _ => {
            let somewhere = old + random.next_u64() % (new - old);
            somewhere.next_multiple_of(SECTOR_BYTES).min(new)
        }
    }
}

fn apply_part(op: &FileOp, image: &mut Image, start: u64, end: u64) {
    if start >= end {
        return;
    }
    match op {
        FileOp::Write { offset, bytes } => {
            image.write(start, &bytes[(start - offset) as usize..(end - offset) as usize]);
        }
        FileOp::Reserve { .. } => image.reserve(start, end - start),
        FileOp::Punch { .. } => image.punch(start, end - start),
    }
}

/// The range cut at multiples of `unit`.
fn sectors(start: u64, end: u64, unit: u64) -> impl Iterator<Item = (u64, u64)> {
    let per_page = PAGE_BYTES / unit;
    spans(start, end - start).flat_map(move |span| {
        let from = span.page * PAGE_BYTES + span.within as u64;
        let to = from + span.len as u64;
        (0..per_page).filter_map(move |index| {
            let sector = span.page * PAGE_BYTES + index * unit;
            let (low, high) = (sector.max(from), (sector + unit).min(to));
            (low < high).then_some((low, high))
        })
    })
}
