//! Filling a metadata folder anew that is not in the log set (protocols.md 6).
//!
//! Promises: the folder joins the set only when its tree and log hold, durably, what the others hold; what was in it before is
//! left alone, in an older generation. Refuses to know: why it is outside.

use super::MetadataConfig;
use super::history::History;
use super::open::{Place, StartError};
use crate::log::format::{Item, LogEntry};
use crate::log::{Log, LogSet, append_in_parts};
use crate::shard::ShardId;
use crate::shard::rows::Applied;
use crate::tree::{Read, Snapshot, Tree, WriteBatch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of rows copied in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// Copies the tree `from`, which holds all shards up to `applied`, with the entries behind that, and takes the folder into the set.
pub(super) fn refill(
    config: &MetadataConfig,
    folder: usize,
    old: &Place,
    from: &Arc<dyn Tree>,
    applied: &BTreeMap<ShardId, Applied>,
    history: &History,
    set: &mut LogSet,
) -> Result<Arc<dyn Tree>, StartError> {
    let place = old.next();
    tracing::warn!(folder, generation = place.generation, "filling a metadata folder anew");
    let tree = place.tree(config)?;
    copy(&Snapshot::published(from), &*tree, config.memtable_bytes)?;
    let mut log = Log::create(place.log(config), config.env.random.next_u64())?;
    let states: Vec<_> = history.hard_states.iter().map(|(shard, state)| Item::HardState(*shard, *state)).collect();
    log.append(&states)?;
    let marks: Vec<_> = applied.iter().map(|(shard, (index, term))| (*shard, *index, *term)).collect();
    log.truncate(&marks)?;
    let behind = |entry: &&LogEntry| applied.get(&entry.shard).is_none_or(|(index, _)| entry.index > *index);
    append_in_parts(&mut log, history.entries.values().flatten().filter(behind).cloned().map(Item::Entry))?;
    set.admit(folder, log)?;
    Ok(tree)
}

fn copy(from: &Snapshot, to: &dyn Tree, memtable_bytes: u64) -> Result<(), StartError> {
    let (mut batch, mut bytes) = (WriteBatch::default(), 0);
    // No key is longer than 64 KiB, and none begins with 0xff: families are small numbers.
    for row in from.range(&[], &[0xff]) {
        let (key, value) = row?;
        bytes += key.len() + value.len();
        batch.put(key.to_vec(), value);
        if bytes >= BATCH_BYTES {
            to.publish(to.write(std::mem::take(&mut batch))?);
            bytes = 0;
        }
        if to.unsealed_bytes() >= memtable_bytes {
            to.seal();
            to.flush()?;
        }
    }
    to.publish(to.write(batch)?);
    to.seal();
    to.flush()?;
    Ok(())
}
