//! How the curator works.

use crate::limits;
use crate::view::View;
use env::Env;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Companions, and the knobs of a node.
#[derive(Clone)]
pub struct Config {
    /// Clock, randomness, tasks.
    pub env: Env,
    /// Wait between condemning and reclaiming: a margin against our own mistakes (protocols.md 5).
    pub reclaim_delay: Duration,
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
            scrub_bytes: limits::SCRUB_BYTES_PER_ROUND,
            scrub_every: Duration::from_secs(24 * 3600),
            unexplained_floor_bytes: limits::UNEXPLAINED_FLOOR_BYTES,
            quarantine: Duration::from_secs(7 * 24 * 3600),
            barrier: None,
            leads: Arc::new(|| true),
            view: Arc::new(View::default),
        }
    }
}
