//! How the curator works.

use crate::limits;
use env::Env;
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
        }
    }
}
