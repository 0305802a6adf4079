//! The curator of a running node: rounds and the tasks of redundancy in the background, scrub and audit when asked.
//!
//! Promises: two tasks, which their owner ends with [`Curator::stop`]; it rests longer when there is nothing to do.
//! Refuses to know: what a round does.

use crate::audit::report::AuditReport;
use crate::config::Config;
use crate::error::CuratorError;
use crate::limits;
use crate::rounds::{Rounds, Status};
use crate::scrub::ScrubReport;
use crate::tasks::Redundancy;
use crate::tasks::status::RedundancyStatus;
use object_controller::Controller;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A handle on the background tasks.
pub struct Curator {
    rounds: Arc<Rounds>,
    redundancy: Redundancy,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Curator {
    /// Starts the tasks on the runtime that this is called in.
    pub fn start(controller: Controller, config: Config) -> Curator {
        let redundancy = Redundancy::new(controller.metadata().node(), controller.clone(), config.clone());
        let rounds = Arc::new(Rounds::new(controller, config));
        let (stop, stopped) = watch::channel(false);
        let tasks = vec![tokio::spawn(run(rounds.clone(), stopped)), tokio::spawn(redundancy.clone().run())];
        Curator { rounds, redundancy, stop, tasks: Mutex::new(tasks) }
    }

    /// Ends the tasks; work in progress ends at its next step. Audits and scrubs that run are answered with an error.
    pub async fn stop(&self) {
        self.rounds.stop();
        self.redundancy.stop();
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "the curator ended badly");
            }
        }
    }

    /// What is done about copies that are missing or surplus.
    pub fn redundancy(&self) -> &Redundancy {
        &self.redundancy
    }

    /// Plans anew, from the records as they are now; if `fully`, the files of this node are compared with the records as well, in the
    /// next round.
    pub async fn scan(&self, fully: bool) -> Result<RedundancyStatus, CuratorError> {
        if fully {
            self.rounds.compare_again();
        }
        self.redundancy.scan().await
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
