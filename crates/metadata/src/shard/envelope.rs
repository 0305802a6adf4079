//! A command as the data of a Raft entry: the leader's stamp, then the proposal in postcard.
//!
//! The stamp stands in front at a fixed place because the proposal is encoded by its proposer and stamped by the driver.

use crate::command::Entry;

const STAMP_BYTES: usize = 8;

/// Encodes an entry; its stamp is set by [`stamp`].
pub(crate) fn encode(entry: &Entry) -> Vec<u8> {
    let out = vec![0; STAMP_BYTES];
    postcard::to_extend(entry, out).expect("a command has nothing that cannot be encoded")
}

/// Writes the stamp.
pub(crate) fn stamp(data: &mut [u8], stamp_ms: u64) {
    data[..STAMP_BYTES].copy_from_slice(&stamp_ms.to_le_bytes());
}

/// The entry with its stamp; an error names what is wrong.
pub(crate) fn decode(data: &[u8]) -> Result<Entry, String> {
    let (stamp, rest) = data.split_first_chunk::<STAMP_BYTES>().ok_or("shorter than a stamp")?;
    let mut entry: Entry = postcard::from_bytes(rest).map_err(|e| e.to_string())?;
    entry.stamp_ms = u64::from_le_bytes(*stamp);
    Ok(entry)
}
