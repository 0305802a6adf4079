//! How redundancy stands in the whole cluster: one node's count of the records, and what each node does.
//!
//! Promises: a node that does not answer is named, and its work is not counted. Refuses to know: how nodes are asked.

use super::status::{RedundancyStatus, TaskStatus};
use crate::plan::census::{Amount, Census, PRIORITIES};
use serde::{Deserialize, Serialize};
use types::NodeId;

/// The whole cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overview {
    /// Every group has the copies it requires, by the records (rule R53).
    pub fully_redundant: bool,
    /// All groups, as counted by the node that was asked.
    pub census: Census,
    /// Tasks under way on all nodes.
    pub running: u64,
    /// Done since each node's start, by priority from 1 on.
    pub done: [Amount; PRIORITIES],
    /// Bytes copied and verified a second, all nodes together.
    pub bytes_per_second: u64,
    /// At that rate; `None`: nothing moves just now.
    pub seconds_to_full_redundancy: Option<u64>,
    /// For how long the limits are lifted, on the node where that is longest.
    pub boost_ms: Option<u64>,
    /// What each node does.
    pub nodes: Vec<NodeWork>,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeWork {
    /// Which.
    pub node: NodeId,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tasks under way.
    pub running: u64,
    /// Tasks that wait, by priority from 1 on.
    pub waiting: [Amount; PRIORITIES],
    /// Done since its start, by priority from 1 on.
    pub done: [Amount; PRIORITIES],
    /// Bytes copied and verified a second.
    pub bytes_per_second: u64,
    /// Of the usual pace.
    pub pace_percent: u64,
    /// Age of its last plan.
    pub planned_ms_ago: Option<u64>,
    /// Why something waited last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Overview {
    /// Of what the node that is asked knows, and what all nodes, itself among them, said. Before its first plan nothing is known, and
    /// so nothing is redundant.
    pub fn of(own: &RedundancyStatus, answers: Vec<(NodeId, Result<RedundancyStatus, String>)>) -> Overview {
        let census = own.census.clone();
        let fully_redundant = own.planned_ms_ago.is_some() && census.is_fully_redundant();
        let nodes: Vec<NodeWork> = answers.iter().map(|(node, answer)| NodeWork::of(*node, answer)).collect();
        let mut done = [Amount::default(); PRIORITIES];
        for (sum, each) in nodes.iter().flat_map(|node| (0..PRIORITIES).zip(node.done)) {
            done[sum].groups += each.groups;
            done[sum].bytes += each.bytes;
        }
        let bytes_per_second = nodes.iter().map(|node| node.bytes_per_second).sum();
        let seconds_to_full_redundancy = match (census.missing_bytes, bytes_per_second) {
            (0, _) if fully_redundant => Some(0),
            (_, 0) => None,
            (missing, rate) => Some(missing.div_ceil(rate)),
        };
        let boost_ms = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?.boost_ms).max();
        Overview {
            fully_redundant,
            census,
            running: nodes.iter().map(|node| node.running).sum(),
            done,
            bytes_per_second,
            seconds_to_full_redundancy,
            boost_ms,
            nodes,
        }
    }
}

impl NodeWork {
    fn of(node: NodeId, answer: &Result<RedundancyStatus, String>) -> NodeWork {
        let (status, error) = match answer {
            Ok(status) => (status.clone(), None),
            Err(error) => (RedundancyStatus::default(), Some(error.clone())),
        };
        NodeWork {
            node,
            error,
            running: status.running,
            waiting: status.waiting,
            done: status.done,
            bytes_per_second: status.bytes_per_second,
            pace_percent: status.pace_percent,
            planned_ms_ago: status.planned_ms_ago,
            last_error: status.last_error,
        }
    }
}

/// The tasks of all nodes that answered, those under way first, then the most urgent.
pub fn tasks_of(answers: Vec<(NodeId, Result<RedundancyStatus, String>)>) -> Vec<TaskStatus> {
    let answered = answers.into_iter().filter_map(|(_, answer)| answer.ok());
    let mut tasks: Vec<TaskStatus> = answered.flat_map(|status| status.tasks).collect();
    tasks.sort_by_key(|task| (task.running_ms.is_none(), task.priority, task.readable));
    tasks
}
