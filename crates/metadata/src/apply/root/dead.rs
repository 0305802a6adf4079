//! Dead sets: sorted, disjoint, not touching (offset, length) ranges that only grow.

/// Ranges of a file.
pub(super) type Ranges = Vec<(u64, u64)>;

/// The union.
pub(super) fn merge(known: &[(u64, u64)], more: &[(u64, u64)]) -> Ranges {
    // Cut at the last byte there can be before it is asked whether anything is left.
    let within = |(offset, length): &(u64, u64)| (*offset, (*length).min(u64::MAX - *offset));
    let mut all: Ranges = known.iter().chain(more).map(within).filter(|(_, length)| *length > 0).collect();
    all.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(all.len());
    for (offset, length) in all {
        let end = offset + length;
        match merged.last_mut() {
            Some(last) if offset <= last.0 + last.1 => last.1 = last.1.max(end - last.0),
            _ => merged.push((offset, end - offset)),
        }
    }
    merged
}

/// Whether everything in `[from, to)` is dead.
pub(super) fn covers(dead: &[(u64, u64)], from: u64, to: u64) -> bool {
    from >= to || dead.iter().any(|(offset, length)| *offset <= from && to <= offset.saturating_add(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_a_union_whatever_the_order() {
        let merged = merge(&[(8, 4), (0, 4)], &[(4, 4), (20, 0), (30, 2), (31, 5)]);
        assert_eq!(merged, [(0, 12), (30, 6)]);
        assert_eq!(merge(&merged, &[(8, 4), (0, 1)]), merged, "it only grows");
        assert_eq!(merge(&[], &[(u64::MAX, 9)]), [], "nothing lies beyond the last byte");
    }

    #[test]
    fn only_one_unbroken_range_covers() {
        assert!(covers(&[(0, 12)], 4, 12));
        assert!(!covers(&[(4, 4), (9, 9)], 4, 12));
        assert!(covers(&[], 4, 4));
    }
}
