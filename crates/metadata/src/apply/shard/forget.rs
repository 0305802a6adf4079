//! Forget: remembered answers of old Completes go, a bounded walk at a time. There is no outcome table yet to forget from.

use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::Outcome;
use crate::format::value::RowValue;
use crate::format::{family, key};
use crate::read::rows;
use crate::rows::CompletedUpload;
use crate::tree::Read;

/// Rows that one entry walks over.
const WALK_ROWS: usize = 1024;

/// `Left(0)`: the walk has come to the end, and the next one begins again.
pub(super) fn forget(work: &mut Work<'_>, completed_before_ms: u64) -> Decision {
    let (first, end) = key::range_bounds(family::COMPLETED, &work.shard.range);
    let cursor = key::forget_cursor(work.shard.id);
    let from = match work.draft.get(&cursor)? {
        Some(from) => first.max(from.to_vec()),
        None => first,
    };
    let walk = rows(&work.draft, &from, &end, |row| Ok((row.0.clone(), CompletedUpload::decode(&row.1)?)));
    let mut walked: Vec<_> = walk.take(WALK_ROWS + 1).collect::<Result<_, _>>()?;
    let next = walked.get(WALK_ROWS).map(|(row, _)| row.clone());
    walked.truncate(WALK_ROWS);
    for (row, done) in walked {
        if done.completed_ms < completed_before_ms {
            work.draft.remove(row.to_vec());
        }
    }
    let left = u32::from(next.is_some());
    match next {
        Some(row) => work.draft.put_raw(cursor, row),
        None => work.draft.remove(cursor),
    }
    Ok(Outcome::Left(left))
}
