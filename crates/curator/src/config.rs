//! How the curator works.

use crate::limits;
use crate::view::{DiskState, View};
use env::Env;
use object_controller::strips::code_of_cluster;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A code, k and m, and milliseconds.
pub type OfCluster = (Option<(u8, u8)>, u64);

/// Companions, and the knobs of a node.
#[derive(Clone)]
pub struct Config {
    /// Clock, randomness, tasks.
    pub env: Env,
    /// Wait between condemning and reclaiming: a margin against our own mistakes (protocols.md 5).
    pub reclaim_delay: Duration,
    /// How late an entry may be appended after it was proposed, where it comes from another node: the least delay in a cluster.
    pub entries_late: Duration,
    /// Bytes a pass of the background scrub verifies in one round; 0: no background scrub.
    pub scrub_bytes: u64,
    /// Least time from the beginning of one background pass to the next.
    pub scrub_every: Duration,
    /// Bytes without an owner that settling may call dead since the start without being stopped, however small the store is;
    /// beyond this, 1 % of what is stored (rule R34).
    pub unexplained_floor_bytes: u64,
    /// How long a quarantined file is kept.
    pub quarantine: Duration,
    /// Makes reads linearizable where this node is not the only one that commits; `None` on a node alone.
    pub barrier: Option<Arc<dyn Barrier>>,
    /// Whether this node is the one that looks after what all nodes share: groups of ended sessions, settling, reclaiming, the
    /// space of dead frames, lost disks. Every step is a compare-and-set on a record, so two that believe so do no harm.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The disks of the cluster just now. With none, nothing is placed, added or trimmed.
    pub view: Arc<dyn Fn() -> View + Send + Sync>,
    /// The code of buckets that leave it to the cluster, if it has one, and the least milliseconds from a group's seal to its encoding.
    pub erasure: fn(&View) -> OfCluster,
    /// Whether clients wait just now: background work slows down.
    pub pressed: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A linearizable moment.
pub trait Barrier: Send + Sync {
    /// Done when everything that was committed in any shard before this call is applied on this node.
    fn pass(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
}

impl Config {
    /// The defaults of a server.
    pub fn new(env: Env) -> Config {
        Config {
            env,
            reclaim_delay: Duration::from_secs(600),
            entries_late: limits::ENTRIES_LATE,
            scrub_bytes: limits::SCRUB_BYTES_PER_ROUND,
            scrub_every: Duration::from_secs(24 * 3600),
            unexplained_floor_bytes: limits::UNEXPLAINED_FLOOR_BYTES,
            quarantine: Duration::from_secs(7 * 24 * 3600),
            barrier: None,
            leads: Arc::new(|| true),
            view: Arc::new(View::default),
            erasure: by_cluster,
            pressed: Arc::new(|| false),
        }
    }
}

/// What so many nodes have, after a week (protocols.md 12).
fn by_cluster(view: &View) -> OfCluster {
    let here = view.disks.values().filter(|disk| disk.state != DiskState::Lost);
    let nodes = here.map(|disk| disk.node).collect::<BTreeSet<_>>().len();
    let after_ms = u64::try_from(limits::ENCODE_AFTER.as_millis()).unwrap_or(u64::MAX);
    (code_of_cluster(nodes), after_ms)
}
