//! Rows of one shard: its state, fences, buckets, outbox.

use super::{ReadError, get, rows};
use crate::format::key;
use crate::format::value::{Counter, RowValue, ShardState};
use crate::format::{FormatError, family};
use crate::rows::{BucketRow, OutboxRow};
use crate::shard::ShardId;
use crate::tree::{Read, Row};
use types::{BucketId, NodeId};

/// Last stamp and counters.
pub fn state(read: &dyn Read, shard: ShardId) -> Result<ShardState, ReadError> {
    Ok(get(read, &key::shard_state(shard))?.unwrap_or_default())
}

/// The lowest session of `node` that the shard admits; 0 if it was never fenced.
pub fn fence(read: &dyn Read, shard: ShardId, node: NodeId) -> Result<u32, ReadError> {
    let fence = get::<Counter>(read, &key::fence(shard, node))?.unwrap_or_default();
    Ok(u32::try_from(fence.0).unwrap_or(u32::MAX))
}

/// A bucket as this shard knows it.
pub fn bucket_row(read: &dyn Read, shard: ShardId, bucket: BucketId) -> Result<Option<BucketRow>, ReadError> {
    get(read, &key::bucket_row(shard, bucket))
}

/// Work owed to other shards from sequence `from` on, in order.
pub fn outbox(
    read: &dyn Read,
    shard: ShardId,
    from: u64,
) -> impl Iterator<Item = Result<(u64, OutboxRow), ReadError>> + Send + '_ {
    let end = key::successor(key::of_shard(family::OUTBOX, shard, &[]));
    let prefix = 1 + size_of::<u32>();
    rows(read, &key::outbox(shard, from), &end, move |row: &Row| -> Result<_, FormatError> {
        Ok((key::trailing_u64(&row.0, prefix)?, OutboxRow::decode(&row.1)?))
    })
}
