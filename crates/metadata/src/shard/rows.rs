//! The rows that the driver keeps in the tree for each shard: its range and version, and how far it is applied.
//!
//! Promises: the applied row is part of the batch of the entry it names (rule R16). Refuses to know: all other rows.

use super::{DRIVER_FAMILY, Shard, ShardId};
use crate::tree::{Read, TreeError, WriteBatch};
use std::collections::BTreeMap;

const SHARD: u8 = b's';
const APPLIED: u8 = b'a';
/// Version of the bytes of a shard's row, their first byte.
const FORMAT: u8 = 1;

/// Index and term of the last entry applied.
pub(crate) type Applied = (u64, u64);

/// Writes range and version of a shard.
pub(crate) fn put_shard(batch: &mut WriteBatch, shard: &Shard) {
    let value = postcard::to_extend(shard, vec![FORMAT]).expect("a shard has nothing that cannot be encoded");
    batch.put(key(SHARD, shard.id), value);
}

/// Writes how far a shard is applied.
pub(crate) fn put_applied(batch: &mut WriteBatch, shard: ShardId, (index, term): Applied) {
    let mut value = index.to_le_bytes().to_vec();
    value.extend_from_slice(&term.to_le_bytes());
    batch.put(key(APPLIED, shard), value);
}

/// All shards of the tree and how far each is applied.
pub(crate) fn read_shards(read: &dyn Read) -> Result<BTreeMap<ShardId, (Shard, Applied)>, TreeError> {
    let mut found = BTreeMap::new();
    for row in read.range(&[DRIVER_FAMILY, SHARD], &[DRIVER_FAMILY, SHARD + 1]) {
        let (_, value) = row?;
        let shard = decode_shard(&value).map_err(|e| TreeError(format!("the row of a shard: {e}")))?;
        let applied = read.get(&key(APPLIED, shard.id))?;
        let applied = applied.as_deref().and_then(decode_applied);
        let applied = applied.ok_or_else(|| TreeError(format!("the applied row of shard {}", shard.id.0)))?;
        found.insert(shard.id, (shard, applied));
    }
    Ok(found)
}

/// One shard's row and how far it is applied.
pub(crate) fn read_shard(read: &dyn Read, id: ShardId) -> Result<Option<(Shard, Applied)>, TreeError> {
    let Some(value) = read.get(&key(SHARD, id))? else { return Ok(None) };
    let shard = decode_shard(&value).map_err(|e| TreeError(format!("the row of a shard: {e}")))?;
    let applied = read.get(&key(APPLIED, id))?;
    let applied = applied.as_deref().and_then(decode_applied);
    Ok(Some((shard, applied.ok_or_else(|| TreeError(format!("the applied row of shard {}", id.0)))?)))
}

fn decode_shard(value: &[u8]) -> Result<Shard, String> {
    let bytes = value.strip_prefix(&[FORMAT]).ok_or("of another format")?;
    postcard::from_bytes(bytes).map_err(|e| e.to_string())
}

fn decode_applied(value: &[u8]) -> Option<Applied> {
    let (index, rest) = value.split_first_chunk::<8>()?;
    let term: [u8; 8] = rest.try_into().ok()?;
    Some((u64::from_le_bytes(*index), u64::from_le_bytes(term)))
}

fn key(kind: u8, shard: ShardId) -> Vec<u8> {
    let mut key = vec![DRIVER_FAMILY, kind];
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::{decode_applied, decode_shard, put_applied, put_shard};
    use crate::rows::Home;
    use crate::shard::{KeyRange, Shard, ShardId};
    use crate::tree::WriteBatch;
    use types::{BucketId, ObjectKey};

    #[test]
    fn the_rows_of_a_shard_have_their_golden_bytes() {
        let to = Home { bucket: BucketId(3), key: ObjectKey::new("m").expect("a key") };
        let shard = Shard { id: ShardId(2), range: KeyRange { from: None, to: Some(to) }, version: 5 };
        let mut batch = WriteBatch::default();
        put_shard(&mut batch, &shard);
        put_applied(&mut batch, ShardId(2), (258, 7));
        let bytes: Vec<_> = batch.rows.into_iter().map(|(key, value)| (key, value.expect("a row").to_vec())).collect();
        assert_eq!(bytes[0], (vec![0, b's', 0, 0, 0, 2], vec![1, 2, 0, 1, 3, 1, b'm', 5]));
        assert_eq!(bytes[1], (vec![0, b'a', 0, 0, 0, 2], vec![2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(decode_shard(&bytes[0].1), Ok(shard));
        assert_eq!(decode_applied(&bytes[1].1), Some((258, 7)));
        assert!(decode_shard(&[2, 2, 0, 0, 5]).is_err(), "another format");
        assert_eq!(decode_applied(&[0; 15]), None);
    }
}
