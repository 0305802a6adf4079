//! Messages over TCP and TLS.
//!
//! Promises: both sides of a connection are nodes that the current map lists, each by the key it shows, and a connection ends soon after
//! the map changes its mind; nothing a peer sends, or does not read, makes memory grow without bound; a peer that falls silent is
//! noticed in seconds. Refuses to know: which services exist (it is told which carry bulk), where the map comes from.
//!
//! Each node keeps two connections to each other node it has something to say to, one for bulk and one for the rest, and answers come
//! back on the one the call went. [`Peers`] makes connections, [`Listener`] takes them.

mod identity;
mod knock;
mod link;
mod listener;
mod outbox;
mod peers;
mod serve;
mod tls;
mod trust;

use crate::Service;
use env::Env;
use env::buf::BufPool;
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

pub use identity::{Identity, IdentityError};
pub use knock::knock;
pub use listener::{Admission, Listener};
pub use peers::Peers;
pub use trust::{KeySha256, Trust};

/// What both halves are made of. Cheap to clone.
#[derive(Clone)]
pub struct TcpConfig {
    /// This node.
    pub node: NodeId,
    /// By which others know it.
    pub identity: Identity,
    /// By which it knows others.
    pub trust: Arc<dyn Trust>,
    /// Clock, timers, tasks. They must be the real ones: the sockets are.
    pub env: Env,
    /// Services whose messages go on connections of their own, so that nothing small waits behind them.
    pub bulk: Arc<[Service]>,
    /// Memory for long messages that come in calls. A call for which there is none is refused.
    pub call_memory: BufPool,
    /// Memory for long answers. One for which there is none is lost. Not the same pool: what calls hold is freed by disks, what
    /// answers hold is freed by clients, who may be slow.
    pub answer_memory: BufPool,
    /// How often peers are asked whether they are there.
    pub pace: Pace,
}

/// Times of a connection. All nodes use the same: whoever listens expects pings at this pace.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The connecting side asks so often; the accepting side looks so often for silence.
    pub ping: Duration,
    /// A peer of which nothing was read in so many of these intervals is taken for dead, and its connection ends.
    pub silent_pings: u32,
    /// A node that could not be reached is left alone for so long, then for longer.
    pub first_rest: Duration,
    /// But not longer than this.
    pub longest_rest: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            ping: Duration::from_millis(1500),
            silent_pings: 3,
            first_rest: Duration::from_millis(50),
            // Raft's messages are dropped meanwhile: less than an election's timeout.
            longest_rest: Duration::from_millis(800),
        }
    }
}

/// Which of a pair's connections a message takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Control,
    Bulk,
}

impl TcpConfig {
    fn class(&self, service: Service) -> Class {
        if self.bulk.contains(&service) { Class::Bulk } else { Class::Control }
    }
}
