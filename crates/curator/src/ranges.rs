//! Arithmetic of (offset, length) ranges of a group's file, and of the frames of a run.
//!
//! Promises: results are sorted, disjoint and do not touch. Refuses to know: what is in them.

use extent_store::Frame;
use metadata::rows::Run;
use types::limits::EXTENT_BYTES;

pub(crate) type Ranges = Vec<(u64, u64)>;

/// Where the first frame of a group begins.
pub(crate) const FIRST: u64 = extent_store::limits::FIRST_FRAME_OFFSET;

/// The union.
pub(crate) fn merge(ranges: impl IntoIterator<Item = (u64, u64)>) -> Ranges {
    let mut all: Ranges = ranges.into_iter().filter(|(_, length)| *length > 0).collect();
    all.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(all.len());
    for (offset, length) in all {
        let end = offset.saturating_add(length);
        match merged.last_mut() {
            Some(last) if offset <= last.0 + last.1 => last.1 = last.1.max(end - last.0),
            _ => merged.push((offset, end - offset)),
        }
    }
    merged
}

/// What is in `[from, to)` and in none of `taken`, which is merged.
pub(crate) fn rest(from: u64, to: u64, taken: &[(u64, u64)]) -> Ranges {
    let mut left = Vec::new();
    let mut at = from;
    for (offset, length) in taken {
        if *offset >= to {
            break;
        }
        if *offset > at {
            left.push((at, offset - at));
        }
        at = at.max(offset.saturating_add(*length));
    }
    if at < to {
        left.push((at, to - at));
    }
    left
}

/// What is in `ranges` and not in `taken`; both merged.
pub(crate) fn subtract(ranges: &[(u64, u64)], taken: &[(u64, u64)]) -> Ranges {
    ranges.iter().flat_map(|(offset, length)| rest(*offset, offset.saturating_add(*length), taken)).collect()
}

/// What of `ranges` lies in `[from, to)`.
pub(crate) fn clamp(ranges: &[(u64, u64)], from: u64, to: u64) -> Ranges {
    let cut = |(offset, length): &(u64, u64)| {
        let (start, end) = ((*offset).max(from), offset.saturating_add(*length).min(to));
        (start < end).then(|| (start, end - start))
    };
    ranges.iter().filter_map(cut).collect()
}

/// Bytes in all.
pub(crate) fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, length)| length).sum()
}

/// Whether `ranges`, merged, hold this byte.
pub(crate) fn contains(ranges: &[(u64, u64)], byte: u64) -> bool {
    let after = ranges.partition_point(|(offset, _)| *offset <= byte);
    after > 0 && byte < ranges[after - 1].0.saturating_add(ranges[after - 1].1)
}

/// The frames of a run: offset and bytes of payload.
pub(crate) fn frames(run: &Run) -> impl Iterator<Item = (u64, u32)> + use<> {
    let run = *run;
    let full = Frame::bytes_for(EXTENT_BYTES as u32);
    (0..run.extents).map(move |index| {
        let payload = if index + 1 == run.extents { run.last_bytes } else { EXTENT_BYTES as u32 };
        (run.offset.saturating_add(u64::from(index) * full), payload)
    })
}

/// Where a run lies.
pub(crate) fn of_run(run: &Run) -> (u64, u64) {
    let full = Frame::bytes_for(EXTENT_BYTES as u32);
    (run.offset, u64::from(run.extents.saturating_sub(1)) * full + Frame::bytes_for(run.last_bytes))
}

#[cfg(test)]
mod tests {
    use super::{bytes, clamp, contains, frames, merge, of_run, rest, subtract};
    use metadata::rows::Run;
    use types::GroupId;

    #[test]
    fn ranges_are_united_subtracted_and_cut() {
        let merged = merge([(8, 4), (0, 4), (4, 4), (20, 0), (30, 2), (31, 5)]);
        assert_eq!((merged.as_slice(), bytes(&merged)), ([(0, 12), (30, 6)].as_slice(), 18));
        assert_eq!(rest(2, 40, &merged), [(12, 18), (36, 4)]);
        assert_eq!(rest(2, 10, &merged), []);
        assert_eq!(subtract(&[(0, 50)], &merged), [(12, 18), (36, 14)]);
        assert_eq!(clamp(&merged, 10, 31), [(10, 2), (30, 1)]);
        let held: Vec<u64> = (0..40).filter(|byte| contains(&merged, *byte)).collect();
        assert_eq!(held, (0..12).chain(30..36).collect::<Vec<_>>());
    }

    #[test]
    fn the_frames_of_a_run_fill_its_range() {
        let run = Run { group: GroupId(1), offset: 4096, extents: 3, last_bytes: 5000 };
        let all: Vec<_> = frames(&run).collect();
        let full = (1 << 20) + 4096;
        assert_eq!(all, [(4096, 1 << 20), (4096 + full, 1 << 20), (4096 + 2 * full, 5000)]);
        assert_eq!(of_run(&run), (4096, 2 * full + 4096 + 8192));
    }
}
