//! Messages of service 4 as bytes: kind (1), version (1), postcard. Fields are only added with a new version.
//!
//! Promises: bytes from the network are an error or a value, never a panic and never more memory than they are long.

use crate::join::{JoinAnswer, JoinRequest};
use crate::limits::MESSAGE_BYTES;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{ClusterId, NodeId};

const VERSION: u8 = 1;

/// A message of this service.
#[derive(Clone, PartialEq, Debug)]
pub enum ClusterMessage {
    /// Sent, not answered.
    Heartbeat(Heartbeat),
    /// Called.
    Join(Box<JoinRequest>),
    /// Its answer.
    Joined(Box<JoinAnswer>),
}

/// What a node says to another four times a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Of which cluster.
    pub cluster: ClusterId,
    /// Starts of the sender.
    pub incarnation: u64,
    /// Epoch of the map that the sender has.
    pub epoch: u64,
    /// Counted from 1 in each start, over all receivers: older ones that arrive late are not heard.
    pub sequence: u64,
    /// The sender's monotonic clock. Only the sender ever compares it.
    pub sent_us: u64,
    /// The sender's wall clock.
    pub wall_ms: u64,
    /// The newest that the sender heard from the receiver.
    pub echo: Option<Echo>,
    /// What the sender sees of the others.
    pub seen: Vec<Seen>,
}

/// Which heartbeat was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Echo {
    /// The receiver's incarnation in it.
    pub incarnation: u64,
    /// The receiver's clock in it.
    pub sent_us: u64,
    /// How long ago it was heard.
    pub held_us: u64,
}

/// What one node sees of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Whom.
    pub node: NodeId,
    /// For how long there was no round trip.
    pub silent_ms: u32,
    /// Usual round trip of heartbeats; 0: not known.
    pub round_trip_us: u32,
    /// Usual time of the work that was asked of it; 0: none lately.
    pub service_us: u32,
}

/// Bytes that are no message of this service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a message of the cluster service: {0}")]
pub struct WireError(pub &'static str);

impl ClusterMessage {
    /// To bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ClusterMessage::Heartbeat(heartbeat) => encode(1, heartbeat),
            ClusterMessage::Join(request) => encode(2, request),
            ClusterMessage::Joined(answer) => encode(3, answer),
        }
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<ClusterMessage, WireError> {
        let (head, body) = bytes.split_first_chunk::<2>().ok_or(WireError("too short"))?;
        if bytes.len() > MESSAGE_BYTES {
            return Err(WireError("too long"));
        }
        match head {
            [1, VERSION] => Ok(ClusterMessage::Heartbeat(whole(body)?)),
            [2, VERSION] => Ok(ClusterMessage::Join(whole(body)?)),
            [3, VERSION] => Ok(ClusterMessage::Joined(whole(body)?)),
            [1..=3, _] => Err(WireError("a version that is not known here")),
            _ => Err(WireError("a kind that is not known here")),
        }
    }
}

fn encode<T: Serialize>(kind: u8, value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![kind, VERSION]).expect("messages are plain values and a vector takes all bytes")
}

fn whole<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(WireError("bytes after the message")),
        Err(_) => Err(WireError("damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterMessage, Echo, Heartbeat, Seen};
    use proptest::prelude::*;
    use types::ClusterId;

    fn heartbeat() -> ClusterMessage {
        ClusterMessage::Heartbeat(Heartbeat {
            cluster: ClusterId(7),
            incarnation: 2,
            epoch: 300,
            sequence: 3,
            sent_us: 4,
            wall_ms: 5,
            echo: Some(Echo { incarnation: 6, sent_us: 7, held_us: 8 }),
            seen: vec![Seen { node: 9, silent_ms: 10, round_trip_us: 11, service_us: 12 }],
        })
    }

    #[test]
    fn a_heartbeat_is_these_bytes() {
        let bytes = heartbeat().encode();
        assert_eq!(hex::encode(&bytes), "01010702ac0203040501060708010".to_owned() + "90a0b0c");
        assert_eq!(ClusterMessage::decode(&bytes), Ok(heartbeat()));
        for cut in 0..bytes.len() {
            assert!(ClusterMessage::decode(&bytes[..cut]).is_err());
        }
        let mut newer = bytes;
        newer[1] = 2;
        assert!(ClusterMessage::decode(&newer).is_err(), "a version not known is refused");
    }

    proptest! {
        #[test]
        fn bytes_from_the_network_never_panic(kind in 0u8..5, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut all = vec![kind, 1];
            all.extend_from_slice(&bytes);
            let _ = ClusterMessage::decode(&all);
            let _ = ClusterMessage::decode(&bytes);
        }
    }
}
