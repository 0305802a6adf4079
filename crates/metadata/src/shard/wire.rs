//! Raft messages of all groups for one node, as one batch of bytes.
//!
//! ```text
//! batch    format u8, then messages: shard u32, length u32, eraftpb.Message; little-endian
//! ```
//!
//! Promises: decoding never panics; what is not a batch is refused from there on. Refuses to know: what messages mean; that they
//! are whole, which the transport checks.

use super::ShardId;
use bytes::{Buf, Bytes};
use protobuf::Message as _;
use raft::eraftpb::Message;
use std::collections::BTreeMap;
use types::NodeId;

const FORMAT: u8 = 1;
/// A batch for one node is begun anew when it has so many bytes: what one message of the transport holds.
const BATCH_BYTES: usize = 4 << 20;

/// Messages on their way out, by destination.
#[derive(Default)]
pub(super) struct Outbox {
    batches: BTreeMap<NodeId, Vec<Vec<u8>>>,
}

impl Outbox {
    /// Adds a message.
    pub(super) fn push(&mut self, shard: ShardId, message: &Message) {
        let Ok(to) = NodeId::try_from(message.to) else { return };
        let Ok(bytes) = message.write_to_bytes() else { return };
        let batches = self.batches.entry(to).or_default();
        if batches.last().is_none_or(|batch| batch.len() + bytes.len() > BATCH_BYTES) {
            batches.push(vec![FORMAT]);
        }
        if let Some(batch) = batches.last_mut() {
            batch.extend_from_slice(&shard.0.to_le_bytes());
            batch.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            batch.extend_from_slice(&bytes);
        }
    }

    /// The batches, in order for each node.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (NodeId, Bytes)> {
        let batches = std::mem::take(&mut self.batches);
        batches.into_iter().flat_map(|(to, batches)| batches.into_iter().map(move |batch| (to, batch.into())))
    }
}

/// The messages of a batch, as far as it is one.
pub(super) fn decode(mut batch: Bytes) -> Vec<(ShardId, Message)> {
    let mut messages = Vec::new();
    if batch.try_get_u8() != Ok(FORMAT) {
        return messages;
    }
    while let Some(message) = next(&mut batch) {
        messages.push(message);
    }
    messages
}

fn next(batch: &mut Bytes) -> Option<(ShardId, Message)> {
    let shard = ShardId(batch.try_get_u32_le().ok()?);
    let len = batch.try_get_u32_le().ok()? as usize;
    let bytes = (len <= batch.len()).then(|| batch.split_to(len))?;
    let mut message = Message::default();
    message.merge_from_bytes(&bytes).ok()?;
    Some((shard, message))
}

#[cfg(test)]
mod tests {
    use super::{Outbox, decode};
    use crate::shard::ShardId;
    use raft::eraftpb::{Message, MessageType};

    #[test]
    fn a_batch_comes_back_and_any_part_of_it_is_no_panic() {
        let mut outbox = Outbox::default();
        let mut message = Message { from: 1, to: 2, term: 3, ..Message::default() };
        message.set_msg_type(MessageType::MsgHeartbeat);
        outbox.push(ShardId(7), &message);
        outbox.push(ShardId(0), &message);
        let batches: Vec<_> = outbox.take().collect();
        assert_eq!(batches.len(), 1);
        let (to, batch) = &batches[0];
        assert_eq!((*to, batch[0]), (2, 1));
        assert_eq!(decode(batch.clone()), vec![(ShardId(7), message.clone()), (ShardId(0), message)]);
        for len in 0..batch.len() {
            assert!(decode(batch.slice(..len)).len() < 2, "{len} bytes");
        }
        let mut other = batch.to_vec();
        other[0] = 2;
        assert!(decode(other.into()).is_empty(), "another format");
    }
}
