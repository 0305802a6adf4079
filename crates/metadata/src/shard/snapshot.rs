//! A shard's rows on their way to another node: what is asked and answered, in chunks.
//!
//! ```text
//! offer    (in Raft's snapshot) format u8, postcard: id u64, shard
//! request  format u8, postcard: id u64, shard u32, last key received or none
//! chunk    format u8, last u8, count u32, then rows: key length u32, key, value length u32, value; then the CRC-64 of all that
//! ```
//!
//! Promises: decoding never panics and accepts only whole chunks; a chunk is checked when it comes and again when it is read back
//! from this node's own tree. All chunks of an id show one position of the sender's tree. Refuses to know: what rows mean, who asks.

use super::{Shard, ShardId};
use crate::limits::CHUNK_BYTES;
use crate::tree::{Read, Row, Snapshot, TreeError};
use bytes::{Buf, BufMut, Bytes};
use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use types::NodeId;

const FORMAT: u8 = 1;
const CRC_BYTES: usize = 8;

/// Key ranges (first, first no more) of a shard's rows.
pub type Spans = fn(&Shard) -> Vec<(Vec<u8>, Vec<u8>)>;

/// What a leader offers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) id: u64,
    pub(crate) shard: Shard,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) shard: ShardId,
    pub(crate) after: Option<Vec<u8>>,
}

/// A snapshot that is open for a member.
pub(crate) struct Serving {
    pub(crate) shard: Shard,
    pub(crate) to: NodeId,
    /// The entry it shows.
    pub(crate) index: u64,
    pub(crate) rows: Arc<Snapshot>,
    /// Ticks since something was asked.
    pub(crate) idle: AtomicU32,
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).expect("an offer has nothing that cannot be encoded")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Offer> {
        postcard::from_bytes(bytes.strip_prefix(&[FORMAT])?).ok()
    }
}

impl Request {
    pub(crate) fn encode(&self) -> Bytes {
        postcard::to_extend(self, vec![FORMAT]).expect("a request has nothing that cannot be encoded").into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Request> {
        postcard::from_bytes(bytes.strip_prefix(&[FORMAT])?).ok()
    }
}

/// The next chunk of the shard's rows behind `after`.
pub(crate) fn chunk(rows: &dyn Read, spans: &[(Vec<u8>, Vec<u8>)], after: Option<&[u8]>) -> Result<Bytes, TreeError> {
    let (mut found, mut bytes, mut last) = (Vec::new(), 0, true);
    'spans: for (from, to) in spans {
        // The least key behind the last one.
        let next = after.map(|after| [after, &[0]].concat());
        let from = next.filter(|next| next > from).unwrap_or_else(|| from.clone());
        for row in rows.range(&from, to) {
            if bytes >= CHUNK_BYTES {
                last = false;
                break 'spans;
            }
            let (key, value) = row?;
            bytes += key.len() + value.len();
            found.push((key, value));
        }
    }
    Ok(encode(&found, last))
}

fn encode(rows: &[Row], last: bool) -> Bytes {
    let mut out = vec![FORMAT, u8::from(last)];
    out.put_u32_le(rows.len() as u32);
    for (key, value) in rows {
        for part in [key, value] {
            out.put_u32_le(part.len() as u32);
            out.put_slice(part);
        }
    }
    let crc = checksum(CrcAlgorithm::Crc64Nvme, &out);
    out.put_u64_le(crc);
    out.into()
}

/// The rows of a chunk and whether it is the last; `None`: it is not whole.
pub(crate) fn decode(chunk: &Bytes) -> Option<(Vec<Row>, bool)> {
    let end = chunk.len().checked_sub(CRC_BYTES)?;
    let mut rest = chunk.slice(..end);
    if chunk.slice(end..).try_get_u64_le().ok()? != checksum(CrcAlgorithm::Crc64Nvme, &rest) {
        return None;
    }
    if rest.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let last = rest.try_get_u8().ok()? == 1;
    let count = rest.try_get_u32_le().ok()?;
    let mut rows = Vec::new();
    for _ in 0..count {
        rows.push((part(&mut rest)?, part(&mut rest)?));
    }
    rest.is_empty().then_some((rows, last))
}

fn part(rest: &mut Bytes) -> Option<Bytes> {
    let len = rest.try_get_u32_le().ok()? as usize;
    (len <= rest.len()).then(|| rest.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::{Offer, Request, decode, encode};
    use crate::shard::{KeyRange, Shard, ShardId};
    use bytes::Bytes;

    #[test]
    fn chunks_have_their_golden_bytes_and_any_flipped_bit_is_noticed() {
        let rows =
            vec![(Bytes::from_static(b"k"), Bytes::from_static(b"vw")), (Bytes::from_static(b"l"), Bytes::new())];
        let chunk = encode(&rows, true);
        assert_eq!(
            chunk[..chunk.len() - 8],
            [1, 1, 2, 0, 0, 0, 1, 0, 0, 0, b'k', 2, 0, 0, 0, b'v', b'w', 1, 0, 0, 0, b'l', 0, 0, 0, 0]
        );
        assert_eq!(decode(&chunk), Some((rows, true)));
        for bit in 0..chunk.len() * 8 {
            let mut hurt = chunk.to_vec();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&hurt.into()), None, "bit {bit}");
        }
        for len in 0..chunk.len() {
            assert_eq!(decode(&chunk.slice(..len)), None, "{len} bytes");
        }
    }

    #[test]
    fn offers_and_requests_come_back_and_others_are_refused() {
        let shard = Shard { id: ShardId(3), range: KeyRange::ALL, version: 1 };
        let offer = Offer { id: 7, shard };
        assert_eq!(offer.encode(), vec![1, 7, 3, 0, 0, 1]);
        assert_eq!(Offer::decode(&offer.encode()), Some(offer));
        let request = Request { id: 7, shard: ShardId(3), after: Some(vec![9]) };
        assert_eq!(request.encode().to_vec(), vec![1, 7, 3, 1, 1, 9]);
        assert_eq!(Request::decode(&request.encode()), Some(request));
        assert_eq!((Offer::decode(&[2, 7, 3, 0, 0, 1]), Request::decode(&[])), (None, None));
    }
}
