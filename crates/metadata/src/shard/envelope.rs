//! A command as the data of a Raft entry: the leader's stamp (u64 little-endian), a format byte, the proposal in postcard.
//!
//! The stamp stands in front at a fixed place because the proposal is encoded by its proposer and stamped by the driver.

use crate::command::{Command, Entry, KeyCommand, KeyOp};
use crate::rows::ContentBytes;

const STAMP_BYTES: usize = 8;
/// Version of what follows the stamp.
const FORMAT: u8 = 1;
/// What an entry takes besides an object's bytes, about.
const HEAD_BYTES: usize = 256;

/// Encodes an entry; its stamp is set by [`stamp`].
pub(crate) fn encode(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + inline_bytes(entry));
    out.extend_from_slice(&[0; STAMP_BYTES]);
    out.push(FORMAT);
    postcard::to_extend(entry, out).expect("a command has nothing that cannot be encoded")
}

/// Bytes of an object in the entry: with room for them from the start they are copied once.
fn inline_bytes(entry: &Entry) -> usize {
    match &entry.command {
        Command::Key(KeyCommand { op: KeyOp::Put { bytes: ContentBytes::Inline(bytes), .. }, .. }) => bytes.len(),
        _ => 0,
    }
}

/// Writes the stamp.
pub(crate) fn stamp(data: &mut [u8], stamp_ms: u64) {
    data[..STAMP_BYTES].copy_from_slice(&stamp_ms.to_le_bytes());
}

/// The entry with its stamp; an error names what is wrong.
pub(crate) fn decode(data: &[u8]) -> Result<Entry, String> {
    let (stamp, rest) = data.split_first_chunk::<STAMP_BYTES>().ok_or("shorter than a stamp")?;
    let rest = rest.strip_prefix(&[FORMAT]).ok_or("of another format")?;
    let mut entry: Entry = postcard::from_bytes(rest).map_err(|e| e.to_string())?;
    entry.stamp_ms = u64::from_le_bytes(*stamp);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, stamp};
    use crate::command::{Command, Entry, RootCommand};
    use types::AttemptId;

    #[test]
    fn an_entry_has_its_golden_bytes_and_bad_ones_are_refused() {
        let attempt = AttemptId { node: 1, session: 2, sequence: 300 };
        let command = Command::Root(RootCommand::NewSession { node: 1 });
        let entry = Entry { attempt, deadline_ms: 4, stamp_ms: 0, command };
        let mut data = encode(&entry);
        stamp(&mut data, 0x0102);
        assert_eq!(data[..14], [2, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0xac, 2, 4]);
        assert_eq!(decode(&data), Ok(Entry { stamp_ms: 0x0102, ..entry }));
        for len in 0..data.len() {
            assert!(decode(&data[..len]).is_err(), "{len} bytes");
        }
        data[8] = 2;
        assert!(decode(&data).is_err(), "another format");
    }
}
