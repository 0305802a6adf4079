//! Who is there: a failure detector without I/O, the same state machine on every node.
//!
//! **One measure.** Every heartbeat carries its sender's clock and gives back the newest clock that it heard from the receiver. So a
//! node knows, by its own monotonic clock alone, when it last *completed a round trip* with each peer. A link that loses one direction
//! completes none and is broken for both ends alike: nobody is half there.
//!
//! **Witnesses.** Each heartbeat says for how long its sender's links to all others have been silent. A verdict counts members of the
//! cluster that say so themselves, in a heartbeat which answers one of ours of the last 1.5 s; nothing is extrapolated. With n members:
//!
//! * *down* needs n/2 witnesses (rounded up) without a round trip for 5 s. If a majority hears the node (itself among them), fewer than
//!   n/2 are left to say so: a node that a majority hears is never declared down, whatever is lost, delayed or doubled.
//! * *suspect* is the same with 2 s.
//! * *up again* needs more than n/2 that hear it (itself among them), without a break for 2 s. Between the two thresholds a verdict
//!   stays as it is: a link that comes and goes does not make it flap.
//! * A node that nobody hears is declared within 7 s by every node that hears at least half of the cluster (itself among them).
//!
//! With two members half is one: each may declare the other, and root, which one of them carries, decides whose word counts.
//!
//! **Pauses.** A node that was stopped (SIGSTOP, a frozen machine) finds everybody silent when it wakes. What passed between two ticks
//! beyond a second is its own pause and not held against anybody; what it heard before does not count any more.
//!
//! **Slow.** Each witness compares a node with the median of the others *as the witness sees them*, so one that is slow itself blames
//! nobody (rule R70). Half of the cluster must agree for 5 s.
//!
//! Promises: the above; a pure function of what it is told and the times it is given. Refuses to know: clocks, the network, what is
//! done about a verdict.

mod peer;

use crate::limits::{HEARTBEAT, PAUSE, RECOVER};
use crate::wire::{Heartbeat, Seen};
use peer::{Peer, View, Votes};
use std::collections::BTreeMap;
use std::time::Duration;
use types::cluster::Map;
use types::{ClusterId, NodeId};

/// What the cluster thinks of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Health {
    /// Heard.
    Up,
    /// Half of the cluster has not heard it for 2 s: nothing new goes to it.
    Suspect,
    /// Half of the cluster has not heard it for 5 s.
    Down,
}

/// A change of mind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// About whom.
    pub node: NodeId,
    /// From now on.
    pub health: Health,
    /// From now on: half of the cluster finds it slow.
    pub slow: bool,
}

/// Who this node is, in its heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Me {
    /// Cluster.
    pub cluster: ClusterId,
    /// Id.
    pub node: NodeId,
    /// Start.
    pub incarnation: u64,
}

/// The state machine. Times are of this node's monotonic clock.
#[derive(Debug)]
pub struct Detector {
    me: Me,
    /// Whether this node is a member, and so a witness.
    counts: bool,
    peers: BTreeMap<NodeId, Peer>,
    ticked: Option<Duration>,
    sequence: u64,
}

impl Detector {
    /// Of a node that begins to listen; it knows nobody yet.
    pub fn new(me: Me) -> Detector {
        Detector { me, counts: false, peers: BTreeMap::new(), ticked: None, sequence: 0 }
    }

    /// Whom to watch. A node that is new here is taken for heard at this moment.
    pub fn set_map(&mut self, map: &Map, now: Duration) {
        self.counts = map.nodes.get(&self.me.node).is_some_and(|node| node.state.is_member());
        let watched = |node: NodeId| node != self.me.node && map.nodes.get(&node).is_some_and(|n| n.state.is_trusted());
        self.peers.retain(|node, _| watched(*node));
        for node in map.nodes.values().filter(|node| watched(node.id)) {
            let peer = self.peers.entry(node.id).or_insert_with(|| Peer::new(now));
            peer.counts = node.state.is_member();
            peer.raise_incarnation(node.start.incarnation);
        }
    }

    /// The next heartbeat for `to`.
    pub fn heartbeat(&mut self, to: NodeId, epoch: u64, now: Duration, wall_ms: u64) -> Heartbeat {
        self.sequence += 1;
        let seen = self.peers.iter().filter(|(node, _)| **node != to).map(|(node, peer)| peer.seen(*node, now));
        Heartbeat {
            cluster: self.me.cluster,
            incarnation: self.me.incarnation,
            epoch,
            sequence: self.sequence,
            sent_us: micros(now),
            wall_ms,
            echo: self.peers.get(&to).and_then(|peer| peer.echo(now)),
            seen: seen.collect(),
        }
    }

    /// Takes a heartbeat. One of another cluster, of an old image of the node, or older than one that was heard is not heard.
    pub fn heard(&mut self, from: NodeId, heartbeat: Heartbeat, now: Duration, wall_ms: u64) {
        if heartbeat.cluster != self.me.cluster {
            return;
        }
        let me = self.me;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heard(&me, heartbeat, now, wall_ms);
        }
    }

    /// How long a piece of work took that was asked of a node, such as a synced append.
    pub fn observe(&mut self, node: NodeId, took: Duration, now: Duration) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.observe(took, now);
        }
    }

    /// To be called every `HEARTBEAT`, before the heartbeats are sent. Gives what has changed.
    pub fn tick(&mut self, now: Duration) -> Vec<Verdict> {
        let passed = self.ticked.map_or(HEARTBEAT, |last| now.saturating_sub(last));
        self.ticked = Some(now);
        if passed > PAUSE {
            self.peers.values_mut().for_each(|peer| peer.forgive(passed, now));
        }
        let votes: Vec<_> = self.peers.keys().map(|node| (*node, self.votes(*node, now))).collect();
        let mut verdicts = Vec::new();
        for (node, votes) in votes {
            if let Some(peer) = self.peers.get_mut(&node)
                && peer.judge(&votes, now, RECOVER)
            {
                verdicts.push(Verdict { node, health: peer.health, slow: peer.slow });
            }
        }
        verdicts
    }

    /// What the witnesses say of a node now.
    fn votes(&self, about: NodeId, now: Duration) -> Votes {
        let members = self.peers.values().filter(|peer| peer.counts).count() + usize::from(self.counts);
        let is_member = self.peers.get(&about).is_some_and(|peer| peer.counts);
        let mut votes = Votes::new(members, is_member);
        if self.counts {
            let own: Vec<Seen> = self.peers.iter().map(|(node, peer)| peer.seen(*node, now)).collect();
            votes.add(View { seen: &own }, about);
        }
        for (_, peer) in self.peers.iter().filter(|(node, peer)| **node != about && peer.counts) {
            if let Some(seen) = peer.report(now) {
                votes.add(View { seen }, about);
            }
        }
        votes
    }

    /// What is thought of a node; `None` if the map does not have it. Of itself a node thinks well.
    pub fn health(&self, node: NodeId) -> Option<Health> {
        if node == self.me.node { Some(Health::Up) } else { self.peers.get(&node).map(|peer| peer.health) }
    }

    /// Whether half of the cluster finds it slow.
    pub fn is_slow(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.slow)
    }

    /// Whether this node itself has completed no round trip with it for 2 s: another way to it does not help a call of ours.
    pub fn is_silent_to_us(&self, node: NodeId, now: Duration) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.is_silent(now))
    }

    /// Whether this node hears less than half of the cluster, itself included: its verdicts stand still, and it had better say so.
    pub fn is_cut_off(&self, now: Duration) -> bool {
        let members = self.peers.values().filter(|peer| peer.counts).count() + usize::from(self.counts);
        let heard =
            self.peers.values().filter(|peer| peer.counts && !peer.is_silent(now)).count() + usize::from(self.counts);
        2 * heard < members
    }

    /// The newest epoch that anybody spoke of.
    pub fn newest_epoch(&self) -> u64 {
        self.peers.values().map(|peer| peer.epoch).max().unwrap_or(0)
    }

    /// How far the wall clocks of the others are ahead of ours, in the median; `None` if none was compared.
    pub fn clocks_ahead_ms(&self) -> Option<i64> {
        let mut offsets: Vec<i64> = self.peers.values().filter_map(|peer| peer.ahead_ms).collect();
        offsets.sort_unstable();
        offsets.get(offsets.len() / 2).copied()
    }

    /// Nodes to send heartbeats to.
    pub fn others(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
