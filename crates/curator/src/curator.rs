//! The curator of a running node: rounds in the background, scrub and audit when asked.
//!
//! Promises: one task, which its owner ends with [`Curator::stop`]; it rests longer when there is nothing to do.
//! Refuses to know: what a round does.

use crate::audit::report::AuditReport;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::rounds::{Rounds, Status};
use crate::scrub::ScrubReport;
use object_controller::Controller;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A handle on the background task.
pub struct Curator {
    rounds: Arc<Rounds>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Curator {
    /// Starts the task on the runtime that this is called in.
    pub fn start(controller: Controller, config: Config) -> Curator {
        let rounds = Arc::new(Rounds::new(controller, config));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(rounds.clone(), stopped));
        Curator { rounds, stop, task: Mutex::new(Some(task)) }
    }

    /// Ends the task; work in progress ends at its next step. Audits and scrubs that run are answered with an error.
    pub async fn stop(&self) {
        self.rounds.stop();
        self.stop.send_replace(true);
        let task = self.task.lock().take();
        if let Some(Err(error)) = match task {
            Some(task) => Some(task.await),
            None => None,
        } {
            tracing::error!(%error, "the curator ended badly");
        }
    }

    /// What it did since the start, and what it waits for.
    pub fn status(&self) -> Status {
        self.rounds.status()
    }

    /// Proves that referenced extents are the stored extents. `report` is told (done, total, unit).
    pub async fn audit(&self, report: impl FnMut(u64, u64, &str) + Send) -> Result<AuditReport, CuratorError> {
        self.rounds.audit(report).await
    }

    /// Reads and verifies every replica, and repairs. `report` is told (done, total, unit).
    pub async fn scrub(&self, report: impl FnMut(u64, u64, &str) + Send) -> Result<ScrubReport, CuratorError> {
        self.rounds.scrub(report).await
    }
}

async fn run(rounds: Arc<Rounds>, mut stopped: watch::Receiver<bool>) {
    loop {
        let pause = match rounds.round().await {
            Ok(report) if report.is_idle() => limits::IDLE_PAUSE,
            Ok(_) => limits::BUSY_PAUSE,
            Err(CuratorError::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "a round ended early");
                limits::BUSY_PAUSE
            }
        };
        let stop = stopped.wait_for(|stop| *stop);
        if tokio::time::timeout(pause, stop).await.is_ok() {
            return;
        }
    }
}
