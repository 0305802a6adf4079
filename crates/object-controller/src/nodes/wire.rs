//! What gateways ask the nodes that lead shards, and each other: a version byte, then postcard.
//!
//! Promises: decoding never panics. Refuses to know: who answers.

use super::{Link, SERVICE};
use bytes::Bytes;
use metadata::command::{Entry, Outcome};
use metadata::node::ProposeError;
use metadata::shard::ShardId;
use rpc::{CallError, Message};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::time::Duration;
use types::NodeId;
use types::account::Credential;
use types::cluster::Map;

/// Version of what follows.
const FORMAT: u8 = 1;

/// A question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Append this, if you lead the shard, and say what apply answered.
    Propose {
        /// Shard.
        shard: ShardId,
        /// Not stamped yet.
        entry: Box<Entry>,
    },
    /// The shard's commit index, proved by a round, if you lead it.
    ReadIndex {
        /// Shard.
        shard: ShardId,
    },
    /// Pass a barrier of root: buckets and accounts are as they are now.
    Refresh,
    /// End the present epoch of pins: what is read later is pinned in a later one.
    EndEpoch,
    /// The lowest epoch that a read still holds.
    LowestPin,
    /// The root account with its keys: a node that joined without them.
    Root,
    /// The cluster map as it is applied there: a node that was away may not know those who would tell it.
    Map,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// To `Propose`: what apply said.
    Outcome(Box<Outcome>),
    /// To `Propose` and `ReadIndex`: there is no outcome.
    NotProposed(NotProposed),
    /// To `ReadIndex`.
    Index(u64),
    /// To `Refresh`.
    Fresh,
    /// To `EndEpoch` and `LowestPin`: an epoch of pins under this session.
    Epoch {
        /// The answering gateway's session: its epochs begin anew with each.
        session: u32,
        /// Which.
        epoch: u64,
    },
    /// To `Root`. Its `Debug` does not show the secret.
    Root(Box<Credential>),
    /// To `Map`; `None`: it was not born there.
    Map(Option<Box<Map>>),
}

/// [`ProposeError`], as it travels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum NotProposed {
    Busy,
    NoSpace,
    TooLarge,
    TooLate,
    NoSuchShard,
    NotLeader(Option<NodeId>),
    ReadOnly(String),
    /// Whether it happened is not known.
    Failed(String),
    Refused(String),
}

impl From<ProposeError> for NotProposed {
    fn from(error: ProposeError) -> NotProposed {
        match error {
            ProposeError::Busy => NotProposed::Busy,
            ProposeError::NoSpace => NotProposed::NoSpace,
            ProposeError::TooLarge => NotProposed::TooLarge,
            ProposeError::TooLate => NotProposed::TooLate,
            ProposeError::NoSuchShard => NotProposed::NoSuchShard,
            ProposeError::NotLeader(node) => NotProposed::NotLeader(node),
            ProposeError::ReadOnly(why) => NotProposed::ReadOnly(why),
            ProposeError::Failed(why) => NotProposed::Failed(why),
            ProposeError::Refused(why) => NotProposed::Refused(why),
        }
    }
}

impl From<NotProposed> for ProposeError {
    fn from(error: NotProposed) -> ProposeError {
        match error {
            NotProposed::Busy => ProposeError::Busy,
            NotProposed::NoSpace => ProposeError::NoSpace,
            NotProposed::TooLarge => ProposeError::TooLarge,
            NotProposed::TooLate => ProposeError::TooLate,
            NotProposed::NoSuchShard => ProposeError::NoSuchShard,
            NotProposed::NotLeader(node) => ProposeError::NotLeader(node),
            NotProposed::ReadOnly(why) => ProposeError::ReadOnly(why),
            NotProposed::Failed(why) => ProposeError::Failed(why),
            NotProposed::Refused(why) => ProposeError::Refused(why),
        }
    }
}

/// Asks one node.
pub(super) fn call(
    link: &Link,
    node: NodeId,
    ask: &Ask,
    timeout: Duration,
) -> impl Future<Output = Result<Answer, CallError>> + Send + 'static {
    let call = link.transport.call(node, SERVICE, encode(ask), timeout);
    async move {
        let message = call.await?;
        // An answer that is none: the other side may have acted.
        decode(&message.head).ok_or(CallError::Lost(node))
    }
}

/// As a message.
pub(super) fn encode(value: &impl Serialize) -> Message {
    let head = postcard::to_extend(value, vec![FORMAT]).expect("it has nothing that cannot be encoded");
    Message { head: head.into(), body: Bytes::new() }
}

/// `None`: not of this format.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes.strip_prefix(&[FORMAT])?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Answer, Ask, NotProposed, decode, encode};
    use metadata::command::{Command, Entry, Outcome, RootCommand};
    use metadata::shard::ShardId;
    use types::AttemptId;

    fn ask() -> Ask {
        let attempt = AttemptId { node: 1, session: 2, sequence: 300 };
        let command = Command::Root(RootCommand::NewSession { node: 1 });
        Ask::Propose { shard: ShardId(0), entry: Box::new(Entry { attempt, deadline_ms: 4, stamp_ms: 0, command }) }
    }

    #[test]
    fn questions_and_answers_have_their_golden_bytes() {
        let bytes = encode(&ask()).head;
        assert_eq!(bytes[..], [1, 0, 0, 1, 2, 0xac, 2, 4, 0, 2, 7, 1]);
        assert_eq!(decode(&bytes), Some(ask()));
        assert_eq!(encode(&Ask::ReadIndex { shard: ShardId(3) }).head[..], [1, 1, 3]);
        assert_eq!(encode(&Answer::Index(258)).head[..], [1, 2, 0x82, 2]);
        assert_eq!(encode(&Answer::NotProposed(NotProposed::NotLeader(Some(2)))).head[..], [1, 1, 5, 1, 2]);
        assert_eq!(encode(&Answer::Outcome(Box::new(Outcome::Done))).head[..], [1, 0, 0]);
        assert_eq!(encode(&Answer::Epoch { session: 3, epoch: 4 }).head[..], [1, 4, 3, 4]);
    }

    #[test]
    fn what_is_cut_off_or_of_another_format_is_no_message() {
        let bytes = encode(&ask()).head;
        for len in 0..bytes.len() {
            assert_eq!(decode::<Ask>(&bytes[..len]), None, "{len} bytes");
        }
        let mut other = bytes.to_vec();
        other[0] = 2;
        assert_eq!(decode::<Ask>(&other), None);
    }
}
