//! Root, as this node reaches it: changes of the map go through the controller, the map comes from the rows here.
//!
//! Promises: an answered change is in the map that is asked for next. Refuses to know: what a change means.

use super::map::MapWatch;
use cluster::root::{ChangeError, Root};
use metadata::command::{Command, Outcome, Refusal, RootCommand};
use metadata::shard::ROOT;
use object_controller::Controller;
use std::sync::{Arc, OnceLock};
use types::cluster::Map;
use types::cluster::command::{ClusterCommand, MapChange};

/// Cheap to clone; changes nothing before there is a controller.
#[derive(Clone)]
pub struct Gate {
    controller: Arc<OnceLock<Controller>>,
    map: MapWatch,
}

impl Gate {
    /// Closed still.
    pub fn new(map: MapWatch) -> Gate {
        Gate { controller: Arc::default(), map }
    }

    /// From now on changes go through this.
    pub fn open(&self, controller: Controller) {
        // Called once.
        let _ = self.controller.set(controller);
    }
}

impl Root for Gate {
    fn map(&self) -> Option<Arc<Map>> {
        if let Some(controller) = self.controller.get() {
            self.map.look(controller.metadata());
        }
        self.map.now()
    }

    fn change(&self, command: ClusterCommand) -> rpc::Boxed<Result<MapChange, ChangeError>> {
        let gate = self.clone();
        Box::pin(async move {
            let unknown = |why: String| Err(ChangeError::Unknown(why));
            let Some(controller) = gate.controller.get() else { return unknown("the node is starting".to_owned()) };
            let change = match controller.decide(ROOT, Command::Root(RootCommand::Cluster(command))).await {
                Ok(Ok(Outcome::Map(change))) => change,
                Ok(Err(Refusal::Cluster(refusal))) => return Err(refusal.into()),
                Ok(other) => return unknown(format!("{other:?}")),
                Err(error) => return unknown(error.to_string()),
            };
            match controller.position().await {
                Ok(_) => Ok(change),
                Err(error) => unknown(error.to_string()),
            }
        })
    }

    fn now_ms(&self) -> u64 {
        self.controller.get().map_or(0, |controller| controller.metadata().now_ms())
    }
}
