//! The joiner at work: from door to door, over TLS, until it is in or is told why not.
//!
//! Promises: what [`Joiner`] promises; the secret goes through a connection whose other end has proved the key that the token names.
//! Refuses to know: what is done with the map.

use crate::heartbeats::SERVICE;
use crate::join::{JoinAnswer, JoinError, JoinRequest, JoinStep, Joiner};
use crate::limits::{JOIN_TIMEOUT, JOIN_WAIT};
use crate::token::Door;
use crate::wire::ClusterMessage;
use env::Env;
use rpc::Message;
use rpc::tcp::{Identity, knock};
use types::NodeId;
use types::cluster::Map;

/// Joins. Safe to be tried again with the same joiner's key and token, whatever became of it.
pub async fn join(env: &Env, mut joiner: Joiner) -> Result<(NodeId, Map), JoinError> {
    let identity = joiner.tls();
    loop {
        let (door, request) = joiner.ask();
        let answer = ask(env, &identity, door, request).await;
        if let Err(why) = &answer {
            tracing::warn!(node = door.node, address = door.address, why, "no answer from this node of the join token");
        }
        match joiner.answered(answer) {
            JoinStep::Ask { wait: false } => {}
            JoinStep::Ask { wait: true } => env.timers.sleep(JOIN_WAIT).await,
            JoinStep::Joined { node, map } => return Ok((node, map)),
            JoinStep::Failed(error) => return Err(error),
        }
    }
}

async fn ask(env: &Env, identity: &Identity, door: &Door, request: JoinRequest) -> Result<JoinAnswer, String> {
    let head = ClusterMessage::Join(Box::new(request)).encode().into();
    let message = Message { head, ..Message::default() };
    let at = (door.node, door.address.as_str(), door.key.0);
    let answer = knock(env, identity, at, SERVICE, message, JOIN_TIMEOUT).await.map_err(|error| error.to_string())?;
    match ClusterMessage::decode(&answer.body) {
        Ok(ClusterMessage::Joined(answer)) => Ok(*answer),
        Ok(_) => Err("the answer is of another kind".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
