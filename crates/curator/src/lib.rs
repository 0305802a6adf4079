//! Seal, settle, reclaim, scrub, audit: never in the way of a client.

use env::Env;
use object_controller::Controller;
use std::time::Duration;

/// How the curator works.
#[derive(Clone)]
pub struct Config {
    /// Clock, randomness, tasks.
    pub env: Env,
    /// Wait between condemning and reclaiming.
    pub reclaim_delay: Duration,
}

impl Config {
    /// Defaults.
    pub fn new(env: Env) -> Config {
        Config { env, reclaim_delay: Duration::from_secs(600) }
    }
}

/// The node's curator.
pub struct Curator {
    controller: Controller,
}

impl Curator {
    /// Starts it.
    pub fn start(controller: Controller, _config: Config) -> Curator {
        Curator { controller }
    }

    /// Ends it.
    pub async fn stop(&self) {
        self.controller.tend().await;
    }

    /// What it does now.
    pub fn status(&self) -> &'static str {
        "idle"
    }

    /// Not there yet.
    pub async fn audit(&self, _report: impl FnMut(u64, u64, &str) + Send) -> Result<(), String> {
        Err("not there yet".to_owned())
    }

    /// Not there yet.
    pub async fn scrub(&self, _report: impl FnMut(u64, u64, &str) + Send) -> Result<(), String> {
        Err("not there yet".to_owned())
    }
}
