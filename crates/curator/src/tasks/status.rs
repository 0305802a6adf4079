//! What people are told of redundancy.
//!
//! Promises: names and units of the admin API. Refuses to know: how it is shown.

use crate::plan::census::{Amount, Census, PRIORITIES};
use crate::plan::{Kind, Task};
use serde::{Deserialize, Serialize};
use types::NodeId;

pub use crate::plan::census::Standing;

/// One node's view of all records, and what it does itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyStatus {
    /// Who answers.
    pub node: NodeId,
    /// All groups, as of the last plan.
    pub census: Census,
    /// How old that is; `None`: nothing was planned yet.
    pub planned_ms_ago: Option<u64>,
    /// The most urgent tasks of this node, those under way first.
    pub tasks: Vec<TaskStatus>,
    /// Tasks of this node under way.
    pub running: u64,
    /// Tasks of this node that wait, by priority from 1 on.
    pub waiting: [Amount; PRIORITIES],
    /// Done by this node since its start, by priority from 1 on.
    pub done: [Amount; PRIORITIES],
    /// How often a task of this node could not be done at once.
    pub waited: u64,
    /// Bytes copied and verified by this node since its start.
    pub copied_bytes: u64,
    /// The same over the last seconds.
    pub bytes_per_second: u64,
    /// Of the usual pace of background work, for clients come first.
    pub pace_percent: u64,
    /// For how long the limits are lifted.
    pub boost_ms: Option<u64>,
    /// Why something waited last.
    pub last_error: Option<String>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Whose it is.
    pub node: NodeId,
    /// The group.
    pub group: String,
    /// What is done to it.
    pub kind: Kind,
    /// 1 is the most urgent.
    pub priority: u8,
    /// Places where the group can be read.
    pub readable: usize,
    /// Bytes of a copy.
    pub bytes: u64,
    /// For how long it has been under way; `None`: it waits.
    pub running_ms: Option<u64>,
}

impl TaskStatus {
    pub(super) fn of(task: &Task, node: NodeId, running_ms: Option<u64>) -> TaskStatus {
        let Task { group, kind, priority, readable, bytes, .. } = task.clone();
        TaskStatus { node, group: group.to_string(), kind, priority, readable, bytes, running_ms }
    }
}
